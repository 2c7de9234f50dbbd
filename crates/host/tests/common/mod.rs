//! What a test's machine consists of: real time, the guest, an image store, settings that do not
//! get in the way, and the tools of busybox.

use images::Store;
use node::{Backend, Egress, Limits};
use std::path::{Path, PathBuf};
use std::process::Command;
use types::{Timestamp, World};

const BUSYBOX: &str = "/usr/bin/busybox";

pub(crate) fn world() -> World {
    World::new(
        || {
            #[expect(
                clippy::disallowed_methods,
                reason = "the one place where these tests read the clock"
            )]
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            Timestamp::from_ms(i64::try_from(now.as_millis()).unwrap())
        },
        |bytes| getrandom::fill(bytes).unwrap(),
    )
}

/// Call this before anything else.
pub(crate) fn prepare() {
    assert!(rustix::process::geteuid().is_root(), "these tests start containers: run them as root");
    // Fails only if it was done before.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Returns the settings of this test's machine, whose node's name starts with `front`.
pub(crate) fn settings(data: &Path, front: &str, networks_ready: u32) -> host::Settings {
    // Two tests that run at once must not share addresses, user ids or names.
    let own = testing::machine::own();
    let node = node::Settings {
        folder: data.join("node"),
        name: format!("{front}-test-{}", std::process::id()),
        subnet: own.subnet().parse().unwrap(),
        egress: Egress::internet_only(Vec::new()),
        nameservers: vec![],
        first_uid: own.first_uid(),
        limits: Limits { instances: 400, networks_ready, ..Limits::default() },
        first: node::Program::new(&std::fs::read(guest()).unwrap()).unwrap(),
        backend: Backend::Direct,
    };
    host::Settings {
        name: "here".into(),
        node,
        registries_inside: vec![],
        pulled_mb: 10_000,
        image_mb_max: 1_000,
        registry: host::RegistrySettings::default(),
        pids_max: 64,
        start_millicores: 1_000,
        takes_max: 4,
    }
}

/// Returns the path of the program inside instances, which `tools/guest` makes.
fn guest() -> PathBuf {
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/holm-guest");
    assert!(guest.exists(), "{} is not there: run tools/guest", guest.display());
    guest
}

pub(crate) fn store(data: &Path) -> Store {
    let settings = images::Settings { overlay: images::Overlay::User, ..Default::default() };
    Store::open(&data.join("images"), settings).unwrap()
}

/// Puts a shell and its tools into a root folder.
pub(crate) fn add_tools(root: &Path) {
    std::fs::create_dir_all(root.join("bin")).unwrap();
    std::fs::copy(BUSYBOX, root.join("bin/busybox")).expect("the package busybox-static");
    let applets = Command::new(BUSYBOX).arg("--list").output().unwrap();
    let applets = String::from_utf8(applets.stdout).unwrap();
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
}
