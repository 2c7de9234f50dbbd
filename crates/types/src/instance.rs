//! What node, host, control, jobs and meter all say of instances: their names, what happens to
//! them, what they print, and how they and their work end.
//!
//! An *instance* is one thing that runs on a machine. A *fact* is something that happened to one,
//! written once by the machine where it happened; status, events, usage and bills follow from
//! facts. *Work* is the one task that an instance may be for.

mod fact;
mod name;
mod volume;
mod work;

pub use fact::{Exit, Fact, Happened, Stamp, boot_number};
pub use name::{AttemptId, BadName, BuildStepId, InstanceName, ReplicaId, RunsFor};
pub use volume::{DriveMount, KeptFor, VolumeMount, VolumeName};
pub use work::{Outcome, Printed, Stream, WorkEnd};

use serde::{Deserialize, Serialize};

/// The port on which the first program of an instance serves the sandbox API.
pub const GUEST_PORT: u16 = 8080;
/// The port of the first program of a replica, whose own program may well want the other one.
pub const REPLICA_GUEST_PORT: u16 = 65_080;

/// An empty folder with a file system of its own, gone with the instance. The file system itself
/// takes a little of the size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scratch {
    /// Absolute. Made if the image does not have it.
    pub path: String,
    pub size_mb: u32,
    pub read_only: bool,
    /// Absent where it is the disk, as in what was stored before there was a choice.
    #[serde(default, skip_serializing_if = "Medium::is_disk")]
    pub medium: Medium,
}

/// What holds the files of a [`Scratch`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Medium {
    /// The disk of the machine.
    #[default]
    Disk,
    /// Memory of the instance, for what must not reach a disk.
    Memory,
}

impl Medium {
    fn is_disk(&self) -> bool {
        *self == Self::Disk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_was_stored_before_there_was_a_choice_is_on_disk() {
        let text = r#"{"path":"/data","size_mb":8,"read_only":false}"#;
        let scratch: Scratch = serde_json::from_str(text).unwrap();
        assert_eq!(scratch.medium, Medium::Disk);
        assert_eq!(serde_json::to_string(&scratch).unwrap(), text);
    }
}
