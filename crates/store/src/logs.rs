//! Output of workloads as chunks of lines: of job tasks, deployment replicas, and builds. Only the
//! code that writes and reads the chunks knows what a line looks like.

use crate::{Error, Row, Tx, Value, params};
use types::KindName;
use types::ids::{BuildId, ExecutionId, ResourceId, WorkspaceId};
use types::instance::InstanceName;

const TABLE: &str = "log_chunks";

/// The source of some output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub workspace: WorkspaceId,
    /// Kind and name of the workload, under which the output is found.
    pub kind: KindName,
    pub name: String,
    pub printer: Printer,
}

/// The part of a workload that prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Printer {
    /// One attempt at a task of a job.
    Task {
        execution: ExecutionId,
        /// Public name of the execution.
        execution_name: String,
        task: u32,
        attempt: u32,
    },
    /// The program of a replica.
    Replica(InstanceName),
    /// One attempt at building an image of the workload.
    Build { build: BuildId, attempt: u32 },
    /// The network rules, which report what they did. Identified by the workload's row, because
    /// another workload may have its name later.
    Network(ResourceId),
    /// The data plane, which reports requests to a model. Also identified by the model's row.
    Requests(ResourceId),
}

impl Printer {
    /// Returns what distinguishes it from all other printers: a text and two numbers.
    fn key(&self) -> (&str, i64, i64) {
        match self {
            Self::Task { execution, task, attempt, .. } => {
                (execution.as_str(), i64::from(*task), i64::from(*attempt))
            }
            Self::Replica(instance) => (instance.as_str(), 0, 0),
            Self::Build { build, attempt } => (build.as_str(), 0, i64::from(*attempt)),
            Self::Network(of) | Self::Requests(of) => (of.as_str(), 0, 0),
        }
    }

    /// Returns true if several servers may write its output at the same time, each with numbers of
    /// its own. All others have one writer at a time.
    const fn is_shared(&self) -> bool {
        matches!(self, Self::Network(_) | Self::Requests(_))
    }

    /// Returns the public name under which its output can be requested; only executions have one.
    fn execution_name(&self) -> &str {
        match self {
            Self::Task { execution_name, .. } => execution_name,
            Self::Replica(_) | Self::Build { .. } | Self::Network(_) | Self::Requests(_) => "",
        }
    }
}

/// Consecutive lines of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Number of the chunk in its source, from 1.
    pub number: u32,
    /// Time of the first line, in nanoseconds since 1970. `last_ns` is that of the last line.
    pub first_ns: i64,
    pub last_ns: i64,
    pub lines: u32,
    /// One bit for each severity that occurs in its lines.
    pub severities: u32,
    pub text: String,
    pub mark: Mark,
}

/// How much of a source's output is stored in its chunks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mark {
    /// Bytes of text so far, in total or on the day of the last line.
    pub total_bytes: u64,
    /// Position in the output up to which it was read.
    pub read_to: u64,
    /// Lines that were incomplete at that position, in a form that only the writer knows.
    pub begun: Option<String>,
}

/// Position of a chunk in the order of [`page`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkPosition {
    last_ns: i64,
    execution: String,
    task: i64,
    attempt: i64,
    number: i64,
}

/// Selects chunks with a line between `from_ns` and `to_ns`, both inclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    pub workspace: WorkspaceId,
    pub kind: KindName,
    pub name: String,
    /// Public name of the execution.
    pub execution: Option<String>,
    pub task: Option<u32>,
    pub from_ns: i64,
    pub to_ns: i64,
    /// Bits of severities, at least one of which a chunk must have.
    pub severities: u32,
}

/// A chunk that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundChunk {
    pub place: ChunkPosition,
    pub text: String,
}

/// Adds chunks of a source. Chunks that already exist stay as they are. If another server has used
/// the number of a chunk, the chunk gets the next free one.
pub fn append(tx: &mut Tx<'_>, source: &Source, chunks: &[Chunk]) -> Result<(), Error> {
    for chunk in chunks {
        let mut added = insert(tx, source, chunk)?;
        while !added && source.printer.is_shared() && !exists(tx, source, chunk)? {
            let moved = after_last(tx, source, chunk)?;
            added = insert(tx, source, &moved)?;
        }
    }
    Ok(())
}

