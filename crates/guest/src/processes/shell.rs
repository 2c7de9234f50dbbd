//! Which shell of the image runs commands.

use super::ask::find_program;
use crate::environment::Variables;
use parking_lot::Mutex;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Knows neither `source` nor `function`, which published examples use and the shells of other
/// images take.
const STRICT: &str = "dash";
/// Those that do, the one that starts faster first.
const RICHER: [&str; 2] = ["ash", "bash"];

/// The shell for commands: `sh`, or a richer one where that is the strictest there is. Looked for
/// once, and again when it is not there any more.
#[derive(Default)]
pub(crate) struct Shell(Mutex<Option<PathBuf>>);

impl Shell {
    /// A path, because a program that is named by its path is started without a copy of this one.
    pub(super) fn path(&self, environment: &Variables) -> OsString {
        let mut known = self.0.lock();
        if !known.as_deref().is_some_and(Path::is_file) {
            *known = find(|name| find_program(name, environment));
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

    /// What is found where these files are, and `sh` leads to one of them.
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
