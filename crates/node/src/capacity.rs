//! Works out how much of the machine is for instances, and how much of that one owner may have.

use crate::number::fit;
use crate::settings;
use admission::Limits;
use rustix::fs::statvfs;
use std::fs::read_to_string;
use std::io;
use std::path::Path;

const MIB: u64 = 1 << 20;
/// A machine sold with some GB of memory has a little less for programs, so sizes are rounded up to
/// this.
const NOMINAL_MB: u64 = 1_024;
/// What is kept for the node, the rest of the server and the system: one part in this many of the
/// whole, within the bounds below.
const RESERVE_PART: u64 = 8;
const MEMORY_RESERVE_MB: (u64, u64) = (256, 4_096);
const PROCESSES_RESERVE: (u64, u64) = (1_024, 65_536);
/// The file systems of instances get one part in this many of the disk that is free when the node
/// opens.
const DISK_PART: u64 = 2;
/// Volumes get one part in this many of what is free and what they have already.
const VOLUME_PART: u64 = 4;
/// A drive gets one part in this many of an owner's share of that, within the bounds below.
const DRIVE_PART: u64 = 8;
const DRIVE_MB: (u32, u32) = (320, 65_536);

/// What is divided between owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    pub instances: Limits,
    /// Memory that is really used, which the kernel limits.
    pub memory_mb: Limits,
    /// Swap, into which the memory of instances that sleep is pushed out. None on many machines.
    pub swap_mb: Limits,
    /// Memory promised to instances that are awake.
    pub promised_mb: Limits,
    /// The most memory that one instance may have. This machine never has more for one.
    pub instance_mb: u64,
    pub processes: Limits,
    pub disks: Limits,
    pub disk_mb: Limits,
    pub volume_mb: Limits,
    /// The size of each new drive.
    pub drive_mb: u32,
}

impl Capacity {
    /// Returns what these limits mean on this machine, for a node with its files in `folder`.
    pub fn of(limits: &settings::Limits, folder: &Path) -> io::Result<Self> {
        let whole_mb = memory_mb()?;
        let memory_mb =
            limits.memory_mb.unwrap_or_else(|| without_reserve(whole_mb, MEMORY_RESERVE_MB));
        let processes = match limits.processes {
            Some(processes) => processes,
            None => without_reserve(processes()?, PROCESSES_RESERVE),
        };
        let disk_mb = limits
            .disk_mb
            .map_or_else(|| Ok::<_, io::Error>(free_disk_mb(folder)? / DISK_PART), Ok)?;
        let volume_mb = limits.volume_mb.map_or_else(|| disk_of_volumes_mb(folder), Ok)?;
        let divided = |total: u64| divided(total, limits.share_percent);
        Ok(Self {
            instances: divided(limits.instances.into()),
            memory_mb: divided(memory_mb),
            swap_mb: divided(swap_mb()?),
            promised_mb: divided(memory_mb.saturating_mul(limits.memory_promises.into())),
            instance_mb: limits.memory_mb.unwrap_or_else(|| whole_mb.next_multiple_of(NOMINAL_MB)),
            processes: divided(processes),
            disks: divided(limits.disks.into()),
            disk_mb: divided(disk_mb),
            volume_mb: divided(volume_mb),
            drive_mb: limits.drive_mb.unwrap_or_else(|| drive_mb(divided(volume_mb).share)),
        })
    }
}

/// Returns the limits for a total of which one owner may have a percentage.
pub fn divided(total: u64, share_percent: u32) -> Limits {
    Limits { total, share: share(total, share_percent) }
}

/// Returns one owner's share, which is never zero.
fn share(total: u64, percent: u32) -> u64 {
    let part = u128::from(total) * u128::from(percent) / 100;
    fit(part.clamp(1, total.max(1).into()))
}

fn without_reserve(whole: u64, (least, most): (u64, u64)) -> u64 {
    let reserve = (whole / RESERVE_PART).clamp(least, most).min(whole / 2);
    whole - reserve
}

/// Returns the memory of the machine, or of the control group that it is in itself.
fn memory_mb() -> io::Result<u64> {
    let whole = memory_bytes("MemTotal")?;
    Ok(crate::cgroup::limits_of_machine("memory").fold(whole, u64::min) / MIB)
}

/// Returns the swap that the machine has now. What is added later counts from the next start.
fn swap_mb() -> io::Result<u64> {
    Ok(memory_bytes("SwapTotal")? / MIB)
}

/// Returns what the kernel says of the machine's memory under this name.
fn memory_bytes(name: &str) -> io::Result<u64> {
    let text = read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    let missing =
        || io::Error::new(io::ErrorKind::InvalidData, format!("/proc/meminfo has no {name}"));
    Ok(kib.ok_or_else(missing)?.saturating_mul(1_024))
}

fn processes() -> io::Result<u64> {
    let number = |file: &str| read_to_string(file)?.trim().parse::<u64>().map_err(io::Error::other);
    let most = number("/proc/sys/kernel/pid_max")?.min(number("/proc/sys/kernel/threads-max")?);
    Ok(crate::cgroup::limits_of_machine("pids").fold(most, u64::min))
}

/// Returns the size of a drive: a part of an owner's share, so that there is room for several.
fn drive_mb(share_mb: u64) -> u32 {
    let (least, most) = DRIVE_MB;
    fit((share_mb / DRIVE_PART).clamp(least.into(), most.into()))
}

/// Returns the room for volumes in all. What they have taken so far makes no difference.
fn disk_of_volumes_mb(folder: &Path) -> io::Result<u64> {
    let taken_mb = crate::volumes::allocated_mb(folder)? + crate::snapshots::allocated_mb(folder)?;
    Ok((free_disk_mb(folder)? + taken_mb) / VOLUME_PART)
}

/// Returns what is free on the disk of a folder, which need not exist yet.
pub fn free_disk_mb(folder: &Path) -> io::Result<u64> {
    let existing = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
    let disk = statvfs(existing)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize) / MIB)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_reserve_is_kept_and_never_the_larger_part() {
        let memory = |whole| without_reserve(whole, MEMORY_RESERVE_MB);
        assert_eq!(
            [400, 1_000, 4_000, 24_105, 1_000_000].map(memory),
            [200, 744, 3_500, 21_092, 995_904]
        );
        assert_eq!(without_reserve(32_768, PROCESSES_RESERVE), 28_672);
    }

    #[test]
    fn this_machine_has_something_of_everything() {
        let capacity =
            Capacity::of(&settings::Limits::default(), Path::new("/no/such/folder")).unwrap();
        for limits in [capacity.memory_mb, capacity.processes, capacity.disk_mb, capacity.instances]
        {
            assert!(limits.share > 0 && limits.share < limits.total, "{capacity:?}");
        }
        assert!(capacity.instance_mb >= capacity.memory_mb.total);
    }

    proptest! {
        #[test]
        fn a_share_is_part_of_the_whole(total in 1_u64.., percent in 1_u32..=100) {
            let share = share(total, percent);
            prop_assert!(share >= 1 && share <= total);
        }
    }
}
