//! The kernel and the programs of this machine. What only running workloads needs is never worse than a warning:
//! the management interface works without.

use super::Finding;
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::path::Path;

/// Older kernels lack parts of cgroup v2 and of mount handling that workloads need.
const KERNEL_MIN: (u32, u32) = (5, 15);
const OPEN_FILES_WISHED: u64 = 65_536;
const MEMORY_WISHED_KIB: u64 = 1 << 20;
/// A clock before this was never set.
const PLAUSIBLE_YEAR: &str = "2026";

pub(super) fn look() -> Vec<Finding> {
    vec![kernel(), namespaces(), cgroups(), nftables(), kvm(), qemu(), memory(), open_files(), clock()]
}

fn kernel() -> Finding {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= KERNEL_MIN {
        return Finding::ok("kernel", release);
    }
    Finding::warn("kernel", format!("{release} is old"), "containers need Linux 5.15 or newer: update the system")
}

fn namespaces() -> Finding {
    const CHECK: &str = "user namespaces";
    const ALLOWED: &str = "sysctl -w user.max_user_namespaces=15000";
    let number = |file: &str| fs::read_to_string(file).ok().and_then(|text| text.trim().parse::<u64>().ok());
    if !Path::new("/proc/self/ns/user").exists() {
        return Finding::warn(CHECK, "the kernel has none", "containers need a kernel with CONFIG_USER_NS");
    }
    if number("/proc/sys/user/max_user_namespaces") == Some(0) {
        return Finding::warn(CHECK, "are turned off", ALLOWED);
    }
    let root = rustix::process::geteuid().is_root();
    if !root && number("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
        return Finding::warn(CHECK, "only root may make them", "sysctl -w kernel.unprivileged_userns_clone=1");
    }
    if !root && number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        let remedy = "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0";
        return Finding::warn(CHECK, "AppArmor restricts them", remedy);
    }
    Finding::ok(CHECK, "can be made")
}

fn cgroups() -> Finding {
    const CHECK: &str = "cgroups";
    const REMEDY: &str = "boot with systemd.unified_cgroup_hierarchy=1, or run in a container with --cgroupns=private";
    let Ok(controllers) = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers") else {
        let says = if Path::new("/sys/fs/cgroup/memory").exists() { "version 1" } else { "none are mounted" };
        return Finding::warn(CHECK, format!("{says}; limits of containers need version 2"), REMEDY);
    };
    let missing: Vec<_> = ["cpu", "memory", "pids"]
        .into_iter()
        .filter(|name| !controllers.split_whitespace().any(|has| has == *name))
        .collect();
    if missing.is_empty() {
        return Finding::ok(CHECK, "version 2 with cpu, memory and pids");
    }
    Finding::warn(CHECK, format!("version 2 lacks {}", missing.join(", ")), REMEDY)
}

fn nftables() -> Finding {
    match find_program("nft") {
        Some(place) => Finding::ok("nftables", place),
        None => Finding::warn(
            "nftables",
            "`nft` is not installed",
            "apt-get install nftables; workloads need it for their network",
        ),
    }
}

fn kvm() -> Finding {
    const CHECK: &str = "KVM";
    let device = Path::new("/dev/kvm");
    if !device.exists() {
        let remedy = "turn on virtualisation in the firmware, or nested virtualisation in the host; without it microVMs are emulated";
        return Finding::warn(CHECK, "/dev/kvm is not there", remedy);
    }
    match fs::OpenOptions::new().read(true).write(true).open(device) {
        Ok(_) => Finding::ok(CHECK, "can be used"),
        Err(error) => Finding::warn(CHECK, format!("/dev/kvm: {error}"), "add the user to the group `kvm`"),
    }
}

fn qemu() -> Finding {
    let name = format!("qemu-system-{}", std::env::consts::ARCH);
    match find_program(&name) {
        Some(place) => Finding::ok("QEMU", place),
        None => {
            Finding::warn("QEMU", format!("`{name}` is not installed"), "apt-get install qemu-system; microVMs need it")
        }
    }
}

fn memory() -> Finding {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free_kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
    let says = format!("{} available", crate::output::size(free_kib * 1024));
    if free_kib >= MEMORY_WISHED_KIB {
        return Finding::ok("memory", says);
    }
    Finding::warn("memory", says, "have at least 1 GiB free")
}

fn open_files() -> Finding {
    let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    if limit >= OPEN_FILES_WISHED {
        return Finding::ok("open files", format!("up to {limit}"));
    }
    let remedy =
        format!("raise the hard limit to {OPEN_FILES_WISHED}: LimitNOFILE= in the unit, or /etc/security/limits.conf");
    Finding::warn("open files", format!("only up to {limit}"), remedy)
}

fn clock() -> Finding {
    let now = crate::world::system().now().to_string();
    if now.as_str() < PLAUSIBLE_YEAR {
        return Finding::fail("clock", format!("shows {now}"), "set the clock: tokens and certificates depend on it");
    }
    let kept = ["/run/systemd/timesync/synchronized", "/run/chrony", "/run/ntpd.pid", "/run/openntpd.pid"];
    if kept.iter().any(|place| Path::new(place).exists()) {
        return Finding::ok("clock", format!("{now}, kept by a time service"));
    }
    Finding::warn(
        "clock",
        format!("{now}; no time service was seen"),
        "apt-get install systemd-timesyncd, unless the host keeps the time",
    )
}

fn find_program(name: &str) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Tools of root are often missing from a user's PATH.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(Into::into));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file()).map(|file| file.display().to_string())
}
