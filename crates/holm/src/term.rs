//! Output for the user, or for the program that reads it.

use crate::error::Error;
use parking_lot::Mutex;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// Why output was lost, if any was.
static LOST: Mutex<Option<io::Error>> = Mutex::new(None);

/// Writes a line to standard output. If that fails, [`written`] says so at the end.
pub(crate) fn say(line: impl Display) {
    remember(writeln!(io::stdout(), "{line}"));
}

/// Writes text without a line break to standard output, and flushes it.
pub(crate) fn say_part(text: impl Display) {
    let mut out = io::stdout();
    remember(write!(out, "{text}").and_then(|()| out.flush()));
}

/// Writes bytes as they are to standard output, and flushes it. Returns whether they were written.
pub(crate) fn say_bytes(bytes: &[u8]) -> bool {
    let mut out = io::stdout().lock();
    remember(out.write_all(bytes).and_then(|()| out.flush()))
}

/// Fails if output was lost, since a command that printed nothing must not look as if it had. It is
/// not an error if the reader is gone, for example `head`.
pub(crate) fn written() -> Result<(), Error> {
    LOST.lock()
        .take()
        .map_or(Ok(()), |error| Err(Error::io("write what the command prints")(error)))
}

/// Remembers a failure. Returns whether there was none.
fn remember(written: io::Result<()>) -> bool {
    let Err(error) = written else { return true };
    if error.kind() != io::ErrorKind::BrokenPipe {
        LOST.lock().get_or_insert(error);
    }
    false
}

/// Writes a line to standard error, so that programs reading the output do not see it.
pub(crate) fn note(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Style {
    Bold,
    Dim,
    Good,
    Warning,
    Bad,
}

/// Styles text for standard output, if that is a terminal and colour is not turned off.
pub(crate) fn styled(style: Style, text: impl Display) -> String {
    if !io::stdout().is_terminal() || plain() {
        return text.to_string();
    }
    paint(style, text)
}

/// Styles text for standard error.
pub(crate) fn styled_note(style: Style, text: impl Display) -> String {
    if !io::stderr().is_terminal() || plain() {
        return text.to_string();
    }
    paint(style, text)
}

/// True if colour is turned off. See no-color.org: any non-empty value does so.
fn plain() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

fn paint(style: Style, text: impl Display) -> String {
    let code = match style {
        Style::Bold => 1,
        Style::Dim => 2,
        Style::Good => 32,
        Style::Warning => 33,
        Style::Bad => 31,
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

/// Removes control characters from text that a server sent, since they could manipulate the
/// terminal.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\t' | '\n')).collect()
}
