//! Names of objects, restricted to those that a file can have.

use crate::error::{Code, Error};
use types::guest::UPLOADS_FOLDER;

const KEY_BYTES_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 255;
/// The server's folder inside the files. Keys cannot lead into it.
pub(crate) const HIDDEN_FOLDER: &str = ".holm-s3";

/// A key that can be used as a path below a folder: no part is empty, `.` or `..`. A key that ends
/// with a slash names a folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key(String);

impl Key {
    pub fn new(text: &str) -> Result<Self, Error> {
        if text.len() > KEY_BYTES_MAX {
            return Err(Error::new(Code::KeyTooLong, "A key has 1024 bytes or fewer."));
        }
        let path = text.strip_suffix('/').unwrap_or(text);
        for part in path.split('/') {
            check_part(part)?;
        }
        if path.split('/').next() == Some(HIDDEN_FOLDER) {
            return Err(Error::argument("Keys in this folder are the server's own."));
        }
        if path.split('/').any(|part| part == UPLOADS_FOLDER) {
            return Err(Error::argument("Unfinished uploads of sandboxes are in this folder."));
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_folder(&self) -> bool {
        self.0.ends_with('/')
    }

    /// Returns the path below the root of the files, without a slash at the end.
    pub(crate) fn path(&self) -> &str {
        self.0.strip_suffix('/').unwrap_or(&self.0)
    }

    /// Returns the folder that contains it, which is empty for the root, and its name in there.
    pub(crate) fn split(&self) -> (&str, &str) {
        self.path().rsplit_once('/').unwrap_or(("", self.path()))
    }
}

fn check_part(part: &str) -> Result<(), Error> {
    if matches!(part, "" | "." | "..") {
        let message = "A key is a path: none of its parts may be empty, `.` or `..`.";
        return Err(Error::argument(message));
    }
    if part.contains('\0') {
        return Err(Error::argument("A key may not have a zero byte."));
    }
    if part.len() > NAME_BYTES_MAX {
        let message = "Each part of a key, between slashes, has 255 bytes or fewer.";
        return Err(Error::new(Code::KeyTooLong, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::{Component, Path};

    #[test]
    fn keys_that_lead_elsewhere_are_refused() {
        for bad in [
            "",
            "/",
            "/a",
            "a//b",
            ".",
            "..",
            "../a",
            "a/../b",
            "a/..",
            "a/./b",
            "a/../",
            "a\0b",
            ".holm-s3",
            ".holm-s3/x",
            ".holm-uploads",
            ".holm-uploads/",
            "a/.holm-uploads/x/1",
        ] {
            assert!(Key::new(bad).is_err(), "{bad:?}");
        }
        assert!(Key::new(&"a".repeat(256)).is_err());
        assert!(Key::new(&"ab/".repeat(400)).is_err());
        for good in [
            "a",
            "a/b",
            "a/",
            "...",
            "..a/b..",
            "a/.holm-s3",
            ".holm-uploads2",
            " ",
            "a b+c%20",
            "\u{1F600}",
            "\n",
        ] {
            assert!(Key::new(good).is_ok(), "{good:?}");
        }
    }

    proptest! {
        #[test]
        fn what_passes_stays_below_its_folder(text in "[a./\\x00 é]{0,12}") {
            if let Ok(key) = Key::new(&text) {
                let parts = Path::new(key.path()).components();
                prop_assert!(parts.clone().all(|part| matches!(part, Component::Normal(_))));
                let again: Vec<_> = parts.map(|part| part.as_os_str().to_str().unwrap()).collect();
                prop_assert_eq!(again.join("/"), key.path());
            }
        }
    }
}
