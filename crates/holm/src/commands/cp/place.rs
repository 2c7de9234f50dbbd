//! Source and destination of a copy.

use crate::error::Error;
use std::path::PathBuf;

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Here(PathBuf),
    There { name: String, path: String },
}

impl Place {
    /// Reads one end. `box:/path` is in a sandbox or a volume. A local path that contains a colon
    /// must have a slash or dot before it: `./a:b`.
    pub(super) fn read(text: &str) -> Result<Self, Error> {
        match text.split_once(':') {
            Some((name, path)) if !name.is_empty() && !name.contains(['/', '.']) => {
                let path = if path.is_empty() { "." } else { path };
                Ok(Self::There { name: name.to_owned(), path: path.to_owned() })
            }
            _ if text.is_empty() => Err(Error::Usage("an empty path names nothing".into())),
            _ => Ok(Self::Here(PathBuf::from(text))),
        }
    }
}

/// Returns the last component of a path, if it is a name.
pub(super) fn name_of(path: &str) -> Option<&str> {
    let last = path.trim_end_matches('/').rsplit('/').next()?;
    (!matches!(last, "" | "." | ".." | "~")).then_some(last)
}

/// True if a path means the content of a folder, not the folder itself: `folder/.`, or a path that
/// does not end in a name.
pub(super) fn means_content(path: &str) -> bool {
    name_of(path).is_none() || path.trim_end_matches('/').ends_with("/.")
}

/// Returns the folder without a `/.` at its end.
pub(super) fn plain(path: &str) -> &str {
    match path.trim_end_matches('/').strip_suffix("/.") {
        Some("") => "/",
        Some(folder) => folder,
        None => path,
    }
}

/// Joins a folder in a sandbox and a name.
pub(super) fn join(folder: &str, name: &str) -> String {
    match folder {
        "." | "" => name.to_owned(),
        folder => format!("{}/{name}", folder.trim_end_matches('/')),
    }
}

/// Joins a folder and a path that must not leave it. The result for the folder itself does not end
/// in `/`.
pub(super) fn below(folder: &str, path: &str) -> Result<String, Error> {
    if path.split('/').any(|part| part == "..") {
        return Err(Error::Usage(format!("`{path}` leads out of the volume")));
    }
    let path = path.trim_start_matches('/');
    match path.trim_start_matches("./") {
        "" | "." => Ok(folder.to_owned()),
        path => Ok(format!("{folder}/{path}")),
    }
}

/// Returns the folder that contains a path in a sandbox.
pub(super) fn parent(path: &str) -> &str {
    match path.trim_end_matches('/').rsplit_once('/') {
        Some(("", _)) => "/",
        Some((folder, _)) => folder,
        None => ".",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_before_a_colon_is_a_sandbox() {
        let there = |name: &str, path: &str| Place::There { name: name.into(), path: path.into() };
        assert_eq!(Place::read("box:/a:b").unwrap(), there("box", "/a:b"));
        assert_eq!(Place::read("box:").unwrap(), there("box", "."));
        for here in ["./a:b", "a", "/x:y", ":a", "../b:c"] {
            assert_eq!(Place::read(here).unwrap(), Place::Here(here.into()), "{here}");
        }
        assert!(Place::read("").is_err());
    }

    #[test]
    fn paths_of_a_volume_stay_in_it() {
        for (path, expected) in
            [("/", "/v"), (".", "/v"), ("/.", "/v"), ("a", "/v/a"), ("/a/b/.", "/v/a/b/.")]
        {
            assert_eq!(below("/v", path).unwrap(), expected, "{path}");
        }
        for path in ["..", "/../x", "a/../../x", "a/.."] {
            assert!(below("/v", path).is_err(), "{path}");
        }
    }

    #[test]
    fn names_and_parents_of_paths() {
        assert_eq!((name_of("/a/b/"), name_of("/"), name_of("a/.")), (Some("b"), None, None));
        assert_eq!((parent("/a/b"), parent("/a"), parent("a")), ("/a", "/", "."));
        assert_eq!(
            (join("/", "a"), join(".", "a"), join("b/", "a")),
            ("/a".into(), "a".into(), "b/a".into())
        );
        assert_eq!((plain("/a/."), plain("/."), plain("a/./"), plain(".")), ("/a", "/", "a", "."));
        assert!(means_content("a/.") && means_content("/") && !means_content("a"));
    }
}
