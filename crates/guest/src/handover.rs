//! Hands everything that runs here over to a newer program, which replaces this one in the same
//! process.
//!
//! Children stay children, because the process id of their parent does not change. File descriptors
//! are passed on: the listening socket, where callers wait meanwhile, the pipes of processes and
//! the files of their output. The rest goes as JSON in a file without a name, because it contains
//! secrets. Terminals are not handed over; their shells are hung up.

use crate::carried::Carried;
use crate::guest::Guest;
use crate::processes;
use crate::raw::{HandedOver, adopt};
use crate::upgrade::Upgrades;
use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use types::guest::Settings;

/// Raised with every change to `State` that other versions of the program could not read.
pub(crate) const FORMAT: u32 = 1;
/// How many turns the ends of processes get before a handover is given up.
const END_TURNS_MAX: usize = 10_000;

#[derive(Serialize, Deserialize)]
pub(crate) struct State {
    listener: RawFd,
    given: Settings,
    from_document: BTreeMap<String, String>,
    processes: Vec<processes::HandedOverProcess>,
    monitors: Vec<(i32, String)>,
    upgrades: Upgrades,
}

/// Replaces this program with the one at `path`. Returns only on failure; then everything continues
/// as before.
pub(crate) async fn replace(guest: &Guest, path: &Path, upgrades: Upgrades) -> io::Error {
    guest.instance.reaper.pause();
    let handled = handle_ends(guest).await;
    let error = handled.and_then(|()| replace_now(guest, path, upgrades));
    guest.instance.reaper.go_on();
    error.err().unwrap_or_else(|| io::Error::other("the program was not replaced"))
}

/// Handles the processes that have already ended, because the next program will not be told of them
/// again.
async fn handle_ends(guest: &Guest) -> io::Result<()> {
    for _ in 0..END_TURNS_MAX {
        if guest.processes.have_handled_ends(&guest.instance.reaper) {
            return Ok(());
        }
        tokio::task::yield_now().await;
    }
    Err(io::Error::other("processes kept ending"))
}

/// Never yields between the first descriptor and the exec, so that no child can be started that
/// would inherit them too.
fn replace_now(guest: &Guest, path: &Path, upgrades: Upgrades) -> io::Result<()> {
    let mut carried = Carried::default();
    let state = State {
        listener: carried.carry(&guest.listener)?,
        given: Settings {
            proxy: guest.proxy.lock().clone(),
            ..guest.instance.settings.given.clone()
        },
        from_document: guest.instance.environment.lock().document(),
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
        .env_remove(types::start::VARIABLE)
        .env(HandedOver::State.variable(), number.to_string());
    Err(command.exec())
}

impl State {
    /// Reads what the previous program has left, if there was one.
    pub(crate) fn take() -> Option<io::Result<Self>> {
        let fd = HandedOver::State.take()?;
        Some(serde_json::from_reader(io::BufReader::new(File::from(fd))).map_err(io::Error::from))
    }

    pub(crate) fn listener(&self) -> io::Result<OwnedFd> {
        adopt(self.listener)
    }

    pub(crate) fn given(&self) -> Settings {
        self.given.clone()
    }

    /// Continues where the previous program stopped.
    pub(crate) fn resume(self, guest: &Arc<Guest>) -> io::Result<()> {
        guest.instance.environment.lock().set_document(self.from_document);
        *guest.upgrades.lock() = self.upgrades.succeeded();
        guest.processes.take_over(&guest.instance, self.processes)?;
        for (pid, callback) in self.monitors {
            // The previous program had already accepted it.
            let _ = guest.monitors.start(&guest.scans, pid, &callback);
        }
        // Handles processes that ended in between.
        guest.instance.reaper.reap();
        Ok(())
    }
}
