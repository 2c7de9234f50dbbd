//! A machine that builds, with the base images of the tests' Dockerfiles.

use crate::common::{add_tools, prepare, settings, store, world};
use control::machine::{BuildFault, BuildOrder, Builder, Built, OwnImages};
use futures_util::future::BoxFuture;
use host::{BuildSettings, ImageBuilder, LocalMachine};
use images::{Config, Store};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::mpsc;
use types::KindName;
use types::ids::{BuildId, WorkspaceId};
use types::instance::Printed;

pub(crate) const BASE: &str = "localhost/test/base";
pub(crate) const OTHER: &str = "localhost/test/other";
/// Nothing takes longer, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Place {
    pub(crate) data: TempDir,
    pub(crate) store: Store,
    pub(crate) builder: ImageBuilder,
    host: LocalMachine,
}

pub(crate) struct Seen {
    pub(crate) built: Result<Built, BuildFault>,
    pub(crate) log: String,
}

/// A build in progress. Dropping it stops it.
pub(crate) struct Begun<'a> {
    building: BoxFuture<'a, Result<Built, BuildFault>>,
    pieces: mpsc::Receiver<Printed>,
}

impl Begun<'_> {
    pub(crate) async fn end(mut self) -> Result<Built, BuildFault> {
        let reading = async { while self.pieces.recv().await.is_some() {} };
        let both = async { tokio::join!(self.building, reading).0 };
        tokio::time::timeout(PATIENCE, both).await.expect("the build ends")
    }
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut BuildSettings)) -> Self {
        prepare();
        let data = tempfile::tempdir().unwrap();
        let store = store(data.path());
        make_images(data.path(), &store);
        let (host, builder) = open(data.path(), store.clone(), change);
        Self { data, store, builder, host }
    }

    /// Uploads and builds.
    pub(crate) async fn build(&self, build: &str, archive: Vec<u8>) -> Seen {
        self.build_as("wsp_test", build, archive).await
    }

    pub(crate) async fn build_as(&self, workspace: &str, build: &str, archive: Vec<u8>) -> Seen {
        let order = self.upload(workspace, build, archive).await;
        let (printed, mut pieces) = mpsc::channel::<Printed>(4);
        let reading = async {
            let mut log = Vec::new();
            while let Some(piece) = pieces.recv().await {
                log.extend_from_slice(&piece.bytes);
            }
            String::from_utf8_lossy(&log).into_owned()
        };
        let both = async { tokio::join!(self.builder.build(&order, printed), reading) };
        let (built, log) = tokio::time::timeout(PATIENCE, both).await.expect("the build ends");
        self.builder.forget(&order.build).await.unwrap();
        Seen { built, log }
    }

    pub(crate) async fn upload(
        &self,
        workspace: &str,
        build: &str,
        archive: Vec<u8>,
    ) -> BuildOrder {
        let id = BuildId::known(format!("bld_{build}"));
        let (send, receive) = mpsc::channel(1);
        let sending = async move { send.send(Ok(archive.into())).await.unwrap() };
        let taking = self.builder.take_sources(&id, receive, 1 << 30);
        let (taken, ()) = tokio::join!(taking, sending);
        taken.unwrap();
        BuildOrder {
            build: id,
            workspace: WorkspaceId::known(workspace),
            kind: KindName::Sandbox,
            repository: "sandbox/test".to_owned(),
            own_images: OwnImages::new(|_| Box::pin(async { Ok(None) })),
        }
    }

    /// Starts a build and stops waiting for it once it has printed a line that starts with `until`.
    pub(crate) async fn abandon(&self, build: &str, archive: Vec<u8>, until: &str) {
        let order = self.upload("wsp_test", build, archive).await;
        drop(self.begin(&order, until).await);
    }

    /// Starts a build, and returns it once it has printed a line that starts with `until`.
    pub(crate) async fn begin<'a>(&'a self, order: &'a BuildOrder, until: &str) -> Begun<'a> {
        let (printed, mut pieces) = mpsc::channel::<Printed>(4);
        let mut building = self.builder.build(order, printed);
        loop {
            tokio::select! {
                piece = pieces.recv() => {
                    let piece = piece.expect("the build goes on");
                    let line = String::from_utf8_lossy(&piece.bytes).into_owned();
                    if line.trim().starts_with(until) {
                        return Begun { building, pieces };
                    }
                }
                _ = &mut building => panic!("the build has ended"),
            }
        }
    }

    /// Exports the image that a build has made, as an OCI layout.
    pub(crate) fn export(&self, build: &str, built: &Built, folder: &Path) {
        let name = format!("wsp_test/sandbox/test/bld_{build}@{}", built.digest).parse().unwrap();
        std::fs::create_dir_all(folder).unwrap();
        self.store.export(&name, folder).unwrap().expect("the image is there");
    }

    /// Also forgets builds that were started with [`Self::begin`].
    pub(crate) async fn clear_of(self, begun: &[&BuildOrder]) {
        for order in begun {
            self.builder.forget(&order.build).await.unwrap();
        }
        self.clear();
    }

    /// Removes everything the test has made, and fails if something of a build is left.
    pub(crate) fn clear(self) {
        self.host.leave().expect("no instance is left");
        let caches = self.data.path().join("builds/sources");
        assert_eq!(std::fs::read_dir(caches).unwrap().count(), 0, "no sources are left");
    }
}

