//! What the management side asks of a machine that runs instances, and of whatever routes to them.

use crate::drive_store::DriveStore;
use crate::registry::Registry;
use crate::snapshot_store::SnapshotStore;
use crate::tunnel_maker::TunnelMaker;
use crate::volume_store::VolumeStore;
use bytes::Bytes;
use jobs::{Call, CallAnswer};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};
use tokio::sync::mpsc;
use types::KindName;
use types::edge::{Demand, Load, RequestStats, RouteChange, Window};
use types::egress::{EgressEvent, EgressRules};
use types::ids::{BuildId, ResourceId, WorkspaceId};
use types::instance::{
    DriveMount, Fact, InstanceName, Printed, Scratch, Stamp, VolumeMount, VolumeName, WorkEnd,
};
use types::models::{ModelLogEntry, OutsideAnswer, OutsideRequest};

/// An answer that takes a moment.
pub type Wait<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A machine that runs instances. What it has started goes on when this program ends.
pub trait Machine: Send + Sync + 'static {
    /// The same at every start of this program on this machine, and no other machine's.
    fn name(&self) -> &str;

    /// Where an image can be had.
    fn find_image(&self, image: &str) -> Result<ImageAt, UnknownImage>;

    /// Whether an image that was fetched is on the machine still.
    fn has_image(&self, digest: &str) -> bool;

    /// Has a registry give the image of a launch to whoever has its credentials, into the room that
    /// its workspace has for images. The registry is asked also when the image is on the machine.
    /// Answers its digest.
    fn fetch_image<'a>(&'a self, launch: &'a Launch) -> Wait<'a, Result<String, LaunchFault>>;

    /// As [`Machine::fetch_image`], for a workspace that starts nothing yet.
    fn fetch_for<'a>(
        &'a self,
        _workspace: &'a WorkspaceId,
        image: &'a str,
        _registries: Option<&'a str>,
    ) -> Wait<'a, Result<String, LaunchFault>> {
        let why = format!("{image}: this machine asks no registries");
        Box::pin(async { Err(LaunchFault::Pull(why)) })
    }

    /// Whoever keeps the content of the workspaces' own registry on this machine.
    fn registry(&self) -> Option<Arc<dyn Registry>> {
        None
    }

    /// Whoever keeps volumes on this machine.
    fn volumes(&self) -> Option<Arc<dyn VolumeStore>> {
        None
    }

    /// Whoever keeps drives on this machine.
    fn drives(&self) -> Option<Arc<dyn DriveStore>> {
        None
    }

    /// Whoever makes tunnels on this machine.
    fn tunnels(&self) -> Option<Arc<dyn TunnelMaker>> {
        None
    }

    /// Whoever keeps snapshots on this machine.
    fn snapshots(&self) -> Option<Arc<dyn SnapshotStore>> {
        None
    }

    /// Starts an instance. When this answers, requests to it are served.
    fn launch(&self, launch: Launch) -> Wait<'_, Result<(), LaunchFault>>;

    /// Ends an instance, with the grace that it was launched with, and removes all that was its
    /// own. Without such an instance there is nothing to do.
    fn retire<'a>(&'a self, instance: &'a InstanceName) -> Wait<'a, Result<(), MachineFault>>;

    /// Puts an instance to sleep, whoever uses it.
    fn rest<'a>(&'a self, instance: &'a InstanceName) -> Wait<'a, Result<(), MachineFault>>;

    /// Waits until the program that the image of an instance starts by itself has failed, and says
    /// how, if it does soon after the launch. To be asked once after each.
    fn start_failure<'a>(&'a self, _instance: &'a InstanceName) -> Wait<'a, Option<String>> {
        Box::pin(async { None })
    }

    /// The instances there are, also those that have ended by themselves.
    fn instances(&self) -> Vec<Seen>;

    /// Whether an instance is there and has not ended.
    fn runs(&self, instance: &InstanceName) -> bool;

    /// Writes down that the machine is looked after: what ends when it is not is reported as of the
    /// last sign. Answers the moment on a clock that nobody can set, if the machine has one.
    fn give_sign(&self) -> Option<Stamp> {
        None
    }

    /// The oldest facts that were not let go of; waits for the first.
    fn facts(&self) -> Wait<'_, Vec<Fact>>;

    /// Lets go of all facts up to this one.
    fn let_go(&self, number: u64) -> Wait<'_, Result<(), MachineFault>>;

    /// Waits until the work of an instance that was launched with [`Launch::work`] has ended. Hands
    /// over what it prints meanwhile, from a position on; the end comes after the last line. Fails
    /// when the instance is not there, and may be called again, also by the next run of this
    /// program. The instance stays until it is retired.
    fn attend<'a>(
        &'a self,
        instance: &'a InstanceName,
        from: u64,
        printed: mpsc::Sender<Printed>,
    ) -> Wait<'a, Result<WorkEnd, MachineFault>>;

    /// Asks the work of an instance to end: SIGTERM, and SIGKILL after the grace of its launch.
    fn interrupt<'a>(&'a self, instance: &'a InstanceName) -> Wait<'a, Result<(), MachineFault>>;

    /// Whether something in an instance takes connections on a port. One that sleeps and listens is not
    /// woken for that; one that does not listen yet is kept awake, or it never would.
    fn probe<'a>(&'a self, instance: &'a InstanceName, port: u16) -> Wait<'a, bool>;

    /// Has an instance keep to these rules from now on. What goes on and is not allowed any more has
    /// been cut when this answers; programs that start later are told of the proxy, or not any more.
    fn set_egress<'a>(
        &'a self,
        _instance: &'a InstanceName,
        _rules: EgressRules,
    ) -> Wait<'a, Result<(), MachineFault>> {
        Box::pin(async { Err(MachineFault("this machine keeps no rules of egress".to_owned())) })
    }

    /// What the rules of instances did since this was asked the last time; waits for the first.
    fn egress_events(&self) -> Wait<'_, Vec<EgressEvent>> {
        Box::pin(std::future::pending())
    }

    /// Has the sandbox API of an instance start a process, which wakes the instance. `order` is the
    /// JSON that the interface takes for one.
    fn start_process<'a>(
        &'a self,
        instance: &'a InstanceName,
        order: Bytes,
    ) -> Wait<'a, Result<ProcessAnswer, MachineFault>>;
}

