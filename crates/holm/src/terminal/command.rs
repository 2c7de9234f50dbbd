//! A command on a terminal. The API can only open shells, so the command is typed into one, and the
//! shell prints marks before and after its output.

use super::{Ask, Over, attach, check, new_session};
use crate::client::workload::Workload;
use crate::error::Error;
use crate::exit::Exit;
use crate::shell;
use crate::term;
use serde_json::{Map, Value};

/// A control character that terminals ignore and programs do not use.
const MARK: char = '\u{1e}';
/// Terminals accept no longer lines.
const LINE_BYTES_MAX: usize = 4000;
/// Most digits of an exit code.
const CODE_CHARS_MAX: usize = 3;

pub(crate) async fn command(
    sandbox: &Workload,
    command: &str,
    variables: &Map<String, Value>,
    workdir: Option<String>,
) -> Result<Exit, Error> {
    check()?;
    let framed = Framed::new(command, variables)?;
    let ask = Ask { session: new_session(sandbox), shell: Some("/bin/sh".into()), workdir };
    let (over, framed) = attach(sandbox, &ask, Some(framed)).await?;
    Ok(match (over, framed.and_then(|framed| framed.code())) {
        (Over::Detached, _) => Exit::Success,
        (Over::Ended, Some(code)) => Exit::Program(code),
        (Over::Ended, None) => {
            term::note("the terminal ended before the command could tell how it ended");
            Exit::Failed
        }
        (Over::Asked | Over::Cut, _) => Exit::Interrupted,
    })
}

/// Finds the output of a command between two marks. The second mark contains its exit code.
pub(super) struct Framed {
    /// The line to type into the shell, until it was typed.
    line: Option<String>,
    place: Place,
}

enum Place {
    Before,
    Within,
    /// Digits of the exit code so far.
    Code(String),
    After(u8),
}

impl Framed {
    pub(super) fn new(command: &str, variables: &Map<String, Value>) -> Result<Self, Error> {
        let set = |(name, value): (&String, &Value)| {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(plain) {
                return Err(Error::Usage(format!("`{name}` cannot be the name of a variable")));
            }
            Ok(format!("export {name}={}; ", shell::quoted(value.as_str().unwrap_or_default())))
        };
        let exports = variables.iter().map(set).collect::<Result<String, Error>>()?;
        // The intermediate shell survives when Ctrl-C ends the command, and reports the exit code.
        let inner = "trap : INT QUIT; (eval \"unset HOLM_COMMAND; $HOLM_COMMAND\"); \
                     printf '\\036%d\\036' \"$?\"";
        let line = format!(
            "{exports}export HOLM_COMMAND={}; printf '\\036'; exec /bin/sh -c {}\r",
            shell::quoted(command),
            shell::quoted(inner)
        );
        // The shell's line editor would interpret other control characters.
        let typed = |c: char| !c.is_control() || c == '\r';
        if line.len() > LINE_BYTES_MAX || !line.chars().all(typed) {
            let message = "the command is too long for a terminal, or has control characters; put it into a file with `holm cp`";
            return Err(Error::Usage(message.into()));
        }
        Ok(Self { line: Some(line), place: Place::Before })
    }

    pub(super) fn take_line(&mut self) -> Option<String> {
        self.line.take()
    }

    pub(super) fn code(&self) -> Option<u8> {
        match self.place {
            Place::After(code) => Some(code),
            _ => None,
        }
    }

    /// Returns the part of the output that is to be shown.
    pub(super) fn take(&mut self, output: &str) -> String {
        let mut shown = String::with_capacity(output.len());
        for c in output.chars() {
            self.place = match std::mem::replace(&mut self.place, Place::Before) {
                Place::Before if c == MARK => Place::Within,
                Place::Within if c == MARK => Place::Code(String::new()),
                Place::Within => {
                    shown.push(c);
                    Place::Within
                }
                Place::Code(code) => read_code(code, c, &mut shown),
                same => same,
            };
        }
        shown
    }
}

/// Reads a character after a mark. A mark printed by the command itself has no exit code after it,
/// and is shown.
fn read_code(mut code: String, c: char, shown: &mut String) -> Place {
    match (c, code.parse()) {
        (MARK, Ok(code)) => Place::After(code),
        ('0'..='9', _) if code.len() < CODE_CHARS_MAX => {
            code.push(c);
            Place::Code(code)
        }
        _ => {
            shown.push(MARK);
            shown.push_str(&code);
            match c {
                MARK => Place::Code(String::new()),
                c => {
                    shown.push(c);
                    Place::Within
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn framed(pieces: &[&str]) -> (String, Option<u8>) {
        let mut framed = Framed::new("true", &Map::new()).unwrap();
        let shown = pieces.iter().map(|piece| framed.take(piece)).collect();
        (shown, framed.code())
    }

    #[test]
    fn only_what_the_command_prints_is_shown() {
        let seen = framed(&["$ export… printf '\\036'\r\n", "\u{1e}he", "llo\u{1e}4", "2\u{1e}$ "]);
        assert_eq!(seen, ("hello".into(), Some(42)));
        assert_eq!(
            framed(&["\u{1e}a\u{1e}b\u{1e}\u{1e}0\u{1e}"]),
            ("a\u{1e}b\u{1e}".into(), Some(0))
        );
    }

    #[test]
    fn what_cannot_be_typed_is_refused() {
        assert!(Framed::new(&"x".repeat(5000), &Map::new()).is_err());
        assert!(Framed::new("printf '\t'", &Map::new()).is_err());
        let odd = Map::from_iter([("A;rm".to_owned(), "b".into())]);
        assert!(Framed::new("true", &odd).is_err());
    }

    proptest! {
        #[test]
        fn output_is_shown_however_it_arrives(text in "[a-z0-9\u{1e}]{0,20}", cut in 1..4_usize) {
            let whole = format!("x\u{1e}{text}");
            let pieces: Vec<String> =
                whole.chars().collect::<Vec<_>>().chunks(cut).map(|piece| piece.iter().collect()).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            prop_assert_eq!(framed(&pieces), framed(&[&whole]));
        }
    }
}
