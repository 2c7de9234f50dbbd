//! A folder that cannot be left: the kernel resolves every path as if the folder were the root of
//! the file system.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::error::Error;
use crate::settings::Limits;

const COMPONENT_BYTES_MAX: usize = 255;
const FOLDER: Mode = Mode::from_raw_mode(0o755);
const RESOLVE_ATTEMPTS_MAX: u32 = 64;

pub(crate) struct Tree(OwnedFd);

/// An open folder and a name in it, which nothing in an archive can redirect.
pub(crate) struct Place {
    folder: OwnedFd,
    name: PathBuf,
}

impl Tree {
    pub(crate) fn open(folder: &Path) -> Result<Self, Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = fs::open(folder, flags, Mode::empty());
        opened.map(Self).map_err(|error| Error::io("open", folder)(error.into()))
    }

    /// Wraps the descriptor of a folder.
    pub(crate) fn of(folder: OwnedFd) -> Self {
        Self(folder)
    }

    /// Returns the metadata of a path or, if `follows`, of what a link there leads to.
    pub(crate) fn look(&self, path: &Path, follows: bool) -> Result<Stat, Errno> {
        let flags = if follows { OFlags::PATH } else { OFlags::PATH | OFlags::NOFOLLOW };
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        fs::fstat(self.resolve(path, flags)?)
    }

    /// Returns the target of a symbolic link.
    pub(crate) fn link(&self, path: &Path) -> Result<PathBuf, Errno> {
        let place = self.place(path)?;
        let target = fs::readlinkat(&place.folder, &place.name, Vec::new())?;
        Ok(PathBuf::from(OsStr::from_bytes(target.as_bytes())))
    }

    /// Lists the names in a folder, sorted.
    pub(crate) fn names(&self, path: &Path) -> Result<Vec<OsString>, Errno> {
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(self.folder(path)?)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Returns whether a folder has no entries, without reading all that it may have.
    pub(crate) fn is_empty_folder(&self, path: &Path) -> Result<bool, Errno> {
        for entry in fs::Dir::read_from(self.folder(path)?)? {
            if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Opens a file for reading. Links are followed, but never out of the tree.
    pub(crate) fn read(&self, path: &Path) -> Result<File, Errno> {
        self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK).map(File::from)
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let open = || fs::openat2(&self.0, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve);
        // The kernel gives up on a `..` in a link if anything on the machine is renamed at the same
        // moment.
        (1..RESOLVE_ATTEMPTS_MAX)
            .map(|_| open())
            .find(|opened| !matches!(opened, Err(Errno::AGAIN)))
            .unwrap_or_else(open)
    }

    pub(crate) fn folder(&self, path: &Path) -> Result<OwnedFd, Errno> {
        self.resolve(
            if path.as_os_str().is_empty() { Path::new(".") } else { path },
            OFlags::RDONLY | OFlags::DIRECTORY,
        )
    }

    /// Opens the folder that contains `path`.
    pub(crate) fn place(&self, path: &Path) -> Result<Place, Errno> {
        let folder = self.folder(path.parent().unwrap_or(Path::new("")))?;
        Ok(Place { folder, name: path.file_name().map(PathBuf::from).unwrap_or_default() })
    }

    /// Opens the folder that contains `path`, creating missing folders on the way. Also returns how
    /// many it created.
    pub(crate) fn place_anew(&self, path: &Path) -> Result<(Place, u64), Errno> {
        match self.place(path) {
            Ok(place) => return Ok((place, 0)),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        let mut made = 0;
        for folder in path.ancestors().skip(1).collect::<Vec<_>>().into_iter().rev().skip(1) {
            let place = self.place(folder)?;
            match place.make_folder() {
                Ok(()) => made += 1,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((self.place(path)?, made))
    }
}

impl Place {
    pub(crate) fn sibling(&self, name: &OsStr) -> Result<Self, Errno> {
        Ok(Self { folder: rustix::io::fcntl_dupfd_cloexec(&self.folder, 0)?, name: name.into() })
    }

    pub(crate) fn stat(&self) -> Result<Option<Stat>, Errno> {
        match fs::statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn make_folder(&self) -> Result<(), Errno> {
        fs::mkdirat(&self.folder, &self.name, FOLDER)?;
        // The umask of this process may have taken bits away. Nobody else can reach the tree, so
        // the name is still that of the folder.
        fs::chmodat(&self.folder, &self.name, FOLDER, AtFlags::empty())
    }

    pub(crate) fn open_folder(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(&self.folder, &self.name, flags, Mode::empty())
    }

    pub(crate) fn create_file(&self) -> Result<File, Errno> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(&self.folder, &self.name, flags, Mode::RUSR | Mode::WUSR).map(File::from)
    }

    pub(crate) fn make_symlink(&self, target: &OsStr) -> Result<(), Errno> {
        fs::symlinkat(target, &self.folder, &self.name)
    }

    pub(crate) fn link_to(&self, original: &Self) -> Result<(), Errno> {
        fs::linkat(&original.folder, &original.name, &self.folder, &self.name, AtFlags::empty())
    }

    pub(crate) fn make_node(&self, kind: FileType) -> Result<(), Errno> {
        fs::mknodat(&self.folder, &self.name, kind, Mode::RUSR | Mode::WUSR, 0)
    }

    pub(crate) fn remove(&self) -> Result<(), Error> {
        match self.stat()? {
            None => Ok(()),
            Some(stat) if is_folder(&stat) => self.remove_folder(),
            Some(_) => Ok(fs::unlinkat(&self.folder, &self.name, AtFlags::empty())?),
        }
    }

    fn remove_folder(&self) -> Result<(), Error> {
        use std::os::fd::AsRawFd as _;
        // The standard library removes trees without following links, but only by path.
        let path =
            Path::new("/proc/self/fd").join(self.folder.as_raw_fd().to_string()).join(&self.name);
        std::fs::remove_dir_all(&path).map_err(Error::io("remove", &self.name))
    }

    pub(crate) fn at(&self) -> (BorrowedFd<'_>, &Path) {
        (self.folder.as_fd(), &self.name)
    }
}

pub(crate) fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// Normalizes a path from an archive: `.` and doubled or leading slashes are dropped, `..` is
/// refused.
pub(crate) fn plain_path(path: &[u8], limits: &Limits) -> Result<PathBuf, Error> {
    if path.len() > limits.path_bytes_max {
        return Err(Error::Limit { what: "bytes in one path", max: limits.path_bytes_max as u64 });
    }
    let mut plain = PathBuf::new();
    let mut depth = 0;
    for component in path.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => continue,
            b".." => return Err(Error::hostile(path, "a path with `..`")),
            _ if component.len() > COMPONENT_BYTES_MAX => {
                return Err(Error::Limit {
                    what: "bytes in one name",
                    max: COMPONENT_BYTES_MAX as u64,
                });
            }
            _ if component.contains(&0) => {
                return Err(Error::hostile(path, "a path with a zero byte"));
            }
            _ => plain.push(OsStr::from_bytes(component)),
        }
        depth += 1;
    }
    if depth > limits.depth_max {
        return Err(Error::Limit { what: "folders in one path", max: limits.depth_max as u64 });
    }
    Ok(plain)
}
