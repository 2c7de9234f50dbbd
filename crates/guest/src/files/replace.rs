//! Replaces text in a file.

use super::access::{open_file, refuse};
use super::blocking::blocking;
use super::path::resolve;
use super::write;
use crate::http::{Error, JSON_BODY_BYTES_MAX};
use crate::instance::Instance;
use crate::route::PathArgument;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

pub(crate) struct Replacement {
    pub(crate) old: String,
    pub(crate) new: String,
    pub(crate) all: bool,
}

/// Replaces a text that occurs once, or every occurrence if `all` is set. Returns the number of
/// occurrences.
pub(crate) async fn replace(
    instance: &Arc<Instance>,
    argument: &PathArgument,
    replacement: Replacement,
) -> Result<usize, Error> {
    let (path, instance) = (resolve(instance, argument), instance.clone());
    blocking(move || {
        let content = read(&path).map_err(|error| refuse(&path, &error))?;
        let (content, count) = replacement.apply(&content)?;
        write::write(&path, content.as_bytes(), None, instance.settings.user.as_ref())?;
        Ok(count)
    })
    .await
}

fn read(path: &Path) -> io::Result<String> {
    let (file, metadata) = open_file(path)?;
    if metadata.len() > JSON_BODY_BYTES_MAX as u64 {
        return Err(too_long());
    }
    text_of(file)
}

/// Reads a text to its end. A file may grow while it is read, and what is read is written back, so
/// the rest of it must never be left out.
fn text_of(file: impl Read) -> io::Result<String> {
    let mut content = String::new();
    file.take(JSON_BODY_BYTES_MAX as u64 + 1).read_to_string(&mut content)?;
    match content.len() > JSON_BODY_BYTES_MAX {
        true => Err(too_long()),
        false => Ok(content),
    }
}

fn too_long() -> io::Error {
    io::Error::other(format!("the file has more than {JSON_BODY_BYTES_MAX} bytes"))
}

impl Replacement {
    fn apply(&self, content: &str) -> Result<(String, usize), Error> {
        if self.old.is_empty() || self.old == self.new {
            return Err(Error::BadRequest(
                "what is replaced must be there, and differ from what replaces it".into(),
            ));
        }
        match content.matches(&self.old).count() {
            0 => Err(Error::Unprocessable("the text to be replaced is not in the file".into())),
            count if count > 1 && !self.all => Err(Error::Unprocessable(format!(
                "the text to be replaced is in the file {count} times; give more of it, or ask to replace all"
            ))),
            count => Ok((content.replace(&self.old, &self.new), count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_becomes_too_long_is_refused_and_not_cut_off() {
        assert!(text_of(io::repeat(b'x')).is_err());
        let longest = JSON_BODY_BYTES_MAX as u64;
        let content = text_of(io::repeat(b'x').take(longest)).unwrap();
        assert_eq!(content.len() as u64, longest);
    }

    #[test]
    fn only_what_is_meant_is_replaced() {
        let replace = |old: &str, new: &str, all| {
            let replacement = Replacement { old: old.into(), new: new.into(), all };
            replacement.apply("one two one").ok()
        };
        assert_eq!(replace("two", "2", false), Some(("one 2 one".into(), 1)));
        assert_eq!(replace("one", "1", true), Some(("1 two 1".into(), 2)));
        for (old, new) in [("one", "1"), ("three", "3"), ("two", "two"), ("", "x")] {
            assert_eq!(replace(old, new, false), None, "{old}");
        }
    }
}
