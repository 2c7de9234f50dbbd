//! A machine for one test, with an image of busybox, and helpers to ask it.

use crate::common::{add_tools, prepare, settings, store, world};
use control::machine::{Launch, Machine, MachineFault, Work};
use futures_util::future::BoxFuture;
use gateway::{Caller, Gateway, Guard, Parts, Refused};
use host::{LocalMachine, MachineControl};
use images::{Config, Digest};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use types::egress::EgressRules;
use types::instance::{InstanceName, Printed, Stream, WorkEnd};
use types::{KindName, World};

/// Its entry point is a shell that takes a script as its argument.
pub(crate) const SHELL: &str = "holm/shell";
/// It starts nothing by itself.
pub(crate) const PLAIN: &str = "holm/plain";
/// Its user is not root.
pub(crate) const HUMBLE: &str = "holm/humble";
/// Nothing takes longer, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How many pieces of output can be on their way to the test.
const PIECES_MAX: usize = 4;

pub(crate) struct Place {
    data: TempDir,
    world: World,
}

/// A running machine, with its gateway.
pub(crate) struct Running {
    pub(crate) control: Arc<MachineControl>,
    pub(crate) gateway: Gateway,
    host: LocalMachine,
}

/// A file system that a test has mounted.
pub(crate) struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

pub(crate) struct Seen {
    pub(crate) end: WorkEnd,
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
    pub(crate) last: u64,
}

struct Nobody;

impl Guard for Nobody {
    fn admit<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        _: KindName,
    ) -> BoxFuture<'a, Result<Caller, Refused>> {
        Box::pin(async { Err(Refused::Unknown) })
    }

    fn changes(&self) -> watch::Receiver<()> {
        watch::Sender::new(()).subscribe()
    }
}

impl Place {
    /// Prepares a place with these images.
    pub(crate) fn new(images: &[&str]) -> Self {
        prepare();
        let data = tempfile::tempdir().unwrap();
        make_images(data.path(), images);
        Self { data, world: world() }
    }

    /// Makes a name mean another image, which contains an additional file.
    pub(crate) fn replace(&self, name: &str) -> Digest {
        let later = self.data.path().join("root/etc/later");
        std::fs::write(later, "later\n").unwrap();
        make_images(self.data.path(), &[name]);
        self.digest(name)
    }

    pub(crate) fn forget(&self, name: &str) {
        let images = store(self.data.path());
        images.remove_image(&self.digest(name)).unwrap();
    }

    /// Returns what a name means now.
    pub(crate) fn digest(&self, name: &str) -> Digest {
        store(self.data.path()).find_public(&name.parse().unwrap()).unwrap().unwrap()
    }

    pub(crate) fn has(&self, image: &Digest) -> bool {
        store(self.data.path()).has(image)
    }

    /// Removes images without a name, which nobody does while a machine runs.
    pub(crate) fn collect(&self) {
        store(self.data.path()).collect().unwrap();
    }

    /// Leaves no inode for the notes of images in use, until the returned value is dropped.
    pub(crate) fn without_inodes(&self) -> Mounted {
        let folder = self.data.path().join("node/leases");
        let options = ["-t", "tmpfs", "-o", "nr_inodes=1", "none"];
        let mounted = Command::new("mount").args(options).arg(&folder).status();
        assert!(mounted.unwrap().success());
        Mounted(folder)
    }

    /// Removes the notes of what disks lie over while no machine runs.
    pub(crate) fn forget_images_below_disks(&self) {
        std::fs::remove_dir_all(self.data.path().join("node/disks")).unwrap();
    }

