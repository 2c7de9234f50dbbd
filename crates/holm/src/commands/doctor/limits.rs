//! Finite resources of this machine, and what sandboxes and one workspace get of them under the
//! current settings.

use super::finding::Finding;
use crate::config::{Backend, Config, Role};
use crate::output::size;
use rustix::fs::Access;
use std::fs::read_to_string;
use std::path::Path;

const MIB: u64 = 1 << 20;
/// Default memory of a sandbox. A machine without room for one of them is only good for
/// experiments.
const SANDBOX_MB_DEFAULT: u64 = 4_096;
const TERMINALS: &str = "/proc/sys/kernel/pty/max";
const CONNECTIONS: &str = "/proc/sys/net/netfilter/nf_conntrack_max";

pub(super) fn look(config: &Config) -> Vec<Finding> {
    if !config.server.roles.contains(&Role::Node) {
        return Vec::new();
    }
    let limits = config.node.limits();
    let capacity = match node::Capacity::of(&limits, &config.data.folder) {
        Ok(capacity) => capacity,
        Err(error) => {
            return vec![Finding::warn(
                "limits",
                error.to_string(),
                "sandboxes need /proc: mount it",
            )];
        }
    };
    let mut findings = vec![
        memory(&capacity),
        shares(&capacity),
        disks(&capacity),
        terminals(&limits),
        connections(&limits),
        namespaces(&limits),
    ];
    if config.node.backend == Backend::Runc {
        findings.push(runc(&config.node.runc));
    }
    findings
}

/// Checks the program that `node.runc` names.
fn runc(program: &Path) -> Finding {
    const CHECK: &str = "node.runc";
    let place = program.display().to_string();
    match rustix::fs::access(program, Access::EXEC_OK) {
        Ok(()) => Finding::ok(CHECK, place),
        Err(error) => Finding::fail(
            CHECK,
            format!("{place} cannot be used: {error}"),
            "apt-get install runc, name its program with node.runc, or set node.backend to \"direct\"",
        ),
    }
}

fn memory(capacity: &node::Capacity) -> Finding {
    const CHECK: &str = "memory limits";
    let (all, one) = (size(capacity.memory_mb.total * MIB), size(capacity.memory_mb.share * MIB));
    let largest = size(capacity.instance_mb * MIB);
    let says = format!(
        "{all} for sandboxes and tasks, {one} for one workspace, {largest} for one sandbox at most"
    );
    if capacity.instance_mb >= SANDBOX_MB_DEFAULT {
        return Finding::ok(CHECK, says);
    }
    Finding::warn(
        CHECK,
        says,
        "sandboxes of the default size (4 GiB) are refused here: set `memory` when you make one",
    )
}

fn shares(capacity: &node::Capacity) -> Finding {
    let (instances, processes) = (capacity.instances, capacity.processes);
    Finding::ok(
        "workspace limits",
        format!(
            "one workspace has {} of {} sandboxes and tasks, {} of {} processes",
            instances.share, instances.total, processes.share, processes.total
        ),
    )
}

fn disks(capacity: &node::Capacity) -> Finding {
    let (disks, room) = (capacity.disks, capacity.disk_mb);
    let (all, one) = (size(room.total * MIB), size(room.share * MIB));
    Finding::ok(
        "disk limits",
        format!(
            "{} disks with {all} together, {} with {one} for one workspace",
            disks.total, disks.share
        ),
    )
}

fn terminals(limits: &node::Limits) -> Finding {
    const CHECK: &str = "terminals";
    let all = u64::from(limits.instances) * u64::from(limits.terminals);
    match number(TERMINALS) {
        Some(now) => Finding::ok(
            CHECK,
            format!("{now} on this machine; `holm up` sees to it that there are {all}"),
        ),
        None => Finding::warn(
            CHECK,
            "cannot be counted",
            format!("sandboxes share what there is: mount {TERMINALS}"),
        ),
    }
}

/// Checks the table of connections, which the whole machine shares. Few sandboxes use all the
/// connections they may have.
fn connections(limits: &node::Limits) -> Finding {
    const CHECK: &str = "connections";
    /// The table should have room for this many sandboxes using all their connections.
    const FULL_WISHED: u64 = 64;
    let Some(table) = number(CONNECTIONS) else {
        return Finding::ok(
            CHECK,
            format!("{} for one sandbox; the table is made with the firewall", limits.connections),
        );
    };
    let full = table / u64::from(limits.connections).max(1);
    let says = format!(
        "{} for one sandbox; {full} sandboxes with all of theirs fill the table of {table}",
        limits.connections
    );
    if full >= FULL_WISHED {
        return Finding::ok(CHECK, says);
    }
    Finding::warn(
        CHECK,
        says,
        "`holm up` raises net.netfilter.nf_conntrack_max as far as the memory allows; or lower node.connections_max",
    )
}

/// Checks the kernel's limits on namespaces, which somebody may have lowered.
fn namespaces(limits: &node::Limits) -> Finding {
    const CHECK: &str = "namespaces";
    /// What the kernel allows by itself is more, also on a small machine.
    const ENOUGH: u64 = 1_024;
    const KINDS: [&str; 7] = ["user", "net", "mnt", "pid", "ipc", "uts", "cgroup"];
    let wanted = (u64::from(limits.instances) + u64::from(limits.networks_ready)).min(ENOUGH);
    let few = KINDS.into_iter().filter_map(|kind| {
        let now = number(&format!("/proc/sys/user/max_{kind}_namespaces"))?;
        (now < wanted).then(|| (format!("user.max_{kind}_namespaces"), now))
    });
    let few: Vec<_> = few.collect();
    if few.is_empty() {
        return Finding::ok(CHECK, "as many as sandboxes need");
    }
    let says = few.iter().map(|(limit, now)| format!("{limit} is {now}"));
    let raise = few.iter().map(|(limit, _)| format!("{limit}={wanted}"));
    Finding::warn(
        CHECK,
        format!("each sandbox needs one of each kind: {}", says.collect::<Vec<_>>().join(", ")),
        format!("sysctl -w {}, and name it in /etc/sysctl.d", raise.collect::<Vec<_>>().join(" ")),
    )
}

fn number(file: &str) -> Option<u64> {
    read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::finding::Health;
    use super::*;

    #[test]
    fn the_program_that_starts_instances_must_be_one() {
        assert_eq!(runc(Path::new("/bin/sh")).health, Health::Ok);
        for wrong in ["/nope", "/proc/version"] {
            assert_eq!(runc(Path::new(wrong)).health, Health::Fail, "{wrong}");
        }
    }
}
