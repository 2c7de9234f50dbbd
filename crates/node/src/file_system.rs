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

/// Where the system's programs are.
const FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];
/// How long making, checking or growing a file system may take: this, and as much again for each
/// further piece of this size. Usually it takes milliseconds, but a large one that is full takes
/// minutes, and must not be cut off while it is being resized.
const TIMEOUT_S: u64 = 60;
const TIMEOUT_PIECE_BYTES: u64 = 32 << 30;
/// How much of a failed program's output goes into the error.
const SAID_CHARS: usize = 300;
const BLOCK_BYTES: u64 = 4_096;
/// `mkfs.xfs` refuses anything smaller.
const XFS_MB_MIN: u32 = 300;
/// The percentage of an XFS that may be inodes, which is what `mkfs.xfs` sets.
const XFS_INODES_PERCENT: u32 = 25;
const XFS_MAGIC: &[u8] = b"XFSB";
const XFS_SECTOR_AT: u64 = 102;
/// The size of the record at the beginning of a new journal, which says that it is empty.
const JOURNAL_HEAD_BYTES: u64 = 64 << 10;
const EXT4_MAGIC: &[u8] = &[0x53, 0xEF];
const EXT4_MAGIC_AT: u64 = 1_080;
/// The exit status of `e2fsck` when it has repaired something and all is well now.
const REPAIRED: i32 = 1;

/// The format of a file system that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Ext4,
    /// Can grow while mounted wherever the server may mount at all. ext4 can do so only where the
    /// server has `CAP_SYS_RESOURCE`.
    Xfs,
}

/// What a file with a file system in it is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Alone,
    /// It gets cloned. Shared blocks are only written as a whole: after cloning, a file system with
    /// smaller sectors than a block could be used only through the machine's cache.
    Cloned,
}

/// The result of growing a file system that is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grown {
    Now,
    /// It grows at the next mount, because the server lacks the right to do it now.
    Later,
}

impl Format {
    /// Returns the best format that this machine can make.
    pub(crate) fn of_new(size_mb: u32) -> Self {
        if size_mb >= XFS_MB_MIN && find("mkfs.xfs").is_some() { Self::Xfs } else { Self::Ext4 }
    }

    /// Detects the format of the file system in a file.
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

    /// Fails if a file is shorter than the file system in it. A part of that is lost, and would come
    /// back as zeros if the file were made longer.
    pub(crate) fn require_whole(file: &OwnedFd) -> io::Result<()> {
        let bytes = match Self::read(file)? {
            Self::Ext4 => ext4_bytes(file)?,
            Self::Xfs => xfs_bytes(file)?,
        };
        if fstat(file)?.st_size.unsigned_abs() < bytes {
            let why = "it is damaged: its file is shorter than the file system in it";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(())
    }

    /// Returns the largest sector size that its device may have. Zero leaves that to the kernel.
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

    /// Returns the mount options.
    pub(crate) const fn options(self) -> &'static [&'static str] {
        match self {
            // Blocks that were never written stay holes. Those that are freed do not become holes
            // again: see [`Format::reserve`].
            Self::Ext4 => &["noinit_itable"],
            // Clones of it are mounted at the same time, so its UUID is not unique. Blocks that are
            // freed become holes.
            Self::Xfs => &["nouuid", "discard"],
        }
    }

