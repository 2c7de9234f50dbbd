//! The file systems that the node makes in files: laid out by the system's own programs, grown by
//! the kernel.

use crate::sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fstat, openat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Where programs of the system are.
const FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];
/// How long making, checking or growing a file system may take; mostly it is some milliseconds.
const TIMEOUT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
/// Of what a program says when it fails.
const SAID_CHARS: usize = 300;
const BLOCK_BYTES: u64 = 4_096;
/// The program for XFS makes none that is smaller.
const XFS_MB_MIN: u32 = 300;
/// Percent of an XFS that may be inodes, as its program sets it.
const XFS_INODES_PERCENT: u32 = 25;
const XFS_MAGIC: &[u8] = b"XFSB";
const XFS_SECTOR_AT: u64 = 102;
/// At its beginning, a new journal says that it is one.
const JOURNAL_HEAD_BYTES: u64 = 64 << 10;
const EXT4_MAGIC: &[u8] = &[0x53, 0xEF];
const EXT4_MAGIC_AT: u64 = 1_080;
/// The program has repaired something, and all is well.
const REPAIRED: i32 = 1;

/// What a file system that is kept is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Ext4,
    /// Grows while it is used wherever the server may mount at all; ext4 only where the server has
    /// `CAP_SYS_RESOURCE`.
    Xfs,
}

/// What becomes of a file with a file system in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Alone,
    /// The kernel writes whole blocks to what shares them. What has smaller sectors than that could
    /// only be used through the cache of the machine, once it was cloned.
    Cloned,
}

/// What came of growing a file system that is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grown {
    Now,
    /// When it is mounted the next time: the server has not the right to do it before.
    Later,
}

impl Format {
    /// The best there is on this machine.
    pub(crate) fn of_new(size_mb: u32) -> Self {
        if size_mb >= XFS_MB_MIN && find("mkfs.xfs").is_some() { Self::Xfs } else { Self::Ext4 }
    }

