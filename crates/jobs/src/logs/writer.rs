//! One writer for the output of all attempts of this server, so that they share transactions.

use super::recorder::{CHUNK_BYTES_MAX, Recorder};
use super::shares::Shares;
use crate::daily::day;
use std::sync::Arc;
use std::time::Duration;
use store::logs::{self, Chunk, Printer, Source};
use store::{Error, Store};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};
use types::Timestamp;
use types::instance::Printed;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Most output of one attempt at a task or a build that is kept.
    pub task_bytes_max: u64,
    /// Most output of one replica on one day that is kept. The same limit holds for the lines about
    /// the network rules of one workload, and about the requests of one model.
    pub replica_day_bytes_max: u64,
    /// Most output of one workspace on one day that is kept, as this server counts it.
    pub workspace_day_bytes_max: u64,
    /// How long lines are kept.
    pub keep: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            task_bytes_max: 4 << 20,
            replica_day_bytes_max: 4 << 20,
            workspace_day_bytes_max: 1 << 30,
            keep: Duration::from_secs(30 * 86_400),
        }
    }
}

/// How long lines wait for more lines to share a chunk with.
const FLUSH_AFTER: Duration = Duration::from_secs(1);
/// Most attempts whose chunks share one transaction.
const BATCH_MAX: usize = 64;
/// How long to retry if the database cannot be reached, and the pause between tries.
const RETRY_FOR: Duration = Duration::from_secs(60);
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Chunks that one transaction of [`Logs::tidy`] deletes.
const TRIM_BATCH: i64 = 1000;

/// Stores the output of attempts. Cheap to clone; the writer ends with the last clone.
#[derive(Clone)]
pub struct Logs {
    store: Store,
    settings: Settings,
    shares: Arc<Shares>,
    parcels: mpsc::Sender<Parcel>,
}

/// The output of one attempt, on its way into the store.
#[derive(Debug)]
pub struct LogWriter {
    source: Source,
    recorder: Recorder,
    from: u64,
    /// The day on which its log was last told that the workspace has kept as much as it may.
    told_on: Option<i64>,
}

impl LogWriter {
    /// Returns the position from which output is wanted.
    pub fn from(&self) -> u64 {
        self.from
    }
}

/// Some lines could not be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{chunks} chunks of output could not be written")]
pub struct Lost {
    pub chunks: usize,
}

/// Chunks of one attempt that belong together, and the channel that reports whether they were
/// written.
struct Parcel {
    source: Source,
    chunks: Vec<Chunk>,
    written: oneshot::Sender<bool>,
}

impl Logs {
    /// Starts the writer. Must be called inside a Tokio runtime.
    pub fn start(store: Store, settings: Settings) -> Self {
        let (parcels, arriving) = mpsc::channel(BATCH_MAX);
        tokio::spawn(write_all(store.clone(), arriving));
        let shares = Arc::new(Shares::new(settings.workspace_day_bytes_max));
        Self { store, settings, shares, parcels }
    }

    /// Makes a writer for a source that has no stored output yet.
    pub fn begin(&self, source: Source) -> LogWriter {
        let recorder = match source.printer {
            Printer::Replica(_) | Printer::Network(_) | Printer::Requests(_) => {
                Recorder::new(self.bytes_max(&source)).daily()
            }
            Printer::Task { .. } | Printer::Build { .. } => Recorder::new(self.bytes_max(&source)),
        };
        LogWriter { source, recorder, from: 0, told_on: None }
    }

    /// Returns the limit for a source. A build may print as much as a task.
    fn bytes_max(&self, source: &Source) -> u64 {
        match source.printer {
            Printer::Replica(_) | Printer::Network(_) | Printer::Requests(_) => {
                self.settings.replica_day_bytes_max
            }
            Printer::Task { .. } | Printer::Build { .. } => self.settings.task_bytes_max,
        }
    }

    /// Makes a writer for a source that an earlier run of this program may have recorded in part.
    pub async fn resume(&self, source: Source) -> Result<LogWriter, Error> {
        let asked = source.clone();
        let Some((number, last_ns, mark)) =
            self.store.read(move |tx| logs::last(tx, &asked)).await?
        else {
            return Ok(self.begin(source));
        };
        let from = mark.read_to;
        let recorder = Recorder::resume(self.bytes_max(&source), number, last_ns, mark);
        let recorder = match source.printer {
            Printer::Replica(_) | Printer::Network(_) | Printer::Requests(_) => recorder.daily(),
            Printer::Task { .. } | Printer::Build { .. } => recorder,
        };
        Ok(LogWriter { source, recorder, from, told_on: None })
    }

