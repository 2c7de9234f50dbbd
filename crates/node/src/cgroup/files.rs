//! The files by which the kernel is told about control groups, and tells about them. They are the
//! same for both versions, apart from their names.

use rustix::fd::OwnedFd;
use std::io;
use std::path::Path;

/// The folder where a machine mounts its control groups.
pub(super) const MOUNT: &str = "/sys/fs/cgroup";

pub(super) fn folders_in(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

pub(super) fn remove_folder(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Sets a limit of a group that may be in use.
pub(super) fn set_bound(file: &Path, bound: u64) -> io::Result<()> {
    match std::fs::write(file, bound.to_string()) {
        // More is in use than the limit allows, and the kernel cannot take it back.
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            tracing::warn!(file = %file.display(), bound, "more is in use than a limit was set to; the limit stays as it was");
            Ok(())
        }
        Err(error) => Err(on(&format!("write {}", file.display()), error)),
        Ok(()) => Ok(()),
    }
}

/// Sets a limit if the kernel offers it. Counting swap, for example, can be turned off.
pub(super) fn set_if_offered(file: &Path, bytes: u64) -> io::Result<()> {
    if file.exists() { set_bound(file, bytes) } else { Ok(()) }
}

pub(super) fn on(what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Reads a file that holds only a number.
pub(super) fn read_number(file: &Path) -> io::Result<u64> {
    let text = std::fs::read_to_string(file)?;
    text.trim().parse().map_err(|_| unexpected(file))
}

/// Reads the number after a word, in a file of `word number` lines.
pub(super) fn read_field(file: &Path, field: &str) -> io::Result<u64> {
    let text = std::fs::read_to_string(file)?;
    text.lines()
        .find_map(|line| line.strip_prefix(field)?.trim().parse().ok())
        .ok_or_else(|| unexpected(file))
}

fn unexpected(file: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("`{}` does not say what it should", file.display()),
    )
}

pub(super) fn open_for_writing(file: &Path) -> io::Result<OwnedFd> {
    Ok(std::fs::OpenOptions::new().write(true).open(file)?.into())
}
