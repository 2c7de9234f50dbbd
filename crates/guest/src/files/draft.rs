//! Writes a file so that readers see the old content or the new one, never a half.
//!
//! The content is written to a draft next to the target, which is then renamed to the target. A
//! link is followed first, so that it stays a link.
//!
//! There are two exceptions. If the directory is one that nothing may be created in, the file is
//! written in place. If the draft cannot be renamed because the target is a mount of its own, as
//! `/etc/hosts` often is, the draft is copied over it once there is room for all of it. Whatever
//! else fails, such as a draft on a full disk, leaves the file as it was.

use super::access::refuse;
use crate::http::Error;
use crate::settings::User;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{
    DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown, symlink,
};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

pub(crate) const FILE_MODE: u32 = 0o644;
pub(crate) const DIRECTORY_MODE: u32 = 0o755;
const LINKS_MAX: usize = 40;
/// There are two prefixes, so that a watch can tell from the name alone whether a draft replaces a
/// file.
const NEW_PREFIX: &str = ".holm-draft-new-";
const REPLACING_PREFIX: &str = ".holm-draft-over-";

pub(crate) fn is_draft(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(NEW_PREFIX.as_bytes()) || is_replacing(name)
}

pub(crate) fn is_replacing(name: &[u8]) -> bool {
    name.starts_with(REPLACING_PREFIX.as_bytes())
}

/// Parses permissions in octal digits such as `644` or `0755`. Without digits, returns `None`: the
/// caller did not choose.
pub(crate) fn parse_mode(text: Option<&str>) -> Result<Option<u32>, Error> {
    let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else { return Ok(None) };
    let digits = text.strip_prefix("0o").unwrap_or(text);
    match u32::from_str_radix(digits, 8) {
        Ok(mode) if mode <= 0o7777 && !digits.starts_with('+') => Ok(Some(mode)),
        _ => Err(Error::BadRequest(format!("`{text}` are not permissions in octal digits"))),
    }
}

/// Holds the content of a file until it is complete.
pub(crate) struct Draft {
    storage: Storage,
    target: PathBuf,
    owner: Option<(u32, u32)>,
    mode: u32,
}

enum Storage {
    Temporary(NamedTempFile),
    /// Like `Temporary`, for a file that must not replace anything.
    Exclusive(NamedTempFile),
    /// Already open for writing; a failure from here on leaves half a file.
    InPlace(File),
}

impl Storage {
    fn file(&mut self) -> &mut File {
        match self {
            Self::Temporary(temporary) | Self::Exclusive(temporary) => temporary.as_file_mut(),
            Self::InPlace(file) => file,
        }
    }
}

impl Draft {
    /// Opens a draft of the file at `path`, creating the directories above it.
    pub(crate) fn open(path: &Path, user: Option<&User>) -> Result<Self, Error> {
        Self::open_as(path, user, FILE_MODE)
    }

