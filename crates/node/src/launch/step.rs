//! The steps by which the node tells a new process what to do before it executes an external
//! program.

use super::report::Report;
use libc::{c_int, c_ulong};
use rustix::fd::RawFd;
use std::ffi::CString;

/// What a process is to do, and where it reports how that went.
pub(super) struct Task {
    pub(super) steps: *const [Step],
    pub(super) report: *mut Report,
}

/// One step. Whatever it points at is laid out before the process starts, and outlives it.
pub(super) enum Step {
    /// Has the kernel kill the process when the node's thread that started it ends.
    EndWithNode,
    /// Makes a mount namespace of its own, which is a copy of the machine's.
    OwnMounts,
    Attach {
        mount: RawFd,
        at: CString,
    },
    /// Makes this the working folder.
    Enter {
        folder: CString,
    },
    Mount(Mount),
    Pass {
        fd: RawFd,
        as_number: RawFd,
        flags: c_int,
    },
    Close {
        first: u32,
        last: u32,
    },
    RestoreSignals,
    Execute {
        program: RawFd,
        arguments: Pointers,
        environment: Pointers,
    },
}

/// A mount to make or to change. What is not needed for that is empty.
pub(super) struct Mount {
    pub(super) kind: CString,
    pub(super) at: CString,
    pub(super) flags: c_ulong,
    pub(super) options: CString,
}

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
            Self::EndWithNode => "bind its life to the node's".into(),
            Self::OwnMounts => "take mounts of its own".into(),
            Self::Attach { at, .. } => format!("attach a mount at {}", at.to_string_lossy()),
            Self::Enter { folder } => format!("enter the folder {}", folder.to_string_lossy()),
            Self::Mount(Mount { kind, at, .. }) => {
                format!("mount `{}` at {}", kind.to_string_lossy(), at.to_string_lossy())
            }
            Self::Pass { as_number, .. } => format!("pass on descriptor {as_number}"),
            Self::Close { .. } => "close the other descriptors".into(),
            Self::RestoreSignals => "restore its signals".into(),
            Self::Execute { .. } => "execute its program".into(),
        }
    }
}
