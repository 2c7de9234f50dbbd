//! A pseudo terminal with a shell on it.

use super::ask::{Ask, Size};
use crate::instance::Instance;
use crate::program::{self, USUAL_PATH};
use crate::raw::{Leads, Program};
use crate::reaper::{End, Started};
use rustix::process::Pid;
use rustix::pty::OpenptFlags;
use rustix::termios::{Winsize, tcsetwinsize};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

pub(super) struct Pty {
    pub(super) pid: Pid,
    master: AsyncFd<OwnedFd>,
}

impl Pty {
    /// Opens a terminal; the receiver is notified when its shell has ended.
    pub(super) fn open(
        instance: &Instance,
        ask: &Ask,
    ) -> io::Result<(Self, oneshot::Receiver<End>)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::pty::openpt(flags)?;
        rustix::pty::unlockpt(&master)?;
        let shell_end = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
        rustix::io::ioctl_fionbio(&master, true)?;
        let environment = instance.environment();
        let term = (OsString::from("TERM"), OsString::from("xterm-256color"));
        let lacking = instance.lacking_in(&environment);
        let variables = environment.iter().filter(|(name, _)| **name != term.0);
        let variables = variables.chain(&lacking).chain([(&term.0, &term.1)]);
        let path = environment.get(OsStr::new("PATH")).map_or(USUAL_PATH.as_ref(), |path| &**path);
        let shell = ask.shell.as_ref();
        let file = program::find(shell, path, &ask.working_dir)?;
        let mut program = Program::new(&file, [shell], variables, &ask.working_dir)?
            .run_as(instance.settings.user.as_ref());
        program.leads = Leads::Session;
        let Started { pid, end } = instance
            .reaper
            .spawn(&program, [shell_end.as_fd(), shell_end.as_fd(), shell_end.as_fd()])?;
        let pty = Self { pid, master: crate::raw::watched(master)? };
        pty.resize(ask.size)?;
        Ok((pty, end))
    }

    pub(super) fn resize(&self, size: Size) -> io::Result<()> {
        let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(&self.master, size)?)
    }

    /// Reads output. An error means that no process has the terminal open any more.
    pub(super) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.master.readable().await?;
            match ready.try_io(|master| Ok(rustix::io::read(master, &mut *buffer)?)) {
                Ok(result) => return result,
                Err(_not_ready) => continue,
            }
        }
    }

    pub(super) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.master.writable().await?;
            match ready.try_io(|master| Ok(rustix::io::write(master, bytes)?)) {
                Ok(result) => return result,
                Err(_not_ready) => continue,
            }
        }
    }
}
