//! The background task of a ledger: syncs the journal, moves it into the store, fetches grants and
//! gives them back. It has one batch on its way at a time.

use super::books::BooksError;
use super::journal;
use super::settings::{Settings, ms};
use super::shared::Shared;
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use types::model_books::{Batch, LimitAccount, UsageSum};

/// How often the last batch is tried at shutdown.
const LAST_TRIES: u32 = 5;

pub(super) async fn run(shared: Arc<Shared>) {
    let mut due = Due::new(&shared);
    loop {
        tokio::select! {
            () = shared.ending.cancelled() => break,
            () = shared.poke.notified() => {}
            () = tokio::time::sleep(shared.settings.sync_every) => {}
        }
        let is_due = due.is_kept_up(&shared);
        let is_moved = round(&shared, is_due).await;
        if is_moved && is_due {
            look_after(&shared, due.is_idle(&shared)).await;
        }
    }
    finish(&shared).await;
}

/// When the periodic work was done last.
struct Due {
    keep_up_ms: i64,
    idle_ms: i64,
}

impl Due {
    fn new(shared: &Shared) -> Self {
        let now = shared.world.uptime_ms();
        Self { keep_up_ms: now, idle_ms: now }
    }

    fn is_kept_up(&mut self, shared: &Shared) -> bool {
        passed(&mut self.keep_up_ms, shared, shared.settings.keep_up_every)
    }

    fn is_idle(&mut self, shared: &Shared) -> bool {
        passed(&mut self.idle_ms, shared, shared.settings.idle_after / 4)
    }
}

fn passed(last: &mut i64, shared: &Shared, every: Duration) -> bool {
    let now = shared.world.uptime_ms();
    let is_passed = now.saturating_sub(*last) >= ms(every);
    if is_passed {
        *last = now;
    }
    is_passed
}

/// Syncs the journal, and sends a batch if one is due or urgent. Returns whether everything went
/// well.
async fn round(shared: &Shared, is_due: bool) -> bool {
    if !sync(shared).await {
        return false;
    }
    let (batch, told) = {
        let mut state = shared.state.lock();
        if is_due {
            state.ask_for_waiting();
        }
        if !is_due && !state.is_urgent(&shared.settings) {
            return true;
        }
        let told = state.take_told();
        (state.batch(&shared.settings), told)
    };
    tell_metrics(shared);
    if let Some(batch) = batch {
        // The batch may cover records written since the sync above. Without another sync, a power
        // cut now would make them count again.
        if !synced(shared).await {
            return false;
        }
        let position = batch.position;
        if !keep(shared, batch).await {
            return false;
        }
        forget(shared, position).await;
    }
    for told in told {
        // The receiver may be gone.
        let _ = told.send(());
    }
    if shared.state.lock().is_urgent(&shared.settings) {
        shared.poke.notify_one();
    }
    true
}

/// Syncs, retrying until it succeeds. Gives up only at shutdown: the batch, which has its number
/// already, then stays in the journal for the next start.
async fn synced(shared: &Shared) -> bool {
    while !sync(shared).await {
        if shared.ending.is_cancelled() {
            shared.state.lock().is_stuck = true;
            return false;
        }
        tokio::time::sleep(shared.settings.keep_up_every).await;
    }
    true
}

/// Writes the journal to the disk.
pub(super) async fn sync(shared: &Shared) -> bool {
    let is_torn = shared.state.lock().journal.is_torn();
    if is_torn && !rotate(shared).await {
        return false;
    }
    let file = {
        let mut state = shared.state.lock();
        if state.journal.catch_up().is_err() {
            return false;
        }
        state.journal.unsynced()
    };
    let Some(file) = file else { return true };
    let syncing = file.clone();
    let synced = tokio::task::spawn_blocking(move || syncing.sync_data()).await;
    let synced = synced.map_err(std::io::Error::other).and_then(|synced| synced);
    let mut state = shared.state.lock();
    match &synced {
        Ok(()) => state.journal.synced(&file),
        Err(error) => {
            state.journal.sync_failed();
            tracing::error!(%error, "the journal of models cannot be synced");
        }
    }
    synced.is_ok()
}

/// Waits for the store and keeps syncing the journal meanwhile. Returns `None` if the store does
/// not answer at shutdown.
async fn answered<T>(shared: &Shared, asked: impl Future<Output = T>) -> Option<T> {
    let end = async {
        shared.ending.cancelled().await;
        tokio::time::sleep(shared.settings.last_wait).await;
    };
    let (mut asked, mut end) = (pin!(asked), pin!(end));
    loop {
        tokio::select! {
            biased;
            answer = &mut asked => return Some(answer),
            () = &mut end => return None,
            () = tokio::time::sleep(shared.settings.sync_every) => {
                sync(shared).await;
            }
        }
    }
}

/// Sends a batch to the store, retrying until it succeeds: only the store knows whether a failed
/// attempt took effect. Gives up only at shutdown; the batch is then still in the journal for the
/// next start.
async fn keep(shared: &Shared, batch: Batch) -> bool {
    let batch = Arc::new(batch);
    let mut last_tries = 0;
    loop {
        let is_answered = match answered(shared, shared.books.keep(batch.clone())).await {
            Some(Ok(standings)) => {
                shared.state.lock().kept(&batch, &standings);
                return true;
            }
            Some(Err(BooksError(error))) => {
                tracing::warn!(error, "the usage of models cannot be moved into the store");
                true
            }
            None => false,
        };
        last_tries += u32::from(shared.ending.is_cancelled());
        if !is_answered || last_tries >= LAST_TRIES {
            shared.state.lock().is_stuck = true;
            return false;
        }
        tokio::time::sleep(shared.settings.keep_up_every).await;
        // Keep the journal synced while the store is away.
        sync(shared).await;
    }
}

