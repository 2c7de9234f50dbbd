//! Opens a ledger at a start: finds what the journal has and the store does not, and which calls
//! were in flight.

use super::background;
use super::books::{Books, BooksError};
use super::journal::{self, End, Journal, Record};
use super::settings::Settings;
use super::state::State;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use types::World;
use types::model_books::{Batch, Beginning, LimitAccount, SUM_MAX, UsageKey, UsageSum};
use types::models::{ModelCall, ModelOutcome};

/// How often to read again. The process before can have had one batch on its way to the store.
const TRIES: u32 = 3;
const LOCK: &str = "lock";
const NAME: &str = "name";
/// Cap for sums of a journal, more than anybody can use, so that they cannot overflow whatever
/// callers asked for.
const USED_MAX: i64 = SUM_MAX;

/// Why a ledger cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the journal of models in {folder} is used by another process")]
    InUse { folder: String },
    #[error("the journal of models cannot be used")]
    Journal(#[from] std::io::Error),
    #[error("limits of models cannot be read")]
    Books(#[from] BooksError),
}

/// Calls without an end, and what each holds, by their ids.
type Calls = BTreeMap<u64, (Vec<(LimitAccount, i64)>, ModelCall)>;

/// What the files of the journal hold.
#[derive(Default)]
struct Found {
    files: Vec<(PathBuf, i64)>,
    /// The number of the last record, or of the last that the name of a file says.
    last: i64,
    /// The number of the last record.
    recorded: i64,
    next_id: u64,
    open: Calls,
    used: BTreeMap<LimitAccount, i64>,
    usage: BTreeMap<UsageKey, UsageSum>,
    /// Whether everything was written since the machine booted, so that no power cut can have
    /// destroyed records.
    is_complete: bool,
}

/// Opens the journal. Returns the state and the id of the next reservation.
pub(super) async fn open(
    settings: &Settings,
    books: &dyn Books,
    world: &World,
) -> Result<(State, u64), OpenError> {
    journal::make_folder(&settings.folder)?;
    let lock = lock(&settings.folder)?;
    let ledger = name(&settings.folder, world)?;
    for _ in 0..TRIES {
        let beginning = books.begin(ledger.clone()).await?;
        let (folder, boot) = (settings.folder.clone(), settings.boot.clone());
        let position = beginning.position;
        let work = move || begin(&folder, &boot, position);
        let (mut found, journal) =
            tokio::task::spawn_blocking(work).await.map_err(io::Error::other)??;
        let batch = batch(&ledger, &beginning, &mut found, journal.last());
        let number = batch.number;
        books.keep(Arc::new(batch)).await?;
        let taken = books.begin(ledger.clone()).await?;
        if (taken.number, taken.position) == (number, journal.last()) && taken.held.is_empty() {
            let files: Vec<PathBuf> = found.files.drain(..).map(|(path, _)| path).collect();
            background::remove(&settings.folder, &files)?;
            return Ok((State::new(ledger, number, journal, lock), found.next_id));
        }
        tracing::warn!("a batch of the process before came into the store late: read again");
    }
    Err(BooksError("batches of another process come into the store all the time".into()).into())
}

/// Locks the folder, so that only one process uses it.
fn lock(folder: &Path) -> Result<File, OpenError> {
    let path = folder.join(LOCK);
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(OpenError::InUse { folder: folder.display().to_string() })
        }
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Reads the ledger's name in the store, or makes one. It is kept in the folder: if the folder is
/// lost, so is the name, and a new journal never stands in for the lost one.
fn name(folder: &Path, world: &World) -> io::Result<String> {
    let path = folder.join(NAME);
    match fs::read_to_string(&path) {
        Ok(name) if !name.is_empty() => Ok(name),
        Ok(_) => Err(io::Error::other(format!("{} is empty", path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = format!("ledger-{}", world.random_text(20));
            files::replace(&path, files::Readers::Owner, name.as_bytes())?;
            Ok(name)
        }
        Err(error) => Err(error),
    }
}

/// Reads all files and begins a new one, in which calls that were in flight are settled in full. So
/// they are not counted again if this start is killed after it has told the store. On a full disk
/// there is no new file yet, and the number of the last record says the same.
fn begin(folder: &Path, boot: &str, position: i64) -> io::Result<(Found, Journal)> {
    let mut found = read(folder, boot, position)?;
    let mut calls = std::mem::take(&mut found.open);
    calls.values_mut().for_each(|(_, call)| call.outcome = ModelOutcome::Interrupted);
    let begins = found.last.max(position) + 1;
    let journal = match begin_file(folder, boot, begins, &calls) {
        Err(error) if is_full(&error) && !found.files.is_empty() => {
            tracing::error!(%error, "the journal of models cannot be written: calls of models are refused until it can be");
            Journal::waiting(folder, boot, begins, std::mem::take(&mut found.files))?
        }
        begun => begun?,
    };
    for (holds, call) in calls.values() {
        found.settle(holds, &in_full(holds), Some(call));
    }
    Ok((found, journal))
}

fn begin_file(folder: &Path, boot: &str, begins: i64, calls: &Calls) -> io::Result<Journal> {
    let mut journal = Journal::begin(folder, boot, begins)?;
    let written = settle_all(&mut journal, calls);
    if let Err(error) = written {
        files::remove(journal.path())?;
        return Err(error);
    }
    Ok(journal)
}

/// Settles calls in full. The file and its name are on disk when this returns.
fn settle_all(journal: &mut Journal, calls: &Calls) -> io::Result<()> {
    for (id, (holds, call)) in calls {
        journal.append(&journal::settled(*id, &in_full(holds), Some(End::of(call)))?)?;
    }
    if let Some(file) = journal.unsynced() {
        file.sync_all()?;
    }
    files::sync_folder_of(journal.path())
}

fn in_full(holds: &[(LimitAccount, i64)]) -> Vec<i64> {
    holds.iter().map(|(_, most)| *most).collect()
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn read(folder: &Path, boot: &str, position: i64) -> io::Result<Found> {
    let mut found = Found::default();
    let (mut is_complete, mut count) = (true, 0);
    for path in journal::list(folder)? {
        if journal::header(&path)?.is_some_and(|header| header.is_all_counted) {
            found.open.clear();
        }
        let read = journal::read(&path, |number, record| found.take(number, record, position))?;
        let last = match read {
            Some((header, last)) => {
                // If there is a gap, the store was restored from an earlier state, and files it
                // still needs were removed.
                is_complete &= count > 0 || header.begins <= position + 1;
                is_complete &= header.boot == boot;
                count += 1;
                found.recorded = found.recorded.max(last);
                last
            }
            // Nothing was written to it.
            None => 0,
        };
        // A file without records still takes up the number in its name.
        found.last = found.last.max(last).max(journal::begins(&path));
        found.files.push((path, last));
    }
    // A start on a full disk has counted them.
    if position > found.recorded {
        found.open.clear();
    }
    found.is_complete = is_complete && count > 0;
    Ok(found)
}

impl Found {
    fn take(&mut self, number: i64, record: Record, position: i64) {
        match record {
            Record::Reserved { id, holds, call } => {
                self.next_id = self.next_id.max(id + 1);
                self.open.insert(id, (holds, call));
            }
            Record::Settled { id, used, end } => {
                let open = self.open.remove(&id);
                // Records that the store already has are still here because files are only removed
                // as a whole.
                if number > position
                    && let Some((holds, mut call)) = open
                {
                    let call = end.map(|end| {
                        end.write_to(&mut call);
                        &call
                    });
                    self.settle(&holds, &used, call);
                }
            }
        }
    }

    fn settle(&mut self, holds: &[(LimitAccount, i64)], used: &[i64], call: Option<&ModelCall>) {
        for ((account, _), used) in holds.iter().zip(used) {
            let sum = self.used.entry(account.clone()).or_default();
            *sum = sum.saturating_add((*used).min(USED_MAX)).min(USED_MAX);
        }
        if let Some(call) = call {
            self.usage.entry(UsageKey::of(call)).or_default().add(&UsageSum::of(call));
        }
    }
}

/// Builds the first batch: everything that was used, and the rest of each grant, which is given
/// back, or counted as used if a power cut may have destroyed records.
fn batch(ledger: &str, beginning: &Beginning, found: &mut Found, position: i64) -> Batch {
    let mut given_back = Vec::new();
    for (account, held) in &beginning.held {
        let used = found.used.get(account).copied().unwrap_or(0);
        let rest = held.saturating_sub(used);
        if rest <= 0 {
            continue;
        }
        if found.is_complete {
            given_back.push((account.clone(), rest));
        } else {
            tracing::warn!(limit = account.limit, rest, "counted as used after a power cut");
            let sum = found.used.entry(account.clone()).or_default();
            *sum = sum.saturating_add(rest).min(USED_MAX);
        }
    }
    let used = std::mem::take(&mut found.used).into_iter().filter(|(_, used)| *used != 0);
    Batch {
        ledger: ledger.to_owned(),
        number: beginning.number + 1,
        position,
        used: used.collect(),
        given_back,
        wants: Vec::new(),
        usage: std::mem::take(&mut found.usage).into_iter().collect(),
    }
}
