//! Handing all that runs here over to a newer program, which takes the place of this one under the
//! same number.
//!
//! Children stay children, since the number of their parent does not change. Descriptors pass
//! through: the listening socket, where callers wait meanwhile, the pipes of processes and the
//! files of their output. The rest goes as JSON in a file that has no name, because it holds
//! secrets. Terminals do not pass; their shells are hung up.

use crate::guest::Guest;
use crate::processes;
use crate::raw::{HandedOver, adopt};
use crate::settings::Given;
use crate::upgrade::Upgrades;
use rustix::fs::MemfdFlags;
use rustix::io::FdFlags;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Raised with every change of `State` that a program of another version could not read.
pub(crate) const FORMAT: u32 = 1;
/// How often the ends of processes get their turn before a handover is given up.
const END_TURNS_MAX: usize = 10_000;

#[derive(Serialize, Deserialize)]
pub(crate) struct State {
    listener: RawFd,
    given: Given,
    from_document: BTreeMap<String, String>,
    processes: Vec<processes::Kept>,
    monitors: Vec<(i32, String)>,
    upgrades: Upgrades,
}

/// Descriptors that the next program gets. Those that it did not get after all are kept from
/// children again.
#[derive(Default)]
pub(crate) struct Carried(Vec<OwnedFd>);

impl Carried {
    /// Lets a copy of a descriptor through, and answers its number.
    pub(crate) fn carry(&mut self, fd: impl AsFd) -> io::Result<RawFd> {
        let copy = fd.as_fd().try_clone_to_owned()?;
        rustix::io::fcntl_setfd(&copy, FdFlags::empty())?;
        let number = copy.as_raw_fd();
        self.0.push(copy);
        Ok(number)
    }
}

/// Puts the program at `path` in the place of this one. Answers only if that failed; then all goes
/// on as before.
pub(crate) async fn replace(guest: &Guest, path: &Path, upgrades: Upgrades) -> io::Error {
    guest.reaper.pause();
    let handled = handle_ends(guest).await;
    let error = handled.and_then(|()| replace_now(guest, path, upgrades));
    guest.reaper.go_on();
    error.err().unwrap_or_else(|| io::Error::other("the program was not replaced"))
}

/// What has ended is dealt with first: whoever comes next is not told of it again.
async fn handle_ends(guest: &Guest) -> io::Result<()> {
    for _ in 0..END_TURNS_MAX {
        if guest.processes.have_handled_ends(&guest.reaper) {
            return Ok(());
        }
        tokio::task::yield_now().await;
    }
    Err(io::Error::other("processes kept ending"))
}

/// Without a pause from the first descriptor to the last, so that no child is started that would
/// get them too.
fn replace_now(guest: &Guest, path: &Path, upgrades: Upgrades) -> io::Result<()> {
    let mut carried = Carried::default();
    let state = State {
        listener: carried.carry(&guest.listener)?,
        given: guest.settings.given.clone().with_proxy(guest.proxy.lock().clone()),
        from_document: guest.environment.lock().document(),
        processes: guest.processes.hand_over(&mut carried)?,
        monitors: guest.monitors.all(),
        upgrades,
    };
    let mut file = File::from(rustix::fs::memfd_create("state", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(&state)?)?;
    file.rewind()?;
    let number = carried.carry(&file)?;
    let mut command = Command::new(path);
    command
        .env_remove(HandedOver::Listener.variable())
        .env_remove(HandedOver::Settings.variable())
        .env(HandedOver::State.variable(), number.to_string());
    Err(command.exec())
}

impl State {
    /// Reads what the program before this one has left, if there was one.
    pub(crate) fn take() -> Option<io::Result<Self>> {
        let fd = HandedOver::State.take()?;
        Some(serde_json::from_reader(io::BufReader::new(File::from(fd))).map_err(io::Error::from))
    }

    pub(crate) fn listener(&self) -> io::Result<OwnedFd> {
        adopt(self.listener)
    }

    pub(crate) fn given(&self) -> Given {
        self.given.clone()
    }

    /// Goes on where the program before this one was.
    pub(crate) fn resume(self, guest: &Arc<Guest>) -> io::Result<()> {
        guest.environment.lock().set_document(self.from_document);
        *guest.upgrades.lock() = self.upgrades.succeeded();
        guest.processes.take_over(guest, self.processes)?;
        for (pid, callback) in self.monitors {
            // It was good enough for the program before.
            let _ = guest.monitors.start(pid, &callback);
        }
        // Those that ended in between.
        guest.reaper.reap();
        Ok(())
    }
}

/// Maps of bytes, whose names cannot be members of JSON objects.
pub(crate) mod pairs {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::collections::BTreeMap;
    use std::ffi::OsString;

    type Map = BTreeMap<OsString, OsString>;

    pub(crate) fn serialize<S: Serializer>(map: &Map, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map, D::Error> {
        Vec::<(OsString, OsString)>::deserialize(deserializer).map(Map::from_iter)
    }
}

/// The same for a map that is shared here. It is not shared where it arrives.
pub(crate) mod shared_pairs {
    use super::pairs;
    use crate::environment::Variables;
    use serde::{Deserializer, Serializer};
    use std::sync::Arc;

    pub(crate) fn serialize<S: Serializer>(
        map: &Arc<Variables>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        pairs::serialize(map, serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<Variables>, D::Error> {
        pairs::deserialize(deserializer).map(Arc::new)
    }
}

/// Paths, which need not be text.
pub(crate) mod path {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<PathBuf, D::Error> {
        OsString::deserialize(deserializer).map(PathBuf::from)
    }
}
