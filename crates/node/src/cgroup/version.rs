//! The version of control groups that this machine has.

use super::files::MOUNT;
use super::{v1, v2};
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

/// Returns the version that this machine offers with everything needed.
pub(crate) fn version() -> Option<Version> {
    let root = Path::new(MOUNT);
    if v2::offered(root) {
        Some(Version::V2)
    } else if v1::offered(root) {
        Some(Version::V1)
    } else {
        None
    }
}
