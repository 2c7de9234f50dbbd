//! Settings of this machine.

use std::io;

pub struct Settings {
    /// Names this machine among all that share a database.
    pub name: String,
    pub node: node::Settings,
    /// Hosts of registries that may be asked although they are not on the internet.
    pub registries_inside: Vec<String>,
    /// The disk space for the images that all workspaces have pulled, in MB.
    pub pulled_mb: u64,
    /// The disk space for one pulled image, in MB.
    pub image_mb_max: u64,
    pub registry: crate::RegistrySettings,
    /// How many processes one instance may have.
    pub pids_max: u32,
    /// Processor time of a program that callers wait for, until it listens, in thousandths of a
    /// core.
    pub start_millicores: u32,
    /// How many snapshots are taken at once. Each occupies a thread while its files are copied, and
    /// all share the same disk.
    pub takes_max: usize,
}

/// Why this machine cannot run instances.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("what is known of the images in use cannot be read")]
    Leases(#[source] io::Error),
    #[error("what is known of pulled images cannot be read")]
    Pulled(#[source] io::Error),
    #[error("what is known of the images below disks cannot be read")]
    Disks(#[source] io::Error),
    #[error("what workspaces have pushed cannot be read")]
    Registry(#[source] images::Error),
    #[error(
        "the key with which this machine speaks to the work on it can be neither read nor made"
    )]
    Key(#[source] io::Error),
    #[error("a file system in memory cannot be made")]
    Memory(#[source] io::Error),
    #[error("no client for registries can be made")]
    Http(#[source] reqwest::Error),
    #[error("a step of a build that an earlier run has begun cannot be ended")]
    Builds(#[source] Box<node::Error>),
    #[error(transparent)]
    Node(#[from] node::OpenError),
}
