//! Terminals: shells on pseudo terminals, each shared by all clients that name the same session.

mod pty;
mod session;
mod socket;

pub(crate) use socket::connect;

use crate::guest::Guest;
use crate::http::{Answer, Error, Request};
use http::StatusCode;
use parking_lot::Mutex;
use session::Session;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SESSIONS_MAX: usize = 32;
const ID_CHARS_MAX: usize = 128;

/// What a caller asks for. Later callers of a session get it as it is.
struct Ask {
    session: String,
    shell: PathBuf,
    working_dir: PathBuf,
    size: Size,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    columns: u16,
    rows: u16,
}

#[derive(Default)]
pub(crate) struct Terminals {
    sessions: Mutex<HashMap<String, Arc<Session>>>,
}

impl Terminals {
    /// Finds a session, or opens it.
    fn join(&self, guest: &Arc<Guest>, ask: &Ask) -> Result<Arc<Session>, Error> {
        let mut sessions = self.sessions.lock();
        sessions.retain(|_, session| !session.has_ended());
        if let Some(session) = sessions.get(&ask.session) {
            return Ok(session.clone());
        }
        if sessions.len() >= SESSIONS_MAX {
            return Err(Error::Unavailable(format!("{SESSIONS_MAX} terminals are open already")));
        }
        let session = Session::open(guest, ask).map_err(|error| {
            Error::Unprocessable(format!(
                "failed to open a terminal with {}: {error}",
                ask.shell.display()
            ))
        })?;
        sessions.insert(ask.session.clone(), session.clone());
        Ok(session)
    }
}

impl Ask {
    fn read(guest: &Guest, request: &Request) -> Result<Self, Error> {
        let text = |name: &str| {
            request.query(name).filter(|value| !value.is_empty() && !value.contains('\0'))
        };
        let session = text("sessionId").unwrap_or_else(|| "default".into());
        if session.chars().count() > ID_CHARS_MAX {
            return Err(Error::BadRequest("`sessionId` is too long".into()));
        }
        let working_dir =
            guest.instance.settings.workdir.join(text("workingDir").unwrap_or_default());
        if !working_dir.is_dir() {
            return Err(Error::Unprocessable(format!(
                "'{}' does not exist",
                working_dir.display()
            )));
        }
        let number = |name: &str, otherwise: u16| -> Result<u16, Error> {
            Ok(request.query_number(name)?.filter(|number| *number > 0).unwrap_or(otherwise))
        };
        let size = Size { columns: number("cols", 80)?, rows: number("rows", 24)? };
        let shell = text("shell").map(PathBuf::from).unwrap_or_else(|| default_shell(guest));
        Ok(Self { session, shell, working_dir, size })
    }
}

fn default_shell(guest: &Guest) -> PathBuf {
    let set = guest.instance.variable("SHELL").filter(|shell| !shell.is_empty()).map(PathBuf::from);
    let found = || {
        ["/bin/zsh", "/usr/bin/zsh", "/bin/bash"]
            .into_iter()
            .find(|shell| Path::new(shell).exists())
    };
    set.or_else(|| found().map(PathBuf::from)).unwrap_or_else(|| "/bin/sh".into())
}

/// Returns a page with a terminal, for a browser.
pub(crate) fn page(guest: &Guest) -> Result<Answer, Error> {
    check_enabled(guest)?;
    Ok(Answer::new(StatusCode::OK, "text/html; charset=utf-8", include_str!("page.html")))
}

fn check_enabled(guest: &Guest) -> Result<(), Error> {
    match guest.instance.settings.terminal_disabled {
        true => Err(Error::NotFound("terminals are disabled here".into())),
        false => Ok(()),
    }
}
