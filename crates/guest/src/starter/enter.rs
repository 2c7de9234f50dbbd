//! Becomes an instance, and gives up all rights over it.

use super::message::{Descriptors, answer, receive};
use super::prepare::{attach, make_folder, overlay};
use super::{Doing, Entered, Failure};
use crate::{raw, serve};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, mkdirat, mknodat, openat2};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use rustix::process::{
    DumpableBehavior, Gid, Resource, Rlimit, Uid, chdir, chroot, fchdir, set_dumpable_behavior,
    setrlimit, setsid,
};
use rustix::system::sethostname;
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs, set_thread_res_gid,
    set_thread_res_uid,
};
use std::ffi::CString;
use std::os::fd::OwnedFd;
use types::start::{Answer, Entry, Execute, Place, Rules, Sort};

/// What an instance gets, each in the order in which it is told.
struct Given {
    groups: Vec<OwnedFd>,
    layers: Vec<OwnedFd>,
    disk: OwnedFd,
    scratch: Vec<OwnedFd>,
    mounts: Vec<OwnedFd>,
}

/// Waits until this process is told what instance it is, and becomes that. `None` means that it is
/// not needed any more.
pub(super) fn wait(rules: &Rules, socket: OwnedFd) -> Result<Option<Entered>, Failure> {
    let runtime = serve::runtime().doing("make ready to serve")?;
    let Some((entry, mut descriptors)) = receive::<Entry>(&socket)? else { return Ok(None) };
    let given = Given::take(&entry, &mut descriptors)?;
    let mut next = |is_there: bool, what| is_there.then(|| descriptors.next(what)).transpose();
    let listener = next(entry.has_listener, "find its listener")?;
    let config = next(entry.has_config, "find its configuration")?;
    let program = next(entry.execute.is_some(), "find its program")?;

    enter(&entry, given)?;
    give_up_rights(rules, &entry)?;
    if let (Some(execute), Some(program)) = (&entry.execute, program) {
        return Err(become_another(rules, execute, &program, [listener, config])?);
    }
    raw::load_filter(&rules.filter).doing("load its filter of system calls")?;
    answer(&socket, &Answer::Entered).doing("say that it has started")?;
    Ok(Some(Entered { listener, config, runtime }))
}

impl Given {
    fn take(entry: &Entry, from: &mut Descriptors) -> Result<Self, Failure> {
        Ok(Self {
            groups: from.take(entry.groups, "find its control groups")?,
            layers: from.take(entry.layers, "find its layers")?,
            disk: from.next("find its disk")?,
            scratch: from.take(entry.scratch.len(), "find its folders of limited size")?,
            mounts: from.take(entry.mounts.len(), "find its mounts")?,
        })
    }
}

fn enter(entry: &Entry, given: Given) -> Result<(), Failure> {
    for group in &given.groups {
        // Moving the process itself is quick. Moving another one takes the kernel milliseconds.
        rustix::io::write(group, b"0").doing("join its control group")?;
    }
    raw::hide_groups_above().doing("hide the control groups above its own")?;
    let root = overlay(&given.layers, &given.disk)?;
    let tree = |path| open_tree(CWD, path, OpenTreeFlags::OPEN_TREE_CLOEXEC);
    let proc = tree("/proc").doing("take its /proc along")?;
    let devices = tree("/dev").doing("take its /dev along")?;

    // Over the small root, which is out of reach then: the kernel counts this as the root of the
    // namespace, above which no path leads.
    attach(&root, "/")?;
    fchdir(&root).doing("enter its root")?;
    chroot(".").doing("change its root")?;
    chdir("/").doing("enter its root")?;
    attach_folders(entry, &given)?;
    // Only now, so that no link in an image has led to a descriptor that is still open.
    for folder in ["/proc", "/dev", "/sys", "/tmp"] {
        make_folder(folder)?;
    }
    attach(&proc, "/proc")?;
    attach(&devices, "/dev")?;
    drop((given, root, proc, devices));

    sethostname(entry.hostname.as_bytes()).doing("set its host name")?;
    setsid().doing("begin a session")?;
    make_folders(&entry.workdir)?;
    chdir(&*entry.workdir).doing(format!("enter the folder {}", entry.workdir))
}

