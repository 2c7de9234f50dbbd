//! This program's own terminal, handed through as it is.

use crate::error::Error;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{self, Read, Write};
use tokio::sync::mpsc;

/// Pieces of input that wait to be sent. What is typed beyond it waits in the terminal.
const PIECES_MAX: usize = 64;
const PIECE_BYTES: usize = 4 << 10;

/// Every key is passed on, none has a meaning here. What was before comes back when it is dropped,
/// which is also when the program fails.
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
        // A terminal that has gone away needs nothing back.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

/// What a program elsewhere may have left on: the other screen, a hidden cursor, mouse and paste
/// reports, colours.
const LEAVE: &[u8] = b"\x1b[?1047l\x1b[?25h\x1b[?1l\x1b>\x1b[?2004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[0m\r\n";

/// For those who leave in the middle of a program.
pub(super) fn reset() -> io::Result<()> {
    show(LEAVE)
}

pub(super) fn show(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Columns and rows, as they are now.
pub(super) fn size() -> (u16, u16) {
    const USUAL: (u16, u16) = (80, 24);
    let size = tcgetwinsize(stdout()).or_else(|_| tcgetwinsize(stdin()));
    // Some terminals do not know their size and say zero.
    match size {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        _ => USUAL,
    }
}

/// What is typed, piece by piece. A thread of its own reads, since a read of a terminal cannot be
/// given up; it ends with the program.
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
