//! The fixed list of steps between clone and exec. Nothing in it depends on a tenant's input except
//! names and numbers.

use super::error::LaunchError;
use super::filter::Filter;
use super::step::{FilterProgram, Mapping, MountOption, Pointers, Step, Task};
use crate::number::fit;
use crate::spec::User;
use libc::c_void;
use rustix::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use rustix::io;
use std::ffi::{CStr, CString, NulError};

/// The lowest number of any node descriptor that the new processes use, so that the small ones are
/// free.
const LOWEST: RawFd = 32;
pub(super) const ROOT: RawFd = 5;
const PROC: RawFd = 6;
const TERMINALS: RawFd = 7;
const SHARED: RawFd = 8;
const QUEUES: RawFd = 9;

/// Where the program finds its listening socket and its configuration.
pub const LISTENER_FD: RawFd = 3;
pub const CONFIG_FD: RawFd = 4;
/// The program's own descriptor, the last other one that is open until exec. The number is the
/// root's at first, which does not need it any more once it is mounted.
pub(super) const PROGRAM: RawFd = 5;

/// A folder that every Linux machine has and that the new process does not need. Mounts are
/// attached here until the old root is dropped, with everything on it.
const WORKBENCH: &str = "/sys";

const NODEV: i64 = 0x4;
const PLAIN: i64 = 0x2 | 0x4 | 0x8;

/// What root in an instance may do: whatever Debian's package and user tools need, and nothing over
/// the machine.
pub(crate) const CAPABILITIES: [(u32, &str); 10] = [
    (0, "CAP_CHOWN"),
    (1, "CAP_DAC_OVERRIDE"),
    (3, "CAP_FOWNER"),
    (4, "CAP_FSETID"),
    (5, "CAP_KILL"),
    (6, "CAP_SETGID"),
    (7, "CAP_SETUID"),
    (8, "CAP_SETPCAP"),
    (18, "CAP_SYS_CHROOT"),
    (31, "CAP_SETFCAP"),
];

/// When the machine itself runs out of memory, programs of instances are killed before those of the
/// machine, and before the node.
pub(crate) const OUT_OF_MEMORY_SCORE: &CStr = c"500";

pub(crate) const HIDDEN_FILES: [&str; 6] = [
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/timer_list",
    "/proc/sysrq-trigger",
];
pub(crate) const HIDDEN_FOLDERS: [&str; 3] = ["/proc/acpi", "/proc/asound", "/proc/scsi"];
pub(crate) const FROZEN: [&str; 4] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"];

/// Everything that a start needs. The descriptors are copies that the new processes inherit.
pub(crate) struct Launch<'a> {
    fds: Fds,
    words: Words<'a>,
    filter: &'a Filter,
}

/// The descriptors of a start.
pub(crate) struct Fds {
    pub(crate) groups: Vec<OwnedFd>,
    pub(crate) network: OwnedFd,
    pub(crate) users: OwnedFd,
    /// Topmost first.
    pub(crate) layers: Vec<OwnedFd>,
    pub(crate) disk: OwnedFd,
    /// The file systems for the folders in [`Words::folders`], in the same order.
    pub(crate) scratch: Vec<OwnedFd>,
    /// The mounts for [`Words::places`], in the same order.
    pub(crate) mounts: Vec<OwnedFd>,
    pub(crate) devices: OwnedFd,
    pub(crate) program: OwnedFd,
    pub(crate) null: OwnedFd,
    pub(crate) output: OwnedFd,
    pub(crate) listener: Option<OwnedFd>,
    pub(crate) config: Option<OwnedFd>,
}

/// The kind of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    File,
    Folder,
    /// A folder. Left out if the instance has put something else at its mount point.
    Shared,
}

