//! What a caller wants to run.

mod error;
mod writable;

use crate::extras::Extras;
use crate::names::{Owner, SnapshotName};
use crate::settings::Firewall;
pub use error::SpecError;
use error::{LAYERS_MAX, SCRATCH_MAX};
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use types::instance::{InstanceName, Medium, Scratch, VolumeName};
pub use writable::Writable;

/// A program in sealed memory that nobody can change any more, so that no instance can reach the
/// file it came from.
#[derive(Debug, Clone)]
pub struct Program(Arc<OwnedFd>);

impl Program {
    /// Copies a program into sealed memory. It must not need an interpreter or libraries that the
    /// instance does not have.
    pub fn new(bytes: &[u8]) -> io::Result<Self> {
        Ok(Self(Arc::new(sealed("program", bytes)?)))
    }

    /// Returns true if both are one copy.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Reads a part of the program from `position`. Returns 0 at its end.
    pub fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        Ok(rustix::io::pread(&*self.0, buffer, position)?)
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.0
    }
}

/// Makes a file in memory with this content, which can never change again.
pub(crate) fn sealed(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    io::Seek::rewind(&mut file)?;
    let fd = OwnedFd::from(file);
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    let deadline = Instant::now() + SEALING_TIMEOUT;
    loop {
        match fcntl_add_seals(&fd, seals) {
            Err(Errno::BUSY) if Instant::now() < deadline => thread::sleep(SEALING_PAUSE),
            sealed => return Ok(sealed.map(|()| fd)?),
        }
    }
}

/// The kernel refuses to seal pages that it is looking at itself, as when it moves them together or
/// observes their use. That takes it milliseconds.
const SEALING_TIMEOUT: Duration = Duration::from_secs(5);
const SEALING_PAUSE: Duration = Duration::from_millis(1);

/// Process 1 of an instance.
#[derive(Clone)]
pub struct FirstProcess {
    pub program: Program,
    /// The first one is the program's name.
    pub arguments: Vec<String>,
    /// Each is `NAME=value`.
    pub environment: Vec<String>,
    /// A port of the instance. The program finds the listening socket as descriptor
    /// [`crate::LISTENER_FD`]. It accepts connections before the program runs, and while the
    /// instance is paused.
    pub listen: Option<u16>,
    /// What the program can read from descriptor [`crate::CONFIG_FD`]. It is never on a disk.
    pub config: Option<Vec<u8>>,
}

/// Arguments, environment and configuration are left out, because they may hold secrets.
impl fmt::Debug for FirstProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirstProcess").field("listen", &self.listen).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

impl User {
    pub const ROOT: Self = Self { uid: 0, gid: 0 };
}

#[derive(Debug, Clone)]
pub struct Spec {
    pub id: InstanceName,
    pub owner: Owner,
    /// Whether the instance replaces one that was lost. Then it is not refused for memory that was
    /// promised to others meanwhile.
    pub again: bool,
    /// Folders with the unpacked layers of an image, lowest first. They must not change while the
    /// instance exists.
    pub layers: Vec<PathBuf>,
    /// The snapshot to start from over these layers, taken of an instance over the same layers.
    pub snapshot: Option<SnapshotName>,
    pub memory_mb: u32,
    /// In thousandths of a core.
    pub cpu_millicores: u32,
    pub pids_max: u32,
    pub writable: Writable,
    pub hostname: String,
    pub workdir: String,
    pub user: User,
    pub first: FirstProcess,
    pub scratch: Vec<Scratch>,
    pub extras: Extras,
    pub firewall: Firewall,
}

impl Spec {
    /// Returns the processor time that goes with an amount of memory: one core for each 2048 MB.
    pub const fn cpu_for(memory_mb: u32) -> u32 {
        let millicores = memory_mb.saturating_mul(125) / 256;
        if millicores < 10 { 10 } else { millicores }
    }

    fn writable_fits(&self) -> bool {
        match self.writable {
            Writable::Memory { mb } => (1..=self.memory_mb / 4 * 3).contains(&mb),
            Writable::Disk { mb } | Writable::Kept { mb, .. } => mb > 0,
        }
    }

    /// Returns the volume that keeps what the instance writes.
    pub(crate) fn kept(&self) -> Option<&VolumeName> {
        match &self.writable {
            Writable::Kept { volume, .. } => Some(volume),
            Writable::Memory { .. } | Writable::Disk { .. } => None,
        }
    }

    /// Returns the sizes of the file systems to make on the machine's disk. Volumes are listed as
    /// 0: they need a loop device too, but their room is counted for as long as they exist.
    pub(crate) fn disks(&self) -> impl Iterator<Item = u32> {
        let layer = match self.writable {
            Writable::Memory { .. } => None,
            Writable::Disk { mb } => Some(mb),
            Writable::Kept { .. } => Some(0),
        };
        let on_disk = self.scratch.iter().filter(|scratch| scratch.medium == Medium::Disk);
        let volumes = self.extras.volumes().map(|_| 0);
        layer.into_iter().chain(on_disk.map(|scratch| scratch.size_mb)).chain(volumes)
    }

