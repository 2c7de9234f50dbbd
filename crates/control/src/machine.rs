//! What the control plane asks of a machine that runs instances, and of the edge that routes to
//! them.

use crate::drive_store::DriveStore;
pub use crate::machine_fault::{LaunchFault, MachineFault, UnknownImage};
use crate::registry::Registry;
use crate::snapshot_store::SnapshotStore;
use crate::tunnel_maker::TunnelMaker;
use crate::volume_store::VolumeStore;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use jobs::{Call, CallAnswer};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};
use tokio::sync::mpsc;
use types::KindName;
use types::edge::{Demand, Load, RequestStats, RouteChange, Window};
use types::egress::{EgressEvent, EgressRules};
use types::ids::{BuildId, ResourceId, WorkspaceId};
use types::instance::{
    DriveMount, Fact, InstanceName, Printed, Resize, Scratch, Stamp, VolumeMount, VolumeName,
    WorkEnd,
};
use types::models::{ModelLogEntry, OutsideAnswer, OutsideRequest};

/// A machine that runs instances. Instances outlive this program.
pub trait Machine: Send + Sync + 'static {
    /// The machine's name: the same at every start of this program, and unique among machines.
    fn name(&self) -> &str;

    /// Finds out where an image can be had.
    fn find_image(&self, image: &str) -> Result<ImageAt, UnknownImage>;

    /// Checks whether an image that was fetched is still on the machine.
    fn has_image(&self, digest: &str) -> bool;

    /// Fetches the image of a launch from its registry with the launch's credentials, into the room
    /// that its workspace has for images. The registry is asked even if the image is on the machine
    /// already, because it decides who may have it. Returns the digest.
    fn fetch_image<'a>(&'a self, launch: &'a Launch) -> BoxFuture<'a, Result<String, LaunchFault>>;

    /// Like [`Machine::fetch_image`], for a workspace that does not start anything yet.
    fn fetch_for<'a>(
        &'a self,
        _workspace: &'a WorkspaceId,
        image: &'a str,
        _registries: Option<&'a str>,
    ) -> BoxFuture<'a, Result<String, LaunchFault>> {
        let why = format!("{image}: this machine asks no registries");
        Box::pin(async { Err(LaunchFault::Pull(why)) })
    }

    /// The store behind the workspaces' own registry, if this machine has one.
    fn registry(&self) -> Option<Arc<dyn Registry>> {
        None
    }

    /// The volumes kept on this machine, if it keeps any.
    fn volumes(&self) -> Option<Arc<dyn VolumeStore>> {
        None
    }

    /// The drives kept on this machine, if it keeps any.
    fn drives(&self) -> Option<Arc<dyn DriveStore>> {
        None
    }

    /// The maker of tunnels on this machine, if it has one.
    fn tunnels(&self) -> Option<Arc<dyn TunnelMaker>> {
        None
    }

    /// The snapshots kept on this machine, if it keeps any.
    fn snapshots(&self) -> Option<Arc<dyn SnapshotStore>> {
        None
    }

    /// Checks whether there is room now for the next size of an instance. Keeps nothing for it.
    fn require_room(&self, _workspace: &WorkspaceId, _resize: &Resize) -> Result<(), LaunchFault> {
        Ok(())
    }

    /// Brings here whatever a launch begins with and is not here yet, so that the launch itself
    /// does not wait for it.
    fn make_ready<'a>(&'a self, _launch: &'a Launch) -> BoxFuture<'a, Result<(), LaunchFault>> {
        Box::pin(async { Ok(()) })
    }

    /// Starts an instance. Once this returns, requests to it are served.
    fn launch(&self, launch: Launch) -> BoxFuture<'_, Result<(), LaunchFault>>;

    /// Ends an instance, with the grace period that it was launched with, and removes everything
    /// that belonged to it. Does nothing if there is no such instance.
    fn retire<'a>(&'a self, instance: &'a InstanceName) -> BoxFuture<'a, Result<(), MachineFault>>;

    /// Puts an instance to sleep; fails while requests keep it awake. One that was launched with
    /// [`Launch::work`] alone wakes when it is attended again.
    fn rest<'a>(&'a self, instance: &'a InstanceName) -> BoxFuture<'a, Result<(), MachineFault>>;

    /// Waits until the program that an image starts by itself has failed, if it fails soon after
    /// the launch, and returns how. Must be asked once after each launch.
    fn start_failure<'a>(&'a self, _instance: &'a InstanceName) -> BoxFuture<'a, Option<String>> {
        Box::pin(async { None })
    }

    /// The instances on this machine, including those that have ended by themselves.
    fn instances(&self) -> Vec<Seen>;

    /// The same for one sandbox.
    fn instances_of(&self, sandbox: &ResourceId) -> Vec<Seen>;

    /// Checks whether an instance exists and has not ended.
    fn runs(&self, instance: &InstanceName) -> bool;

    /// Records that the machine is being looked after. Whatever ends while it is not is reported as
    /// of the last such sign. Returns the moment on a clock that nobody can set, if the machine has
    /// one.
    fn give_sign(&self) -> Option<Stamp> {
        None
    }

    /// Returns the oldest facts that were not acknowledged with [`Machine::let_go`]; waits for the
    /// first.
    fn facts(&self) -> BoxFuture<'_, Vec<Fact>>;

    /// Acknowledges all facts up to and including `number`, which the machine may then forget.
    fn let_go(&self, number: u64) -> BoxFuture<'_, Result<(), MachineFault>>;

    /// Has facts tell again what has become of instances: whether each sleeps, runs, has ended, or
    /// does not exist. For when facts may have been lost after they were acknowledged.
    fn say_again(&self, instances: Vec<InstanceName>) -> BoxFuture<'_, Result<(), MachineFault>>;

    /// Waits until the work of an instance launched with [`Launch::work`] has ended, and meanwhile
    /// hands over its output from position `from` on; the end comes after the last line. Fails if
    /// the instance does not exist. May be called again, also by the next run of this program. The
    /// instance stays until it is retired.
    fn attend<'a>(
        &'a self,
        instance: &'a InstanceName,
        from: u64,
        printed: mpsc::Sender<Printed>,
    ) -> BoxFuture<'a, Result<WorkEnd, MachineFault>>;

    /// Asks the work of an instance to end: SIGTERM, then SIGKILL after the grace period of its
    /// launch.
    fn interrupt<'a>(
        &'a self,
        instance: &'a InstanceName,
    ) -> BoxFuture<'a, Result<(), MachineFault>>;

    /// Checks whether something in an instance accepts connections on a port. An instance that
    /// sleeps and listens is not woken for this; one that does not listen yet is kept awake, or it
    /// never would.
    fn probe<'a>(&'a self, instance: &'a InstanceName, port: u16) -> BoxFuture<'a, bool>;

    /// Makes an instance keep to these rules from now on. When this returns, connections that are
    /// no longer allowed have been cut. Programs that start later are told about the proxy, or no
    /// longer told.
    fn set_egress<'a>(
        &'a self,
        _instance: &'a InstanceName,
        _rules: EgressRules,
    ) -> BoxFuture<'a, Result<(), MachineFault>> {
        Box::pin(async { Err(MachineFault("this machine keeps no rules of egress".to_owned())) })
    }

    /// Returns what the rules of instances did since the last call; waits for the first event.
    fn egress_events(&self) -> BoxFuture<'_, Vec<EgressEvent>> {
        Box::pin(std::future::pending())
    }

    /// Has the sandbox API of an instance start a process, which wakes the instance. `order` is the
    /// JSON body that this API takes.
    fn start_process<'a>(
        &'a self,
        instance: &'a InstanceName,
        order: Bytes,
    ) -> BoxFuture<'a, Result<ProcessAnswer, MachineFault>>;
}

