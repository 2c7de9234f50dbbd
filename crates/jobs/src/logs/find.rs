//! Finding lines of logs: newest first, across all tasks.
//!
//! Chunks come in the order of their last lines. A line has its final place once no later chunk can
//! have a newer one. So only the lines of chunks that overlap in time are held in memory, and the
//! page that was asked for.

use super::line::{self, Line, Severity};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use store::logs::{self, ChunkPosition, Window};
use store::{Error, Store};
use types::ids::WorkspaceId;
use types::{KindName, Timestamp};

/// Most bytes of text that one question reads. Older lines are neither found nor counted.
const SCAN_BYTES_MAX: usize = 64 << 20;
/// Chunks that the first read takes. If chunks are small, later reads take more.
const STEP: i64 = 32;
const STEP_MAX: i64 = 1024;
/// A read of less text than this is small.
const STEP_BYTES: usize = 256 << 10;

/// Which lines of a workload are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub workspace: WorkspaceId,
    /// The kind of the workload.
    pub kind: KindName,
    pub name: String,
    /// The public name of an execution.
    pub execution: Option<String>,
    pub task: Option<u32>,
    /// Both ends are included.
    pub from: Timestamp,
    pub to: Timestamp,
    /// Text that a line contains, in upper or lower case.
    pub search: Option<String>,
    pub trace: Option<String>,
    pub severities: Vec<Severity>,
    pub offset: usize,
    pub limit: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Newest first.
    pub lines: Vec<Line>,
    /// The number of all lines that match the question.
    pub total: u64,
}

pub(super) async fn find(store: &Store, question: &Question) -> Result<Found, Error> {
    find_in_steps(store, question, STEP).await
}

pub(super) async fn find_in_steps(
    store: &Store,
    question: &Question,
    first: i64,
) -> Result<Found, Error> {
    let mut step = first;
    let window = question.window();
    let mut search = Search::new(question, &window);
    let mut after: Option<ChunkPosition> = None;
    loop {
        let rest = search.rest(after.as_ref());
        let (asked, place) = (window.clone(), after.clone());
        let chunks = store
            .read(move |tx| match rest {
                Rest::All => logs::page(tx, &asked, place.as_ref(), step),
                Rest::Early => logs::early(tx, &asked, place.as_ref(), step),
            })
            .await?;
        if rest == Rest::Early && !search.rest_is_counted {
            // From here on the order does not matter, so whole chunks are counted in the store.
            search.rest_is_counted = true;
            if let Some(place) = after.clone() {
                let asked = window.clone();
                let counted = store.read(move |tx| logs::count(tx, &asked, &place)).await?;
                search.total += u64::try_from(counted).unwrap_or_default();
            }
        }
        let Some(last) = chunks.last() else { break };
        after = Some(last.place.clone());
        let before = search.scanned_bytes;
        chunks.iter().for_each(|chunk| search.take(chunk));
        if search.scanned_bytes - before < STEP_BYTES {
            step = (step * 2).min(STEP_MAX);
        }
        if search.scanned_bytes >= SCAN_BYTES_MAX {
            break;
        }
    }
    Ok(search.finish())
}

impl Question {
    fn window(&self) -> Window {
        let ns = |time: Timestamp| time.ms().saturating_mul(1_000_000);
        Window {
            workspace: self.workspace.clone(),
            kind: self.kind,
            name: self.name.clone(),
            execution: self.execution.clone(),
            task: self.task,
            from_ns: ns(self.from),
            to_ns: ns(self.to).saturating_add(999_999),
            severities: self.severities.iter().map(|severity| severity.bit()).sum(),
        }
    }
}

/// Which of the remaining chunks must be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    All,
    /// Only those that begin before the window. Of the others only the number of lines is needed.
    Early,
}

struct Search<'q> {
    question: &'q Question,
    window: &'q Window,
    needle: Option<String>,
    /// Lines that a line of a later chunk may still precede.
    open: BinaryHeap<Newest>,
    found: Vec<Line>,
    total: u64,
    placed: usize,
    scanned_bytes: usize,
    rest_is_counted: bool,
}

impl<'q> Search<'q> {
    fn new(question: &'q Question, window: &'q Window) -> Self {
        Self {
            question,
            window,
            needle: question.search.as_deref().map(str::to_lowercase),
            open: BinaryHeap::new(),
            found: Vec::new(),
            total: 0,
            placed: 0,
            scanned_bytes: 0,
            rest_is_counted: false,
        }
    }

    fn rest(&self, after: Option<&ChunkPosition>) -> Rest {
        let question = self.question;
        let every_line_counts = self.needle.is_none()
            && question.trace.is_none()
            && question.severities.len() == Severity::ALL.len();
        let page_is_full = self.found.len() == question.limit;
        let past_the_end = after.is_some_and(|place| place.last_ns() <= self.window.to_ns);
        if every_line_counts && page_is_full && past_the_end { Rest::Early } else { Rest::All }
    }

    fn take(&mut self, chunk: &logs::FoundChunk) {
        self.scanned_bytes += chunk.text.len();
        self.place_newer_than(chunk.place.last_ns());
        for line in line::read_all(&chunk.text) {
            if !self.fits(&line) {
                continue;
            }
            self.total += 1;
            if self.found.len() < self.question.limit {
                self.open.push(Newest(line));
            }
        }
    }

    fn fits(&self, line: &Line) -> bool {
        let question = self.question;
        let in_time = (self.window.from_ns..=self.window.to_ns).contains(&line.at_ns);
        in_time
            && question.severities.contains(&line.severity)
            && question.trace.as_ref().is_none_or(|trace| line.trace.as_ref() == Some(trace))
            && self
                .needle
                .as_deref()
                .is_none_or(|needle| line.message.to_lowercase().contains(needle))
    }

    /// Gives lines their final place if no later line can precede them.
    fn place_newer_than(&mut self, ns: i64) {
        while self.open.peek().is_some_and(|newest| newest.0.at_ns > ns)
            && self.found.len() < self.question.limit
        {
            let Some(Newest(line)) = self.open.pop() else { return };
            if self.placed >= self.question.offset {
                self.found.push(line);
            }
            self.placed += 1;
        }
        if self.found.len() == self.question.limit {
            self.open.clear();
        }
    }

    fn finish(mut self) -> Found {
        self.place_newer_than(i64::MIN);
        Found { lines: self.found, total: self.total }
    }
}

/// A line, ordered by time.
struct Newest(Line);

impl Ord for Newest {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.0.at_ns, &self.0.message).cmp(&(other.0.at_ns, &other.0.message))
    }
}

impl PartialOrd for Newest {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Newest {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Newest {}
