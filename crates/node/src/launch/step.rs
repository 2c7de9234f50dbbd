//! The words in which the node tells a new process what to do before it becomes the first process
//! of an instance.

use super::child::Task;
use libc::{c_int, c_long, c_ulong};
use rustix::fd::RawFd;
use std::ffi::{CStr, CString, c_void};

/// One step. Whatever a step points at is laid out before the process starts and outlives it.
pub(super) enum Step {
    /// When the machine has no memory left, before others. All that the process starts has the same
    /// score.
    GoFirst {
        score: &'static CStr,
    },
    /// Moves the process itself into a control group. Any other way of moving it costs the kernel
    /// milliseconds.
    JoinGroup {
        tasks: RawFd,
    },
    Enter {
        namespace: RawFd,
        kind: c_int,
    },
    /// Takes the ids of root in the user namespace that was entered.
    BecomeRoot,
    /// Starts the second process, in namespaces of its own, and waits until it has become the
    /// program or failed.
    Spawn {
        task: *const Task,
        flags: c_int,
        stack: *mut c_void,
    },
    /// Ends with the thread of the node that started it.
    EndWithNode,
    /// Takes a copy of the machine's mounts.
    OwnMounts,
    Attach {
        mount: RawFd,
        at: CString,
    },
    /// Makes the folders and attaches, unless a link or a file is in the way of that: an earlier
    /// instance over the same disk may have put it there.
    AttachIfPlain {
        mount: RawFd,
        at: CString,
        folders: Vec<CString>,
    },
    Mount(Mapping),
    /// Makes a file system of this kind, not attached anywhere yet, and keeps it under the number
    /// `into`.
    NewMount {
        kind: CString,
        options: Vec<MountOption>,
        flags: c_long,
        into: RawFd,
    },
    ChangeFolder {
        to: CString,
    },
    ChangeFolderTo {
        fd: RawFd,
    },
    PivotHere,
    DropOldRoot,
    MakeFolder {
        path: CString,
    },
    MakeFile {
        path: CString,
    },
    /// Covers a file with another one.
    Hide {
        path: CString,
        under: CString,
    },
    HideFolder {
        path: CString,
    },
    /// Makes a part of the tree read-only.
    Freeze {
        path: CString,
    },
    SetHostname {
        name: CString,
    },
    NewSession,
    Pass {
        fd: RawFd,
        as_number: RawFd,
        flags: c_int,
    },
    Close {
        first: u32,
        last: u32,
    },
    Limit {
        resource: c_int,
        soft: u64,
        hard: u64,
    },
    KeepCapabilities {
        set: u64,
    },
    BecomeUser {
        uid: u32,
        gid: u32,
    },
    NoNewPrivileges,
    Filter {
        program: FilterProgram,
    },
    RestoreSignals,
    Execute {
        program: RawFd,
        arguments: Pointers,
        environment: Pointers,
    },
}

pub(super) struct Mapping {
    pub(super) from: CString,
    pub(super) at: CString,
    pub(super) flags: c_ulong,
}

pub(super) struct MountOption {
    pub(super) key: CString,
    /// Absent for an option that is only a word.
    pub(super) value: Option<CString>,
}

/// What the kernel takes: a length and a pointer into the node's own filter, which lives as long as
/// the node.
pub(super) struct FilterProgram(pub(super) libc::sock_fprog);

/// A null-terminated list of C strings, as exec takes it.
pub(super) struct Pointers {
    _texts: Vec<CString>,
    list: Vec<*const libc::c_char>,
}

impl Pointers {
    pub(super) fn new(texts: Vec<CString>) -> Self {
        let mut list: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        list.push(std::ptr::null());
        Self { _texts: texts, list }
    }

    pub(super) fn as_ptr(&self) -> *const *const libc::c_char {
        self.list.as_ptr()
    }
}

impl Step {
    /// Completes the sentence "the new process failed to".
    pub(super) fn describe(&self) -> String {
        match self {
            Self::GoFirst { .. } => "say what it counts when memory ends".into(),
            Self::JoinGroup { .. } => "join its control group".into(),
            Self::Enter { .. } => "enter a namespace".into(),
            Self::BecomeRoot => "take the ids of its root".into(),
            Self::Spawn { .. } => "start in namespaces of its own".into(),
            Self::EndWithNode => "bind its life to the node's".into(),
            Self::OwnMounts => "take mounts of its own".into(),
            Self::Attach { at, .. } => format!("attach a mount at {}", at.to_string_lossy()),
            Self::AttachIfPlain { at, .. } => {
                format!("attach a mount at {} if it can be", at.to_string_lossy())
            }
            Self::Mount(mapping) => format!("change the mount at {}", mapping.at.to_string_lossy()),
            Self::NewMount { kind, .. } => format!("make its {}", kind.to_string_lossy()),
            Self::ChangeFolder { to } => format!("enter the folder {}", to.to_string_lossy()),
            Self::ChangeFolderTo { .. } => "enter its root".into(),
            Self::PivotHere => "change its root".into(),
            Self::DropOldRoot => "leave the machine's root".into(),
            Self::MakeFolder { path } => format!("make the folder {}", path.to_string_lossy()),
            Self::MakeFile { path } => format!("make the file {}", path.to_string_lossy()),
            Self::Hide { path, .. } | Self::HideFolder { path } => {
                format!("hide {}", path.to_string_lossy())
            }
            Self::Freeze { path } => format!("make {} read-only", path.to_string_lossy()),
            Self::SetHostname { .. } => "set its host name".into(),
            Self::NewSession => "begin a session".into(),
            Self::Pass { as_number, .. } => format!("pass on descriptor {as_number}"),
            Self::Close { .. } => "close the other descriptors".into(),
            Self::Limit { .. } => "limit its resources".into(),
            Self::KeepCapabilities { .. } => "drop its capabilities".into(),
            Self::BecomeUser { uid, gid } => format!("become user {uid} and group {gid}"),
            Self::NoNewPrivileges => "give up new privileges".into(),
            Self::Filter { .. } => "load its filter of system calls".into(),
            Self::RestoreSignals => "restore its signals".into(),
            Self::Execute { .. } => "execute its program".into(),
        }
    }
}
