//! Formatting an error together with its causes.

use std::error::Error;
use std::iter::successors;

/// Writes the error and its causes in one line, for whoever has to fix it.
pub fn chain(error: &dyn Error) -> String {
    let causes = successors(Some(error), |error| (**error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[derive(Debug, thiserror::Error)]
    #[error("the file cannot be read")]
    struct Unreadable(#[source] io::Error);

    #[test]
    fn every_cause_is_told_once() {
        let error = Unreadable(io::Error::other("the disk is full"));
        assert_eq!(chain(&error), "the file cannot be read: the disk is full");
    }
}
