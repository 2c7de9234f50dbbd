//! What a call used: read from its answer as that passes, and counted when the call is over,
//! however it ends.

use super::Models;
use super::Room;
use super::log_entry::Entry;
use super::upstream::Broken;
use ::models::chat::Passed;
use ::models::ledger::Reservation;
use ::models::prices::Price;
use ::models::tokens::{Seen, UsageReader, input_estimate};
use admission::{Permit, Turn, Turns};
use bytes::Bytes;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::time::{Duration, Instant};
use types::models::{ModelCall, ModelOutcome, TokenUsage};

/// Settles its call exactly once. If it is dropped before that, the caller has hung up.
pub(crate) struct Account {
    models: Arc<Models>,
    reservation: Option<Reservation>,
    call: Option<ModelCall>,
    reader: Option<UsageReader>,
    price: Option<Price>,
    /// The body as it was sent, to estimate its tokens if the provider does not report them.
    request: AskedBody,
    /// The largest possible input of a call under a limit, if the provider may have read more than
    /// its body.
    input_max: Option<u64>,
    entry: Option<Entry>,
    began: Instant,
    first_byte: Option<Duration>,
}

/// A body in memory, with the room that it takes and the place of its call among those of the
/// workspace. Calls whose tokens wait to be counted are still open, so that their number is
/// bounded.
#[derive(Clone)]
pub(crate) struct AskedBody {
    bytes: Bytes,
    _room: Arc<Room>,
    _permit: Arc<Permit<String>>,
}

impl AskedBody {
    pub(crate) fn new(bytes: &Bytes, room: &Arc<Room>, permit: &Arc<Permit<String>>) -> Self {
        let (room, permit) = (Arc::clone(room), Arc::clone(permit));
        Self { bytes: bytes.clone(), _room: room, _permit: permit }
    }
}

impl Account {
    pub(crate) fn new(
        models: Arc<Models>,
        call: ModelCall,
        price: Option<Price>,
        request: AskedBody,
        began: Instant,
    ) -> Self {
        Self {
            models,
            reservation: None,
            call: Some(call),
            reader: None,
            price,
            request,
            input_max: None,
            entry: None,
            began,
            first_byte: None,
        }
    }

    pub(crate) fn reserved(&mut self, reservation: Reservation) {
        self.reservation = Some(reservation);
    }

    pub(crate) fn read_with(&mut self, reader: Option<UsageReader>) {
        self.reader = reader;
    }

    /// Sets the input that is counted if the provider does not report it.
    pub(crate) fn read_at_most(&mut self, input: u64) {
        self.input_max = Some(input);
    }

    /// Notes that there is no answer, or not all of it. A provider that was reached has been at
    /// work.
    pub(crate) fn broken(&mut self, broken: &Broken) {
        if matches!(broken, Broken::Unreachable(_)) {
            self.reader = None;
        }
    }

    /// Returns whether the provider may be at work, so that what was asked is charged.
    pub(crate) fn is_at_work(&self) -> bool {
        self.reader.is_some()
    }

    /// Returns whether only the usage is still to come.
    pub(crate) fn awaits_usage(&self) -> bool {
        self.reader.as_ref().is_some_and(UsageReader::awaits_usage)
    }

    /// Moves the account to a new owner, who settles it.
    pub(crate) fn hand_over(&mut self) -> Self {
        Self {
            models: Arc::clone(&self.models),
            reservation: self.reservation.take(),
            call: self.call.take(),
            reader: self.reader.take(),
            price: self.price,
            request: self.request.clone(),
            input_max: self.input_max,
            entry: self.entry.take(),
            began: self.began,
            first_byte: self.first_byte,
        }
    }

    /// Returns whether the provider said that its answer is over. True if the answer is not read.
    pub(crate) fn is_finished(&self) -> bool {
        self.reader.as_ref().is_none_or(UsageReader::is_finished)
    }

    /// Returns whether the answer has said why it ends. True if the answer is not read.
    pub(crate) fn says_its_end(&self) -> bool {
        self.reader.as_ref().is_none_or(UsageReader::says_its_end)
    }

    /// Returns what an error refers to that ends the answer here.
    pub(crate) fn passed(&self) -> Passed {
        let created = self.models.world.now().ms() / 1000;
        let passed = self.reader.as_ref().map(UsageReader::passed);
        Passed { created, ..passed.unwrap_or_default() }
    }

    pub(crate) fn log(&mut self, entry: Option<Entry>) {
        self.entry = entry;
    }

    /// Takes bytes of the provider's answer.
    pub(crate) fn see(&mut self, piece: &[u8]) {
        if self.first_byte.is_none() {
            self.first_byte = Some(self.began.elapsed());
        }
        if let Some(reader) = &mut self.reader {
            reader.push(piece);
        }
    }

