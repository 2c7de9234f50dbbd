//! The two ends of a copy.

use crate::error::Error;
use std::path::PathBuf;

/// Where something is copied from or to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Here(PathBuf),
    There { name: String, path: String },
}

impl Place {
    /// `box:/path` is in a sandbox or a volume. A path of this machine with a colon in it has a slash before:
    /// `./a:b`.
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

/// The last part of a path that names something.
pub(super) fn name_of(path: &str) -> Option<&str> {
    let last = path.trim_end_matches('/').rsplit('/').next()?;
    (!matches!(last, "" | "." | ".." | "~")).then_some(last)
}

/// Whether the content of a folder is meant rather than the folder: `folder/.`, or a path that ends
/// in no name.
pub(super) fn means_content(path: &str) -> bool {
    name_of(path).is_none() || path.trim_end_matches('/').ends_with("/.")
}

/// The folder whose content is meant, without what says so.
pub(super) fn plain(path: &str) -> &str {
    match path.trim_end_matches('/').strip_suffix("/.") {
        Some("") => "/",
        Some(folder) => folder,
        None => path,
    }
}

/// A path below another, of a sandbox.
pub(super) fn join(folder: &str, name: &str) -> String {
    match folder {
        "." | "" => name.to_owned(),
        folder => format!("{}/{name}", folder.trim_end_matches('/')),
    }
}

/// A path in a folder that it does not leave. The folder itself has no `/` at its end.
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

/// The folder that a path of a sandbox is in.
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
