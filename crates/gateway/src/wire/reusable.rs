//! What connections of all sorts say before they wait for another request.

use tokio::runtime;

/// A connection that can carry one request after another.
pub(crate) trait Reusable {
    /// Returns where its socket is watched.
    fn runtime(&self) -> runtime::Id;
    /// Returns whether another request can be sent.
    fn is_free(&mut self) -> bool;
}
