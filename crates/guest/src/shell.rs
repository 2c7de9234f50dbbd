//! Chooses the shell of the image that runs commands.

use crate::environment::Variables;
use crate::program::find_on_path;
use parking_lot::Mutex;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Lacks `source` and `function`, which published examples use and the shells of other images
/// accept.
const STRICT: &str = "dash";
/// Shells that have them, the fastest to start first.
const RICHER: [&str; 2] = ["ash", "bash"];

/// The shell for commands: `sh`, or a richer shell if `sh` is the strictest there is. It is looked
/// up once, and again when it has disappeared.
#[derive(Default)]
pub(crate) struct Shell(Mutex<Option<PathBuf>>);

impl Shell {
    /// Returns the shell as a path, because a program named by its path is started without first
    /// copying this one.
    pub(crate) fn path(&self, environment: &Variables) -> OsString {
        let mut known = self.0.lock();
        if !known.as_deref().is_some_and(Path::is_file) {
            *known = find(|name| find_on_path(name, environment));
        }
        known.clone().map_or_else(|| "sh".into(), OsString::from)
    }
}

fn find(program: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let usual = program("sh");
    let strict = usual.as_ref().is_none_or(|path| is_strict(path));
    let richer = || RICHER.into_iter().find_map(&program);
    if strict { richer().or(usual) } else { usual }
}

fn is_strict(shell: &Path) -> bool {
    shell.canonicalize().is_ok_and(|real| real.file_name().is_some_and(|name| name == STRICT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Returns which shell is chosen if these files exist and `sh` is a link to one of them.
    fn found(files: &[&str], sh: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            fs::write(folder.path().join(file), "").unwrap();
        }
        if !sh.is_empty() {
            symlink(sh, folder.path().join("sh")).unwrap();
        }
        let program = |name: &str| Some(folder.path().join(name)).filter(|path| path.is_file());
        find(program).map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
    }

    #[test]
    fn a_richer_shell_stands_in_for_the_strictest() {
        assert_eq!(found(&["dash", "bash", "ash"], "dash").as_deref(), Some("ash"));
        assert_eq!(found(&["dash", "bash"], "dash").as_deref(), Some("bash"));
        assert_eq!(found(&["dash"], "dash").as_deref(), Some("sh"));
        assert_eq!(found(&["bash", "ash"], "bash").as_deref(), Some("sh"));
        assert_eq!(found(&["busybox", "ash", "bash"], "busybox").as_deref(), Some("sh"));
        assert_eq!(found(&["bash"], "").as_deref(), Some("bash"));
        assert_eq!(found(&[], ""), None);
    }
}
