//! Finds programs, and lays out their arguments for the kernel.

use crate::environment::Variables;
use crate::raw::{Leads, Program};
use crate::settings::User;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Search path for programs if no variable sets one.
pub(crate) const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Program {
    /// The first word is the name that the program sees as its own.
    pub(crate) fn new<'a>(
        path: &Path,
        words: impl IntoIterator<Item = &'a OsStr>,
        environment: impl IntoIterator<Item = (&'a OsString, &'a OsString)>,
        directory: &Path,
    ) -> io::Result<Self> {
        let environment = environment.into_iter().map(|(name, value)| {
            let mut pair = Vec::with_capacity(name.len() + value.len() + 2);
            pair.extend_from_slice(name.as_bytes());
            pair.push(b'=');
            pair.extend_from_slice(value.as_bytes());
            text(pair)
        });
        Ok(Self {
            path: text(path.as_os_str().as_bytes())?,
            arguments: words
                .into_iter()
                .map(|word| text(word.as_bytes()))
                .collect::<io::Result<_>>()?,
            environment: environment.collect::<io::Result<_>>()?,
            directory: text(directory.as_os_str().as_bytes())?,
            user: None,
            groups: Vec::new(),
            leads: Leads::Group,
        })
    }

    pub(crate) fn run_as(mut self, user: Option<&User>) -> Self {
        self.user = user.map(|user| (user.uid, user.gid));
        self.groups = user.map(|user| user.groups.clone()).unwrap_or_default();
        self
    }
}

fn text(bytes: impl Into<Vec<u8>>) -> io::Result<CString> {
    CString::new(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// Finds the file of a program that is started in `directory`. A name with a slash is a path
/// already.
pub(crate) fn find(name: &OsStr, path: &OsStr, directory: &Path) -> io::Result<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Ok(name.into());
    }
    let mut files = std::env::split_paths(path).map(|folder| directory.join(folder).join(name));
    files.find(|file| is_program(file)).ok_or_else(|| rustix::io::Errno::NOENT.into())
}

/// Finds a program on the search path of an environment.
pub(crate) fn find_on_path(name: &str, environment: &Variables) -> Option<PathBuf> {
    let path = environment.get(OsStr::new("PATH")).map_or(OsStr::new(USUAL_PATH), OsStr::new);
    find(name.as_ref(), path, Path::new("/")).ok()
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_that_cannot_be_executed_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        for (place, mode) in [("first", 0o644), ("second", 0o755)] {
            fs::create_dir(folder.path().join(place)).unwrap();
            let file = folder.path().join(place).join("tool");
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        }
        let found = find(OsStr::new("tool"), OsStr::new("first:second"), folder.path()).unwrap();
        assert_eq!(found, folder.path().join("second/tool"));
        let path = std::env::join_paths(["first", "second"].map(|at| folder.path().join(at)));
        let environment = Variables::from([("PATH".into(), path.unwrap())]);
        assert_eq!(find_on_path("tool", &environment), Some(folder.path().join("second/tool")));
    }
}
