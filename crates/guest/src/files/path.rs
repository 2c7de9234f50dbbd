//! Resolves the paths that callers write.

use crate::instance::Instance;
use crate::route::PathArgument;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Makes a path absolute: relative paths start at the working directory, `~` at the home directory.
pub(crate) fn resolve(instance: &Instance, argument: &PathArgument) -> PathBuf {
    resolve_at(&argument.0, &instance.settings.workdir, &instance.home())
}

fn resolve_at(argument: &[u8], workdir: &Path, home: &Path) -> PathBuf {
    let (base, rest) = match argument {
        b"~" => (home, &b""[..]),
        [b'~', b'/', rest @ ..] => (home, rest),
        [b'/', ..] => (Path::new("/"), argument),
        _ => (workdir, argument),
    };
    let mut path = clean(Path::new("/"), base.as_os_str().as_bytes());
    path = clean(&path, rest);
    path
}

/// Joins `rest` to `root`. `..` cannot lead above `root`.
pub(crate) fn below(root: &Path, rest: &str) -> PathBuf {
    let inside = clean(Path::new("/"), rest.as_bytes());
    root.join(inside.strip_prefix("/").unwrap_or(&inside))
}

/// Resolves `rest` from `base` by its text alone: `..` removes the last name, whatever that name
/// points to, and stops at the root of the file system.
fn clean(base: &Path, rest: &[u8]) -> PathBuf {
    let mut path = base.to_path_buf();
    for name in rest.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => {
                path.pop();
            }
            name => path.push(OsStr::from_bytes(name)),
        }
    }
    path
}

/// Returns the path as JSON can carry it: bytes that are not UTF-8 become U+FFFD. Such a file can
/// only be reached by its percent-encoded bytes.
pub(crate) fn text(path: impl AsRef<OsStr>) -> String {
    path.as_ref().to_string_lossy().into_owned()
}

pub(crate) fn from_bytes(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(argument: &str, expect: &str) {
        let path = resolve_at(argument.as_bytes(), Path::new("/work/app"), Path::new("/home/ada"));
        assert_eq!(path, Path::new(expect), "{argument}");
    }

    #[test]
    fn paths_start_where_callers_expect() {
        check("", "/work/app");
        check(".", "/work/app");
        check("src/a", "/work/app/src/a");
        check("src//./a/", "/work/app/src/a");
        check("/etc/hosts", "/etc/hosts");
        check("//etc//hosts", "/etc/hosts");
        check("~", "/home/ada");
        check("~/x", "/home/ada/x");
        check("~bob", "/work/app/~bob");
    }

    #[test]
    fn parents_end_at_the_root() {
        check("../../../../etc", "/etc");
        check("/..", "/");
        check("a/../b", "/work/app/b");
        assert_eq!(below(Path::new("/srv"), "../../etc/passwd"), Path::new("/srv/etc/passwd"));
        assert_eq!(below(Path::new("/srv"), "/a/../b"), Path::new("/srv/b"));
    }

    proptest! {
        #[test]
        fn every_argument_becomes_a_plain_absolute_path(argument in proptest::collection::vec(any::<u8>(), 0..60)) {
            let path = resolve_at(&argument, Path::new("/work"), Path::new("/root"));
            prop_assert!(path.is_absolute());
            prop_assert!(path.components().all(|part| part.as_os_str() != ".."));
        }

        #[test]
        fn nothing_below_a_root_is_above_it(rest in "\\PC{0,40}") {
            prop_assert!(below(Path::new("/srv/app"), &rest).starts_with("/srv/app"));
        }
    }
}
