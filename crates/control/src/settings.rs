//! What the program decides about the API.

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
    /// Where callers reach what workspaces serve: another host or port than the server's own pages.
    pub content_url: String,
    pub regions: Vec<Region>,
    pub catalogue: Catalogue,
    /// Bytes of a request body; more are refused.
    pub body_max: usize,
    /// Objects of a list without pages; a longer one is refused.
    pub bare_list_max: i64,
    /// Requests per second of one key, and how many may come at once.
    pub key_rate: Rate,
    /// The same of one workspace.
    pub workspace_rate: Rate,
    /// The same of one public trigger, of all who call it together.
    pub trigger_rate: Rate,
    /// Objects of a kind in one workspace; a kind that is not listed is not limited.
    pub quotas: BTreeMap<KindName, i64>,
    /// Drives that one sandbox may have mounted at a time.
    pub sandbox_drives_max: usize,
    pub bill: Bill,
    /// Change streams, and callers who wait for the end of what a trigger started.
    pub streams: StreamLimits,
    /// Bodies of requests that are read as a whole, until they are answered.
    pub bodies: BodyLimits,
    /// How long a follower of the change feed waits before it looks for writes of other servers.
    pub feed_poll: Duration,
    pub jobs: jobs::Settings,
    pub deployments: Deployments,
    pub registry: RegistryUpkeep,
    pub builds: crate::builds::Settings,
    pub snapshots: Snapshots,
    pub s3: S3Limits,
    pub egress: Egress,
    pub models: Models,
}

/// Addresses that egress gateways are given.
#[derive(Debug, Clone)]
pub struct Egress {
    /// Each must lead to the machine.
    pub pool: EgressPool,
    /// Those of one workspace; more are refused.
    pub workspace_max: usize,
}

impl Default for Egress {
    fn default() -> Self {
        Self { pool: EgressPool::default(), workspace_max: 4 }
    }
}

/// What is asked of providers of models, beside the requests of callers.
#[derive(Debug, Clone, Copy)]
pub struct Models {
    /// How long a list of a provider's models is given again, and how many lists are kept.
    pub listed_for: Duration,
    pub lists_max: usize,
    /// Lists that are asked for at the same time, and how many of them by one workspace.
    pub asks_max: u64,
    pub asks_workspace_max: u64,
    /// The same of access tokens of connections.
    pub tokens_max: u64,
    pub tokens_workspace_max: u64,
    /// Pause before an access token is asked for again that was not given: the first, which doubles
    /// each time in a row, and the longest.
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
    /// Requests that go on at the same time, and how many of them of one workspace.
    pub requests_max: usize,
    pub requests_workspace_max: usize,
    /// Bytes of one request's content.
    pub put_bytes_max: u64,
    /// Uploads in parts of one drive that may be open, and for how long.
    pub uploads_max: usize,
    pub upload_life: Duration,
    /// How long the next MiB of a request's content may take to come, and the next piece of an
    /// answer to be taken.
    pub stall: Duration,
}

impl Default for S3Limits {
    fn default() -> Self {
        Self {
            requests_max: 256,
            requests_workspace_max: 64,
            put_bytes_max: 5 << 30,
            uploads_max: 1000,
            upload_life: Duration::from_secs(7 * 24 * 3600),
            stall: Duration::from_secs(60),
        }
    }
}

/// Snapshots of sandboxes.
#[derive(Debug, Clone, Copy)]
pub struct Snapshots {
    /// Those of one workspace that are being taken at a time; more are refused.
    pub pending_max: i64,
    /// Those of all workspaces that this machine takes at a time; the others wait.
    pub takes_max: usize,
    /// How often what nothing needs any more is looked for.
    pub tidy_every: Duration,
    /// A snapshot that was taken for a fork stays so long at least: by then something begins with it.
    pub fork_within: Duration,
}

impl Default for Snapshots {
    fn default() -> Self {
        let (tidy_every, fork_within) = (Duration::from_secs(300), Duration::from_secs(600));
        Self { pending_max: 20, takes_max: 4, tidy_every, fork_within }
    }
}

/// Agents, MCP servers and applications.
#[derive(Debug, Clone)]
pub struct Deployments {
    /// How long the program of a replica may take until its port takes connections.
    pub start_timeout: Duration,
    /// Replicas of one deployment where its wish does not say, and at most.
    pub replicas: u32,
    pub replicas_max: u32,
    /// Requests that one replica is given at a time before another is wanted.
    pub concurrency: u32,
    /// Replicas of one deployment that start at the same time.
    pub starting_max: u32,
    /// Replicas of all deployments together that start at the same time.
    pub launches_max: usize,
    /// Deployments that are compared with their rows at the same time. Each waits for nothing but
    /// the database.
    pub looks_max: usize,
    /// A replica without requests for so long is one too many, and the last one for so long.
    pub extra_idle: Duration,
    pub last_idle: Duration,
    /// How long a replica that gets no new requests may take for those that it has.
    pub drain_timeout: Duration,
    /// Pause before the place of a replica is taken that ended by itself: the first, which doubles
    /// each time in a row, and the longest.
    pub restart_pause: Duration,
    pub restart_pause_max: Duration,
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
            looks_max: 64,
            extra_idle: Duration::from_secs(60),
            last_idle: Duration::from_secs(600),
            drain_timeout: Duration::from_secs(900),
            restart_pause: Duration::from_secs(1),
            restart_pause_max: Duration::from_secs(300),
        }
    }
}

/// What becomes of images that workspaces pushed.
#[derive(Debug, Clone, Copy)]
pub struct RegistryUpkeep {
    /// How often what nothing needs is looked for.
    pub every: Duration,
    /// Tags of one repository; more are refused.
    pub tags_max: usize,
    /// So many of the newest tags of a repository stay when nothing uses them; 0: all.
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
    /// What a unit of each billing dimension costs in a new installation.
    pub first_prices: BTreeMap<String, String>,
    /// How often budgets are compared with what was spent.
    pub budget_every: Duration,
    /// How often usage of what goes on is moved into the hours that are over, and how often those
    /// are packed.
    pub roll_every: Duration,
    pub pack_every: Duration,
    /// Budgets of one account.
    pub budgets_max: i64,
    /// Points of all series in one answer: pages of long series have fewer groups.
    pub points_max: usize,
}

/// Bytes that requests take in memory.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// Of all who are known.
    pub total: u64,
    /// For one workspace, or of one person outside of them.
    pub workspace: u64,
    /// Of all who are not known. One address has a quarter of them.
    pub strangers: u64,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self { total: 512 << 20, workspace: 128 << 20, strangers: 64 << 20 }
    }
}

/// How many answers that last may be open at once.
#[derive(Debug, Clone, Copy)]
pub struct StreamLimits {
    /// In all.
    pub total: u64,
    /// In one workspace.
    pub workspace: u64,
    /// With the same credentials, or of callers of the same public trigger.
    pub holder: u64,
}