    /// Stores everything that arrives until the channel closes. When this returns, all of it is
    /// durable.
    pub async fn record(
        &self,
        mut writer: LogWriter,
        mut pieces: mpsc::Receiver<Printed>,
    ) -> Result<(), Lost> {
        let mut lost = 0;
        let mut last_at = Timestamp::default();
        let mut due: Option<Instant> = None;
        loop {
            let piece = tokio::select! {
                piece = pieces.recv() => piece,
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    lost += self.flush(&mut writer).await;
                    due = None;
                    continue;
                }
            };
            let Some(piece) = piece else { break };
            last_at = piece.at;
            writer.recorder.take(&piece);
            due = match writer.recorder.waiting_bytes() {
                0 => None,
                CHUNK_BYTES_MAX.. => {
                    lost += self.flush(&mut writer).await;
                    None
                }
                _ => due.or_else(|| Some(Instant::now() + FLUSH_AFTER)),
            };
        }
        writer.recorder.end(last_at);
        lost += self.flush(&mut writer).await;
        if lost == 0 { Ok(()) } else { Err(Lost { chunks: lost }) }
    }

    /// Deletes lines that are too old. Called about once an hour; several servers may do so at the
    /// same time.
    pub async fn tidy(&self, now: Timestamp) -> Result<u64, Error> {
        let before_ns = now.minus(self.settings.keep).ms().saturating_mul(1_000_000);
        let mut forgotten = 0;
        loop {
            match self.store.write(move |tx| logs::trim(tx, before_ns, TRIM_BATCH)).await? {
                0 => return Ok(forgotten),
                some => forgotten += some,
            }
        }
    }

    /// Writes the waiting lines. Returns how many chunks were lost.
    async fn flush(&self, writer: &mut LogWriter) -> usize {
        let mut chunks = writer.recorder.drain();
        let now = self.store.world().now();
        if !self.shares.take(&writer.source.workspace, &chunks, now) {
            let today = day(now);
            if writer.told_on.replace(today) == Some(today) {
                return 0;
            }
            chunks = self.shares.note(chunks);
        }
        if chunks.is_empty() {
            return 0;
        }
        let count = chunks.len();
        let (written, answer) = oneshot::channel();
        let parcel = Parcel { source: writer.source.clone(), chunks, written };
        let sent = self.parcels.send(parcel).await.is_ok();
        if sent && answer.await.unwrap_or(false) { 0 } else { count }
    }
}

async fn write_all(store: Store, mut arriving: mpsc::Receiver<Parcel>) {
    let mut parcels = Vec::with_capacity(BATCH_MAX);
    while arriving.recv_many(&mut parcels, BATCH_MAX).await > 0 {
        let (rows, waiting): (Vec<_>, Vec<_>) = parcels
            .drain(..)
            .map(|parcel| ((parcel.source, parcel.chunks), parcel.written))
            .unzip();
        let written = write(&store, rows.into()).await;
        for (whoever, written) in waiting.into_iter().zip(written) {
            // It does not matter if nobody waits for the result any more.
            let _ = whoever.send(written);
        }
    }
}

/// Chunks of several attempts.
type Batch = Arc<[(Source, Vec<Chunk>)]>;

/// Writes the chunks of several attempts, and returns for each whether they were written. If the
/// database does not take what one of them printed, the others lose nothing.
async fn write(store: &Store, rows: Batch) -> Vec<bool> {
    match write_with_retries(store, rows.clone()).await {
        Ok(()) => vec![true; rows.len()],
        Err(error) if rows.len() > 1 && !is_away(&error) => {
            let mut written = Vec::with_capacity(rows.len());
            for one in rows.iter() {
                let one = write_with_retries(store, [one.clone()].into()).await;
                written.push(one.inspect_err(|error| tell_lost(error, 1)).is_ok());
            }
            written
        }
        Err(error) => {
            tell_lost(&error, rows.len());
            vec![false; rows.len()]
        }
    }
}

fn tell_lost(error: &Error, attempts: usize) {
    tracing::error!(
        error = error as &dyn std::error::Error,
        attempts,
        "output of tasks could not be kept"
    );
}

/// Whether the database may take the same chunks later. If it refuses them, it does so each time.
const fn is_away(error: &Error) -> bool {
    error.is_away() || matches!(error, Error::Full(_))
}

async fn write_with_retries(store: &Store, rows: Batch) -> Result<(), Error> {
    let until = Instant::now() + RETRY_FOR;
    loop {
        let batch = rows.clone();
        let work = move |tx: &mut store::Tx<'_>| {
            batch.iter().try_for_each(|(source, chunks)| logs::append(tx, source, chunks))
        };
        match store.write(work).await {
            Err(error) if is_away(&error) && Instant::now() < until => {
                sleep(RETRY_AFTER).await;
            }
            done => return done,
        }
    }
}
