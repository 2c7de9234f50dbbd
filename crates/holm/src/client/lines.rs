//! Reading lines of a streamed answer.

use reqwest::Response;
use std::time::Duration;

/// Longest accepted line, which also limits the buffer. Holm sends no longer ones.
const LINE_BYTES_MAX: usize = 8 << 20;

/// Reasons why there are no more lines.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The answer is complete.
    Ended,
    /// The connection broke, or nothing arrived for too long.
    Cut,
    TooLong,
}

pub(crate) struct Lines {
    response: Response,
    split: Split,
    /// Longest silence before the connection counts as cut.
    silence_max: Option<Duration>,
}

impl Lines {
    pub(crate) fn new(response: Response, silence_max: Option<Duration>) -> Self {
        Self { response, split: Split::default(), silence_max }
    }

    /// Returns the next line without its line break.
    pub(crate) async fn next(&mut self) -> Result<String, Stopped> {
        loop {
            if let Some(line) = self.split.next() {
                return Ok(line);
            }
            if self.split.held.len() > LINE_BYTES_MAX {
                return Err(Stopped::TooLong);
            }
            let piece = match self.silence_max {
                Some(longest) => match tokio::time::timeout(longest, self.response.chunk()).await {
                    Ok(piece) => piece,
                    Err(_) => return Err(Stopped::Cut),
                },
                None => self.response.chunk().await,
            };
            match piece {
                Ok(Some(piece)) => self.split.held.extend_from_slice(&piece),
                Ok(None) => return self.split.rest().ok_or(Stopped::Ended),
                Err(_) => return Err(Stopped::Cut),
            }
        }
    }
}

/// Splits bytes that arrive in pieces into lines.
#[derive(Default)]
struct Split {
    held: Vec<u8>,
    /// Everything before this position is known to contain no line break.
    searched: usize,
}

impl Split {
    fn next(&mut self) -> Option<String> {
        let found = self.held.get(self.searched..)?.iter().position(|byte| *byte == b'\n');
        let Some(at) = found.map(|at| at + self.searched) else {
            self.searched = self.held.len();
            return None;
        };
        let rest = self.held.split_off(at + 1);
        let mut line = std::mem::replace(&mut self.held, rest);
        self.searched = 0;
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Some(String::from_utf8_lossy(&line).into_owned())
    }

    /// Returns a last line that has no line break.
    fn rest(&mut self) -> Option<String> {
        self.searched = 0;
        let rest = std::mem::take(&mut self.held);
        (!rest.is_empty()).then(|| String::from_utf8_lossy(&rest).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_they_arrive(
            lines in proptest::collection::vec("[a-z ]{0,9}", 0..9), cut in 1..7_usize,
        ) {
            let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            let (mut split, mut found) = (Split::default(), Vec::new());
            for piece in text.as_bytes().chunks(cut) {
                split.held.extend_from_slice(piece);
                while let Some(line) = split.next() { found.push(line) }
            }
            prop_assert_eq!(found, lines);
            prop_assert_eq!(split.rest(), None);
        }
    }
}