/// The texts and numbers of a start.
pub(crate) struct Words<'a> {
    pub(crate) arguments: &'a [String],
    pub(crate) environment: &'a [String],
    pub(crate) hostname: &'a str,
    pub(crate) workdir: &'a str,
    pub(crate) folders: &'a [&'a str],
    /// The mount points of [`Fds::mounts`], with the kind of each.
    pub(crate) places: &'a [(&'a str, Sort)],
    pub(crate) user: User,
    pub(crate) open_files: u64,
    pub(crate) shared_memory_mb: u32,
    pub(crate) terminals: u32,
}

/// Copies a descriptor to a number that does not collide with those that the new processes use.
pub(crate) fn copy(fd: impl AsFd) -> io::Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, LOWEST)
}

/// Like [`copy`], but returns the descriptor itself if its number is high enough, as in a server
/// most are.
pub(crate) fn keep(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() >= LOWEST { Ok(fd) } else { copy(fd) }
}

impl<'a> Launch<'a> {
    /// Makes a launch. All of `fds` must come from [`keep`] or [`copy`].
    pub(crate) fn new(fds: Fds, words: Words<'a>, filter: &'a Filter) -> Self {
        Self { fds, words, filter }
    }

    /// Returns the steps of the first process, which still has the node's rights.
    pub(super) fn outside(&self, second: *const Task, stack: *mut c_void) -> Vec<Step> {
        let mut steps = vec![Step::GoFirst { score: OUT_OF_MEMORY_SCORE }];
        steps.extend(
            self.fds.groups.iter().map(|group| Step::JoinGroup { tasks: group.as_raw_fd() }),
        );
        let flags = libc::CLONE_VM
            | libc::CLONE_VFORK
            | libc::CLONE_PARENT
            | libc::CLONE_PARENT_SETTID
            | libc::CLONE_NEWNS
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWCGROUP
            | libc::SIGCHLD;
        steps.extend([
            Step::Enter { namespace: self.fds.network.as_raw_fd(), kind: libc::CLONE_NEWNET },
            Step::Enter { namespace: self.fds.users.as_raw_fd(), kind: libc::CLONE_NEWUSER },
            Step::BecomeRoot,
            Step::Spawn { task: second, flags, stack },
        ]);
        steps
    }

    /// Returns the steps of the second process, inside its namespaces.
    pub(super) fn inside(&self) -> Result<Vec<Step>, LaunchError> {
        let mut steps = self.make_file_systems()?;
        steps.extend(enter_root()?);
        steps.extend(self.attach_folders()?);
        steps.extend(self.furnish()?);
        steps.extend(mask()?);
        steps.extend(self.pass_descriptors());
        steps.extend(self.settle()?);
        steps.extend(self.drop_rights());
        steps.push(Step::Execute {
            program: PROGRAM,
            arguments: pointers(self.words.arguments)?,
            environment: pointers(self.words.environment)?,
        });
        Ok(steps)
    }

    /// Makes all file systems. This comes before the old root is dropped: the kernel grants a new
    /// proc only beside a fully visible one, and layers must be attached somewhere to become part
    /// of an overlay.
    fn make_file_systems(&self) -> Result<Vec<Step>, NulError> {
        let mut steps = overlay(&self.fds.layers, &self.fds.disk, WORKBENCH)?;
        let size = format!("{}m", self.words.shared_memory_mb);
        let max = self.words.terminals.to_string();
        let terminals = vec![
            option("mode", "0620")?,
            option("gid", "5")?,
            option("ptmxmode", "0666")?,
            option("max", &max)?,
        ];
        steps.extend([
            new_mount("proc", vec![], PLAIN, PROC)?,
            new_mount("devpts", terminals, 0x2 | 0x8, TERMINALS)?,
            new_mount(
                "tmpfs",
                vec![option("mode", "1777")?, option("size", &size)?],
                PLAIN,
                SHARED,
            )?,
            new_mount("mqueue", vec![], PLAIN, QUEUES)?,
        ]);
        Ok(steps)
    }