fn insert(tx: &mut Tx<'_>, source: &Source, chunk: &Chunk) -> Result<bool, Error> {
    let (printer, task, attempt) = source.printer.key();
    let rows = tx.execute(
        "INSERT INTO log_chunks (execution_id, task, attempt, number, workspace_id, job, execution, first_ns, last_ns,
             lines, severities, total_bytes, read_to, begun, text, kind)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) ON CONFLICT DO NOTHING",
        params![
            printer,
            task,
            attempt,
            i64::from(chunk.number),
            &source.workspace,
            source.name.as_str(),
            source.printer.execution_name(),
            chunk.first_ns,
            chunk.last_ns,
            i64::from(chunk.lines),
            i64::from(chunk.severities),
            integer(chunk.mark.total_bytes),
            integer(chunk.mark.read_to),
            chunk.mark.begun.as_deref(),
            chunk.text.as_str(),
            source.kind.name(),
        ],
    )?;
    Ok(rows == 1)
}

/// Returns true if these lines are stored already, under whatever number: the answer to an earlier
/// attempt was lost.
fn exists(tx: &mut Tx<'_>, source: &Source, chunk: &Chunk) -> Result<bool, Error> {
    let (printer, task, attempt) = source.printer.key();
    let sql = "SELECT number FROM log_chunks WHERE execution_id = $1 AND task = $2 AND attempt = $3
               AND number >= $4 AND first_ns = $5 AND last_ns = $6 AND text = $7 LIMIT 1";
    let (number, text) = (i64::from(chunk.number), chunk.text.as_str());
    let values = params![printer, task, attempt, number, chunk.first_ns, chunk.last_ns, text];
    Ok(tx.find(TABLE, sql, values)?.is_some())
}

/// Returns a chunk with the number after the last stored one, and with the bytes of that day
/// counted on.
fn after_last(tx: &mut Tx<'_>, source: &Source, chunk: &Chunk) -> Result<Chunk, Error> {
    const DAY_NS: i64 = 86_400 * 1_000_000_000;
    let mut moved = chunk.clone();
    if let Some((number, last_ns, mark)) = last(tx, source)? {
        let full = || Error::corrupt(TABLE, source.printer.key().0, "no number is left");
        moved.number = number.checked_add(1).ok_or_else(full)?;
        if last_ns / DAY_NS == chunk.last_ns / DAY_NS {
            let total_bytes = mark.total_bytes.saturating_add(chunk.text.len() as u64);
            moved.mark.total_bytes = moved.mark.total_bytes.max(total_bytes);
        }
    }
    Ok(moved)
}

/// Returns the last chunk of a source: its number, the time of its last line, and how far the
/// output was read.
pub fn last(tx: &mut Tx<'_>, source: &Source) -> Result<Option<(u32, i64, Mark)>, Error> {
    let (printer, task, attempt) = source.printer.key();
    let row = tx.find(
        TABLE,
        "SELECT number, last_ns, total_bytes, read_to, begun FROM log_chunks
         WHERE execution_id = $1 AND task = $2 AND attempt = $3 ORDER BY number DESC LIMIT 1",
        params![printer, task, attempt],
    )?;
    let Some(row) = row else { return Ok(None) };
    let mark = Mark {
        total_bytes: natural(&row, 2)?,
        read_to: natural(&row, 3)?,
        begun: row.opt_text(4)?,
    };
    let number = u32::try_from(row.int(0)?)
        .map_err(|_| Error::corrupt(TABLE, printer, "the number is odd"))?;
    Ok(Some((number, row.int(1)?, mark)))
}

/// Returns up to `limit` chunks after a position, ordered by their last line, newest first.
pub fn page(
    tx: &mut Tx<'_>,
    window: &Window,
    after: Option<&ChunkPosition>,
    limit: i64,
) -> Result<Vec<FoundChunk>, Error> {
    chunks(tx, window, after, "", limit)
}

/// Returns chunks like [`page`], but only those that begin before the window. The others can be
/// counted without being read: [`count`].
pub fn early(
    tx: &mut Tx<'_>,
    window: &Window,
    after: Option<&ChunkPosition>,
    limit: i64,
) -> Result<Vec<FoundChunk>, Error> {
    chunks(tx, window, after, "AND first_ns < $5", limit)
}

