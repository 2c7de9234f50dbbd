//! Where an instance keeps what it writes.

use serde::{Deserialize, Serialize};
use types::instance::VolumeName;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Writable {
    /// In the instance's memory, so `mb` must be well below `memory_mb`: a full disk is then an
    /// error instead of running out of memory.
    Memory { mb: u32 },
    /// In a file system of its own on the machine's disk, of this size, a little of which the file
    /// system itself takes. It is removed with the instance.
    Disk { mb: u32 },
    /// In a volume that stays, which is made if it is missing. It has what an earlier instance
    /// wrote over the same layers. `over` identifies them; over other layers it starts empty.
    Kept { volume: VolumeName, mb: u32, over: String },
}