    /// Of what is in a file.
    pub(crate) fn read(file: impl AsFd) -> io::Result<Self> {
        let mut magic = [0_u8; 4];
        let count = rustix::io::pread(&file, &mut magic, 0)?;
        if magic.get(..count) == Some(XFS_MAGIC) {
            return Ok(Self::Xfs);
        }
        let count = rustix::io::pread(&file, &mut magic[..EXT4_MAGIC.len()], EXT4_MAGIC_AT)?;
        if magic.get(..count) == Some(EXT4_MAGIC) {
            return Ok(Self::Ext4);
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "there is no file system in the file"))
    }

    /// How large the sectors of a device may be at most that has it. Zero: as the kernel likes.
    pub(crate) fn sector_bytes(self, file: impl AsFd) -> io::Result<u32> {
        match self {
            Self::Ext4 => Ok(0),
            Self::Xfs => {
                let mut bytes = [0_u8; 2];
                rustix::io::pread(&file, &mut bytes, XFS_SECTOR_AT)?;
                Ok(u16::from_be_bytes(bytes).into())
            }
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// Of its mount.
    pub(crate) const fn options(self) -> &'static [&'static str] {
        match self {
            // What was never written stays a hole, and what is removed becomes one.
            Self::Ext4 => &["noinit_itable", "discard"],
            // Copies of one are mounted beside it.
            Self::Xfs => &["nouuid", "discard"],
        }
    }

    /// Lays one out, owned by root, in a file of its final size.
    pub(crate) fn lay_out(self, file: &OwnedFd, purpose: Purpose) -> io::Result<()> {
        match self {
            Self::Ext4 => {
                let options = "root_owner=0:0,lazy_itable_init=1,nodiscard";
                let arguments = ["-q", "-F", "-m", "0", "-b", "4096", "-e", "remount-ro", "-E"];
                make("mkfs.ext4", &[&arguments[..], &[options]].concat(), file)
            }
            // Nobody has use for shared blocks inside it, and they would take room.
            Self::Xfs => {
                let arguments = ["-q", "-f", "-K", "-m", "reflink=0,rmapbt=0"];
                if purpose == Purpose::Alone {
                    return make("mkfs.xfs", &arguments, file);
                }
                make("mkfs.xfs", &[&arguments[..], &["-s", "size=4096"]].concat(), file)?;
                empty_journal(file)
            }
        }
    }

    /// Makes what is in a file that was made longer, and is not in use, as long as the file. Only
    /// what cannot do so while it is mounted.
    pub(crate) fn grow_unmounted(self, file: &OwnedFd) -> io::Result<()> {
        if self == Self::Xfs {
            return Ok(());
        }
        let size = fstat(file)?.st_size.unsigned_abs();
        if ext4_bytes(file)?.saturating_add(BLOCK_BYTES) > size {
            return Ok(());
        }
        // Writes out what a power cut has left in the journal.
        run("e2fsck", &["-p", &path(file)], &[0, REPAIRED])?;
        run("resize2fs", &["-f", &path(file)], &[0])
    }

    /// Makes a mounted file system as long as its device.
    pub(crate) fn grow(self, mount: BorrowedFd<'_>, size_mb: u32) -> io::Result<Grown> {
        let blocks = (u64::from(size_mb) << 20) / BLOCK_BYTES;
        let root = top(mount)?;
        let grown = match self {
            Self::Ext4 => sys::grow_ext4(root.as_fd(), blocks),
            Self::Xfs => grow_xfs(root.as_fd(), blocks),
        };
        match grown {
            Ok(()) => Ok(Grown::Now),
            Err(Errno::PERM) if self == Self::Ext4 => Ok(Grown::Later),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a mounted XFS is shorter than its file.
    pub(crate) fn is_short(self, mount: BorrowedFd<'_>, size_mb: u32) -> io::Result<bool> {
        if self == Self::Ext4 {
            return Ok(false);
        }
        let blocks = sys::xfs_blocks(top(mount)?.as_fd())?;
        // Less than one allocation group more is no growth.
        Ok((blocks + XFS_SLACK_BLOCKS) * BLOCK_BYTES < u64::from(size_mb) << 20)
    }
}

/// The kernel replays no journal of an XFS in which what lies beyond the end that its superblock on the disk says comes
/// before its growth. So the superblock is written out after each growth, before much is there, and once before it:
/// the next growth, too, changes what the last one has made, and who did that may have been killed in between.
fn grow_xfs(root: BorrowedFd<'_>, blocks: u64) -> Result<(), Errno> {
    sys::write_xfs_superblock(root)?;
    sys::grow_xfs(root, blocks, XFS_INODES_PERCENT)?;
    sys::write_xfs_superblock(root)
}

/// A mount is only a place; its folder takes questions.
pub(crate) fn top(mount: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(mount, ".", flags, Mode::empty())?)
}

/// Of an XFS, the end that is too small for an allocation group is left out.
const XFS_SLACK_BLOCKS: u64 = 4_096;

/// As its first superblock says.
fn ext4_bytes(file: &OwnedFd) -> io::Result<u64> {
    const SUPERBLOCK: u64 = 1_024;
    let number = |at: u64| {
        let mut bytes = [0_u8; 4];
        rustix::io::pread(file, &mut bytes, SUPERBLOCK + at)?;
        io::Result::Ok(u64::from(u32::from_le_bytes(bytes)))
    };
    let (low, high, log) = (number(0x4)?, number(0x150)?, number(0x18)?);
    let block = 1_024_u64.checked_shl(u32::try_from(log).map_err(io::Error::other)?);
    let block = block.ok_or(io::ErrorKind::InvalidData)?;
    Ok((high << 32 | low).saturating_mul(block))
}

/// Lays a file system out in a file without a journal: nobody comes back to it.
pub(crate) fn lay_out_for_once(file: &OwnedFd, root: u32) -> io::Result<()> {
    let options = format!("root_owner={root}:{root},lazy_itable_init=1,nodiscard");
    let arguments = ["-q", "-F", "-m", "0", "-O", "^has_journal,^resize_inode", "-E", &options];
    make("mkfs.ext4", &arguments, file)
}

/// Gives back what a new journal of an XFS takes of the disk, which is 64 MB of zeros: each snapshot
/// would have them, and each clone be searched in them for the end of the journal when it is mounted.
fn empty_journal(file: &OwnedFd) -> io::Result<()> {
    fn number<const BYTES: usize>(file: &OwnedFd, at: u64) -> io::Result<u64> {
        let mut bytes = [0_u8; BYTES];
        rustix::io::pread(file, &mut bytes, at)?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
    // As the superblock says: its place is a group of blocks, and a block in that.
    let (start, group_bits) = (number::<8>(file, 48)?, number::<1>(file, 124)?);
    let (group_blocks, blocks) = (number::<4>(file, 84)?, number::<4>(file, 96)?);
    let in_group = 1_u64.checked_shl(u32::try_from(group_bits).map_err(io::Error::other)?);
    let in_group = in_group.ok_or(io::ErrorKind::InvalidData)?;
    let first = (start / in_group) * group_blocks + start % in_group;
    let (at, length) = (first * BLOCK_BYTES, blocks * BLOCK_BYTES);
    let zeros = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let (at, length) = (at + JOURNAL_HEAD_BYTES, length.saturating_sub(JOURNAL_HEAD_BYTES));
    Ok(fallocate(file, zeros, at, length)?)
}

/// Lays an XFS out whose files can be cloned.
pub(crate) fn lay_out_for_clones(file: &OwnedFd) -> io::Result<()> {
    make("mkfs.xfs", &["-q", "-f", "-K", "-m", "reflink=1"], file)
}

fn make(program: &str, arguments: &[&str], file: &OwnedFd) -> io::Result<()> {
    run(program, &[arguments, &[&path(file)]].concat(), &[0])
}

/// By this process, because a descriptor is not passed on.
fn path(file: &OwnedFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

pub(crate) fn find(program: &str) -> Option<String> {
    let paths = FOLDERS.into_iter().map(|folder| format!("{folder}/{program}"));
    paths.into_iter().find(|path| Path::new(path).exists())
}

fn run(program: &str, arguments: &[&str], good: &[i32]) -> io::Result<()> {
    let missing = || {
        let why = format!("file systems of limited size need {program}: apt-get install e2fsprogs");
        io::Error::new(io::ErrorKind::Unsupported, why)
    };
    let done = finish(
        Command::new(find(program).ok_or_else(missing)?)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped()),
    )?;
    if done.status.code().is_some_and(|code| good.contains(&code)) {
        return Ok(());
    }
    let said: String =
        String::from_utf8_lossy(&done.stderr).trim().chars().take(SAID_CHARS).collect();
    Err(io::Error::other(format!("{program} failed with {}, and said: {said}", done.status)))
}

fn finish(command: &mut Command) -> io::Result<Output> {
    let mut child = command.spawn()?;
    let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    if poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&TIMEOUT))? == 0 {
        child.kill()?;
    }
    child.wait_with_output()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_new_disk_takes_little_and_is_whole() {
        if find("mkfs.xfs").is_none() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        for size_mb in [320, 5_000, 300_000] {
            let path = folder.path().join(size_mb.to_string());
            let file = std::fs::File::create_new(&path).unwrap();
            file.set_len(size_mb << 20).unwrap();
            let file = std::fs::File::options().read(true).write(true).open(&path).unwrap().into();
            Format::Xfs.lay_out(&file, Purpose::Cloned).unwrap();
            assert_eq!(Format::Xfs.sector_bytes(&file).unwrap(), 4_096);
            let blocks = std::fs::metadata(&path).unwrap().blocks();
            assert!(blocks < (4 << 20) / 512, "{size_mb} MB have {blocks} blocks");
            run("xfs_repair", &["-n", "-f", path.to_str().unwrap()], &[0]).unwrap();
        }
    }
}