    /// Kills an instance while no machine runs.
    pub(crate) fn kill(&self, instance: &InstanceName) {
        let end = Instant::now() + PATIENCE;
        loop {
            thaw(instance);
            let there = processes(instance);
            if there.is_empty() {
                return;
            }
            assert!(Instant::now() < end, "{there:?} are still there");
            Command::new("kill").arg("-KILL").args(there).status().unwrap();
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn start(&self) -> Running {
        let settings = settings(self.data.path(), "host", 8);
        let host =
            LocalMachine::open(settings, store(self.data.path()), self.world.clone()).unwrap();
        let gateway = Gateway::new(Parts {
            settings: gateway::Settings {
                standby_delay: Some(Duration::from_millis(1)),
                // Longer than any test waits.
                wait_timeout: 60 * PATIENCE,
                ..Default::default()
            },
            guard: Arc::new(Nobody),
            machine: Arc::new(host.clone()),
            world: self.world.clone(),
        });
        let control = Arc::new(MachineControl::new(host.clone(), gateway.standby().clone()));
        Running { control, gateway, host }
    }
}

/// Returns the processes of an instance, as its control groups list them.
fn processes(instance: &InstanceName) -> Vec<String> {
    let texts = groups(instance)
        .into_iter()
        .filter_map(|group| std::fs::read_to_string(group.join("cgroup.procs")).ok());
    texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Lets a sleeping instance go on: in version 1 of control groups, what is frozen does not end
/// before that.
fn thaw(instance: &InstanceName) {
    for state in groups(instance).into_iter().map(|group| group.join("freezer.state")) {
        if state.exists() {
            std::fs::write(state, "THAWED").unwrap();
        }
    }
}

/// Returns the control groups of an instance, for both versions.
fn groups(instance: &InstanceName) -> Vec<PathBuf> {
    let node = format!("host-test-{}", std::process::id());
    let roots = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/freezer", "/sys/fs/cgroup"];
    let owners = roots.into_iter().filter_map(|root| Path::new(root).join(&node).read_dir().ok());
    owners.flatten().map(|owner| owner.unwrap().path().join(instance.as_str())).collect()
}

impl Running {
    /// Removes images that nothing needs.
    pub(crate) fn tidy(&self) {
        self.host.tidy();
    }

    /// Removes everything the test has made, and fails if it cannot.
    pub(crate) async fn clear(self) {
        for seen in self.control.instances() {
            self.control.retire(&seen.instance).await.unwrap();
        }
        self.host.leave().unwrap();
    }

    pub(crate) async fn attend(
        &self,
        instance: &InstanceName,
        from: u64,
    ) -> Result<Seen, MachineFault> {
        let (printed, mut pieces) = mpsc::channel::<Printed>(PIECES_MAX);
        let reading = async {
            let (mut out, mut err, mut last) = (Vec::new(), Vec::new(), from);
            while let Some(piece) = pieces.recv().await {
                assert!(piece.next > last);
                last = piece.next;
                match piece.stream {
                    Stream::Stdout => out.extend_from_slice(&piece.bytes),
                    Stream::Stderr => err.extend_from_slice(&piece.bytes),
                }
            }
            (out, err, last)
        };
        let both = async { tokio::join!(self.control.attend(instance, from, printed), reading) };
        let (end, (out, err, last)) =
            tokio::time::timeout(PATIENCE, both).await.expect("the work ends");
        Ok(Seen { end: end?, out, err, last })
    }

    pub(crate) async fn launch(&self, launch: Launch) -> InstanceName {
        let instance = launch.instance.clone();
        self.control.launch(launch).await.unwrap();
        instance
    }

    /// Runs some work to its end and removes it.
    pub(crate) async fn outcome(&self, launch: Launch) -> Seen {
        let instance = self.launch(launch).await;
        let seen = self.attend(&instance, 0).await.unwrap();
        self.control.retire(&instance).await.unwrap();
        seen
    }
}

pub(crate) fn name(instance: &str) -> InstanceName {
    InstanceName::new(instance).unwrap()
}

pub(crate) fn launch(instance: &str, image: &str, arguments: &[&str]) -> Launch {
    Launch {
        workspace: "wsp_test".to_owned(),
        again: false,
        instance: name(instance),
        hostname: "task".into(),
        image: image.to_owned(),
        granted: None,
        registries: None,
        memory_mb: 64,
        storage_mb: None,
        root: None,
        environment: vec![("GREETING".into(), "hello".into())],
        keeps_logs: true,
        grace: Duration::from_millis(500),
        work: Some(Work {
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            data: bytes::Bytes::new(),
            timeout: None,
        }),
        serves: None,
        scratch: vec![],
        volumes: vec![],
        drives: vec![],
        egress: EgressRules::default(),
        snapshot: None,
    }
}

pub(crate) fn shell(instance: &str, script: &str) -> Launch {
    launch(instance, SHELL, &[script])
}

fn make_images(data: &Path, wanted: &[&str]) {
    let root = data.join("root");
    for folder in ["etc", "tmp", "root"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    std::fs::write(
        root.join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000:Ada:/:/bin/sh\n",
    )
    .unwrap();
    std::fs::write(root.join("etc/group"), "root:x:0:\nada:x:1000:\nstaff:x:50:ada\n").unwrap();
    if !root.join("bin").exists() {
        add_tools(&root);
    }
    let archive =
        Command::new("tar").arg("-C").arg(&root).args(["-c", "."]).output().unwrap().stdout;
    let shell =
        Config { entrypoint: vec!["/bin/sh".into()], cmd: vec!["-c".into()], ..Config::default() };
    let humble = Config { user: "ada".into(), ..shell.clone() };
    let images = [(SHELL, shell), (PLAIN, Config::default()), (HUMBLE, humble)];
    for (name, config) in images.into_iter().filter(|(name, _)| wanted.contains(name)) {
        store(data).import_rootfs(archive.as_slice(), &config, &name.parse().unwrap()).unwrap();
    }
}
