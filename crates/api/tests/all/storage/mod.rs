//! The interface of volumes, drives, images, snapshots, forks and archives.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod archives;
mod commits;
mod disks;
mod drives;
mod forks;
mod images;
mod new_names;
mod snapshots;
mod volumes;
mod workspaces;
