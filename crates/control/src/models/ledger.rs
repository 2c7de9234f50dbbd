//! The books of limits and usage: what the ledgers of servers move into the store and ask of it.

use futures_util::future::BoxFuture;
use models::ledger::{Books, BooksError};
use std::sync::Arc;
use store::Store;
use types::model_books::{Batch, Beginning, LimitAccount, Standing};

/// Returns the books of all servers of a store.
pub fn books(store: &Store) -> Arc<dyn Books> {
    Arc::new(StoreBooks(store.clone()))
}

struct StoreBooks(Store);

impl Books for StoreBooks {
    fn begin(&self, ledger: String) -> BoxFuture<'_, Result<Beginning, BooksError>> {
        Box::pin(async move {
            let work = move |tx: &mut store::Tx<'_>| store::models::begin(tx, &ledger);
            self.0.write(work).await.map_err(told)
        })
    }

    fn keep(&self, batch: Arc<Batch>) -> BoxFuture<'_, Result<Vec<Standing>, BooksError>> {
        Box::pin(async move {
            let work = move |tx: &mut store::Tx<'_>| store::models::keep(tx, &batch);
            self.0.write(work).await.map_err(told)
        })
    }

    fn asked_for(
        &self,
        ledger: String,
    ) -> BoxFuture<'_, Result<Vec<(LimitAccount, String)>, BooksError>> {
        Box::pin(async move {
            let work = move |tx: &mut store::Tx<'_>| store::models::asked_for(tx, &ledger);
            self.0.read(work).await.map_err(told)
        })
    }
}

fn told(error: store::Error) -> BooksError {
    BooksError(types::chain(&error))
}
