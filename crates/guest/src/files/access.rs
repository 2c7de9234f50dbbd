//! Opens files, and tells callers what the file system refuses.

use crate::http::Error;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Converts a file system error into the caller's error.
pub(super) fn refuse(path: &Path, error: &io::Error) -> Error {
    let text = format!("{}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::NotFound => Error::NotFound(text),
        _ => Error::Unprocessable(text),
    }
}

/// Opens a regular file for reading. Pipes and devices are refused, because reading them may never
/// end.
pub(super) fn open_file(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() {
        Ok((file, metadata))
    } else {
        Err(io::Error::other("not a regular file"))
    }
}
