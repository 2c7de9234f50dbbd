//! Questions to whoever types the command, before it does what cannot be taken back.

use crate::error::Error;
use crate::term;
use std::io::{BufRead, IsTerminal};

/// What Enter alone means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Usual {
    Yes,
    No,
}

/// Asks for confirmation if there is somebody to ask. A program that runs the command has decided
/// already.
pub(super) fn agreed(question: &str, usual: Usual) -> Result<bool, Error> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(true);
    }
    let choices = if usual == Usual::Yes { "[Y/n]" } else { "[y/N]" };
    term::note(format!("{question}? {choices}"));
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(Error::io("read standard input"))?;
    // The end of the input is no answer.
    Ok(!line.is_empty() && is_yes(&line, usual))
}

fn is_yes(line: &str, usual: Usual) -> bool {
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => true,
        "" => usual == Usual::Yes,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enter_alone_is_the_usual_answer() {
        assert!(is_yes("\n", Usual::Yes) && !is_yes("\n", Usual::No));
        for usual in [Usual::Yes, Usual::No] {
            assert!(is_yes("Y\n", usual) && is_yes("yes\n", usual));
            assert!(!is_yes("n\n", usual) && !is_yes("what?\n", usual));
        }
    }
}
