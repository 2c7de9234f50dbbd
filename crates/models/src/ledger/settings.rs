//! The settings of a ledger.

use admission::Limits;
use std::path::PathBuf;
use std::time::Duration;

/// Where the journal is, and the limits and intervals of a ledger.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The folder of the journal. Only one process may use it at a time.
    pub folder: PathBuf,
    /// Identifies the current boot of the machine. Records written during another boot may have
    /// been lost in a power cut.
    pub boot: String,
    /// The longest span of time whose records a power cut may destroy.
    pub sync_every: Duration,
    /// The longest time until settled use is moved into the store.
    pub keep_up_every: Duration,
    /// How long a call waits for others to give back enough.
    pub wait_max: Duration,
    /// Calls that may wait, in total and per workspace.
    pub waiting: Limits,
    /// Accounts (limits × subjects × windows) in memory, in total and per workspace.
    pub accounts: Limits,
    /// Rows of usage in memory. Above this, end users and tags are counted together until some rows
    /// are moved into the store.
    pub usage_max: usize,
    /// How many end users, tags and the like of a workspace get a count of their own within an
    /// hour. The rest are counted together.
    pub usage_each_max: usize,
    /// A grant is the limit's amount divided by this number, or what a call needs if that is more.
    pub grants: i64,
    /// How many accounts one batch may ask the store about. The rest wait for the next batch.
    pub wants_max: usize,
    /// How long without calls until a grant is given back.
    pub idle_after: Duration,
    /// How long to wait for an answer of the store at shutdown.
    pub last_wait: Duration,
    /// Bytes after which a new file of the journal is begun.
    pub file_max: u64,
    /// Bytes of journal that may wait for the store. Above this, nothing can be reserved.
    pub journal_max: u64,
}

impl Settings {
    pub fn new(folder: PathBuf, boot: String) -> Self {
        Self {
            folder,
            boot,
            sync_every: Duration::from_millis(100),
            keep_up_every: Duration::from_millis(500),
            wait_max: Duration::from_secs(10),
            waiting: Limits { total: 10_000, share: 1_000 },
            accounts: Limits { total: 100_000, share: 12_500 },
            usage_max: 50_000,
            usage_each_max: 10_000,
            grants: 16,
            wants_max: 256,
            idle_after: Duration::from_secs(10),
            last_wait: Duration::from_secs(10),
            file_max: 64 << 20,
            journal_max: 1 << 30,
        }
    }
}

/// Returns a span in milliseconds, which is how uptime is counted.
pub(super) fn ms(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