    /// Like [`Draft::open`], with the mode that the file gets if it does not exist yet.
    pub(crate) fn open_as(path: &Path, user: Option<&User>, mode: u32) -> Result<Self, Error> {
        let fail = |error| refuse(path, &error);
        let target = follow(path).map_err(fail)?;
        let existing = match target.metadata() {
            Ok(metadata) => Some(writable(metadata, path)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(fail(error)),
        };
        let parent = target.parent().unwrap_or(Path::new("/")).to_path_buf();
        if existing.is_none() {
            make_directories(&parent, DIRECTORY_MODE, user).map_err(fail)?;
        }
        let owner = existing.as_ref().map(|metadata| (metadata.uid(), metadata.gid()));
        let storage = match beside(&parent, existing.is_some()) {
            Ok(temporary) => Storage::Temporary(temporary),
            Err(error) if existing.is_some() && is_forbidden(&error) => {
                Storage::InPlace(in_place(&target, true).map_err(fail)?)
            }
            Err(error) => return Err(fail(error)),
        };
        Ok(Self {
            storage,
            target,
            owner: owner.or_else(|| user.map(|user| (user.uid, user.gid))),
            mode: existing.map_or(mode, |metadata| metadata.mode() & 0o7777),
        })
    }

    /// Opens a draft of a file that must not exist, neither now nor when it is finished.
    pub(crate) fn exclusive(path: &Path, user: Option<&User>, mode: u32) -> Result<Self, Error> {
        let fail = |error| refuse(path, &error);
        if path.symlink_metadata().is_ok() {
            return Err(exists(path));
        }
        let parent = path.parent().unwrap_or(Path::new("/"));
        make_directories(parent, DIRECTORY_MODE, user).map_err(fail)?;
        Ok(Self {
            storage: Storage::Exclusive(beside(parent, false).map_err(fail)?),
            target: path.to_path_buf(),
            owner: user.map(|user| (user.uid, user.gid)),
            mode,
        })
    }

    pub(crate) fn file(&mut self) -> &File {
        self.storage.file()
    }

    /// Appends a whole file; file to file, so that the kernel does the copying.
    pub(crate) fn append(&mut self, part: &mut File) -> io::Result<u64> {
        io::copy(part, self.storage.file())
    }

    /// Replaces the file with the draft. Without `mode`, an existing file keeps its own.
    pub(crate) fn finish(self, mode: Option<u32>) -> Result<(), Error> {
        let fail = |error| refuse(&self.target, &error);
        let exclusive = matches!(self.storage, Storage::Exclusive(_));
        let temporary = match self.storage {
            Storage::Temporary(temporary) | Storage::Exclusive(temporary) => temporary,
            Storage::InPlace(file) => {
                return mode.map_or(Ok(()), |mode| set_mode(&file, mode)).map_err(fail);
            }
        };
        if let Some((uid, gid)) = self.owner {
            // Without the right to give files away, the file belongs to this program's user.
            let _ = std::os::unix::fs::fchown(temporary.as_file(), Some(uid), Some(gid));
        }
        set_mode(temporary.as_file(), mode.unwrap_or(self.mode)).map_err(fail)?;
        let named = match exclusive {
            true => temporary.persist_noclobber(&self.target),
            false => temporary.persist(&self.target),
        };
        match named {
            Ok(_) => Ok(()),
            Err(refused) if exclusive && refused.error.kind() == io::ErrorKind::AlreadyExists => {
                Err(exists(&self.target))
            }
            Err(refused) if refused.error.kind() == io::ErrorKind::ResourceBusy => {
                copy_over(refused.file, &self.target, mode).map_err(fail)
            }
            Err(refused) => Err(fail(refused.error)),
        }
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.storage.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The error for something that exists and must not be replaced.
pub(crate) fn exists(path: &Path) -> Error {
    Error::Exists(format!("{} exists already", path.display()))
}

/// Creates a symbolic link, in place of another entry other than a directory unless `exclusive`.
pub(crate) fn write_link(
    text: &Path,
    path: &Path,
    exclusive: bool,
    user: Option<&User>,
) -> Result<(), Error> {
    let make = |path: &Path| -> io::Result<()> {
        symlink(text, path)?;
        user.map_or(Ok(()), |user| lchown(path, Some(user.uid), Some(user.gid)))
    };
    match make(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && exclusive => {
            Err(exists(path))
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let parent = path.parent().unwrap_or(Path::new("/"));
            let draft = tempfile::Builder::new().prefix(REPLACING_PREFIX).make_in(parent, make);
            let named = draft.and_then(|draft| Ok(draft.persist(path)?));
            named.map_err(|error| refuse(path, &error))
        }
        made => made.map_err(|error| refuse(path, &error)),
    }
}

fn writable(metadata: Metadata, path: &Path) -> Result<Metadata, Error> {
    let kind = if metadata.is_dir() { "is a directory" } else { "is not a regular file" };
    if metadata.is_file() {
        Ok(metadata)
    } else {
        Err(Error::Unprocessable(format!("{} {kind}", path.display())))
    }
}

fn beside(parent: &Path, replacing: bool) -> io::Result<NamedTempFile> {
    let prefix = if replacing { REPLACING_PREFIX } else { NEW_PREFIX };
    tempfile::Builder::new()
        .prefix(prefix)
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(parent)
}

/// Returns whether no draft could be created because nothing may be created there.
fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn in_place(target: &Path, truncate: bool) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().write(true).truncate(truncate).custom_flags(flags).open(target)
}

/// Copies a draft over a file. Takes the room for it first, so that a full disk leaves the old
/// content.
fn copy_over(mut draft: NamedTempFile, target: &Path, mode: Option<u32>) -> io::Result<()> {
    let from = draft.as_file_mut();
    from.rewind()?;
    let bytes = from.metadata()?.len();
    let mut file = in_place(target, false)?;
    take_room(&file, bytes)?;
    io::copy(from, &mut file)?;
    file.set_len(bytes)?;
    mode.map_or(Ok(()), |mode| set_mode(&file, mode))
}

/// Takes the room for so many bytes of a file, whose content and length stay.
fn take_room(file: &File, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes) {
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(error) => {
            // What was taken lies beyond its end.
            file.set_len(file.metadata()?.len())?;
            Err(error.into())
        }
    }
}

fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(mode))
}

