//! A local folder into which a sandbox's files are written.
//!
//! The names come from the sandbox, which may be hostile. So each name must be a single plain path
//! component, and each step is opened relative to the folder before it without following links:
//! whatever the names are, and whatever changes meanwhile, nothing outside the folder is written.
//!
//! A device or a FIFO that the caller named is written into, and none is ever replaced.

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::fs::{mkdirat, open, openat, renameat, statat, unlinkat};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::oneshot;

/// A single path component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name(String);

const NAME_BYTES_MAX: usize = 255;

impl Name {
    pub(super) fn new(text: &str) -> Option<Self> {
        let plain = !matches!(text, "" | "." | "..")
            && !text.contains(['/', '\0'])
            && text.len() <= NAME_BYTES_MAX;
        plain.then(|| Self(text.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, Clone)]
pub(super) struct Destination {
    folder: Arc<OwnedFd>,
}

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC).union(OFlags::RDONLY);

impl Destination {
    /// Opens the folder that the caller named. Links in its path are the caller's own and are
    /// followed.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { folder: Arc::new(open(path, FOLDER, Mode::empty())?) })
    }

    /// Opens a folder inside this one, making it if it is missing.
    pub(super) fn enter(&self, name: &Name) -> io::Result<Self> {
        match mkdirat(&self.folder, name.as_str(), Mode::from_raw_mode(0o755)) {
            Err(error) if error != rustix::io::Errno::EXIST => return Err(error.into()),
            _ => {}
        }
        let folder = openat(&self.folder, name.as_str(), FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
        Ok(Self { folder: Arc::new(folder) })
    }

    /// Starts a file that gets its name once it is complete. `unique` distinguishes files being
    /// written at the same time.
    fn begin(&self, name: &Name, unique: &str) -> io::Result<Draft> {
        let there = statat(&self.folder, name.as_str(), AtFlags::SYMLINK_NOFOLLOW);
        if there.is_ok_and(|there| !is_replaced(FileType::from_raw_mode(there.st_mode))) {
            let message = "a device, a FIFO or a socket has this name";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        let draft = format!(".holm-{unique}");
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = openat(&self.folder, draft.as_str(), flags | OFlags::CLOEXEC, mode)?;
        Ok(Draft {
            folder: self.folder.clone(),
            file: File::from(file),
            draft: Some(draft),
            name: name.clone(),
        })
    }
}

/// True for what a finished file may be renamed over. For a folder the system refuses that itself.
fn is_replaced(kind: FileType) -> bool {
    matches!(kind, FileType::RegularFile | FileType::Symlink | FileType::Directory)
}

/// Where one file goes.
pub(super) enum Output {
    File {
        folder: Destination,
        name: Name,
    },
    /// A device, a FIFO or standard output, by the path that the caller named.
    Stream(PathBuf),
}

impl Output {
    /// Returns the stream at a path that the caller named, if it is one. What this process has open,
    /// such as /dev/stdout, is one even if it is a file.
    pub(super) fn stream(path: &Path) -> Option<Self> {
        const OPEN_FOLDERS: [&str; 2] = ["/dev/fd", "/proc/self/fd"];
        const OPEN: [&str; 2] = ["/dev/stdout", "/dev/stderr"];
        let is_open = OPEN.iter().any(|open| path == Path::new(open))
            || OPEN_FOLDERS.iter().any(|folder| path.parent() == Some(Path::new(folder)));
        let is_special = path.metadata().is_ok_and(|about| !about.is_file() && !about.is_dir());
        (is_open || is_special).then(|| Self::Stream(path.to_owned()))
    }

    /// True if what was written can be written anew.
    pub(super) fn can_begin_again(&self) -> bool {
        matches!(self, Self::File { .. })
    }

    pub(super) async fn begin(&self, unique: &str) -> io::Result<Writing> {
        match self {
            Self::File { folder, name } => folder.begin(name, unique).map(Writing::Draft),
            Self::Stream(path) => open_stream(path.clone()).await.map(Writing::Stream),
        }
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { name, .. } => f.write_str(name.as_str()),
            Self::Stream(path) => path.display().fmt(f),
        }
    }
}

/// Opens a stream. A FIFO opens once somebody reads it, and the user may stop waiting for that, so
/// it needs a thread for which the program does not wait at its end.
async fn open_stream(path: PathBuf) -> io::Result<File> {
    let (tell, told) = oneshot::channel();
    std::thread::spawn(move || {
        // The caller may have stopped waiting.
        let _ = tell.send(File::options().append(true).open(path));
    });
    told.await.map_err(io::Error::other)?
}

/// What is being written.
pub(super) enum Writing {
    Draft(Draft),
    Stream(File),
}

impl Writing {
    pub(super) fn file(&mut self) -> &mut File {
        match self {
            Self::Draft(draft) => &mut draft.file,
            Self::Stream(file) => file,
        }
    }

