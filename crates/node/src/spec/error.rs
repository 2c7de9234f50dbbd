//! What can be wrong with a spec.

use super::writable::Writable;
use crate::users::IDS_PER_INSTANCE;

/// More than any image has. The kernel accepts 500.
pub(super) const LAYERS_MAX: usize = 400;
pub(super) const SCRATCH_MAX: usize = 16;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("{0} layers: there must be 1 to {LAYERS_MAX}")]
    Layers(usize),
    #[error("{0} MB of memory: there must be at least 16")]
    Memory(u32),
    #[error("{0} thousandths of a core: there must be at least 10")]
    Cpu(u32),
    #[error("{0} processes: there must be at least 4")]
    Pids(u32),
    #[error("{0:?}: there must be some, and in memory at most three quarters of it")]
    Writable(Writable),
    #[error("`{0}` is not an absolute path")]
    Workdir(String),
    #[error("user or group {0} does not exist in an instance, which has {IDS_PER_INSTANCE}")]
    User(u32),
    #[error(
        "folders of limited size: at most {SCRATCH_MAX} of at least 1 MB, none in another, at plain absolute paths outside \
         of /proc, /dev and /sys"
    )]
    Scratch,
    #[error("`{0}` cannot name a host")]
    Hostname(String),
}
