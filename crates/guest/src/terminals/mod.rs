//! Terminals: shells on pseudo terminals, each shared by all clients that name the same session.

mod ask;
mod pty;
mod session;
mod socket;

pub(crate) use socket::connect;

use crate::http::{Answer, Error};
use crate::instance::Instance;
use crate::settings::Settings;
use ask::Ask;
use http::StatusCode;
use parking_lot::Mutex;
use session::Session;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const SESSIONS_MAX: usize = 32;
/// Clients of all sessions together. Each may hold what a slow one has not read yet.
const CLIENTS_MAX: usize = 128;

pub(crate) struct Terminals {
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    clients: Arc<Semaphore>,
}

impl Default for Terminals {
    fn default() -> Self {
        Self { sessions: Mutex::default(), clients: Arc::new(Semaphore::new(CLIENTS_MAX)) }
    }
}

impl Terminals {
    /// Takes the place of a client, which is free again when the result is dropped.
    fn enter(&self) -> Result<OwnedSemaphorePermit, Error> {
        self.clients.clone().try_acquire_owned().map_err(|_| {
            Error::Unavailable(format!("terminals have {CLIENTS_MAX} clients already"))
        })
    }

    /// Finds a session, or opens it.
    fn join(&self, instance: &Instance, ask: &Ask) -> Result<Arc<Session>, Error> {
        let mut sessions = self.sessions.lock();
        sessions.retain(|_, session| !session.has_ended());
        if let Some(session) = sessions.get(&ask.session) {
            return Ok(session.clone());
        }
        if sessions.len() >= SESSIONS_MAX {
            make_room(&mut sessions)?;
        }
        let session = Session::open(instance, ask).map_err(|error| {
            Error::Unprocessable(format!(
                "failed to open a terminal with {}: {error}",
                ask.shell.display()
            ))
        })?;
        sessions.insert(ask.session.clone(), session.clone());
        Ok(session)
    }
}

/// Ends the session that has been without clients for longest.
fn make_room(sessions: &mut HashMap<String, Arc<Session>>) -> Result<(), Error> {
    let idle = sessions.iter().filter_map(|(name, session)| Some((session.idle_since()?, name)));
    let longest = idle.min().map(|(_, name)| name.clone());
    match longest.and_then(|name| sessions.remove(&name)) {
        Some(session) => {
            session.end();
            Ok(())
        }
        None => Err(Error::Unavailable(format!("{SESSIONS_MAX} terminals have clients already"))),
    }
}

/// Returns a page with a terminal, for a browser.
pub(crate) fn page(settings: &Settings) -> Result<Answer, Error> {
    check_enabled(settings)?;
    Ok(Answer::new(StatusCode::OK, "text/html; charset=utf-8", include_str!("page.html")))
}

fn check_enabled(settings: &Settings) -> Result<(), Error> {
    match settings.terminal_disabled {
        true => Err(Error::NotFound("terminals are disabled here".into())),
        false => Ok(()),
    }
}
