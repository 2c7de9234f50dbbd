//! What is wrong with an archive.

use crate::error::Error;

/// Names the part that cannot be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Malformed(pub(super) &'static str);

impl From<Malformed> for Error {
    fn from(Malformed(why): Malformed) -> Self {
        Error::malformed("tar archive", why)
    }
}
