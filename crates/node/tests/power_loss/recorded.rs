//! The disk with a machine's folder: recorded first, and then a copy of it as a power cut has left
//! it.

use crate::limit;
use crate::machine::{Machine, await_that};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

pub(crate) const DISK_MB: u32 = 2_048;
/// The environment variable that gives the disk's process its folder.
pub(crate) const FOLDER: &str = "POWER_LOSS_FOLDER";
pub(crate) const IMAGE: &str = "image";
pub(crate) const JOURNAL: &str = "journal";
/// The disk as it was before the journal.
const BEFORE: &str = "before";
const COPY: &str = "copy";
/// The file that FUSE shows.
const DEVICE: &str = "device";

/// The file system that the machine's folder is on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Format {
    Ext4,
    Xfs,
}

pub(crate) struct Recorded {
    folder: PathBuf,
    format: Format,
    /// Only until it is mounted, because an open copy would keep the mount alive after its server
    /// has ended.
    kernel: Option<File>,
    server: Mutex<Child>,
}

impl Recorded {
    pub(crate) fn begin(folder: &Path, format: Format) -> Self {
        let image = folder.join(IMAGE);
        File::create(&image).unwrap().set_len(u64::from(DISK_MB) << 20).unwrap();
        File::create(folder.join(JOURNAL)).unwrap();
        File::create(folder.join(DEVICE)).unwrap();
        let (program, arguments): (_, &[_]) = match format {
            Format::Ext4 => ("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=1,nodiscard"]),
            Format::Xfs => ("mkfs.xfs", &["-q", "-f", "-K"]),
        };
        done(Command::new(program).args(arguments).arg(&image).env("PATH", "/usr/sbin:/sbin"));
        copy(&image, &folder.join(BEFORE));
        let kernel = OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
        // It ends when nobody has the disk mounted any more, even if this process is killed.
        let server = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "disk", "--ignored", "--nocapture"])
            .env(FOLDER, folder)
            .stdin(kernel.try_clone().unwrap())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        leave_mounts();
        Self { folder: folder.to_owned(), format, kernel: Some(kernel), server: Mutex::new(server) }
    }

    /// Makes a machine whose folder is on the disk.
    pub(crate) fn machine(&self) -> Machine {
        let mut machine = Machine::new();
        limit(&mut machine);
        let place = machine.settings.folder.clone();
        std::fs::create_dir_all(&place).unwrap();
        std::os::unix::fs::symlink(&place, self.place()).unwrap();
        machine
    }

    /// A link to where the disk is mounted.
    fn place(&self) -> PathBuf {
        self.folder.join("place")
    }

    pub(crate) fn mount(&mut self) {
        let kernel = self.kernel.take().unwrap();
        let device = self.folder.join(DEVICE);
        let options =
            format!("fd={},rootmode=100600,user_id=0,group_id=0,allow_other", kernel.as_raw_fd());
        let options = CString::new(options).unwrap();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("holm-test", &device, "fuse", flags, options.as_c_str()).unwrap();
        drop(kernel);
        self.mount_on(&device);
    }

    pub(crate) fn mount_copy(&self) {
        self.mount_on(&self.folder.join(COPY));
    }

    fn mount_on(&self, file: &Path) {
        let options = match self.format {
            Format::Ext4 => "loop,noinit_itable",
            Format::Xfs => "loop,nouuid",
        };
        let place = self.place().canonicalize().unwrap();
        done(Command::new("mount").args(["-o", options]).arg(file).arg(place));
    }

    /// Returns the current length of the journal. Whatever was answered by now is before that.
    pub(crate) fn now(&self) -> u64 {
        std::fs::metadata(self.folder.join(JOURNAL)).unwrap().len()
    }

    /// Copies the disk as it was before the journal.
    pub(crate) fn copy(&self) -> PathBuf {
        copy(&self.folder.join(BEFORE), &self.folder.join(COPY));
        self.folder.join(COPY)
    }

    pub(crate) fn unmount(&self) {
        let place = self.place().canonicalize().unwrap();
        // The last file on it is released a little later than its user.
        await_that("the disk to be free", || unmount(&place, UnmountFlags::empty()).is_ok());
    }

    pub(crate) fn end(&self) {
        self.unmount();
        let device = self.folder.join(DEVICE);
        await_that("the device to be free", || unmount(&device, UnmountFlags::empty()).is_ok());
        let mut server = self.server.lock().unwrap();
        await_that("the disk to end", || server.try_wait().unwrap().is_some());
    }
}

fn copy(from: &Path, to: &Path) {
    done(Command::new("cp").args(["--sparse=always", "--reflink=auto"]).arg(from).arg(to));
}

#[track_caller]
fn done(command: &mut Command) {
    let ended = command.output().unwrap();
    assert!(ended.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
}

/// Gives this thread a mount namespace of its own, which is also that of what it starts.
#[expect(
    unsafe_code,
    reason = "a new mount namespace changes no memory and no descriptor of this process"
)]
fn leave_mounts() {
    // SAFETY: see above.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).unwrap();
}
