//! Writing to the person or the program that reads the output.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// Writes a line to standard output. A reader that has gone away, such as `head`, is not an error.
pub(crate) fn say(line: impl Display) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Writes text without a line end to standard output, at once.
pub(crate) fn say_part(text: impl Display) {
    let mut out = io::stdout();
    let _ = write!(out, "{text}").and_then(|()| out.flush());
}

/// Writes a line to standard error: what a program that reads the output should not see.
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

/// Styles text for standard output, if that is a terminal that wants colour.
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

/// See no-color.org: any value that is not empty turns colour off.
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

/// Text of the server without control characters, which could rewrite what a terminal shows.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\t' | '\n')).collect()
}
