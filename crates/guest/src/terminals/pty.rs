//! One pseudo terminal with a shell on it.

use super::{Ask, Size};
use crate::guest::Guest;
use crate::reaper::{End, Started};
use rustix::process::Pid;
use rustix::pty::OpenptFlags;
use rustix::termios::{Winsize, tcsetwinsize};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

pub(super) struct Pty {
    pub(super) pid: Pid,
    master: AsyncFd<OwnedFd>,
}

impl Pty {
    /// Opens a terminal; the second answer comes when its shell has ended.
    pub(super) fn open(guest: &Guest, ask: &Ask) -> io::Result<(Self, oneshot::Receiver<End>)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::pty::openpt(flags)?;
        rustix::pty::unlockpt(&master)?;
        let shell_end = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
        rustix::io::ioctl_fionbio(&master, true)?;
        let mut command = Command::new(&ask.shell);
        command
            .env_clear()
            .envs(&*guest.environment())
            .env("TERM", "xterm-256color")
            .current_dir(&ask.working_dir)
            .stdin(shell_end.try_clone()?)
            .stdout(shell_end.try_clone()?)
            .stderr(shell_end);
        if let Some(user) = &guest.settings.user {
            command.uid(user.uid).gid(user.gid);
        }
        crate::raw::own_terminal(&mut command);
        let Started { child, end } = guest.reaper.spawn(&mut command)?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the shell has no number"))?;
        let pty = Self { pid, master: crate::raw::watched(master)? };
        pty.resize(ask.size)?;
        Ok((pty, end))
    }

    pub(super) fn resize(&self, size: Size) -> io::Result<()> {
        let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(&self.master, size)?)
    }

    /// Reads what was printed. An error is the end: nobody holds the terminal any more.
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