    /// Gives a file its permissions and its name. A stream keeps what it has.
    pub(super) fn finish(self, mode: u32) -> io::Result<()> {
        match self {
            Self::Draft(draft) => draft.finish(mode),
            Self::Stream(_) => Ok(()),
        }
    }
}

/// A file being written, which is removed again unless it was finished.
pub(super) struct Draft {
    folder: Arc<OwnedFd>,
    file: File,
    draft: Option<String>,
    name: Name,
}

impl Draft {
    /// Gives the file its name, replacing a file that has it. A link is replaced, not followed.
    fn finish(mut self, mode: u32) -> io::Result<()> {
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode & 0o777))?;
        if let Some(draft) = &self.draft {
            renameat(&self.folder, draft.as_str(), &self.folder, self.name.as_str())?;
        }
        self.draft = None;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(draft) = &self.draft {
            // A leftover is only untidy.
            let _ = unlinkat(&self.folder, draft.as_str(), AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Writes a file at this path, as a copy would.
    fn put(root: &Path, path: &[&str]) -> Option<()> {
        let (last, folders) = path.split_last()?;
        let mut folder = Destination::open(root).ok()?;
        for name in folders {
            folder = folder.enter(&Name::new(name)?).ok()?;
        }
        let mut draft = folder.begin(&Name::new(last)?, "x").ok()?;
        draft.file.write_all(b"new").ok()?;
        draft.finish(0o640).ok()
    }

    #[test]
    fn links_that_are_there_already_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (root, outside) = (place.path().join("root"), place.path().join("outside"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "old").unwrap();
        symlink("../outside", root.join("folder")).unwrap();
        symlink("../outside/file", root.join("file")).unwrap();
        assert_eq!(put(&root, &["folder", "file"]), None);
        put(&root, &["file"]).unwrap();
        assert_eq!(fs::read(outside.join("file")).unwrap(), b"old");
        assert_eq!(fs::read(root.join("file")).unwrap(), b"new");
        let mode = root.join("file").metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o640);
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(put(place.path(), &["socket"]), None);
        assert!(!socket.metadata().unwrap().is_file());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_draft_that_was_not_finished_leaves_nothing() {
        let place = tempfile::tempdir().unwrap();
        let folder = Destination::open(place.path()).unwrap();
        drop(folder.begin(&Name::new("a").unwrap(), "x").unwrap());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    proptest! {
        #[test]
        fn no_names_lead_out_of_the_folder(
            path in proptest::collection::vec("\\.\\.|\\.|[a/]{0,5}|/[a-z]{1,3}|link|\\PC{0,6}", 1..5),
        ) {
            let place = tempfile::tempdir().unwrap();
            let root = place.path().join("a/root");
            fs::create_dir_all(&root).unwrap();
            symlink("..", root.join("link")).unwrap();
            let path: Vec<_> = path.iter().map(String::as_str).collect();
            let written = put(&root, &path).is_some();
            let above: Vec<_> = fs::read_dir(place.path()).unwrap()
                .chain(fs::read_dir(place.path().join("a")).unwrap())
                .map(|entry| entry.unwrap().file_name()).collect();
            prop_assert_eq!(above, ["a", "root"]);
            if path.iter().any(|name| matches!(*name, "" | "." | "..") || name.contains('/')) {
                prop_assert!(!written);
            }
        }
    }
}