/// Attaches the mounts that tenants asked for. This comes before there is a `/proc`: a tenant names
/// these paths, and no link in an image may lead to a descriptor that is still open.
fn attach_folders(entry: &Entry, given: &Given) -> Result<(), Failure> {
    for (mount, path) in given.scratch.iter().zip(&entry.scratch) {
        make_folders(path)?;
        attach(mount, path)?;
    }
    for (mount, Place { path, sort }) in given.mounts.iter().zip(&entry.mounts) {
        match sort {
            Sort::Folder => make_folders(path)?,
            Sort::File => make_file(path)?,
            Sort::Shared => {
                attach_if_plain(mount, path);
                continue;
            }
        }
        attach(mount, path)?;
    }
    Ok(())
}

/// Makes a folder and all those above it.
fn make_folders(path: &str) -> Result<(), Failure> {
    prefixes(path).try_for_each(make_folder)
}

fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').skip(1).map(|(at, _)| at).chain([path.len()]);
    ends.filter_map(|at| path.get(..at).filter(|prefix| !prefix.is_empty()))
}

fn make_file(path: &str) -> Result<(), Failure> {
    make_folders(path.rsplit_once('/').map_or("", |(above, _)| above))?;
    match mknodat(CWD, path, FileType::RegularFile, Mode::from_raw_mode(0o644), 0) {
        Err(Errno::EXIST) => Ok(()),
        made => made.doing(format!("make the file {path}")),
    }
}

/// Attaches a mount unless a link or something else is in the way. That was put there by the
/// instance that would have had the mount, so it fails silently.
fn attach_if_plain(mount: &OwnedFd, path: &str) {
    for folder in prefixes(path) {
        let _ = mkdirat(CWD, folder, Mode::from_raw_mode(0o755));
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let no_links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    if let Ok(place) = openat2(CWD, path, flags, Mode::empty(), no_links) {
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        let _ = move_mount(mount, "", place, "", flags);
    }
}

fn give_up_rights(rules: &Rules, entry: &Entry) -> Result<(), Failure> {
    let limit = |resource, most| {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
            .doing("limit its resources")
    };
    limit(Resource::Core, 0)?;
    limit(Resource::Nofile, rules.open_files)?;
    let kept = CapabilitySet::from_bits_retain(rules.capabilities);
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).doing("drop its capabilities")?;
    if (entry.uid, entry.gid) != (0, 0) {
        let (user, group) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
        set_thread_res_gid(group, group, group)
            .and_then(|()| set_thread_res_uid(user, user, user))
            .doing(format!("become user {} and group {}", entry.uid, entry.gid))?;
    }
    // The change of users has hidden it from its own `/proc`, which executing a program would undo.
    set_dumpable_behavior(DumpableBehavior::Dumpable).doing("show itself in /proc")?;
    set_no_new_privs(true).doing("give up new privileges")
}

/// Executes another program instead of going on. Returns only if that failed.
fn become_another(
    rules: &Rules,
    execute: &Execute,
    program: &OwnedFd,
    given: [Option<OwnedFd>; 2],
) -> Result<Failure, Failure> {
    let texts = |texts: &[String]| {
        let texts = texts.iter().map(|text| CString::new(text.as_str()));
        texts
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| Errno::INVAL)
            .doing("lay out its arguments")
    };
    let (arguments, environment) = (texts(&execute.arguments)?, texts(&execute.environment)?);
    raw::load_filter(&rules.filter).doing("load its filter of system calls")?;
    let errno = raw::execute(program, given, &arguments, &environment);
    Ok(Failure { what: "execute its program".into(), errno })
}
