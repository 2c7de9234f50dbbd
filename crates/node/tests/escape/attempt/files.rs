//! Files that lead out of the instance, or change what others rely on.

use super::{Attempt, Outcome, refused};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

fn write(path: &str, text: &str) -> Outcome {
    let mut file = OpenOptions::new().write(true).open(path)?;
    // A file covered by the null device accepts everything and does nothing.
    if file.metadata()?.file_type().is_char_device() {
        return Err(refused());
    }
    file.write_all(text.as_bytes())?;
    Ok("written".into())
}

fn first_written(paths: &[&str], text: &str) -> Outcome {
    paths
        .iter()
        .find_map(|path| write(path, text).ok().map(|_| (*path).to_owned()))
        .ok_or_else(refused)
}

fn read_some(path: &str) -> Outcome {
    let mut byte = [0; 1];
    match File::open(path)?.read(&mut byte)? {
        0 => Err(refused()),
        _ => Ok("read".into()),
    }
}

fn root() -> io::Result<(u64, u64)> {
    fs::metadata("/").map(|root| (root.dev(), root.ino()))
}

/// Finds descriptors of our processes that are folders, or whose parent folder is not below our own
/// root.
fn ways_out() -> Outcome {
    for process in ["self", "1"] {
        for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
            let path = entry?.path();
            let lists_itself =
                process == "self" && fs::read_link(&path).is_ok_and(|to| to.ends_with("fd"));
            if fs::metadata(&path).is_ok_and(|about| about.is_dir()) && !lists_itself {
                return Ok(path.display().to_string());
            }
        }
        for start in ["cwd", "root", "cwd/../../../..", "root/../../../.."] {
            let found = fs::metadata(format!("/proc/{process}/{start}"))?;
            if (found.dev(), found.ino()) != root()? {
                return Ok(format!("{process}/{start}"));
            }
        }
    }
    Err(refused())
}

pub(super) const FILES: &[Attempt] = &[
    ("leave the root by changing it twice", || {
        // A process whose folder is outside of its root can climb to the root of the namespace.
        let outside = File::open("/")?;
        fs::create_dir_all("/tmp/inner")?;
        rustix::process::chroot("/tmp/inner")?;
        rustix::process::fchdir(&outside)?;
        for _ in 0..64 {
            rustix::process::chdir("..")?;
        }
        rustix::process::chroot(".")?;
        let same = fs::metadata("/tmp/inner").is_ok() && fs::metadata("/layers").is_err();
        if same { Err(refused()) } else { Ok("another root".into()) }
    }),
    ("settings of the kernel", || {
        let paths = [
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/modprobe",
            "/proc/sys/kernel/panic",
            "/proc/sys/vm/overcommit_memory",
            "/proc/sys/net/ipv4/ip_forward",
            "/proc/sys/net/ipv4/conf/eth0/rp_filter",
            "/proc/sys/kernel/hostname",
            "/proc/sys/fs/file-max",
        ];
        first_written(&paths, "0")
    }),
    ("sysrq", || write("/proc/sysrq-trigger", "h")),
    ("interrupts and buses", || {
        first_written(&["/proc/irq/default_smp_affinity", "/proc/bus/pci/00/00.0"], "1")
    }),
    ("the kernel's memory", || read_some("/proc/kcore")),
    ("keys", || read_some("/proc/keys")),
    ("timers", || read_some("/proc/timer_list")),
    ("more than is mapped", || {
        first_written(&["/proc/self/uid_map", "/proc/self/gid_map", "/proc/1/uid_map"], "0 0 1")
    }),
    ("never to be ended", || write("/proc/self/oom_score_adj", "-1000")),
    ("control groups", || fs::read_dir("/sys/fs/cgroup").map(|_| "listed".into())),
    ("groups above", || {
        let text = fs::read_to_string("/proc/self/cgroup")?;
        let above = text.lines().find(|line| line.rsplit(':').next() != Some("/"));
        above.map(str::to_owned).ok_or_else(refused)
    }),
    ("descriptors and roots", ways_out),
    ("other processes", || {
        let others = fs::read_dir("/proc")?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        others.max().filter(|most| *most > 9).map(|most| most.to_string()).ok_or_else(refused)
    }),
    ("other mounts", || {
        let text = fs::read_to_string("/proc/self/mountinfo")?;
        let known = ["overlay", "proc", "tmpfs", "devpts", "mqueue"];
        let kinds = text.lines().filter_map(|line| line.split(" - ").nth(1)?.split(' ').next());
        kinds.into_iter().find(|kind| !known.contains(kind)).map(str::to_owned).ok_or_else(refused)
    }),
    ("devices", || {
        for entry in fs::read_dir("/dev")? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let usual = [
                "null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "mqueue",
                "fd",
            ];
            if !usual.contains(&name.as_str()) && !name.starts_with("std") {
                return Ok(name);
            }
        }
        Err(refused())
    }),
    ("the null device", || {
        fs::rename("/dev/null", "/dev/old").or_else(|_| fs::remove_file("/dev/null"))?;
        Ok("moved".into())
    }),
    ("a link over a masked file", || {
        std::os::unix::fs::symlink("/etc", "/proc/kcore")
            .or_else(|_| fs::rename("/tmp", "/proc/acpi"))?;
        Ok("made".into())
    }),
    ("a program that takes its owner's rights", || {
        let status = fs::read_to_string("/proc/self/status")?;
        if status.contains("NoNewPrivs:\t1") { Err(refused()) } else { Ok("new privileges".into()) }
    }),
];

/// Tries to write to the first process's program, which the node started from memory that is shared
/// with neighbours.
fn open_again(path: &str) -> Outcome {
    let read_only = File::open(path)?;
    let mut file =
        OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", read_only.as_raw_fd()))?;
    file.write_all(b"#!/bin/sh\n")?;
    Ok("written".into())
}

pub(super) const FIRST_PROGRAM: &[Attempt] = &[
    ("write it", || write("/proc/1/exe", "x")),
    ("write it through a descriptor", || open_again("/proc/1/exe")),
    ("write the memory of it", || open_again("/proc/1/map_files")),
    ("cut it", || {
        OpenOptions::new().write(true).truncate(true).open("/proc/1/exe")?;
        Ok("cut".into())
    }),
    ("learn where it comes from", || {
        let path = fs::read_link("/proc/1/exe")?.to_string_lossy().into_owned();
        if path.starts_with("/memfd:") { Err(refused()) } else { Ok(path) }
    }),
];