/// Counts the lines of chunks after a position that lie entirely within the window.
pub fn count(tx: &mut Tx<'_>, window: &Window, after: &ChunkPosition) -> Result<i64, Error> {
    let wanted = window.wanted();
    let sql = format!(
        "SELECT CAST(COALESCE(SUM(lines), 0) AS BIGINT) FROM log_chunks
         WHERE {wanted} AND first_ns >= $5 AND last_ns <= $6 LIMIT $13"
    );
    let row = tx.find(TABLE, &sql, &window.values(Some(after), 1))?;
    row.map_or(Ok(0), |row| row.int(0))
}

fn chunks(
    tx: &mut Tx<'_>,
    window: &Window,
    after: Option<&ChunkPosition>,
    more: &'static str,
    limit: i64,
) -> Result<Vec<FoundChunk>, Error> {
    let wanted = window.wanted();
    let sql = format!(
        "SELECT execution_id, task, attempt, number, last_ns, text FROM log_chunks
         WHERE {wanted} AND first_ns <= $6 {more}
         ORDER BY last_ns DESC, execution_id DESC, task DESC, attempt DESC, number DESC LIMIT $13"
    );
    tx.query(TABLE, &sql, &window.values(after, limit))?.into_iter().map(found).collect()
}

impl Window {
    /// Returns the condition that all queries share. A single text for both cases would keep the
    /// databases from using the index on executions.
    fn wanted(&self) -> &'static str {
        match self.execution {
            Some(_) => {
                "workspace_id = $1 AND kind = $14 AND job = $2 AND task >= $3 AND task <= $4 AND last_ns >= $5
                 AND (severities & $7) <> 0 AND last_ns <= $8
                 AND (last_ns, execution_id, task, attempt, number) < ($8, $9, $10, $11, $12) AND execution = $15"
            }
            None => {
                "workspace_id = $1 AND kind = $14 AND job = $2 AND task >= $3 AND task <= $4 AND last_ns >= $5
                 AND (severities & $7) <> 0 AND last_ns <= $8
                 AND (last_ns, execution_id, task, attempt, number) < ($8, $9, $10, $11, $12)"
            }
        }
    }

    fn values(&self, after: Option<&ChunkPosition>, limit: i64) -> Vec<Value> {
        let (first, last) =
            self.task.map_or((0, i64::from(u32::MAX)), |task| (task.into(), task.into()));
        let before_all = ChunkPosition {
            last_ns: i64::MAX,
            execution: String::new(),
            task: 0,
            attempt: 0,
            number: 0,
        };
        let after = after.unwrap_or(&before_all);
        let mut values = params![
            &self.workspace,
            self.name.as_str(),
            first,
            last,
            self.from_ns,
            self.to_ns,
            i64::from(self.severities),
            after.last_ns,
            after.execution.as_str(),
            after.task,
            after.attempt,
            after.number,
            limit,
            self.kind.name()
        ]
        .to_vec();
        values.extend(self.execution.as_deref().map(Value::from));
        values
    }
}

fn found(mut row: Row) -> Result<FoundChunk, Error> {
    let place = ChunkPosition {
        execution: row.text(0)?,
        task: row.int(1)?,
        attempt: row.int(2)?,
        number: row.int(3)?,
        last_ns: row.int(4)?,
    };
    Ok(FoundChunk { place, text: row.take_text(5)? })
}

impl ChunkPosition {
    /// Returns the time of the chunk's last line.
    pub fn last_ns(&self) -> i64 {
        self.last_ns
    }
}

/// Deletes up to `limit` chunks whose lines are all older. Returns how many were deleted.
pub fn trim(tx: &mut Tx<'_>, before_ns: i64, limit: i64) -> Result<u64, Error> {
    tx.execute(
        "DELETE FROM log_chunks WHERE (execution_id, task, attempt, number) IN
             (SELECT execution_id, task, attempt, number FROM log_chunks WHERE last_ns < $1 ORDER BY last_ns LIMIT $2)",
        params![before_ns, limit],
    )
}

fn natural(row: &Row, column: usize) -> Result<u64, Error> {
    u64::try_from(row.int(column)?)
        .map_err(|_| Error::corrupt(TABLE, "a chunk", format!("column {column} is negative")))
}

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
