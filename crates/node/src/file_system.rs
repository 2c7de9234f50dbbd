//! The file systems that the node makes in files: laid out by the system's own programs, grown by
//! the kernel.

use crate::sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, fstat, openat};
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
    pub(crate) fn lay_out(self, file: &OwnedFd) -> io::Result<()> {
        match self {
            Self::Ext4 => {
                let options = "root_owner=0:0,lazy_itable_init=1,nodiscard";
                let arguments = ["-q", "-F", "-m", "0", "-b", "4096", "-e", "remount-ro", "-E"];
                make("mkfs.ext4", &[&arguments[..], &[options]].concat(), file)
            }
            // Nobody has use for shared blocks inside it, and they would take room.
            Self::Xfs => make("mkfs.xfs", &["-q", "-f", "-K", "-m", "reflink=0,rmapbt=0"], file),
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