    /// Attaches the mounts that tenants asked for. This comes before there is a `/proc`: a tenant
    /// names these paths, and no link in an image may lead to a descriptor that is still open.
    fn attach_folders(&self) -> Result<Vec<Step>, NulError> {
        let mut steps = Vec::new();
        for (mount, path) in self.fds.scratch.iter().zip(self.words.folders) {
            steps.extend(make_folders(path)?);
            steps.push(Step::Attach { mount: mount.as_raw_fd(), at: CString::new(*path)? });
        }
        for (mount, (path, sort)) in self.fds.mounts.iter().zip(self.words.places) {
            if *sort == Sort::Shared {
                let (mount, at) = (mount.as_raw_fd(), CString::new(*path)?);
                steps.push(Step::AttachIfPlain { mount, at, folders: folders_of(path)? });
                continue;
            }
            let is_folder = *sort == Sort::Folder;
            let above = path.rsplit_once('/').map_or("", |(above, _)| above);
            steps.extend(make_folders(if is_folder { path } else { above })?);
            if !is_folder {
                steps.push(Step::MakeFile { path: CString::new(*path)? });
            }
            steps.push(Step::Attach { mount: mount.as_raw_fd(), at: CString::new(*path)? });
        }
        Ok(steps)
    }

    /// Attaches `/proc`, `/dev` and so on. Paths are the instance's own by now, so no link in an
    /// image can lead to the machine.
    fn furnish(&self) -> Result<Vec<Step>, NulError> {
        let mut steps = Vec::new();
        for folder in ["/proc", "/dev", "/sys", "/tmp"] {
            steps.push(Step::MakeFolder { path: CString::new(folder)? });
        }
        let devices = self.fds.devices.as_raw_fd();
        let mounts = [
            (PROC, "/proc"),
            (devices, "/dev"),
            (TERMINALS, "/dev/pts"),
            (SHARED, "/dev/shm"),
            (QUEUES, "/dev/mqueue"),
        ];
        for (mount, at) in mounts {
            steps.push(Step::Attach { mount, at: CString::new(at)? });
        }
        Ok(steps)
    }

    fn settle(&self) -> Result<Vec<Step>, NulError> {
        let mut steps =
            vec![Step::SetHostname { name: CString::new(self.words.hostname)? }, Step::NewSession];
        steps.extend(make_folders(self.words.workdir)?);
        steps.push(Step::ChangeFolder { to: CString::new(self.words.workdir)? });
        Ok(steps)
    }

    /// Closes all descriptors of the machine before a folder named by a tenant, such as the working
    /// directory, is entered: it could be `/proc/self/fd/N`.
    fn pass_descriptors(&self) -> Vec<Step> {
        let pass = |fd: &OwnedFd, as_number| Step::Pass { fd: fd.as_raw_fd(), as_number, flags: 0 };
        let close = |first: RawFd, last: u32| Step::Close { first: first.unsigned_abs(), last };
        let mut steps =
            vec![pass(&self.fds.null, 0), pass(&self.fds.output, 1), pass(&self.fds.output, 2)];
        for (fd, number) in [(&self.fds.listener, LISTENER_FD), (&self.fds.config, CONFIG_FD)] {
            steps.push(match fd {
                Some(fd) => pass(fd, number),
                None => close(number, number.unsigned_abs()),
            });
        }
        let program = self.fds.program.as_raw_fd();
        steps.push(Step::Pass { fd: program, as_number: PROGRAM, flags: libc::O_CLOEXEC });
        steps.push(close(PROGRAM + 1, u32::MAX));
        steps
    }