/// Images out of sources that people upload.
pub trait Builder: Send + Sync + 'static {
    /// Keeps the sources of a build, as they arrive, until they are forgotten. Sources that come a
    /// second time take the place of the first. Answers how many bytes they are.
    fn take_sources<'a>(
        &'a self,
        build: &'a BuildId,
        bytes: mpsc::Receiver<io::Result<Bytes>>,
        bytes_max: u64,
    ) -> Wait<'a, Result<u64, BuildFault>>;

    /// Makes an image out of the sources of a build, and keeps it for its workspace. What is printed
    /// meanwhile is handed over; the end comes after the last line. After a kill it is called again
    /// and begins anew, with the steps that were finished taken from the cache.
    fn build<'a>(
        &'a self,
        order: &'a BuildOrder,
        printed: mpsc::Sender<Printed>,
    ) -> Wait<'a, Result<Built, BuildFault>>;

    /// Unpacks what was uploaded into a file system of its own, which the machine keeps from then on.
    /// After a kill it is called again and begins anew.
    fn fill<'a>(&'a self, order: &'a FillOrder) -> Wait<'a, Result<Filled, BuildFault>>;

    /// Lets go of all images that were made for a build: the registry of its workspace keeps the one
    /// that counts, or nobody wants any. Fails while the build is still at work.
    fn release<'a>(
        &'a self,
        build: &'a BuildId,
        workspace: &'a WorkspaceId,
        repository: &'a str,
    ) -> Wait<'a, Result<(), MachineFault>>;

    /// Removes the sources of a build, and what is left of its work. Fails while it is still at work.
    fn forget<'a>(&'a self, build: &'a BuildId) -> Wait<'a, Result<(), MachineFault>>;
}

