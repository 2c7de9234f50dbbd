//! Settings of the control plane and the API, decided by the program's configuration.

use crate::catalogue::Catalogue;
use crate::egress::EgressPool;
use std::collections::BTreeMap;
use std::time::Duration;
use types::KindName;
use types::wire::Region;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Where callers reach this server, without a trailing slash.
    pub public_url: String,
    /// Where callers reach what workspaces serve. It differs in host or port from the server's own
    /// pages.
    pub content_url: String,
    /// The server's own names, in lower case: the edge reads them and all hosts below them itself,
    /// so no workspace can have one.
    pub own_names: Vec<String>,
    pub regions: Vec<Region>,
    pub catalogue: Catalogue,
    /// Largest request body in bytes; larger ones are refused.
    pub body_max: usize,
    /// Most objects in a list without pages; a longer list is refused.
    pub bare_list_max: i64,
    /// Most bytes of objects in a list: a page ends there, and a list without pages is refused.
    pub list_bytes_max: usize,
    /// Most bytes that one workspace keeps of answers under idempotency keys in a day.
    pub answers_day_bytes_max: u64,
    /// Requests per second of one key, and how many may come at once.
    pub key_rate: Rate,
    /// Request rate of one workspace.
    pub workspace_rate: Rate,
    /// Request rate of one public trigger, for all its callers together.
    pub trigger_rate: Rate,
    /// Most objects of a kind in one workspace; a kind that is not listed has no limit.
    pub quotas: BTreeMap<KindName, i64>,
    /// Most bytes that the objects of one workspace may take in the database, not counting what each
    /// takes beyond its last whole block of 4 KiB.
    pub objects_bytes_max: u64,
    /// Most drives that one sandbox may have mounted at a time.
    pub sandbox_drives_max: usize,
    pub bill: Bill,
    /// Limits on change streams, and on callers who wait for what a trigger started to end.
    pub streams: StreamLimits,
    /// Memory for request bodies that are read as a whole, held until they are answered.
    pub bodies: BodyLimits,
    /// How long a follower of the change feed waits before it looks for writes of other servers.
    pub feed_poll: Duration,
    pub jobs: jobs::Settings,
    pub deployments: Deployments,
    pub registry: RegistryUpkeep,
    pub builds: crate::builds::Settings,
    pub snapshots: Snapshots,
    pub template_copies: TemplateCopies,
    pub s3: S3Limits,
    /// Searches in logs.
    pub log_searches: jobs::logs::SearchLimits,
    pub egress: Egress,
    pub models: Models,
}

impl Settings {
    /// Returns the server's own name that `host` is or is below.
    pub fn own_name(&self, host: &str) -> Option<&str> {
        let holds = |own: &&str| {
            let front = host.strip_suffix(own);
            front.is_some_and(|front| front.is_empty() || front.ends_with('.'))
        };
        self.own_names.iter().map(String::as_str).find(holds)
    }
}

/// The addresses that egress gateways can be given.
#[derive(Debug, Clone)]
pub struct Egress {
    /// The pool of addresses. Each one must be routed to the machine.
    pub pool: EgressPool,
    /// Most addresses of one workspace; more are refused.
    pub workspace_max: usize,
}

impl Default for Egress {
    fn default() -> Self {
        Self { pool: EgressPool::default(), workspace_max: 4 }
    }
}

/// Limits on what the server itself asks of model providers, beyond the requests of callers.
#[derive(Debug, Clone, Copy)]
pub struct Models {
    /// How long a provider's list of models is reused, and how many lists are kept.
    pub listed_for: Duration,
    pub lists_max: usize,
    /// Requests for such lists at the same time, in all and of one workspace.
    pub asks_max: u64,
    pub asks_workspace_max: u64,
    /// Requests for access tokens of connections at the same time, in all and of one workspace.
    pub tokens_max: u64,
    pub tokens_workspace_max: u64,
    /// Pause before an access token is asked for again after a failure. It starts at `token_retry`
    /// and doubles with each failure in a row, up to `token_retry_max`.
    pub token_retry: Duration,
    pub token_retry_max: Duration,
}

impl Default for Models {
    fn default() -> Self {
        Self {
            listed_for: Duration::from_secs(300),
            lists_max: 1000,
            asks_max: 32,
            asks_workspace_max: 4,
            tokens_max: 32,
            tokens_workspace_max: 4,
            token_retry: Duration::from_secs(5),
            token_retry_max: Duration::from_secs(300),
        }
    }
}

/// Drives over the S3 protocol.
#[derive(Debug, Clone, Copy)]
pub struct S3Limits {
    /// Requests in progress at the same time, in all and of one workspace.
    pub requests_max: usize,
    pub requests_workspace_max: usize,
    /// Of these, copies, lists and other work on files that goes on at the same time; the others
    /// wait for it.
    pub heavy_max: usize,
    pub heavy_workspace_max: usize,
    /// Largest content of one request, in bytes.
    pub put_bytes_max: u64,
    /// Open multipart uploads of one drive, and how long one may stay open.
    pub uploads_max: usize,
    pub upload_life: Duration,
    /// Longest time for the next MiB of a request's content to arrive, and for the caller to take
    /// the next piece of an answer.
    pub stall: Duration,
}

impl Default for S3Limits {
    fn default() -> Self {
        Self {
            requests_max: 256,
            requests_workspace_max: 64,
            heavy_max: 8,
            heavy_workspace_max: 2,
            put_bytes_max: 5 << 30,
            uploads_max: 1000,
            upload_life: Duration::from_secs(7 * 24 * 3600),
            stall: Duration::from_secs(60),
        }
    }
}