    /// Makes the file system, owned by root, in a file of its final size.
    pub(crate) fn lay_out(self, file: &OwnedFd, purpose: Purpose) -> io::Result<()> {
        match self {
            Self::Ext4 => {
                let options = "root_owner=0:0,lazy_itable_init=1,nodiscard";
                let arguments = ["-q", "-F", "-m", "0", "-b", "4096", "-e", "remount-ro", "-E"];
                make("mkfs.ext4", &[&arguments[..], &[options]].concat(), file)
            }
            // Shared blocks inside it are of no use, and their bookkeeping would take room.
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

    /// Gives what must always be writable its blocks on the machine's disk, also if they were shared
    /// with a copy. When that disk is full, programs that write find no room then, as usual; without
    /// its journal, a file system stops for good. XFS keeps trying to write its other metadata. ext4
    /// stops at that too, so it gets all its blocks, unless it is larger than it usually is.
    pub(crate) fn reserve(self, file: &OwnedFd) -> io::Result<()> {
        let size = fstat(file)?.st_size.unsigned_abs();
        let (at, length) = match self {
            Self::Ext4 if size > u64::from(XFS_MB_MIN) << 20 => return Ok(()),
            Self::Ext4 => (0, size),
            Self::Xfs => journal_of_xfs(file)?,
        };
        match fallocate(file, FallocateFlags::UNSHARE_RANGE, at, length) {
            // No file system but XFS has this. Those that share blocks write them to new ones.
            Err(Errno::OPNOTSUPP) => Ok(fallocate(file, FallocateFlags::empty(), at, length)?),
            done => Ok(done?),
        }
    }

    /// Grows an unmounted file system to the size of its file, if this format cannot do that while
    /// mounted.
    pub(crate) fn grow_unmounted(self, file: &OwnedFd) -> io::Result<()> {
        if self == Self::Xfs {
            return Ok(());
        }
        let size = fstat(file)?.st_size.unsigned_abs();
        if ext4_bytes(file)?.saturating_add(BLOCK_BYTES) > size {
            return Ok(());
        }
        // Writes out what a power cut has left in the journal.
        run("e2fsck", &["-p", &path(file)], &[0, REPAIRED], timeout(size))?;
        run("resize2fs", &["-f", &path(file)], &[0], timeout(size))
    }

    /// Grows a mounted file system to the size of its device.
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

    /// Returns true if a mounted file system has stopped, because its journal could not be written.
    pub(crate) fn has_stopped(self, mount: BorrowedFd<'_>) -> bool {
        let tried = match self {
            // A file that never gets a name: to flush something could take as long as there is to
            // be written.
            Self::Ext4 => {
                let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
                openat(mount, ".", flags, Mode::RUSR)
            }
            Self::Xfs => openat(mount, ".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()),
        };
        // On some kernels it is read-only as a whole.
        matches!(tried, Err(Errno::IO | Errno::ROFS))
    }

    /// Returns true if a mounted XFS is shorter than its file.
    pub(crate) fn is_short(self, mount: BorrowedFd<'_>, size_mb: u32) -> io::Result<bool> {
        if self == Self::Ext4 {
            return Ok(false);
        }
        let blocks = sys::xfs_blocks(top(mount)?.as_fd())?;
        // The rest may be less than one allocation group, which cannot be added.
        Ok((blocks + XFS_SLACK_BLOCKS) * BLOCK_BYTES < u64::from(size_mb) << 20)
    }
}

/// Grows a mounted XFS. The kernel cannot replay a journal in which changes beyond the end, as
/// recorded in the superblock on disk, come before the growth itself. So the superblock is written
/// out after each growth, before much is stored there. It is also written once before: this growth
/// changes what the last one added, and the process that did that may have been killed before
/// writing.
fn grow_xfs(root: BorrowedFd<'_>, blocks: u64) -> Result<(), Errno> {
    sys::write_xfs_superblock(root)?;
    sys::grow_xfs(root, blocks, XFS_INODES_PERCENT)?;
    sys::write_xfs_superblock(root)
}

/// Opens the root folder of a mount, because a mount descriptor itself takes no ioctls.
pub(crate) fn top(mount: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(mount, ".", flags, Mode::empty())?)
}

/// An XFS leaves out what is left at the end if it is too small for an allocation group.
const XFS_SLACK_BLOCKS: u64 = 4_096;

/// Returns the size of an ext4, as its first superblock says.
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

/// Returns the size of an XFS, as its first superblock says.
fn xfs_bytes(file: &OwnedFd) -> io::Result<u64> {
    let (mut block, mut blocks) = ([0_u8; 4], [0_u8; 8]);
    rustix::io::pread(file, &mut block, 4)?;
    rustix::io::pread(file, &mut blocks, 8)?;
    Ok(u64::from_be_bytes(blocks).saturating_mul(u32::from_be_bytes(block).into()))
}

/// Makes a file system without a journal in a file, for one use only.
pub(crate) fn lay_out_for_once(file: &OwnedFd, root: u32) -> io::Result<()> {
    let options = format!("root_owner={root}:{root},lazy_itable_init=1,nodiscard");
    let arguments = ["-q", "-F", "-m", "0", "-O", "^has_journal,^resize_inode", "-E", &options];
    make("mkfs.ext4", &arguments, file)
}

/// Frees the disk space of a new XFS journal, which is 64 MB of zeros. Otherwise each snapshot
/// would contain them, and each mount of a clone would search them for the end of the journal.
fn empty_journal(file: &OwnedFd) -> io::Result<()> {
    let (at, length) = journal_of_xfs(file)?;
    let zeros = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let (at, length) = (at + JOURNAL_HEAD_BYTES, length.saturating_sub(JOURNAL_HEAD_BYTES));
    Ok(fallocate(file, zeros, at, length)?)
}

/// Returns where the journal of an XFS begins in its file, and its length in bytes.
fn journal_of_xfs(file: &OwnedFd) -> io::Result<(u64, u64)> {
    fn number<const BYTES: usize>(file: &OwnedFd, at: u64) -> io::Result<u64> {
        let mut bytes = [0_u8; BYTES];
        rustix::io::pread(file, &mut bytes, at)?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
    // The superblock gives its place as an allocation group and a block in that.
    let (start, group_bits) = (number::<8>(file, 48)?, number::<1>(file, 124)?);
    let (group_blocks, blocks) = (number::<4>(file, 84)?, number::<4>(file, 96)?);
    let in_group = 1_u64.checked_shl(u32::try_from(group_bits).map_err(io::Error::other)?);
    let in_group = in_group.ok_or(io::ErrorKind::InvalidData)?;
    let first = (start / in_group) * group_blocks + start % in_group;
    Ok((first * BLOCK_BYTES, blocks * BLOCK_BYTES))
}

/// Makes an XFS in which files can be cloned.
pub(crate) fn lay_out_for_clones(file: &OwnedFd) -> io::Result<()> {
    make("mkfs.xfs", &["-q", "-f", "-K", "-m", "reflink=1"], file)
}

fn make(program: &str, arguments: &[&str], file: &OwnedFd) -> io::Result<()> {
    let size = fstat(file)?.st_size.unsigned_abs();
    run(program, &[arguments, &[&path(file)]].concat(), &[0], timeout(size))
}

/// Returns how long a program may work on a file system of this size.
fn timeout(bytes: u64) -> Timespec {
    let seconds = TIMEOUT_S.saturating_mul(1 + bytes / TIMEOUT_PIECE_BYTES);
    Timespec { tv_sec: i64::try_from(seconds).unwrap_or(i64::MAX), tv_nsec: 0 }
}

/// Returns a path to the file through this process, because the program does not inherit the
/// descriptor.
fn path(file: &OwnedFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

pub(crate) fn find(program: &str) -> Option<String> {
    let paths = FOLDERS.into_iter().map(|folder| format!("{folder}/{program}"));
    paths.into_iter().find(|path| Path::new(path).exists())
}

fn run(program: &str, arguments: &[&str], good: &[i32], timeout: Timespec) -> io::Result<()> {
    let done = finish(
        Command::new(find(program).ok_or_else(|| missing(program))?)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped()),
        timeout,
    )?;
    if done.status.code().is_some_and(|code| good.contains(&code)) {
        return Ok(());
    }
    let said: String =
        String::from_utf8_lossy(&done.stderr).trim().chars().take(SAID_CHARS).collect();
    let kind = match said.contains("No space left on device") {
        true => io::ErrorKind::StorageFull,
        false => io::ErrorKind::Other,
    };
    Err(io::Error::new(kind, format!("{program} failed with {}, and said: {said}", done.status)))
}

fn missing(program: &str) -> io::Error {
    let package = if program.contains("xfs") { "xfsprogs" } else { "e2fsprogs" };
    let why = format!("file systems of limited size need {program}: apt-get install {package}");
    io::Error::new(io::ErrorKind::Unsupported, why)
}

fn finish(command: &mut Command, timeout: Timespec) -> io::Result<Output> {
    let mut child = command.spawn()?;
    let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    if poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout))? == 0 {
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
            run("xfs_repair", &["-n", "-f", path.to_str().unwrap()], &[0], timeout(0)).unwrap();
        }
    }