    /// Takes bytes that go to the caller.
    pub(crate) fn sent(&mut self, piece: &[u8]) {
        if let Some(entry) = &mut self.entry {
            entry.sent(piece, &self.models);
        }
    }

    /// Returns how many bytes the log holds back.
    pub(crate) fn held(&self) -> usize {
        self.entry.as_ref().map_or(0, Entry::held)
    }

    /// Gives everything that was reserved back: the call reached nobody, or nobody did anything for
    /// it.
    pub(crate) fn give_back(mut self) -> Option<ModelCall> {
        if let Some(reservation) = self.reservation.take() {
            reservation.give_back();
        }
        self.call.take()
    }

    pub(crate) fn settle(&mut self, outcome: ModelOutcome) {
        let Some(mut call) = self.call.take() else { return };
        call.outcome = outcome;
        let ended = Ended {
            models: Arc::clone(&self.models),
            reservation: self.reservation.take(),
            price: self.price,
            request: self.request.clone(),
            entry: self.entry.take(),
            first_byte: self.first_byte,
            took: self.began.elapsed(),
        };
        let seen = match outcome {
            ModelOutcome::Cached => None,
            _ => self.reader.take().map(UsageReader::finish),
        };
        match seen {
            None => ended.settle(call, TokenUsage::default()),
            Some(Seen { usage: Some(usage), .. }) => ended.settle(call, usage),
            Some(seen) => {
                let input_max = self.input_max;
                let workspace = call.workspace.as_str().to_owned();
                let count = move || {
                    let estimate = || input_estimate(&call.provider_model, &ended.request.bytes);
                    let input = || input_max.unwrap_or_else(estimate);
                    let usage = seen.settle(&call.provider_model, input);
                    ended.settle(call, usage);
                };
                in_turn(&self.models.counts, workspace, count);
            }
        }
    }
}

/// Counts tokens when it is the workspace's turn. It takes milliseconds, for which no other request
/// should wait, and a caller can end very many calls at once.
fn in_turn(counts: &Arc<Turns>, workspace: String, count: impl FnOnce() + Send + 'static) {
    let count = OnDrop(Some(Box::new(count)));
    // When the program is shutting down, there may be nobody else.
    let Ok(runtime) = Handle::try_current() else { return };
    let on_thread = |turn: Turn| {
        move || {
            drop(count);
            drop(turn);
        }
    };
    if let Some(turn) = counts.try_take(&workspace) {
        drop(runtime.spawn_blocking(on_thread(turn)));
        return;
    }
    let counts = Arc::clone(counts);
    drop(runtime.spawn(async move {
        let turn = counts.take(&workspace).await;
        drop(tokio::task::spawn_blocking(on_thread(turn)));
    }));
}

/// Work that is done when it is dropped: a runtime that shuts down drops what waits in it, and a
/// call that nobody counts would cost its caller all that was reserved.
struct OnDrop(Option<Box<dyn FnOnce() + Send>>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(work) = self.0.take() {
            work();
        }
    }
}

/// A call that is over.
struct Ended {
    models: Arc<Models>,
    reservation: Option<Reservation>,
    price: Option<Price>,
    request: AskedBody,
    entry: Option<Entry>,
    first_byte: Option<Duration>,
    took: Duration,
}

impl Ended {
    fn settle(self, mut call: ModelCall, usage: TokenUsage) {
        call.usage = usage;
        call.cost = self.price.map_or(0, |price| price.cost(&call.usage));
        if let Some(reservation) = self.reservation {
            reservation.settle(&call);
        }
        self.models.counted(&call, self.first_byte.unwrap_or(self.took));
        if let Some(entry) = self.entry {
            entry.tell(&self.models, call, self.first_byte, self.took);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.settle(ModelOutcome::Aborted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admission::Limits;
    use std::sync::atomic::{AtomicU32, Ordering};

    const CALLS: u32 = 20;

    /// Calls that end because the program does.
    struct CutOff(Arc<Turns>, Arc<AtomicU32>);

    impl Drop for CutOff {
        fn drop(&mut self) {
            let counted = Arc::clone(&self.1);
            let count = move || {
                counted.fetch_add(1, Ordering::Relaxed);
            };
            in_turn(&self.0, "acme".to_owned(), count);
        }
    }

    #[test]
    fn calls_that_are_cut_off_when_the_program_ends_are_counted() {
        let counts = Arc::new(Turns::from(Limits { total: 2, share: 1 }));
        let counted = Arc::default();
        let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        for _ in 0..CALLS {
            let call = CutOff(Arc::clone(&counts), Arc::clone(&counted));
            runtime.spawn(async move {
                let _call = call;
                std::future::pending::<()>().await;
            });
        }
        drop(runtime);
        assert_eq!(counted.load(Ordering::Relaxed), CALLS);
    }
}
