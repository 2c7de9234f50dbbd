//! What the data plane is made of, below everything that answers requests with it.

use crate::context::Context;
use crate::models::Models;
use crate::standby::Standby;
use admission::Pool;
use std::sync::Arc;
use tokio_util::task::AbortOnDropHandle;

/// What all requests and calls work with.
pub(crate) struct Inner {
    pub(crate) context: Arc<Context>,
    pub(crate) open: Pool<String>,
    /// Those of `open` that are strangers' (callers without credentials).
    pub(crate) open_public: Pool<String>,
    pub(crate) standby: Standby,
    pub(crate) machine_name: String,
    pub(crate) models: Arc<Models>,
    /// Tells exchanges in progress when they are due for a recheck.
    pub(crate) _telling: AbortOnDropHandle<()>,
}
