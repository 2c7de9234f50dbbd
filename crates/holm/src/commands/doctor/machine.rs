//! Checks of the kernel and of installed programs. If only running workloads needs something, its
//! absence is just a warning where `server.roles` leaves that out: the management API works without
//! it.

use super::finding::Finding;
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::path::Path;

/// Older kernels make no overlays of layers with shifted owners.
const KERNEL_MIN: (u32, u32) = (5, 19);
const OPEN_FILES_WISHED: u64 = 65_536;
const MEMORY_WISHED_KIB: u64 = 1 << 20;
/// A clock before this year was never set.
const PLAUSIBLE_YEAR: &str = "2026";

/// Checks the machine, with the folder of images. If `runs_workloads`, the server cannot start
/// without what they need.
pub(super) fn look(runs_workloads: bool, images: &Path) -> Vec<Finding> {
    let mut findings = vec![kernel()];
    findings.extend(node::probe(images).into_iter().map(|found| finding(found, runs_workloads)));
    findings.extend([micro_vms(), memory(), open_files(), clock()]);
    findings
}

/// Checks how snapshots can be made on the disk of the data folder.
pub(super) fn clones(folder: &Path) -> Finding {
    finding(node::probe_clones(folder), false)
}

fn finding(found: node::Finding, runs_workloads: bool) -> Finding {
    let remedy = |found: &node::Finding| match (found.needed, rustix::process::geteuid().is_root())
    {
        (true, true) => {
            "sandboxes need it: if what it says does not help, use a newer kernel, or serve without \
             them: `holm up --role api`"
        }
        (true, false) => {
            "sandboxes need it, and root to make it: run as root, or `holm up --role api`"
        }
        (false, _) => found.help,
    };
    let remedy = remedy(&found);
    match (found.works, found.needed && runs_workloads) {
        (true, _) => Finding::ok(found.what, found.detail),
        (false, true) => Finding::fail(found.what, found.detail, remedy),
        (false, false) => Finding::warn(found.what, found.detail, remedy),
    }
}

fn micro_vms() -> Finding {
    Finding::ok(
        "microVMs",
        "this release has none: sandboxes that ask for mk3 run in containers, and say so",
    )
}

fn kernel() -> Finding {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= KERNEL_MIN {
        return Finding::ok("kernel", release);
    }
    Finding::warn(
        "kernel",
        format!("{release} is old"),
        "containers need Linux 5.19 or newer: update the system",
    )
}

fn memory() -> Finding {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free_kib =
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
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
    let remedy = format!(
        "raise the hard limit to {OPEN_FILES_WISHED}: LimitNOFILE= in the unit, or /etc/security/limits.conf"
    );
    Finding::warn("open files", format!("only up to {limit}"), remedy)
}

fn clock() -> Finding {
    let now = crate::world::system().now().to_string();
    if now.as_str() < PLAUSIBLE_YEAR {
        return Finding::fail(
            "clock",
            format!("shows {now}"),
            "set the clock: tokens and certificates depend on it",
        );
    }
    let kept =
        ["/run/systemd/timesync/synchronized", "/run/chrony", "/run/ntpd.pid", "/run/openntpd.pid"];
    if kept.iter().any(|place| Path::new(place).exists()) {
        return Finding::ok("clock", format!("{now}, kept by a time service"));
    }
    Finding::warn(
        "clock",
        format!("{now}; no time service was seen"),
        "apt-get install systemd-timesyncd, unless the host keeps the time",
    )
}

#[cfg(test)]
mod tests {
    use super::super::finding::Health;
    use super::*;

    #[test]
    fn what_only_workloads_need_fails_only_where_they_run() {
        let health = |needed, runs_workloads| {
            let (what, help, detail) = ("devices", "", "not permitted".to_owned());
            finding(node::Finding { what, needed, help, works: false, detail }, runs_workloads)
                .health
        };
        assert_eq!(health(true, true), Health::Fail);
        assert_eq!(health(true, false), Health::Warn);
        assert_eq!(health(false, true), Health::Warn);
    }
}
