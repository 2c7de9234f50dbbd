//! A store of limits in memory: it grants whatever is left.

use futures_util::future::BoxFuture;
use models::ledger::{Books, BooksError};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::ready;
use std::sync::Arc;
use types::model_books::{Batch, Beginning, LimitAccount, Standing, UsageKey, UsageSum};

#[derive(Default)]
pub struct Memory {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    number: i64,
    position: i64,
    used: HashMap<LimitAccount, i64>,
    held: HashMap<LimitAccount, i64>,
    usage: Vec<(UsageKey, UsageSum)>,
}

impl Kept {
    fn take(&mut self, batch: &Batch) -> Vec<Standing> {
        if batch.number > self.number {
            self.number = batch.number;
            self.position = batch.position;
            for (account, used) in &batch.used {
                *self.used.entry(account.clone()).or_default() += used;
                *self.held.entry(account.clone()).or_default() -= used;
            }
            for (account, back) in &batch.given_back {
                *self.held.entry(account.clone()).or_default() -= back;
            }
            self.usage.extend(batch.usage.iter().cloned());
        }
        let mut standings = Vec::new();
        for want in &batch.wants {
            let used = self.used.get(&want.account).copied().unwrap_or(0);
            let held = self.held.entry(want.account.clone()).or_default();
            *held = (*held).max(want.hold.min(want.amount - used)).max(0);
            let (account, held) = (want.account.clone(), *held);
            standings.push(Standing { account, used, held, elsewhere: 0 });
        }
        standings
    }
}

impl Memory {
    pub fn usage(&self) -> Vec<(UsageKey, UsageSum)> {
        self.kept.lock().usage.clone()
    }
}

impl Books for Memory {
    fn begin(&self, _: String) -> BoxFuture<'_, Result<Beginning, BooksError>> {
        let Kept { number, position, held, .. } = &*self.kept.lock();
        let held = held.iter().filter(|(_, held)| **held > 0);
        let held = held.map(|(account, held)| (account.clone(), *held)).collect();
        Box::pin(ready(Ok(Beginning { number: *number, position: *position, held })))
    }

    fn keep(&self, batch: Arc<Batch>) -> BoxFuture<'_, Result<Vec<Standing>, BooksError>> {
        let standings = self.kept.lock().take(&batch);
        Box::pin(ready(Ok(standings)))
    }

    fn asked_for(
        &self,
        _: String,
    ) -> BoxFuture<'_, Result<Vec<(LimitAccount, String)>, BooksError>> {
        Box::pin(ready(Ok(Vec::new())))
    }
}
