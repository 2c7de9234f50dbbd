//! The settings of the data plane, with all its limits.

use crate::models::ModelSettings;
use admission::Limits;
use std::time::Duration;
use types::KindName;
use types::edge::WorkloadRoute;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Names of this server, in lower case. Hosts of workloads and previews are below them.
    pub domains: Vec<String>,
    /// Where callers reach what workspaces serve: an address with another host or port than the
    /// server's own pages.
    pub content_url: String,
    /// Believe the `X-Forwarded-*` headers of requests. Only right behind a proxy that sets them.
    pub trust_forwarded: bool,
    /// The page that errors link to; their code is the fragment.
    pub docs_url: String,

    /// Requests that may be under way to all workloads, and to those of one workspace. Requests that
    /// wait, answers that still come and connections that switched their protocol all count.
    pub open: Limits,
    /// Of those to one workspace, how many strangers may have.
    pub open_public_max: u64,
    /// Requests that may wait for one workload to start or wake; more are refused.
    pub waiting_max: usize,
    /// How long one of them waits.
    pub wait_timeout: Duration,

    /// While requests wait for a replica, it is asked for again after this long.
    pub demand_repeat: Duration,
    /// For so long it is kept minute by minute what requests there were. What counts from the
    /// start on stays for as long as the workload has a route.
    pub request_history: Duration,
    /// Sessions of MCP servers for which it is remembered which replica has them, in all and of one
    /// workspace.
    pub sessions: Limits,
    /// Bytes of lists of tools that are kept for when their servers sleep, in all and of one workspace.
    pub tool_lists: Limits,
    /// Bytes of one such list; a longer one is not kept.
    pub tool_list_bytes_max: usize,
    /// Bytes of a request that may be for one; a longer one is passed on unread.
    pub tool_list_request_max: u64,

    /// An instance without a visit for this long is paused. `None`: never.
    pub standby_delay: Option<Duration>,
    /// How long a paused instance keeps its memory. `None`: for ever.
    pub reclaim_delay: Option<Duration>,
    /// Instances that are asked and paused at the same time.
    pub standby_parallel: usize,
    /// How long the guest may take to say whether something must stay awake.
    pub health_timeout: Duration,
    /// Times in a row that it may fail to say so before the instance is paused all the same.
    pub health_misses_max: u32,
    /// Attempts at waking before waiting requests get an error.
    pub wake_attempts: u32,
    /// Between two of them.
    pub wake_pause: Duration,

    /// Grace period after the start of an instance while its programs may still be starting: a
    /// request for a port that none of them serves yet waits that long.
    pub launch_grace: Duration,
    /// How long a port of an instance may take to accept a connection.
    pub connect_timeout: Duration,
    /// A workload that neither takes nor sends a byte for this long is given up.
    pub answer_idle: Duration,
    /// The same for agents and MCP servers.
    pub agent_idle: Duration,
    /// How long an exchange with one of those may take in all.
    pub agent_time: Duration,
    /// Bytes of the body of one request. 0: any number.
    pub body_max: u64,
    /// Bytes of the head of an answer.
    pub head_bytes_max: usize,

    /// Connections to one instance that are kept for the next request, and how long.
    pub spare_max: usize,
    pub spare_life: Duration,

    /// A socket without traffic for this long no longer keeps its instance awake.
    pub socket_idle: Duration,
    /// How long one side of a socket may go on after the other has ended, without traffic.
    pub socket_linger: Duration,

    pub models: ModelSettings,
}

/// What one exchange with a workload may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExchangeLimits {
    /// Without a byte from either side.
    pub(crate) idle: Duration,
    /// In all.
    pub(crate) time: Option<Duration>,
}

impl Settings {
    /// The limits of the kind. What a workload asks for makes them narrower, never wider.
    pub(crate) fn exchange_limits(&self, workload: &WorkloadRoute) -> ExchangeLimits {
        let asked = workload.timeout_s.map(|seconds| Duration::from_secs(seconds.into()));
        match workload.kind {
            KindName::Agent | KindName::Function => {
                let time = asked.map_or(self.agent_time, |asked| asked.min(self.agent_time));
                ExchangeLimits { idle: self.agent_idle, time: Some(time) }
            }
            _ => ExchangeLimits { idle: self.answer_idle, time: asked },
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            domains: vec!["localhost".into()],
            content_url: "http://localhost".into(),
            trust_forwarded: false,
            docs_url: "docs/edge-errors.md".into(),
            open: Limits { total: 20_000, share: 5_000 },
            open_public_max: 4_000,
            waiting_max: 1024,
            wait_timeout: Duration::from_secs(60),
            demand_repeat: Duration::from_millis(250),
            request_history: Duration::from_secs(3600),
            sessions: Limits { total: 100_000, share: 10_000 },
            tool_lists: Limits { total: 64 << 20, share: 4 << 20 },
            tool_list_bytes_max: 256 << 10,
            tool_list_request_max: 4 << 10,
            standby_delay: Some(Duration::from_secs(15)),
            reclaim_delay: None,
            standby_parallel: 32,
            health_timeout: Duration::from_secs(2),
            health_misses_max: 3,
            wake_attempts: 3,
            wake_pause: Duration::from_millis(100),
            launch_grace: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            answer_idle: Duration::from_secs(15 * 60),
            agent_idle: Duration::from_secs(100),
            agent_time: Duration::from_secs(15 * 60),
            body_max: 0,
            head_bytes_max: 1 << 20,
            spare_max: 64,
            // Common servers close idle connections after five seconds.
            spare_life: Duration::from_secs(4),
            socket_idle: Duration::from_secs(15 * 60),
            socket_linger: Duration::from_secs(30),
            models: ModelSettings::default(),
        }
    }
}
