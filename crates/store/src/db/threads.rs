//! The threads that run transactions: what they share, and how they start.

use super::horizon::Horizon;
use crate::feed::Recent;
use crate::{Error, KeyFile};
use std::sync::Arc;
use std::thread;
use tokio::sync::watch;
use types::World;

/// What every database thread has access to.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) world: World,
    pub(crate) keyring: KeyFile,
    pub(crate) recent: Arc<Recent>,
    /// The newest revision that a commit of this process has recorded. Each commit notifies.
    pub(super) committed: watch::Sender<i64>,
    pub(super) horizon: Arc<Horizon>,
}

impl Shared {
    /// Notifies followers of a commit. `newest` is the newest revision after it, if known.
    pub(super) fn note_commit(&self, newest: Option<i64>) {
        self.committed
            .send_modify(|known| *known = newest.map_or(*known, |newest| newest.max(*known)));
    }
}

pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    thread::Builder::new().name(name.into()).spawn(run).map(drop).map_err(Error::database)
}
