//! What a node and the program that starts its instances tell each other.
//!
//! That program is the first program of all instances itself. One of it waits outside of all
//! instances, as the **starter**, and each instance begins as a fork of it: that takes a fraction of
//! the time of executing a program anew. A fork makes ready what does not depend on the instance,
//! and waits as process 1 of namespaces of its own until it is told what instance it is.
//!
//! Each message of the node is a file in memory with JSON, passed as a descriptor before those that
//! the message is about. Answers are JSON.

use serde::{Deserialize, Serialize};

/// The environment variable that makes the program a starter. Its standard input is then a socket,
/// on which the node sends one [`Rules`] and any number of [`Readiness`].
pub const VARIABLE: &str = "HOLM_GUEST_STARTER";
/// Most descriptors in one packet; the kernel's limit is 253.
pub const PACKET_DESCRIPTORS_MAX: usize = 200;
/// The single byte of each packet, which says whether the message goes on in another one.
pub const MORE: u8 = 0;
pub const LAST: u8 = 1;
/// Longest answer, in bytes.
pub const ANSWER_BYTES_MAX: usize = 4096;

/// What all instances of a node have in common. No descriptors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rules {
    /// The filter of system calls, as the kernel's instructions: code, jump if true, jump if false,
    /// operand.
    pub filter: Vec<(u16, u8, u8, u32)>,
    pub hidden_files: Vec<String>,
    pub hidden_folders: Vec<String>,
    pub read_only: Vec<String>,
    /// The capabilities that root keeps, a bit for each number.
    pub capabilities: u64,
    pub out_of_memory_score: i32,
    pub open_files: u64,
    pub shared_memory_mb: u32,
    pub terminals: u32,
}

/// Asks for a fork that waits. Descriptors: the socket for answers and for the one [`Entry`], the
/// network, the users, the tree of devices and the output, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness;

/// Tells a waiting fork what instance it is. Descriptors: the control groups to join, the layers
/// (topmost first), the writable layer, the file systems for `scratch`, the mounts for `mounts`, the
/// listener, the configuration, and the program, each as far as there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub hostname: String,
    pub workdir: String,
    pub uid: u32,
    pub gid: u32,
    pub groups: usize,
    pub layers: usize,
    pub scratch: Vec<String>,
    pub mounts: Vec<Place>,
    pub has_listener: bool,
    pub has_config: bool,
    /// Another program to execute instead of being the first program itself.
    pub execute: Option<Execute>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub path: String,
    pub sort: Sort,
}

/// The kind of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Sort {
    File,
    Folder,
    /// A folder. Left out if the instance has put something else at its mount point.
    Shared,
}

/// How another program is executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execute {
    /// The first one is the program's name.
    pub arguments: Vec<String>,
    /// Each is `NAME=value`.
    pub environment: Vec<String>,
}

/// What the forks answer, in this order: `Helper` by the starter, `Waiting` by the helper, `Entered`
/// by the instance's own process, or `Failed` by any of them. A process that executes another
/// program answers by closing the socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// The process that enters the namespaces, and then ends.
    Helper {
        pid: i32,
    },
    /// The process of the instance.
    Waiting {
        pid: i32,
    },
    Entered,
    /// `what` completes the sentence "the new process failed to".
    Failed {
        what: String,
        errno: i32,
    },
}