/// What to build. The sources say the rest: a `Dockerfile`, or a program in a language that is known,
/// with `blaxel.toml`, `.env.build` and `.docker/config.json` beside it.
#[derive(Debug, Clone)]
pub struct BuildOrder {
    pub build: BuildId,
    pub workspace: WorkspaceId,
    /// For what kind of workload the image is.
    pub kind: KindName,
    /// As in `agent/my-agent`.
    pub repository: String,
    /// Digests of images that the workspace has, by the names under which a `FROM` may ask for them.
    pub own_images: BTreeMap<String, String>,
}

/// Which sources to unpack, and where to.
#[derive(Debug, Clone)]
pub struct FillOrder {
    pub build: BuildId,
    pub workspace: WorkspaceId,
    pub volume: VolumeName,
}

/// What was unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filled {
    /// Of all files.
    pub bytes: u64,
}

/// An image that was made. It stays on the machine until it is let go of by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// Of its manifest.
    pub digest: String,
    /// The files of all layers, each layer once.
    pub size_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum BuildFault {
    /// What was uploaded cannot be built; the text says why, for whoever uploaded it.
    #[error("{0}")]
    Sources(String),
    /// A step failed, as the log shows.
    #[error("{0}")]
    Failed(String),
    #[error("the build took longer than {}", span(*.0))]
    TooSlow(Duration),
    /// The workspace has no room left on this machine.
    #[error("{0}")]
    OverShare(String),
    /// Trying again may help.
    #[error("the machine cannot build it: {0}")]
    Broken(String),
}

/// What the sandbox API answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessAnswer {
    pub status: u16,
    pub body: Bytes,
}

impl ProcessAnswer {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Whoever routes requests to instances.
pub trait Edge: Send + Sync + 'static {
    fn publish(&self, change: RouteChange);

    /// Waits for requests that want replicas which are not there. What is not acted upon is asked for
    /// again.
    fn demands(&self) -> Wait<'_, Vec<Demand>> {
        Box::pin(std::future::pending())
    }

    /// Sends a request to a workload, for which no caller waits, and waits for all of the answer. It
    /// is held like any other while nothing runs that could answer it.
    fn call<'a>(
        &'a self,
        _workload: &'a ResourceId,
        _call: &'a Call,
    ) -> Wait<'a, Result<CallAnswer, MachineFault>> {
        Box::pin(async { Err(MachineFault("this server routes no requests".to_owned())) })
    }

    /// What is known here of the requests to a workload. `None`: it has no route, or nothing to count.
    fn requests_of(&self, _workload: &ResourceId, _window: Option<Window>) -> Option<RequestStats> {
        None
    }

    /// Asks a service out there for a workspace, at an address that it gave: what is inside is refused.
    fn ask_outside<'a>(
        &'a self,
        _workspace: &'a WorkspaceId,
        _request: &'a OutsideRequest,
    ) -> Wait<'a, Result<OutsideAnswer, MachineFault>> {
        Box::pin(async { Err(MachineFault("this server asks no providers".to_owned())) })
    }

    /// Waits for requests of models whose log is on, and hands over what is to be written of them.
    fn model_log(&self) -> Wait<'_, Vec<ModelLogEntry>> {
        Box::pin(std::future::pending())
    }

    /// What an instance has to do. `None`: the edge does not know it.
    fn load(&self, _instance: &InstanceName) -> Option<Load> {
        None
    }
}

/// Where an image can be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageAt {
    /// On the machine, for everybody.
    Hand,
    /// In a registry, for those whom it lets have it. The name is the same for all spellings.
    Registry { name: String },
}

