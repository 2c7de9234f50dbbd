//! One ledger: its state under a lock, and what works with it.

use super::books::Books;
use super::settings::Settings;
use super::state::State;
use admission::Pool;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use types::World;
use types::ids::WorkspaceId;

/// What the ledger, its reservations and its background task share.
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) settings: Settings,
    pub(super) books: Arc<dyn Books>,
    pub(super) world: World,
    /// The id of the next reservation.
    pub(super) next_id: AtomicU64,
    pub(super) waiters: Pool<WorkspaceId>,
    /// Wakes the background task.
    pub(super) poke: Notify,
    pub(super) ending: CancellationToken,
    pub(super) background: Mutex<Option<JoinHandle<()>>>,
}
