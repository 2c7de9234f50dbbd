//! Starts instances by an external OCI program, such as `runc`: more people have reviewed it than
//! [`crate::launch`], and it takes ten times as long.
//!
//! The node gives it the same parts that it uses itself: network, users, control groups, layers,
//! console, descriptors. So pausing, measuring, stopping and removing do not need the program. It
//! runs only twice, at the start: the first run leaves the process of the instance waiting, so that
//! the node can take hold of it before the second run lets it go on. The root file system is
//! mounted where only the first run sees it, so nothing stays mounted on the machine, however the
//! node ends.
//!
//! **Differences:** the first program has a path in `/dev/first`, with the last part of its name.
//! It is a file in the node's folder, one for each instance, and not one in memory for all. The
//! instance's process is not a child of the node, so its exit status is only known for sure on
//! kernels that tell it afterwards (6.15 and newer); on older ones it may be
//! [`crate::Exit::Unknown`]. A program that cannot be executed looks like one that ends at once.
//! The user namespace is made by the machine's root, so whatever the kernel counts per user (file
//! watches, queues, locked memory) is shared with all other instances made like this. `/dev`
//! belongs to the instance's root. If a configuration but no socket is passed, descriptor 3 is
//! `/dev/null`.

mod config;
mod seccomp;

use crate::launch::tool::{self, Tool, ToolFds};
use crate::launch::{LaunchError, Started, keep};
use crate::spec::Program;
use crate::sys;
pub(crate) use config::Prepared;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::Deserialize;
use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use types::instance::InstanceName;

/// How long one run of the program may take. Usually it takes 20 to 50 milliseconds.
const RUN_TIMEOUT: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };
/// How much of a failed program's message goes into the error.
const SAID_CHARS: usize = 500;

/// The folders that such programs need, one for each instance.
#[derive(Debug)]
pub(crate) struct Bundles {
    folder: PathBuf,
}

/// The folder of one instance.
pub(crate) struct Bundle {
    folder: PathBuf,
    id: InstanceName,
}

impl Bundles {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        // The program does not run in the folder that this one was started in.
        let folder = std::path::absolute(folder)?.join("bundles");
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        Ok(Self { folder })
    }

    pub(crate) fn make(&self, id: &InstanceName, program: &Program) -> io::Result<Bundle> {
        let folder = self.of(id);
        fs::create_dir(&folder)?;
        let bundle = Bundle { folder, id: id.clone() };
        let mut to =
            File::options().write(true).create_new(true).mode(0o555).open(bundle.program())?;
        // Opened by its path, because reading moves the position of a descriptor, which all copies
        // share.
        let mut from =
            File::open(format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(program.fd())))?;
        io::copy(&mut from, &mut to)?;
        // The umask of this process may have taken bits away, and others than root must be able to
        // run it.
        to.set_permissions(Permissions::from_mode(0o555))?;
        Ok(bundle)
    }

    /// Returns the folder of one instance.
    pub(crate) fn of(&self, id: &InstanceName) -> PathBuf {
        self.folder.join(id.as_str())
    }

    pub(crate) fn remove(&self, id: &InstanceName) -> io::Result<()> {
        remove(&self.of(id))
    }

    pub(crate) fn keep_only(&self, known: &HashSet<&InstanceName>) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let id = name.to_str().and_then(|name| InstanceName::new(name).ok());
            if let Some(id) = id.filter(|id| !known.contains(id)) {
                self.remove(&id)?;
            }
        }
        Ok(())
    }
}

