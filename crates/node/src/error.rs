//! Errors for callers: one type per boundary, one variant per decision that a caller may take.

use crate::launch::LaunchError;
use crate::names::SnapshotName;
use crate::net::Reached;
use crate::settings::Subnet;
use crate::spec::SpecError;
use crate::state::Refused;
use rustix::io::Errno;
use std::io;
use std::net::SocketAddr;
use types::instance::{InstanceName, VolumeName};

/// The node cannot work on this machine with these settings.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("failed to {what}")]
    Machine { what: &'static str, source: io::Error },
    #[error("another node uses this folder")]
    InUse,
    /// The other one may be gone, but what it started may still be running.
    #[error(
        "the firewall table `{table}` of another server has addresses of {subnet}: give each server \
         of this machine a `node.subnet` of its own or, if that server is gone, remove its table \
         (nft delete table inet {table})"
    )]
    SubnetTaken { subnet: Subnet, table: String },
    /// Nothing was changed on the machine.
    #[error(
        "`node.subnet` is {subnet}, but {} is a network that this machine reaches through `{}` and \
         would be cut off from: set `node.subnet` to a range that nothing here uses",
        reached.network, reached.interface
    )]
    SubnetInUse { subnet: Subnet, reached: Reached },
    /// Nothing was changed: the instances go on as they are.
    #[error(
        "{changed}: that cannot change while instances run, asleep or awake (there are {running}: \
         {names}). Set it back, and delete or stop them first, or restart the machine"
    )]
    Fixed { changed: String, running: usize, names: String },
}

