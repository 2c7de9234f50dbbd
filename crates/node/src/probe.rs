//! What a machine offers for instances.

use crate::cgroup;
use crate::disk;
use crate::net::NFT;
use crate::scratch;
use crate::seats::make_users;
use crate::sys;
use std::fs::read_to_string;
use std::io;
use std::path::Path;

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub what: &'static str,
    /// Without it, no instance can be made.
    pub needed: bool,
    pub works: bool,
    pub detail: String,
}

/// Tries the parts of an instance, one by one. Leaves nothing behind.
pub fn probe() -> Vec<Finding> {
    let try_out = |what, needed, result: io::Result<String>| match result {
        Ok(detail) => Finding { what, needed, works: true, detail },
        Err(error) => Finding { what, needed, works: false, detail: error.to_string() },
    };
    let made = |result: io::Result<_>| result.map(|_: rustix::fd::OwnedFd| "can be made".to_owned());
    vec![
        try_out("control groups", true, control_groups()),
        try_out("user namespaces", true, made(make_users(PROBE_ROOT))),
        try_out("network namespaces", true, network_namespace()),
        try_out("devices", true, made(disk::make_devices())),
        try_out("layers with shifted owners", true, shifted_layer()),
        try_out("firewall (nft)", false, firewall()),
        try_out("folders of limited size (mkfs.ext4, loop devices)", false, scratch::try_out(PROBE_ROOT)),
        try_out("another program to start instances (runc)", false, runc()),
        try_out("memory that can be written out (swap)", false, swap()),
    ]
}

/// Ids far above those of anybody, for a namespace that nothing runs in.
const PROBE_ROOT: u32 = 4_000_000_000;

fn control_groups() -> io::Result<String> {
    match cgroup::version() {
        Some(cgroup::Version::V1) => Ok("version 1".to_owned()),
        Some(cgroup::Version::V2) => Ok("version 2".to_owned()),
        None => Err(io::Error::other("no control groups with memory, cpu, pids and freezer")),
    }
}

/// On a thread of its own, which ends in the namespace that it made.
fn network_namespace() -> io::Result<String> {
    std::thread::spawn(sys::leave_network).join().map_err(|_| io::Error::other("the attempt failed"))??;
    Ok("can be made".to_owned())
}

fn shifted_layer() -> io::Result<String> {
    use rustix::fd::AsFd;
    let users = make_users(PROBE_ROOT)?;
    disk::view_layer(Path::new("/usr"), users.as_fd())?;
    Ok("can be shown".to_owned())
}

fn firewall() -> io::Result<String> {
    let found = NFT.iter().find(|path| Path::new(path).exists());
    found.map(|path| (*path).to_owned()).ok_or_else(|| io::Error::other("the package nftables is not installed"))
}

fn runc() -> io::Result<String> {
    let found = ["/usr/sbin/runc", "/usr/bin/runc"].into_iter().find(|path| Path::new(path).exists());
    found.map(str::to_owned).ok_or_else(|| io::Error::other("the package runc is not installed"))
}

fn swap() -> io::Result<String> {
    let areas = read_to_string("/proc/swaps")?.lines().count().saturating_sub(1);
    if areas == 0 { Err(io::Error::other("there is no swap")) } else { Ok(format!("{areas} areas")) }
}