/// Builds images from sources that people upload.
pub trait Builder: Send + Sync + 'static {
    /// Stores the sources of a build as they arrive, until [`Builder::forget`]. Sources that come a
    /// second time replace the first. Returns their size in bytes.
    fn take_sources<'a>(
        &'a self,
        build: &'a BuildId,
        bytes: mpsc::Receiver<io::Result<Bytes>>,
        bytes_max: u64,
    ) -> BoxFuture<'a, Result<u64, BuildFault>>;

    /// Builds an image from the sources of a build, and keeps it for its workspace. Output is
    /// handed over as it is printed; the end comes after the last line. After a kill this is called
    /// again and starts over, with finished steps taken from the cache.
    fn build<'a>(
        &'a self,
        order: &'a BuildOrder,
        printed: mpsc::Sender<Printed>,
    ) -> BoxFuture<'a, Result<Built, BuildFault>>;

    /// Unpacks an upload into a file system of its own, which the machine keeps from then on. If
    /// there is an object service, it has all of it too when this returns. After a kill this is
    /// called again and starts over.
    fn fill<'a>(&'a self, order: &'a FillOrder) -> BoxFuture<'a, Result<Filled, BuildFault>>;

    /// Releases all images that were made for a build: by now the workspace's registry keeps the
    /// one that counts, or nobody wants any of them. Fails while the build is still running.
    fn release<'a>(
        &'a self,
        build: &'a BuildId,
        workspace: &'a WorkspaceId,
        repository: &'a str,
    ) -> BoxFuture<'a, Result<(), MachineFault>>;

    /// Removes the sources of a build and any leftovers of its work. Fails while it is still
    /// running.
    fn forget<'a>(&'a self, build: &'a BuildId) -> BoxFuture<'a, Result<(), MachineFault>>;

    /// Lists the workspaces for which something is kept for later builds.
    fn keeps_for(&self) -> BoxFuture<'_, Result<Vec<WorkspaceId>, MachineFault>>;

    /// Removes what is kept for later builds of a workspace: finished steps and cache folders.
    fn forget_workspace<'a>(
        &'a self,
        workspace: &'a WorkspaceId,
    ) -> BoxFuture<'a, Result<(), MachineFault>>;
}