/// No such image here, and no registry that could have it. Lists those that the caller may use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", unknown_image(.wanted, .there_are, *.elsewhere))]
pub struct UnknownImage {
    pub wanted: String,
    pub there_are: Vec<String>,
    /// The workspace has it, and another machine its content.
    pub elsewhere: bool,
}

fn unknown_image(wanted: &str, there_are: &[String], elsewhere: bool) -> String {
    match elsewhere {
        true => format!(
            "the content of the image `{wanted}` is on another machine of this installation; push it to the server that is to run it, or deploy there"
        ),
        false => format!("there is no image `{wanted}`; {}", listed(there_are)),
    }
}

/// In minutes where they are whole.
fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 60 && seconds.is_multiple_of(60) => {
            format!("{} minutes", seconds / 60)
        }
        seconds => format!("{seconds} s"),
    }
}

fn listed(there_are: &[String]) -> String {
    match there_are {
        [] => "there is none yet: whoever runs the server makes some with `holm image make`".into(),
        some => format!("there are: {}", some.join(", ")),
    }
}

/// What to start.
#[derive(Clone)]
pub struct Launch {
    pub instance: InstanceName,
    /// Whose it is: what the machine has once is divided between workspaces.
    pub workspace: String,
    /// Whether it takes the place of an instance that the machine lost. It is not refused for
    /// memory that others were promised meanwhile.
    pub again: bool,
    pub hostname: String,
    pub image: String,
    /// The digest of what the workspace was granted under this name, where the image is not for
    /// everybody.
    pub granted: Option<String>,
    /// Credentials of registries, as the text of a client's configuration file.
    pub registries: Option<String>,
    pub memory_mb: u32,
    /// Room for files on disk; without it they are in memory.
    pub storage_mb: Option<u32>,
    /// Where that room is kept for the next instance over the same image, on a machine that keeps
    /// volumes.
    pub root: Option<VolumeName>,
    /// The snapshot whose files it begins with, over the same image.
    pub snapshot: Option<ResourceId>,
    pub environment: Vec<(String, String)>,
    /// Whether what processes print is kept.
    pub keeps_logs: bool,
    /// How long its programs get to end when they are asked to.
    pub grace: Duration,
    /// The one piece of work that the instance is for. Without it the instance serves until it is
    /// retired.
    pub work: Option<Work>,
    /// The port on which the work answers requests: the instance is a replica, which may sleep.
    pub serves: Option<u16>,
    /// Empty folders of limited size that go with the instance.
    pub scratch: Vec<Scratch>,
    /// File systems that stay when the instance goes. Only it has them meanwhile.
    pub volumes: Vec<VolumeMount>,
    /// File systems that others have at the same time. What of them cannot be mounted is left out.
    pub drives: Vec<DriveMount>,
    /// What it may reach.
    pub egress: EgressRules,
}

/// What an instance does before it ends: the command of its image, with more arguments.
#[derive(Clone, PartialEq, Eq)]
pub struct Work {
    pub arguments: Vec<String>,
    /// JSON that the work may fetch, without credentials, at the address in its variable
    /// `BL_EXECUTION_DATA_URL`.
    pub data: Bytes,
    /// After this it is asked to end, as by [`Machine::interrupt`].
    pub timeout: Option<Duration>,
}

/// What the work is about is its owner's.
impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Environment and credentials are secret.
impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch")
            .field("instance", &self.instance)
            .field("image", &self.image)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LaunchFault {
    #[error(transparent)]
    Image(#[from] UnknownImage),
    #[error("the image cannot be had: {0}")]
    Pull(String),
    #[error("the machine is full: {0}")]
    Full(String),
    /// The workspace has to give something back first, or asks for what this machine never has.
    #[error("{0}")]
    OverShare(String),
    /// An instance that is about to go still has a volume of it.
    #[error("{0}")]
    Busy(String),
    #[error("the machine cannot start it: {0}")]
    Broken(String),
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MachineFault(pub String);

/// An instance as the machine sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub instance: InstanceName,
    pub runs: bool,
}
