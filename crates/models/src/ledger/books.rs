//! The store as a ledger sees it.

use futures_util::future::BoxFuture;
use std::sync::Arc;
use types::model_books::{Batch, Beginning, LimitAccount, Standing};

/// The store that holds the limits of all servers. After an error it is unknown whether the
/// operation took effect, so the same call is repeated until one succeeds.
pub trait Books: Send + Sync {
    /// Returns where a ledger left off.
    fn begin(&self, ledger: String) -> BoxFuture<'_, Result<Beginning, BooksError>>;
    /// Takes in a batch, counting it once however often it is sent, and returns the standing of the
    /// account of each of its wants.
    fn keep(&self, batch: Arc<Batch>) -> BoxFuture<'_, Result<Vec<Standing>, BooksError>>;
    /// Lists accounts in which this ledger holds something while other ledgers got less than they
    /// need, with the first of those ledgers by name.
    fn asked_for(
        &self,
        ledger: String,
    ) -> BoxFuture<'_, Result<Vec<(LimitAccount, String)>, BooksError>>;
}

/// Why the store could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BooksError(pub String);