/// What to build. The sources say the rest: they have a `Dockerfile` or a program in a known
/// language, with `blaxel.toml`, `.env.build` and `.docker/config.json` beside it.
#[derive(Debug, Clone)]
pub struct BuildOrder {
    pub build: BuildId,
    pub workspace: WorkspaceId,
    /// The kind of workload that the image is for.
    pub kind: KindName,
    /// For example `agent/my-agent`.
    pub repository: String,
    pub own_images: OwnImages,
}

/// Looks up the images that a workspace may use without asking a registry, by the names that a
/// `FROM` has for them.
#[derive(Clone)]
pub struct OwnImages(Arc<dyn Fn(String) -> FoundImage + Send + Sync>);

type FoundImage = BoxFuture<'static, Result<Option<String>, LaunchFault>>;

impl OwnImages {
    pub fn new(find: impl Fn(String) -> FoundImage + Send + Sync + 'static) -> Self {
        Self(Arc::new(find))
    }

    /// Returns the digest of an image. Refuses a name that can only be that of an own image if there
    /// is none.
    pub async fn find(&self, name: &str) -> Result<Option<String>, LaunchFault> {
        (self.0)(name.to_owned()).await
    }
}

impl fmt::Debug for OwnImages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnImages")
    }
}

/// Which sources to unpack, and into which volume.
#[derive(Debug, Clone)]
pub struct FillOrder {
    pub build: BuildId,
    pub workspace: WorkspaceId,
    pub volume: VolumeName,
}

/// The result of [`Builder::fill`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filled {
    /// Total size of all files.
    pub bytes: u64,
    /// Digest of its copy at the object service, if there is one.
    pub copy: Option<String>,
}

/// An image that was built. It stays on the machine until it is released by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// The digest of its manifest.
    pub digest: String,
    /// Size of the files of all layers, counting each layer once.
    pub size_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum BuildFault {
    /// The upload cannot be built; the text tells the person who uploaded it why.
    #[error("{0}")]
    Sources(String),
    /// A step failed, as the log shows.
    #[error("{0}")]
    Failed(String),
    #[error("the build took longer than {}", span(*.0))]
    TooSlow(Duration),
    /// The workspace has used up its share of this machine's disk.
    #[error("{0}")]
    OverShare(String),
    /// An internal failure; trying again may help.
    #[error("the machine cannot build it: {0}")]
    Broken(String),
}

/// The sandbox API's answer to an order to start a process.
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