/// Removes files of the journal that the store has, and begins a new file if the current one is
/// long.
async fn forget(shared: &Shared, position: i64) {
    let Settings { file_max, journal_max, .. } = shared.settings;
    let is_long = shared.state.lock().journal.length() > file_max.min(journal_max / 2);
    // What the new file repeats of the old one must be on disk before the old one is removed.
    if is_long && !go_on_in_new_file(shared).await {
        return;
    }
    let (folder, done) = {
        let mut state = shared.state.lock();
        (state.journal.folder().to_owned(), state.journal.done(position))
    };
    if is_long || !done.is_empty() {
        let removed = tokio::task::spawn_blocking(move || remove(&folder, &done)).await;
        if let Ok(Err(error)) = removed {
            tracing::warn!(%error, "files of the journal of models cannot be removed");
        }
    }
}

/// Removes files, after making sure that the names of the other files are on disk.
pub(super) fn remove(folder: &std::path::Path, files: &[PathBuf]) -> std::io::Result<()> {
    files::sync_folder_of(&folder.join(journal::ANY))?;
    files.iter().try_for_each(|path| files::remove(path))
}

/// Gives back what other servers need, and what nobody needs here.
async fn look_after(shared: &Shared, is_idle: bool) {
    let (ledger, has_grants) = {
        let state = shared.state.lock();
        (state.ledger.clone(), state.has_grants())
    };
    let mut back = if has_grants { asked_for(shared, ledger).await } else { Vec::new() };
    if is_idle {
        let now = (shared.world.now(), shared.world.uptime_ms());
        back.extend(shared.state.lock().idle(now.0, now.1, shared.settings.idle_after));
    }
    give_back(shared, &back).await;
}

async fn asked_for(shared: &Shared, ledger: String) -> Vec<(LimitAccount, Option<String>)> {
    match answered(shared, shared.books.asked_for(ledger)).await {
        None => Vec::new(),
        Some(Ok(asked)) => asked.into_iter().map(|(account, by)| (account, Some(by))).collect(),
        Some(Err(BooksError(error))) => {
            tracing::warn!(error, "it cannot be seen who needs limits of models");
            Vec::new()
        }
    }
}

async fn give_back(shared: &Shared, accounts: &[(LimitAccount, Option<String>)]) -> bool {
    let batch = shared.state.lock().batch_back(accounts);
    match batch {
        Some(batch) => keep(shared, batch).await,
        None => true,
    }
}

/// Shuts down: moves everything that was used, and gives back the rest.
async fn finish(shared: &Shared) {
    shared.state.lock().close();
    if sync(shared).await && move_all(shared).await {
        let granted = shared.state.lock().granted();
        give_back(shared, &granted).await;
    }
    tell_metrics(shared);
    // Dropping the senders tells the receivers that nothing more will come.
    shared.state.lock().take_told();
}

/// Moves everything into the store, and leaves a journal that holds only what is still open. So the
/// next release need not read the records of this one.
async fn move_all(shared: &Shared) -> bool {
    let (batch, position) = {
        let mut state = shared.state.lock();
        if state.journal.is_behind() {
            return false;
        }
        (state.batch(&shared.settings), state.journal.last())
    };
    // A call may have ended since the last sync.
    if !sync(shared).await {
        return false;
    }
    if let Some(batch) = batch
        && !keep(shared, batch).await
    {
        return false;
    }
    if shared.state.lock().is_stuck {
        return false;
    }
    if go_on_in_new_file(shared).await {
        forget(shared, position).await;
    }
    true
}

/// Continues in a new file. Returns whether that file and all of the old one are on disk.
async fn go_on_in_new_file(shared: &Shared) -> bool {
    rotate(shared).await && sync(shared).await
}

/// Continues in a new file. Returns whether all of the old one is on disk: otherwise it could lose
/// its end in a power cut, and calls that ended would be open again.
async fn rotate(shared: &Shared) -> bool {
    let old = {
        let mut state = shared.state.lock();
        let old = state.journal.unsynced();
        if let Err(error) = state.rotate() {
            if old.is_some() {
                state.journal.sync_failed();
            }
            if state.journal.is_failure_new() {
                tracing::error!(%error, "the journal of models cannot go on in a new file");
            }
            return false;
        }
        old
    };
    if let Some(old) = old {
        let synced = tokio::task::spawn_blocking(move || old.sync_data()).await;
        if let Err(error) = synced.map_err(std::io::Error::other).and_then(|synced| synced) {
            tracing::error!(%error, "the journal of models cannot be synced");
            return false;
        }
    }
    true
}

fn tell_metrics(shared: &Shared) {
    let counts = shared.state.lock().take_counts();
    for ((provider, outcome), sum) in counts {
        let labels = [("provider", serde_name(&provider)), ("outcome", outcome.name().to_owned())];
        let add = |name: &'static str, amount: i64| {
            if amount > 0 {
                metrics::counter!(name, &labels).increment(amount.unsigned_abs());
            }
        };
        let UsageSum { calls, input, output, cached, reasoning, cost, .. } = sum;
        add("holm_model_calls_total", calls);
        add("holm_model_input_tokens_total", input);
        add("holm_model_output_tokens_total", output);
        add("holm_model_cached_tokens_total", cached);
        add("holm_model_reasoning_tokens_total", reasoning);
        add("holm_model_cost_nanodollars_total", cost);
    }
}

/// Returns the provider's name in the API.
fn serde_name(provider: &types::kinds::model::ModelType) -> String {
    serde_json::to_value(provider)
        .ok()
        .and_then(|name| name.as_str().map(str::to_owned))
        .unwrap_or_else(|| "unknown".to_owned())
}