/// Limits on snapshots of sandboxes.
#[derive(Debug, Clone, Copy)]
pub struct Snapshots {
    /// Snapshots of one workspace that may be in the making at a time; more are refused.
    pub pending_max: i64,
    /// How often to look for snapshots that nothing needs any more.
    pub tidy_every: Duration,
    /// A snapshot that was taken for a fork is kept at least this long, by which time the fork has
    /// begun with it.
    pub fork_within: Duration,
}

impl Default for Snapshots {
    fn default() -> Self {
        let (tidy_every, fork_within) = (Duration::from_secs(300), Duration::from_secs(600));
        Self { pending_max: 20, tidy_every, fork_within }
    }
}

/// Upkeep of the copies of volume templates at an object service.
#[derive(Debug, Clone, Copy)]
pub struct TemplateCopies {
    /// How often to look for copies that no version has any more, and versions that have none.
    pub tidy_every: Duration,
    /// How long a version that has a copy stays on a machine where no volume begins with it.
    pub unused_after: Duration,
}

impl Default for TemplateCopies {
    fn default() -> Self {
        let (minute, week) = (Duration::from_secs(60), Duration::from_secs(7 * 24 * 3600));
        Self { tidy_every: 5 * minute, unused_after: week }
    }
}

/// Limits on agents, MCP servers and applications.
#[derive(Debug, Clone)]
pub struct Deployments {
    /// How long a replica's program may take until its port accepts connections.
    pub start_timeout: Duration,
    /// Replicas of one deployment: the default where its wish does not say, and the most it may ask
    /// for.
    pub replicas: u32,
    pub replicas_max: u32,
    /// Requests that one replica handles at a time before another replica is wanted.
    pub concurrency: u32,
    /// Replicas of one deployment that may start at the same time.
    pub starting_max: u32,
    /// Replicas of all deployments together that may start at the same time.
    pub launches_max: usize,
    /// How many percent of these one workspace may have.
    pub workspace_share_percent: u32,
    /// Deployments that are reconciled with their rows at the same time. Each of these waits only
    /// for the database.
    pub looks_max: usize,
    /// How long a replica may be without requests before it is retired: `extra_idle` while there
    /// are others, `last_idle` for the last one.
    pub extra_idle: Duration,
    pub last_idle: Duration,
    /// How long a replica that gets no new requests may take to finish those that it has.
    pub drain_timeout: Duration,
    /// Pause before a replica that ended by itself is replaced. It starts at `restart_pause` and
    /// doubles with each failure in a row, up to `restart_pause_max`.
    pub restart_pause: Duration,
    pub restart_pause_max: Duration,
}

impl Deployments {
    /// Returns how many replicas of one workspace may start at the same time.
    pub(crate) fn launches_share(&self) -> usize {
        usize::try_from(self.workspace_share_percent)
            .unwrap_or(usize::MAX)
            .saturating_mul(self.launches_max)
            / 100
    }
}

impl Default for Deployments {
    fn default() -> Self {
        Self {
            start_timeout: Duration::from_secs(120),
            replicas: 10,
            replicas_max: 100,
            concurrency: 80,
            starting_max: 4,
            launches_max: 16,
            workspace_share_percent: 80,
            looks_max: 64,
            extra_idle: Duration::from_secs(60),
            last_idle: Duration::from_secs(600),
            drain_timeout: Duration::from_secs(900),
            restart_pause: Duration::from_secs(1),
            restart_pause_max: Duration::from_secs(300),
        }
    }
}

/// Upkeep of images that workspaces pushed.
#[derive(Debug, Clone, Copy)]
pub struct RegistryUpkeep {
    /// How often to look for images that nothing needs.
    pub every: Duration,
    /// Most tags of one repository; more are refused.
    pub tags_max: usize,
    /// How many of a repository's newest tags are kept even if nothing uses them; 0 keeps all.
    pub keep_tags: usize,
}

#[derive(Debug, Clone, Copy)]
pub struct Rate {
    pub per_second: u32,
    pub burst: u32,
}

/// Usage, prices and budgets.
#[derive(Debug, Clone)]
pub struct Bill {
    /// Price of one unit of each billing dimension in a new installation.
    pub first_prices: BTreeMap<String, String>,
    /// How often budgets are compared with spending.
    pub budget_every: Duration,
    /// How often usage of running things is moved into completed hours (`roll_every`), and how
    /// often these hours are packed into days (`pack_every`).
    pub roll_every: Duration,
    pub pack_every: Duration,
    /// Most budgets of one account.
    pub budgets_max: i64,
    /// Most points of all series in one answer. Pages of long series have fewer groups.
    pub points_max: usize,
}

/// Memory for request bodies, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// For all authenticated callers together.
    pub total: u64,
    /// For one workspace, or for one person outside of any workspace.
    pub workspace: u64,
    /// For all unauthenticated callers together. One address may use a quarter of it.
    pub strangers: u64,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self { total: 512 << 20, workspace: 128 << 20, strangers: 64 << 20 }
    }
}

/// How many long-lived answers (streams) may be open at once.
#[derive(Debug, Clone, Copy)]
pub struct StreamLimits {
    /// In all.
    pub total: u64,
    /// For one workspace.
    pub workspace: u64,
    /// With the same credentials, or by the callers of one public trigger.
    pub holder: u64,
}
