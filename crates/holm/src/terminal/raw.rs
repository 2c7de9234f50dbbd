//! The user's own terminal in raw mode.

use crate::error::Error;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{self, Read, Write};
use tokio::sync::mpsc;

/// Most pieces of input waiting to be sent. Further input waits in the terminal.
const PIECES_MAX: usize = 64;
const PIECE_BYTES: usize = 4 << 10;

/// Raw mode: all keys are passed on. The old mode is restored on drop, so also when the program
/// fails.
pub(super) struct Raw {
    before: Termios,
}

impl Raw {
    pub(super) fn enter() -> Result<Self, Error> {
        let act = "take over the terminal";
        let before = tcgetattr(stdin()).map_err(|error| Error::io(act)(error.into()))?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw)
            .map_err(|error| Error::io(act)(error.into()))?;
        Ok(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

/// Turns off modes that a remote program may have left on: alternate screen, hidden cursor, mouse
/// and paste reports, colours.
const LEAVE: &[u8] = b"\x1b[?1047l\x1b[?25h\x1b[?1l\x1b>\x1b[?2004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[0m\r\n";

/// Resets the terminal after the user has detached from a running program.
pub(super) fn reset() -> io::Result<()> {
    show(LEAVE)
}

pub(super) fn show(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Returns the present number of columns and rows.
pub(super) fn size() -> (u16, u16) {
    const USUAL: (u16, u16) = (80, 24);
    let size = tcgetwinsize(stdout()).or_else(|_| tcgetwinsize(stdin()));
    // Some terminals do not know their size and report zero.
    match size {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        _ => USUAL,
    }
}

/// Returns typed input, piece by piece. A separate thread reads it, since a blocking read cannot be
/// cancelled; it ends with the program.
pub(super) fn typed() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    std::thread::spawn(move || {
        let mut buffer = [0; PIECE_BYTES];
        while let Ok(length @ 1..) = io::stdin().lock().read(&mut buffer) {
            if sender.blocking_send(buffer[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}