/// Follows a chain of links to its end, whether or not anything exists there.
fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        match path.read_link() {
            Ok(link) => path = path.parent().unwrap_or(Path::new("/")).join(link),
            // Not a link, or it does not exist.
            Err(_) => return Ok(path),
        }
    }
    Err(Errno::LOOP.into())
}

/// Creates a directory and those above it. Only directories that it creates get the mode and owner.
pub(crate) fn make_directories(path: &Path, mode: u32, user: Option<&User>) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|above| !above.is_dir()).collect();
    for directory in missing.into_iter().rev() {
        match DirBuilder::new().mode(mode).create(directory) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {
                continue;
            }
            Err(error) => return Err(error),
        }
        // Set again, because the umask of the process has cleared bits.
        std::fs::set_permissions(directory, Permissions::from_mode(mode))?;
        if let Some(user) = user {
            lchown(directory, Some(user.uid), Some(user.gid))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, content: &str, mode: Option<u32>) -> Result<(), Error> {
        let mut draft = Draft::open(path, None)?;
        draft.write_all(content.as_bytes()).unwrap();
        draft.finish(mode)
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o7777
    }

    #[test]
    fn a_file_keeps_its_mode_unless_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/file");
        write(&path, "one", None).unwrap();
        assert_eq!(mode(&path), FILE_MODE);
        write(&path, "two", Some(0o750)).unwrap();
        write(&path, "three", None).unwrap();
        assert_eq!((mode(&path), std::fs::read_to_string(&path).unwrap()), (0o750, "three".into()));
    }

    #[test]
    fn a_link_stays_a_link_and_its_target_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let (link, target) = (folder.path().join("link"), folder.path().join("there/target"));
        std::os::unix::fs::symlink("there/target", &link).unwrap();
        write(&link, "x", None).unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(target).unwrap(), "x");
    }

    #[test]
    fn links_in_a_circle_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("link", &link).unwrap();
        assert!(matches!(write(&link, "x", None), Err(Error::Unprocessable(_))));
    }

    #[test]
    fn an_abandoned_draft_leaves_the_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write(&path, "old", None).unwrap();
        let mut draft = Draft::open(&path, None).unwrap();
        draft.write_all(b"half").unwrap();
        drop(draft);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn devices_and_directories_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(write(Path::new("/dev/null"), "x", None), Err(Error::Unprocessable(_))));
        assert!(matches!(write(folder.path(), "x", None), Err(Error::Unprocessable(_))));
    }

    #[test]
    fn a_file_is_written_in_place_only_where_nothing_may_be_created() {
        let forbidden = |errno: Errno| is_forbidden(&errno.into());
        assert!([Errno::ACCESS, Errno::PERM, Errno::ROFS].into_iter().all(forbidden));
        assert!(![Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::MFILE].into_iter().any(forbidden));
    }

    #[test]
    fn permissions_are_octal_or_refused() {
        assert_eq!(parse_mode(Some("0644")).unwrap(), Some(0o644));
        assert_eq!(parse_mode(Some("755")).unwrap(), Some(0o755));
        assert_eq!(parse_mode(Some(" ")).unwrap(), None);
        assert_eq!(parse_mode(None).unwrap(), None);
        for text in ["888", "rwx", "-1", "+7", "77777", "99999999999"] {
            assert!(parse_mode(Some(text)).is_err(), "{text}");
        }
    }
}
