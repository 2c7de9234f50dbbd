//! The steps by which the node tells a new process what to do before it becomes the first process
//! of an instance.

use super::report::Report;
use libc::{c_int, c_long, c_ulong};
use rustix::fd::RawFd;
use std::ffi::{CStr, CString, c_void};

/// What a process is to do, and where it reports how that went.
pub(super) struct Task {
    pub(super) steps: *const [Step],
    pub(super) report: *mut Report,
    /// The number of the first step in reports, which tells apart the steps of the two processes.
    pub(super) first_step: usize,
}

/// One step. Whatever it points at is laid out before the process starts, and outlives it.
pub(super) enum Step {
    /// Makes the process one of the first to be killed when the machine runs out of memory. All
    /// processes that it starts inherit the score.
    GoFirst {
        score: &'static CStr,
    },
    /// Moves the process itself into a control group. Moving it any other way takes the kernel
    /// milliseconds.
    JoinGroup {
        tasks: RawFd,
    },
    Enter {
        namespace: RawFd,
        kind: c_int,
    },
    /// Becomes root of the user namespace that was entered.
    BecomeRoot,
    /// Starts the second process in new namespaces, and waits until it has executed the program or
    /// failed.
    Spawn {
        task: *const Task,
        flags: c_int,
        stack: *mut c_void,
    },
    /// Has the kernel kill the process when the node's thread that started it ends.
    EndWithNode,
    /// Makes a mount namespace of its own, which is a copy of the machine's.
    OwnMounts,
    Attach {
        mount: RawFd,
        at: CString,
    },
    /// Makes the folders and attaches the mount, unless a link or a file is in the way: an earlier
    /// instance with the same disk may have put it there.
    AttachIfPlain {
        mount: RawFd,
        at: CString,
        folders: Vec<CString>,
    },
    Mount(Mapping),
    /// Makes a file system of this kind, attached nowhere yet, with the descriptor number `into`.
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
    /// `None` for an option without a value.
    pub(super) value: Option<CString>,
}

/// What the kernel wants: a length and a pointer into the node's filter, which lives as long as the
/// node.
pub(super) struct FilterProgram(pub(super) libc::sock_fprog);

/// A null-terminated list of C strings, as exec needs it.
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
