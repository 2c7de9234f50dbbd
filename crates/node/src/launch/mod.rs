//! Starts the first process of an instance: as a fork of the node's [`starter`], or by an external
//! program ([`tool`]) that is started after the steps that [`plan`] lists and [`child`] performs.

pub(crate) mod calls;
#[expect(unsafe_code, reason = "a process between clone and exec may only make raw system calls")]
mod child;
mod error;
pub(crate) mod filter;
mod plan;
mod report;
pub(crate) mod rules;
pub(crate) mod starter;
mod step;
pub(crate) mod tool;

pub use error::LaunchError;
pub use plan::{CONFIG_FD, LISTENER_FD};
pub(crate) use plan::{copy, keep};

use rustix::fd::OwnedFd;
use rustix::process::Pid;

/// A started first process.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
}
