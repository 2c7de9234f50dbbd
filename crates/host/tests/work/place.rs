//! A machine for one test, with an image of busybox, and what is asked of it.

use control::machine::{Launch, Machine, MachineFault, Work};
use gateway::{BoxFuture, Caller, Gateway, Guard, Parts, Refused};
use host::{LocalMachine, MachineControl};
use images::{Config, Store};
use node::{Backend, Egress, Limits};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use types::instance::{InstanceName, Printed, Stream, WorkEnd};
use types::{KindName, Timestamp, World};

/// Its entry point is a shell that takes a script as its argument.
pub(crate) const SHELL: &str = "holm/shell";
/// It starts nothing by itself.
pub(crate) const PLAIN: &str = "holm/plain";
/// Its user is not root.
pub(crate) const HUMBLE: &str = "holm/humble";
const BUSYBOX: &str = "/usr/bin/busybox";
/// Nothing takes longer, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);
/// Of output, on its way to the test.
const PIECES_MAX: usize = 4;

pub(crate) struct Place {
    data: TempDir,
    world: World,
}

/// A machine that runs, with the way to it.
pub(crate) struct Running {
    pub(crate) control: Arc<MachineControl>,
    pub(crate) gateway: Gateway,
    host: LocalMachine,
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

fn world() -> World {
    World::new(
        || {
            #[expect(
                clippy::disallowed_methods,
                reason = "the one place where this test reads the clock"
            )]
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            Timestamp::from_ms(i64::try_from(now.as_millis()).unwrap())
        },
        |bytes| getrandom::fill(bytes).unwrap(),
    )
}

impl Place {
    /// With these images.
    pub(crate) fn new(images: &[&str]) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "these tests start containers: run them as root"
        );
        // Fails only when it was done before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let data = tempfile::tempdir().unwrap();
        make_images(data.path(), images);
        Self { data, world: world() }
    }

    pub(crate) fn start(&self) -> Running {
        // Two tests at the same time must not share addresses, user ids or names.
        let own = std::process::id() % 4096;
        let subnet = format!("10.{}.{}.0/20", 100 + own / 16 % 100, own % 16 * 16).parse().unwrap();
        let node = node::Settings {
            folder: self.data.path().join("node"),
            name: format!("host-test-{own}"),
            subnet,
            egress: Egress::internet_only(Vec::new()),
            nameservers: vec![],
            first_uid: 1_000_000_000 + own * 700_000,
            limits: Limits { networks_ready: 8, ..Limits::default() },
            backend: Backend::Direct,
        };
        let guest = std::fs::read(guest()).unwrap();
        let settings = host::Settings {
            name: "here".into(),
            node,
            guest,
            registries_inside: vec![],
            pulled_mb: 1_000,
            image_mb_max: 1_000,
            registry: host::RegistrySettings {
                disk_mb: 1_000,
                share_percent: 80,
                blob_bytes_max: 1 << 30,
                manifest_bytes_max: 1 << 20,
                uploads_max: 10,
                uploads_workspace_max: 10,
                upload_keep: Duration::from_secs(3600),
                untagged_keep: Duration::from_secs(3600),
                stall: Duration::from_secs(30),
            },
            pids_max: 64,
        };
        let host =
            LocalMachine::open(settings, store(self.data.path()), self.world.clone()).unwrap();
        let gateway = Gateway::new(Parts {
            settings: gateway::Settings {
                standby_delay: Some(Duration::from_millis(1)),
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

impl Running {
    /// Removes all that the test has made, and fails if it cannot.
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
    }
}

pub(crate) fn shell(instance: &str, script: &str) -> Launch {
    launch(instance, SHELL, &[script])
}

/// The program inside of instances, made by `tools/guest`.
fn guest() -> PathBuf {
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/holm-guest");
    assert!(guest.exists(), "{} is not there: run tools/guest", guest.display());
    guest
}

fn store(data: &Path) -> Store {
    let settings = images::Settings { overlay: images::Overlay::User, ..Default::default() };
    Store::open(&data.join("images"), settings).unwrap()
}

fn make_images(data: &Path, wanted: &[&str]) {
    let root = data.join("root");
    for folder in ["bin", "etc", "tmp", "root"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    std::fs::write(
        root.join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000:Ada:/:/bin/sh\n",
    )
    .unwrap();
    std::fs::copy(BUSYBOX, root.join("bin/busybox")).expect("the package busybox-static");
    let applets = Command::new(BUSYBOX).arg("--list").output().unwrap();
    for applet in
        String::from_utf8(applets.stdout).unwrap().lines().filter(|applet| *applet != "busybox")
    {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).unwrap();
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
