//! What each operation gets, and how it does work that blocks.

use crate::access::Caller;
use crate::error::Error;
use crate::folder::{Folder, Locks, Turn};
use crate::route::Query;
use crate::settings::Settings;
use http::request::Parts;
use std::sync::Arc;
use types::World;

/// A request of an authenticated caller to an open bucket.
pub(crate) struct Call {
    pub(crate) parts: Parts,
    /// The bucket's name in the request.
    pub(crate) bucket: String,
    pub(crate) query: Query,
    pub(crate) folder: Folder,
    pub(crate) may_write: bool,
    pub(crate) key_id: String,
    pub(crate) caller: Arc<dyn Caller>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) turn: Turn,
    pub(crate) world: World,
}

/// Runs blocking work on a thread for it.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await?
}
