//! What a store refuses, and how it can fail.

use std::io;
use std::path::{Path, PathBuf};

use crate::{Digest, Reference};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to {what} {}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("failed to read or to unpack the image")]
    Read(#[source] io::Error),
    #[error("the image has more than {max} {what}")]
    Limit { what: &'static str, max: u64 },
    #[error("the digest of the {what} is {found}, not {wanted}")]
    Digest { what: &'static str, wanted: Digest, found: Digest },
    #[error("the archive is refused: {why}: {entry}")]
    Hostile { entry: String, why: &'static str },
    #[error("not a sound {what}: {why}")]
    Malformed { what: &'static str, why: String },
    #[error("no image for {0} is in there")]
    NoPlatform(String),
    #[error("the archive names its image `{0}`, which is reserved; give it another name")]
    Reserved(Reference),
    #[error("another process works in the image store: {}", .0.display())]
    InUse(PathBuf),
}

/// What a layer has too many of if its files are too large, in [`Error::Limit`].
pub(crate) const BYTES_OF_LAYER: &str = "bytes in the files of one layer";

impl Error {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }

    pub(crate) fn malformed(what: &'static str, why: impl ToString) -> Self {
        Self::Malformed { what, why: why.to_string() }
    }

    /// Returns whether trying again later gives the same error, because the data itself is missing
    /// or wrong. A disk that cannot be read now says nothing about what is on it.
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            Self::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
            Self::Read(_) | Self::InUse(_) => false,
            Self::Limit { .. }
            | Self::Digest { .. }
            | Self::Hostile { .. }
            | Self::Malformed { .. }
            | Self::NoPlatform(_)
            | Self::Reserved(_) => true,
        }
    }

    /// Returns whether the image itself is at fault, and not this machine: whoever made it has to
    /// make it anew.
    pub fn is_of_image(&self) -> bool {
        match self {
            Self::Io { .. } | Self::InUse(_) => false,
            Self::Read(source) => matches!(
                source.kind(),
                io::ErrorKind::InvalidData
                    | io::ErrorKind::InvalidInput
                    | io::ErrorKind::UnexpectedEof
            ),
            Self::Limit { .. }
            | Self::Digest { .. }
            | Self::Hostile { .. }
            | Self::Malformed { .. }
            | Self::NoPlatform(_)
            | Self::Reserved(_) => true,
        }
    }

    pub(crate) fn hostile(entry: &[u8], why: &'static str) -> Self {
        Self::Hostile { entry: entry.escape_ascii().to_string(), why }
    }
}

/// A limit that was exceeded inside a reader, passed along within an `io::Error`.
#[derive(Debug, thiserror::Error)]
#[error("more than {max} {what}")]
pub(crate) struct Exceeded {
    pub(crate) what: &'static str,
    pub(crate) max: u64,
}

impl From<Exceeded> for Error {
    fn from(Exceeded { what, max }: Exceeded) -> Self {
        Self::Limit { what, max }
    }
}

/// Converts errors of the readers that image data comes through.
impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        match source.downcast::<Exceeded>() {
            Ok(exceeded) => exceeded.into(),
            Err(source) => Self::Read(source),
        }
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(source: rustix::io::Errno) -> Self {
        Self::Read(source.into())
    }
}
