//! What the program decides about the API.

use crate::catalogue::Catalogue;
use std::collections::BTreeMap;
use std::time::Duration;
use types::KindName;
use types::wire::Region;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Where callers reach this server, without a trailing slash.
    pub public_url: String,
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
    /// Change streams that may be open at once.
    pub streams_max: usize,
    /// How long a follower of the change feed waits before it looks for writes of other servers.
    pub feed_poll: Duration,
    pub jobs: jobs::Settings,
}

#[derive(Debug, Clone, Copy)]
pub struct Rate {
    pub per_second: u32,
    pub burst: u32,
}
