//! A machine for one test: a network of its own, a folder, a root file system of busybox, and a
//! node's settings.

use node::{
    Backend, Egress, Exit, FirstProcess, InstanceName, Limits, Node, Owner, Program, Settings,
    Spec, User, Writable,
};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;
use types::{Timestamp, World};

pub(crate) const BUSYBOX: &str = "/usr/bin/busybox";
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Machine {
    pub(crate) folder: TempDir,
    pub(crate) settings: Settings,
}

pub(crate) fn world() -> World {
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

impl Machine {
    /// Makes a machine. The calling thread, and all threads that it starts, get a network and
    /// mounts of their own.
    pub(crate) fn new() -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "these tests start containers: run them as root"
        );
        leave_machine();
        let folder = tempfile::tempdir().unwrap();
        make_root(&folder.path().join("root"));
        let settings = settings(folder.path(), format!("test-{}", world().random_text(8)));
        Self { folder, settings }
    }

    pub(crate) fn open(&self) -> Node {
        Node::open(self.settings.clone(), world()).unwrap()
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.settings.folder.with_file_name("root")
    }

    /// Describes an instance whose first process is a shell with this script.
    pub(crate) fn shell(&self, id: &str, script: &str) -> Spec {
        Spec {
            id: InstanceName::new(id).unwrap(),
            owner: owner("somebody"),
            again: false,
            layers: vec![self.root()],
            snapshot: None,
            memory_mb: 64,
            cpu_millicores: 1_000,
            pids_max: 64,
            writable: Writable::Memory { mb: 16 },
            hostname: "box".into(),
            workdir: "/".into(),
            user: User::ROOT,
            first: FirstProcess {
                program: program(),
                arguments: ["sh", "-c", script].map(str::to_owned).to_vec(),
                environment: vec!["PATH=/bin".into(), "GREETING=hello".into()],
                listen: None,
                config: None,
            },
            scratch: vec![],
            extras: node::Extras::default(),
            firewall: node::Firewall::default(),
        }
    }

    /// Runs a script to its end and removes every trace of it.
    pub(crate) fn outcome(&self, node: &Node, script: &str) -> (Exit, String) {
        run(node, &self.shell(&format!("run-{}", world().random_text(8)), script))
    }
}

pub(crate) fn run(node: &Node, spec: &Spec) -> (Exit, String) {
    node.create(spec).unwrap();
    let exit = node.wait(&spec.id, PATIENCE).unwrap().expect("the script ends");
    let text = String::from_utf8_lossy(&node.console(&spec.id).unwrap()).into_owned();
    node.destroy(&spec.id).unwrap();
    (exit, text)
}

pub(crate) fn owner(name: &str) -> Owner {
    Owner::new(name).unwrap()
}

/// The same program for all instances of a test, as on a server.
fn program() -> Program {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    let load =
        || Program::new(&std::fs::read(BUSYBOX).expect("the package busybox-static")).unwrap();
    PROGRAM.get_or_init(load).clone()
}

/// Waits until the console contains `text`.
pub(crate) fn await_console(node: &Node, id: &InstanceName, text: &str) {
    await_that(&format!("`{text}` on the console"), || {
        String::from_utf8_lossy(&node.console(id).unwrap()).contains(text)
    });
}

pub(crate) fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(std::time::Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn settings(folder: &Path, name: String) -> Settings {
    Settings {
        folder: folder.join("node"),
        name,
        subnet: "10.199.0.0/20".parse().unwrap(),
        egress: Egress::internet_only(Vec::new()),
        nameservers: vec!["192.0.2.53".parse().unwrap()],
        first_uid: 2_000_000_000,
        limits: Limits { networks_ready: 4, ..Limits::default() },
        first: starter(),
        backend: backend(),
    }
}

/// The program that instances are forked from, which `tools/guest` makes.
fn starter() -> Program {
    static STARTER: OnceLock<Program> = OnceLock::new();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/holm-guest");
    let load = || Program::new(&std::fs::read(file).expect("what tools/guest makes")).unwrap();
    STARTER.get_or_init(load).clone()
}

/// The environment variable that names the backend for all tests.
pub(crate) const BACKEND: &str = "NODE_TEST_BACKEND";

fn backend() -> Backend {
    let name = std::env::var(BACKEND).unwrap_or_default();
    assert!(
        ["", "direct", "runc"].contains(&name.as_str()),
        "{BACKEND} is {name}, which is no backend"
    );
    if name == "runc" { Backend::Runc { program: RUNC.into() } } else { Backend::Direct }
}

const RUNC: &str = "/usr/sbin/runc";

fn make_root(root: &Path) {
    let bin = root.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::create_dir_all(root.join("etc")).unwrap();
    std::fs::create_dir_all(root.join("tmp")).unwrap();
    std::fs::write(root.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\n").unwrap();
    std::fs::copy(BUSYBOX, bin.join("busybox")).unwrap();
    let applets = std::process::Command::new(BUSYBOX).arg("--list").output().unwrap();
    for applet in
        String::from_utf8(applets.stdout).unwrap().lines().filter(|applet| *applet != "busybox")
    {
        std::os::unix::fs::symlink("busybox", bin.join(applet)).unwrap();
    }
}

#[expect(
    unsafe_code,
    reason = "new namespaces of networks and mounts change no memory and no descriptor of this process"
)]
fn leave_machine() {
    use rustix::mount::{MountPropagationFlags, mount_change};
    use rustix::thread::UnshareFlags;
    // SAFETY: see above.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET | UnshareFlags::NEWNS) }.unwrap();
    // Nothing reaches the machine, and among themselves mounts are shared, as systemd makes them.
    for propagation in [MountPropagationFlags::PRIVATE, MountPropagationFlags::SHARED] {
        mount_change("/", propagation | MountPropagationFlags::REC).unwrap();
    }
}

/// Removes the test's control groups, which also checks that no instance has left one.
impl Drop for Machine {
    fn drop(&mut self) {
        let removed = Node::open(self.settings.clone(), world())
            .map_err(anyhow::Error::from)
            .and_then(|node| {
                node.list().iter().try_for_each(|view| node.destroy(&view.id))?;
                Ok(node.leave()?)
            });
        // A test that is failing already may still hold its node, and its first failure is the one
        // to report.
        if !std::thread::panicking() {
            removed.unwrap();
        }
    }
}