    fn drop_rights(&self) -> Vec<Step> {
        let limit = |resource, most| Step::Limit { resource, soft: most, hard: most };
        let set = CAPABILITIES.iter().fold(0_u64, |set, (capability, _)| set | 1 << capability);
        let mut steps = vec![
            limit(resource(libc::RLIMIT_CORE), 0),
            limit(resource(libc::RLIMIT_NOFILE), self.words.open_files),
            Step::KeepCapabilities { set },
        ];
        if self.words.user != User::ROOT {
            steps.push(Step::BecomeUser { uid: self.words.user.uid, gid: self.words.user.gid });
        }
        steps.extend([
            Step::NoNewPrivileges,
            Step::RestoreSignals,
            Step::Filter { program: FilterProgram(self.filter.program()) },
        ]);
        steps
    }
}

/// Makes the process's mounts private, and mounts the layers as an overlay, whose descriptor gets
/// the number [`ROOT`].
pub(super) fn overlay(
    layers: &[OwnedFd],
    disk: &OwnedFd,
    workbench: &str,
) -> Result<Vec<Step>, NulError> {
    let private = Mapping {
        from: CString::new("none")?,
        at: CString::new("/")?,
        flags: libc::MS_REC | libc::MS_PRIVATE,
    };
    let mut steps = vec![Step::Mount(private)];
    let mut options = vec![option("source", "holm")?];
    for layer in layers {
        steps.push(Step::Attach { mount: layer.as_raw_fd(), at: CString::new(workbench)? });
        options.push(option("lowerdir+", &format!("/proc/self/fd/{}", layer.as_raw_fd()))?);
    }
    let disk = disk.as_raw_fd();
    steps.push(Step::Attach { mount: disk, at: CString::new(workbench)? });
    options.push(option("upperdir", &format!("/proc/self/fd/{disk}/upper"))?);
    options.push(option("workdir", &format!("/proc/self/fd/{disk}/work"))?);
    options.push(MountOption { key: CString::new("userxattr")?, value: None });
    steps.push(new_mount("overlay", options, NODEV, ROOT)?);
    Ok(steps)
}

/// Makes a folder and all those above it.
fn make_folders(path: &str) -> Result<Vec<Step>, NulError> {
    Ok(folders_of(path)?.into_iter().map(|path| Step::MakeFolder { path }).collect())
}

fn folders_of(path: &str) -> Result<Vec<CString>, NulError> {
    let ends = path.match_indices('/').skip(1).map(|(at, _)| at).chain([path.len()]);
    let prefixes = ends.filter_map(|at| path.get(..at).filter(|prefix| !prefix.is_empty()));
    prefixes.map(CString::new).collect()
}

fn enter_root() -> Result<Vec<Step>, NulError> {
    Ok(vec![
        Step::Attach { mount: ROOT, at: CString::new(WORKBENCH)? },
        Step::ChangeFolderTo { fd: ROOT },
        Step::PivotHere,
        Step::DropOldRoot,
        Step::ChangeFolder { to: CString::new("/")? },
    ])
}

fn mask() -> Result<Vec<Step>, NulError> {
    let mut steps = Vec::new();
    for path in HIDDEN_FILES {
        steps.push(Step::Hide { path: CString::new(path)?, under: CString::new("/dev/null")? });
    }
    for path in HIDDEN_FOLDERS {
        steps.push(Step::HideFolder { path: CString::new(path)? });
    }
    for path in FROZEN {
        steps.push(Step::Freeze { path: CString::new(path)? });
    }
    Ok(steps)
}

fn option(key: &str, value: &str) -> Result<MountOption, NulError> {
    Ok(MountOption { key: CString::new(key)?, value: Some(CString::new(value)?) })
}

fn new_mount(
    kind: &str,
    options: Vec<MountOption>,
    flags: i64,
    into: RawFd,
) -> Result<Step, NulError> {
    Ok(Step::NewMount { kind: CString::new(kind)?, options, flags, into })
}

pub(super) fn pointers(texts: &[String]) -> Result<Pointers, NulError> {
    Ok(Pointers::new(
        texts.iter().map(|text| CString::new(text.as_str())).collect::<Result<_, _>>()?,
    ))
}

fn resource(which: libc::__rlimit_resource_t) -> i32 {
    fit(which)
}