fn open(
    data: &Path,
    store: Store,
    change: impl FnOnce(&mut BuildSettings),
) -> (LocalMachine, ImageBuilder) {
    let settings = settings(data, "build", 2);
    let host = LocalMachine::open(settings, store, world()).unwrap();
    let mut settings = BuildSettings::new(data.join("builds"));
    (settings.memory_mb, settings.disk_mb, settings.cache_mount_mb) = (256, 128, 16);
    change(&mut settings);
    let builder = ImageBuilder::open(host.clone(), settings, world()).unwrap();
    (host, builder)
}

/// Makes the files of the base image, for `buildah` too.
pub(crate) fn base(root: &Path) {
    for folder in ["etc", "tmp", "root", "proc", "sys", "dev", "run", "home/ada"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    let passwd = "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000:Ada:/home/ada:/bin/sh\n";
    std::fs::write(root.join("etc/passwd"), passwd).unwrap();
    std::fs::write(root.join("etc/group"), "root:x:0:\nada:x:1000:\nstaff:x:50:\n").unwrap();
    // `buildah` makes these if an image lacks them.
    for (name, text) in
        [("hosts", "127.0.0.1 localhost\n"), ("hostname", "base\n"), ("resolv.conf", "\n")]
    {
        std::fs::write(root.join("etc").join(name), text).unwrap();
    }
    add_tools(root);
    run(Command::new("chmod").arg("1777").arg(root.join("tmp")));
}

pub(crate) fn other(root: &Path) {
    base(root);
    std::fs::write(root.join("other"), "other\n").unwrap();
}

fn make_images(data: &Path, store: &Store) {
    for (name, fill) in [(BASE, base as fn(&Path)), (OTHER, other)] {
        let root = data.join(name.replace('/', "-"));
        fill(&root);
        let archive = tar(&root, &["-c", "."]);
        let env = BTreeMap::from([("PATH".to_owned(), "/bin".to_owned())]);
        let mut config = Config { env, ..Config::default() };
        if name == OTHER {
            config.env.insert("OTHER".to_owned(), "1".to_owned());
            config.cmd = vec!["other".to_owned()];
            config.workdir = "/root".to_owned();
        }
        store.import_rootfs(archive.as_slice(), &config, &name.parse().unwrap()).unwrap();
    }
}

pub(crate) fn tar(folder: &Path, arguments: &[&str]) -> Vec<u8> {
    run(Command::new("tar").arg("-C").arg(folder).args(arguments))
}

pub(crate) fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    output.stdout
}