/// Removes a bundle if it exists.
pub(crate) fn remove(bundle: &Path) -> io::Result<()> {
    match fs::remove_dir_all(bundle) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Bundle {
    pub(crate) fn program(&self) -> PathBuf {
        self.folder.join("program")
    }

    /// Starts the instance with the program at `tool`.
    pub(crate) fn start(
        &self,
        tool: &Path,
        spec: &crate::Spec,
        prepared: &Prepared<'_>,
        fds: impl FnOnce(rustix::fd::OwnedFd) -> rustix::io::Result<ToolFds>,
    ) -> Result<Started, LaunchError> {
        let config = config::config(spec, prepared).to_string();
        // The bundles folder is readable by root only, because this may hold secrets: arguments and
        // environment.
        fs::write(self.folder.join("config.json"), config).map_err(from_io)?;
        let program = openat(CWD, tool, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let fds = fds(keep(program)?)?;
        let arguments = self.arguments_of_create(tool, fds.passed());
        let creating = tool::start(&Tool { fds, arguments: &arguments })?;
        self.finish(creating, "create")?;

        let text = fs::read_to_string(self.folder.join("pid")).map_err(from_io)?;
        let pid =
            text.trim().parse().ok().and_then(Pid::from_raw).ok_or(rustix::io::Errno::SRCH)?;
        let started = Started { pid, pidfd: pidfd_open(pid, PidfdFlags::empty())? };
        let run = Command::new(tool)
            .args(self.common())
            .args(["start", self.id.as_str()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(from_io)?;
        self.finish(Pid::from_child(&run), "start")?;
        fs::remove_file(self.folder.join("config.json")).map_err(from_io)?;
        Ok(started)
    }

    fn arguments_of_create(&self, tool: &Path, passed: i32) -> Vec<String> {
        let path = |name: &str| self.folder.join(name).to_string_lossy().into_owned();
        let mut arguments = vec![tool.to_string_lossy().into_owned()];
        arguments.extend(self.common());
        arguments.extend([
            "create".to_owned(),
            "--bundle".to_owned(),
            self.folder.to_string_lossy().into_owned(),
        ]);
        arguments.extend(["--pid-file".to_owned(), path("pid")]);
        arguments.extend(["--preserve-fds".to_owned(), passed.to_string(), self.id.to_string()]);
        arguments
    }

    fn common(&self) -> [String; 6] {
        let path = |name: &str| self.folder.join(name).to_string_lossy().into_owned();
        [
            "--root".into(),
            path("state"),
            "--log".into(),
            path("log"),
            "--log-format".into(),
            "json".into(),
        ]
    }

    /// Waits for one run of the program to end.
    fn finish(&self, pid: Pid, what: &'static str) -> Result<(), LaunchError> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let failed = |said: String| Err(LaunchError::Tool { what, said });
        if poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&RUN_TIMEOUT))? == 0 {
            // The process id cannot have been reused: nobody has reaped it.
            let _ = pidfd_send_signal(pidfd.as_fd(), Signal::KILL);
            sys::reap(pid);
            return failed(format!("nothing, for {} seconds", RUN_TIMEOUT.tv_sec));
        }
        match sys::reap(pid) {
            Some(0) => Ok(()),
            _ => failed(self.said()),
        }
    }

    /// Returns the last message that the program wrote into its log.
    fn said(&self) -> String {
        #[derive(Deserialize)]
        struct Line {
            msg: String,
        }
        let text = match fs::read_to_string(self.folder.join("log")) {
            Ok(text) => text,
            Err(error) => return format!("nothing that can be read: {error}"),
        };
        let last = text.lines().rev().find_map(|line| serde_json::from_str::<Line>(line).ok());
        last.map_or_else(
            || "nothing".to_owned(),
            |line| line.msg.chars().take(SAID_CHARS).collect(),
        )
    }
}

fn from_io(error: io::Error) -> LaunchError {
    rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundles_are_found_from_any_folder() {
        let here = std::env::current_dir().unwrap();
        let data = tempfile::tempdir_in(&here).unwrap();
        let relative = data.path().strip_prefix(&here).unwrap();
        let bundles = Bundles::open(relative).unwrap();
        assert_eq!(bundles.folder, data.path().join("bundles"));
    }
}