/// The part of the program that routes requests to instances.
pub trait Edge: Send + Sync + 'static {
    fn publish(&self, change: RouteChange);

    /// The ids of everything that it has a route of.
    fn routed(&self) -> Vec<ResourceId>;

    /// Waits for requests that want replicas which do not exist yet. A demand that is not acted
    /// upon comes again.
    fn demands(&self) -> BoxFuture<'_, Vec<Demand>> {
        Box::pin(std::future::pending())
    }

    /// Sends a request that no caller waits for to a workload, and waits for the complete answer.
    /// The request is held like any other while nothing runs that could answer it. Fails only if the
    /// workload was not asked, so that the call can be made again.
    fn call<'a>(
        &'a self,
        _workload: &'a ResourceId,
        _call: &'a Call,
    ) -> BoxFuture<'a, Result<CallAnswer, MachineFault>> {
        Box::pin(async { Err(MachineFault("this server routes no requests".to_owned())) })
    }

    /// Statistics of the requests to a workload that passed through here. `None` if it has no
    /// route, or nothing to count.
    fn requests_of(&self, _workload: &ResourceId, _window: Option<Window>) -> Option<RequestStats> {
        None
    }

    /// Sends a request to an outside service on behalf of a workspace, at an address that the
    /// workspace gave. Addresses inside our own network are refused.
    fn ask_outside<'a>(
        &'a self,
        _workspace: &'a WorkspaceId,
        _request: &'a OutsideRequest,
    ) -> BoxFuture<'a, Result<OutsideAnswer, MachineFault>> {
        Box::pin(async { Err(MachineFault("this server asks no providers".to_owned())) })
    }

    /// Waits for requests to models whose log is on, and returns the entries to be written.
    fn model_log(&self) -> BoxFuture<'_, Vec<ModelLogEntry>> {
        Box::pin(std::future::pending())
    }

    /// The load of an instance. `None` if the edge does not know it.
    fn load(&self, _instance: &InstanceName) -> Option<Load> {
        None
    }
}

/// Where an image can be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageAt {
    /// On the machine, for everybody.
    Hand,
    /// In a registry, for those whom it gives the image to. All spellings of an image have the same
    /// `name`.
    Registry { name: String },
}

/// Formats a duration, in minutes if it is a whole number of them.
fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 60 && seconds.is_multiple_of(60) => {
            format!("{} minutes", seconds / 60)
        }
        seconds => format!("{seconds} s"),
    }
}

/// What to start.
#[derive(Clone)]
pub struct Launch {
    pub instance: InstanceName,
    /// The owning workspace. The machine's resources are divided between workspaces.
    pub workspace: String,
    /// True if it replaces an instance that the machine lost. It is then not refused for memory
    /// that was promised to others in the meantime.
    pub again: bool,
    pub hostname: String,
    pub image: String,
    /// The digest of the image that the workspace was granted under this name, if the image is not
    /// available to everybody.
    pub granted: Option<String>,
    /// Registry credentials, as the text of a client's configuration file.
    pub registries: Option<String>,
    pub memory_mb: u32,
    /// Disk space for files; without it, files are kept in memory.
    pub storage_mb: Option<u32>,
    /// The volume that keeps this disk space for the next instance, on a machine that keeps
    /// volumes. If it exists, the instance starts over the image that its files were written over.
    pub root: Option<VolumeName>,
    /// The snapshot whose files the instance begins with, over the same image.
    pub snapshot: Option<ResourceId>,
    pub environment: Vec<(String, String)>,
    /// Whether the output of processes is kept.
    pub keeps_logs: bool,
    /// The grace period of its programs when they are asked to end.
    pub grace: Duration,
    /// The one piece of work that the instance exists for. Without it, the instance serves until it
    /// is retired.
    pub work: Option<Work>,
    /// The port on which the work answers requests. It makes the instance a replica, which may
    /// sleep.
    pub serves: Option<u16>,
    /// Empty folders of limited size that are removed with the instance.
    pub scratch: Vec<Scratch>,
    /// File systems that remain when the instance goes. No other instance has them meanwhile.
    pub volumes: Vec<VolumeMount>,
    /// File systems shared with other instances. Those that cannot be mounted are left out.
    pub drives: Vec<DriveMount>,
    /// What the instance may reach over the network.
    pub egress: EgressRules,
}

/// The work of an instance, after which it ends: the command of its image, with additional
/// arguments.
#[derive(Clone, PartialEq, Eq)]
pub struct Work {
    pub arguments: Vec<String>,
    /// JSON that the work can fetch without credentials, at the address in the variable
    /// `BL_EXECUTION_DATA_URL`.
    pub data: Bytes,
    /// After this time the work is asked to end, as by [`Machine::interrupt`].
    pub timeout: Option<Duration>,
}

/// Arguments and data belong to the tenant and are not printed.
impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// The environment and the credentials are secret.
impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch")
            .field("instance", &self.instance)
            .field("image", &self.image)
            .finish_non_exhaustive()
    }
}

/// An instance as the machine sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub instance: InstanceName,
    pub runs: bool,
}
