//! Vocabulary that node, host, control, jobs and meter share about instances: their names, what
//! happens to them, what they print, and how they and their work end.
//!
//! An *instance* is one thing that runs on a machine. A *fact* is something that happened to an
//! instance, recorded once by the machine where it happened; status, events, usage and bills are
//! derived from facts. *Work* is the single task that an instance may exist for.

mod fact;
mod name;
mod volume;
mod work;

pub use fact::{Exit, Fact, Happened, Stamp, boot_number};
pub use name::{AttemptId, BadName, BuildStepId, InstanceName, ReplicaId, RunsFor};
pub use volume::{DriveMount, KeptFor, VolumeCopy, VolumeMount, VolumeName, VolumeSource};
pub use work::{Outcome, Printed, Stream, WorkEnd};

use serde::{Deserialize, Serialize};

/// The port on which the first program of an instance serves the sandbox API.
pub const GUEST_PORT: u16 = 8080;
/// Guest port in a replica, whose own program may well want [`GUEST_PORT`].
pub const REPLICA_GUEST_PORT: u16 = 65_080;

/// An empty folder with a file system of its own, which is removed with the instance. The file
/// system itself takes a little of the size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scratch {
    /// Absolute path, created if the image does not have it.
    pub path: String,
    pub size_mb: u32,
    pub read_only: bool,
    /// Not written when it is the disk: records stored before the choice existed do not have it.
    #[serde(default, skip_serializing_if = "Medium::is_disk")]
    pub medium: Medium,
}

/// Another size for a running instance, which it gets by starting anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resize {
    pub memory_mb: u32,
    pub memory_before_mb: u32,
    /// The volume that keeps its disk, whether it exists yet or not, and the size of that.
    pub disk: Option<(VolumeName, u32)>,
}

/// What holds the files of a [`Scratch`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Medium {
    /// The disk of the machine.
    #[default]
    Disk,
    /// Memory of the instance, for files that must not reach a disk.
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