    /// Checks that no folder is inside another, and that each is at a permitted path.
    fn scratch_fits(&self) -> bool {
        let apart = |index: usize, one: &Scratch| {
            let others = self.scratch.iter().enumerate().filter(|(other, _)| *other != index);
            !others.into_iter().any(|(_, other)| is_in(one, other))
        };
        self.scratch.len() <= SCRATCH_MAX
            && self
                .scratch
                .iter()
                .enumerate()
                .all(|(index, one)| has_place(one) && apart(index, one))
    }

    pub(crate) fn check(&self) -> Result<(), SpecError> {
        let ids = self.user.uid.max(self.user.gid);
        let host = (1..=63).contains(&self.hostname.len())
            && self
                .hostname
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
        match self {
            _ if self.layers.is_empty() || self.layers.len() > LAYERS_MAX => {
                Err(SpecError::Layers(self.layers.len()))
            }
            _ if self.memory_mb < 16 => Err(SpecError::Memory(self.memory_mb)),
            _ if self.cpu_millicores < 10 => Err(SpecError::Cpu(self.cpu_millicores)),
            _ if self.pids_max < 4 => Err(SpecError::Pids(self.pids_max)),
            _ if !self.writable_fits() => Err(SpecError::Writable(self.writable.clone())),
            _ if !self.workdir.starts_with('/') => Err(SpecError::Workdir(self.workdir.clone())),
            _ if ids >= crate::users::IDS_PER_INSTANCE => Err(SpecError::User(ids)),
            _ if !self.scratch_fits() => Err(SpecError::Scratch),
            _ if !self.extras.fits(is_place) => Err(SpecError::Scratch),
            _ if !host => Err(SpecError::Hostname(self.hostname.clone())),
            _ => Ok(()),
        }
    }
}

/// Checks that a folder of limited size has a size and can be at its path.
fn has_place(scratch: &Scratch) -> bool {
    is_place(&scratch.path) && scratch.size_mb > 0
}

fn is_place(path: &str) -> bool {
    let Some(inside) = path.strip_prefix('/') else { return false };
    let plain =
        inside.split('/').all(|part| !["", ".", ".."].contains(&part) && !part.contains('\0'));
    let taken = inside.split('/').next().is_some_and(|first| TAKEN.contains(&first));
    plain && !taken && path.len() <= PATH_BYTES_MAX
}

fn is_in(scratch: &Scratch, other: &Scratch) -> bool {
    scratch
        .path
        .strip_prefix(&other.path)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Folders in which the node itself mounts something, where another mount would hide it.
const TAKEN: [&str; 3] = ["proc", "dev", "sys"];
/// The kernel's limit is 4,096.
const PATH_BYTES_MAX: usize = 4_000;

#[cfg(test)]
impl Spec {
    /// A small instance that is never started.
    pub(crate) fn for_tests() -> Self {
        Self {
            id: InstanceName::new("one").unwrap(),
            owner: Owner::new("somebody").unwrap(),
            again: false,
            layers: vec!["/layer".into()],
            snapshot: None,
            memory_mb: 64,
            cpu_millicores: 500,
            pids_max: 32,
            writable: Writable::Memory { mb: 16 },
            hostname: "box".into(),
            workdir: "/".into(),
            user: User::ROOT,
            first: FirstProcess {
                program: Program::new(b"").unwrap(),
                arguments: vec![],
                environment: vec![],
                listen: None,
                config: None,
            },
            scratch: vec![],
            extras: Extras::default(),
            firewall: Firewall::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_beside_each_other_in_places_that_can_be_one() {
        let fits = |paths: &[&str]| {
            let scratch = |path: &&str| Scratch {
                path: (*path).to_owned(),
                size_mb: 1,
                read_only: false,
                medium: Medium::Disk,
            };
            let spec = Spec { scratch: paths.iter().map(scratch).collect(), ..Spec::for_tests() };
            spec.check() != Err(SpecError::Scratch)
        };
        assert!(fits(&["/data", "/data2", "/tmp", "/home/a/b", "/process"]));
        for bad in [
            "",
            "/",
            "data",
            "/data/",
            "//data",
            "/a/../b",
            "/a/./b",
            "/proc",
            "/proc/self",
            "/dev/shm",
            "/sys",
            "/a\0",
        ] {
            assert!(!fits(&[bad]), "{bad}");
        }
        assert!(!fits(&["/data", "/data"]));
        assert!(!fits(&["/data/in", "/data"]));
    }

    #[test]
    fn cpu_follows_memory() {
        assert_eq!([512, 2048, 4096, 0].map(Spec::cpu_for), [250, 1000, 2000, 10]);
    }
}