    #[test]
    fn what_must_be_writable_has_its_blocks() {
        for (format, size_mb, blocks_mb, program) in
            [(Format::Ext4, 32, 32, "mkfs.ext4"), (Format::Xfs, 320, 64, "mkfs.xfs")]
        {
            if find(program).is_none() {
                continue;
            }
            let file = tempfile::tempfile().unwrap();
            file.set_len(size_mb << 20).unwrap();
            let file = file.into();
            format.lay_out(&file, Purpose::Cloned).unwrap();
            let blocks = || fstat(&file).unwrap().st_blocks / 2_048;
            assert!(blocks() < 8, "{} MB", blocks());
            format.reserve(&file).unwrap();
            assert!(blocks() >= blocks_mb, "{} MB", blocks());
            Format::require_whole(&file).unwrap();
        }
    }

    #[test]
    fn a_file_that_lost_a_part_of_its_file_system_is_told_from_a_whole_one() {
        for (format, size_mb, program) in
            [(Format::Ext4, 32, "mkfs.ext4"), (Format::Xfs, 300, "mkfs.xfs")]
        {
            if find(program).is_none() {
                continue;
            }
            let file = tempfile::tempfile().unwrap();
            file.set_len(size_mb << 20).unwrap();
            let file = file.into();
            format.lay_out(&file, Purpose::Alone).unwrap();
            Format::require_whole(&file).unwrap();
            // It grows when it is next mounted.
            rustix::fs::ftruncate(&file, (size_mb + 8) << 20).unwrap();
            Format::require_whole(&file).unwrap();
            rustix::fs::ftruncate(&file, (size_mb - 1) << 20).unwrap();
            Format::require_whole(&file).unwrap_err();
        }
    }

    #[test]
    fn a_larger_file_system_may_be_worked_on_for_longer() {
        let minutes = |gigabytes: u64| timeout(gigabytes << 30).tv_sec / 60;
        assert_eq!([0, 31, 32, 1_024, 16_384].map(minutes), [1, 1, 2, 33, 513]);
        assert!(minutes(u64::MAX >> 30) > 0);
    }

    #[test]
    fn a_missing_program_is_looked_for_in_the_package_that_has_it() {
        assert!(missing("mkfs.xfs").to_string().ends_with("apt-get install xfsprogs"));
        assert!(missing("resize2fs").to_string().ends_with("apt-get install e2fsprogs"));
    }
}