#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error("this instance cannot be made")]
    Spec(#[from] SpecError),
    #[error("there is an instance `{0}` already")]
    Exists(InstanceName),
    /// More than this machine ever has for one instance.
    #[error("{wanted_mb} MB of memory: this machine has at most {most_mb} for one instance")]
    TooLarge { wanted_mb: u64, most_mb: u64 },
    /// The owner's share, or the total, is used up.
    #[error(transparent)]
    Refused(#[from] admission::Refused),
    /// The subnet, or the user ids, are for fewer instances than there may be.
    #[error(
        "this machine has no network left for another instance (`node.subnet`, `node.first_uid`)"
    )]
    NoNetwork,
    #[error("nobody has taken note of the last {0} facts, so nothing new is started")]
    Unheard(usize),
    #[error("a node that starts instances by another program makes no folders of limited size")]
    NoScratch,
    #[error(
        "a node that starts instances by another program mounts no volumes and runs no steps of builds"
    )]
    NoExtras,
    #[error("failed to {what}")]
    Machine { what: &'static str, source: io::Error },
    #[error("failed to start the instance")]
    Launch(#[from] LaunchError),
    #[error("failed to mount a volume")]
    Volume(#[from] VolumeError),
    #[error("failed to begin with a snapshot")]
    Snapshot(#[from] SnapshotError),
}

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("there is no volume `{0}`")]
    Missing(VolumeName),
    /// An instance has it mounted, or had it until a moment ago.
    #[error("the volume `{0}` is in use")]
    InUse(VolumeName),
    #[error("the disk `{0}` lies over something else")]
    LiesOver(VolumeName),
    #[error("what it is filled with at first needs {needs_mb} MB, and it has {size_mb}")]
    TooSmall { size_mb: u32, needs_mb: u32 },
    /// The volume that it was to be filled from.
    #[error("the volume {0} is gone")]
    SourceGone(VolumeName),
    /// The owner's share, or the total, is used up.
    #[error(transparent)]
    Refused(#[from] admission::Refused),
    #[error("its files are at an object service, and the settings name none (`[objects]`)")]
    NoRemote,
    #[error("failed to move its files to or from the object service")]
    Remote(#[source] io::Error),
    #[error("failed to work on a volume")]
    Machine(#[from] io::Error),
}

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("there is no snapshot `{0}`")]
    Missing(SnapshotName),
    #[error("there is no instance `{0}` any more")]
    Gone(InstanceName),
    /// It was started before this node was, or its files are where they cannot be copied.
    #[error("what `{id}` wrote cannot be read: {why}")]
    OutOfReach { id: InstanceName, why: &'static str },
    #[error("folders in folders, more than have a path")]
    TooDeep,
    #[error("more than {most} files")]
    TooMany { most: usize },
    #[error("its files change faster than they are copied")]
    Restless,
    #[error("it would lie over {most} others, which is the most: begin from an earlier one")]
    TooLong { most: usize },
    /// The owner's share, or the total, is used up.
    #[error(transparent)]
    Refused(#[from] admission::Refused),
    #[error("the files of the snapshot `{0}` are not on this machine now")]
    Away(SnapshotName),
    #[error("its files are at an object service, and the settings name none (`[objects]`)")]
    NoRemote,
    #[error("failed to move its files to or from the object service")]
    Remote(#[source] io::Error),
    #[error("failed to read the disk of the instance")]
    Disk(#[from] VolumeError),
    #[error("failed to hold or continue the instance")]
    Instance(#[source] Error),
    #[error("failed to work on a snapshot")]
    Machine(#[from] io::Error),
}

impl From<Error> for SnapshotError {
    fn from(error: Error) -> Self {
        match error {
            // It was stopped meanwhile.
            Error::Missing(id) => Self::Gone(id),
            other => Self::Instance(other),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// What was asked for cannot be mounted, or not at that place.
    #[error("{0}")]
    Place(String),
    #[error("files of it are open in the instance")]
    InUse,
    #[error("the instance is gone")]
    Gone,
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error("failed to work on a drive")]
    Machine(#[from] io::Error),
}

impl DriveError {
    /// Says what is wrong with a path, if that is why something failed.
    pub(crate) fn at(what: &str, path: &str, error: Errno) -> Self {
        let why = match error {
            Errno::LOOP | Errno::NOTDIR => "a part of it is a link, or no folder",
            Errno::NOENT => "there is no such folder",
            Errno::NAMETOOLONG => "a part of it is too long",
            Errno::INVAL => "it names no folder",
            Errno::NOTEMPTY => "others write into it all the time",
            Errno::EXIST => "something else is mounted there",
            Errno::NOSPC | Errno::DQUOT => "there is no room left to make its folder",
            Errno::ROFS => "its folder cannot be made: nothing can be written there",
            Errno::SRCH => return Self::Gone,
            other => return Self::Machine(other.into()),
        };
        Self::Place(format!("{what} `{path}`: {why}"))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    #[error("the instance is gone")]
    Gone,
    /// A tunnel would bypass that firewall.
    #[error("the firewall of the instance lets nothing out but what it can look at")]
    Closed,
    #[error("the other end, {0}, is not on the internet")]
    Endpoint(SocketAddr),
    /// The owner's share, or the total, is used up.
    #[error(transparent)]
    Refused(#[from] admission::Refused),
    /// The kernel refused the addresses or the name.
    #[error("the kernel refuses such a tunnel: {0}")]
    Unfit(#[source] io::Error),
    #[error("failed to make a tunnel")]
    Machine(#[from] io::Error),
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no instance `{0}`")]
    Missing(InstanceName),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("failed to {what} the instance `{id}`")]
    Machine { what: &'static str, id: InstanceName, source: io::Error },
}

pub(crate) trait Doing<T> {
    /// Says what was attempted on the machine.
    fn doing(self, what: &'static str) -> Result<T, Attempt>;
}

/// A failed attempt, before it becomes the error of a boundary.
#[derive(Debug)]
pub(crate) struct Attempt {
    what: &'static str,
    source: io::Error,
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: &'static str) -> Result<T, Attempt> {
        self.map_err(|source| Attempt { what, source: source.into() })
    }
}

impl From<Attempt> for OpenError {
    fn from(Attempt { what, source }: Attempt) -> Self {
        Self::Machine { what, source }
    }
}

impl From<Attempt> for CreateError {
    fn from(Attempt { what, source }: Attempt) -> Self {
        Self::Machine { what, source }
    }
}

/// Used while finding an earlier node's instances, where the cause says enough.
impl From<Attempt> for io::Error {
    fn from(Attempt { source, .. }: Attempt) -> Self {
        source
    }
}

pub(crate) trait On<T> {
    /// Says on which instance it was attempted.
    fn on(self, id: &InstanceName) -> Result<T, Error>;
}

impl<T> On<T> for Result<T, Attempt> {
    fn on(self, id: &InstanceName) -> Result<T, Error> {
        self.map_err(|attempt| attempt.on(id))
    }
}

impl Attempt {
    pub(crate) fn on(self, id: &InstanceName) -> Error {
        Error::Machine { what: self.what, id: id.clone(), source: self.source }
    }
}
