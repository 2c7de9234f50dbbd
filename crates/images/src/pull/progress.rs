//! How far a pull has come.

use crate::digest::Digest;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A layer of the image, and how much of it is here already.
    Layer {
        layer: Digest,
        bytes: u64,
        here: u64,
    },
    Received {
        layer: Digest,
        bytes: u64,
    },
    Unpacking,
}
