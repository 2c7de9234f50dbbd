//! The settings of the data plane, with all its limits.

use crate::models::ModelSettings;
use admission::Limits;
use std::time::Duration;
use types::KindName;
use types::edge::WorkloadRoute;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Names of this server, in lower case. Hosts of workloads and previews are below these.
    pub domains: Vec<String>,
    /// Base URL at which callers reach what workspaces serve. Its host or port differs from that of
    /// the server's own pages.
    pub content_url: String,
    /// Whether to believe the `X-Forwarded-*` headers of requests. Only right behind a proxy that
    /// sets them.
    pub trust_forwarded: bool,
    /// The page that errors link to, with the error's code as the fragment.
    pub docs_url: String,

    /// How many requests may be under way to all workloads, and to those of one workspace. Waiting
    /// requests, answers still being sent and connections that switched protocols all count.
    pub open: Limits,
    /// Of a workspace's open requests, how many may be strangers' (callers without credentials).
    pub open_public_max: u64,
    /// How many requests may wait for one workload to start or wake; more are refused.
    pub waiting_max: usize,
    /// Longest time that a request waits for that.
    pub wait_timeout: Duration,

    /// How soon a replica is asked for again while requests wait for it.
    pub demand_repeat: Duration,
    /// How long the minute-by-minute history of requests is kept. Totals since the start are kept
    /// for as long as the workload has a route.
    pub request_history: Duration,
    /// For how many sessions of MCP servers the replica is remembered, in all and for one
    /// workspace.
    pub sessions: Limits,
    /// Bytes of tool lists that are kept to answer for sleeping servers, in all and for one
    /// workspace.
    pub tool_lists: Limits,
    /// Largest tool list that is kept, in bytes.
    pub tool_list_bytes_max: usize,
    /// Largest request that is checked for being a `tools/list`, in bytes; a longer one is passed
    /// on unread.
    pub tool_list_request_max: u64,

    /// How long an instance may be without a visit before it is paused. `None` means it never is.
    pub standby_delay: Option<Duration>,
    /// How long the guest may take to say whether something must stay awake. Only tests set another
    /// time.
    pub health_timeout: Duration,

    /// Grace period after the start of an instance, while its programs may still be starting. A
    /// request for a port that none of them serves yet waits that long.
    pub launch_grace: Duration,
    /// How long a port of an instance may take to accept a connection.
    pub connect_timeout: Duration,
    /// How long a workload may neither take nor send a byte before the exchange is given up.
    pub answer_idle: Duration,
    /// The same for agents and MCP servers.
    pub agent_idle: Duration,
    /// Longest time that an exchange with an agent or MCP server may take in all.
    pub agent_time: Duration,
    /// Largest body of a request, in bytes. 0 means no limit.
    pub body_max: u64,
    /// Largest head of an answer, in bytes. Every open request may hold one in memory.
    pub head_bytes_max: usize,

    /// How many connections to one instance are kept for later requests, and for how long.
    pub spare_max: usize,
    pub spare_life: Duration,

    /// A socket without traffic for this long no longer keeps its instance awake.
    pub socket_idle: Duration,
    /// How long one side of a socket may go on without traffic after the other side has ended.
    pub socket_linger: Duration,

    pub models: ModelSettings,
}

/// The time limits of one exchange with a workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExchangeLimits {
    /// Longest time without a byte from either side.
    pub(crate) idle: Duration,
    /// Longest time in all.
    pub(crate) time: Option<Duration>,
}

impl Settings {
    /// Returns the limits for the workload's kind. The workload's own timeout can only shorten
    /// them.
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
            docs_url: "http://localhost/v0/docs/edge-errors".into(),
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
            health_timeout: Duration::from_secs(2),
            launch_grace: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            answer_idle: Duration::from_secs(15 * 60),
            agent_idle: Duration::from_secs(100),
            agent_time: Duration::from_secs(15 * 60),
            body_max: 0,
            head_bytes_max: 128 << 10,
            spare_max: 64,
            // Common servers close idle connections after five seconds.
            spare_life: Duration::from_secs(4),
            socket_idle: Duration::from_secs(15 * 60),
            socket_linger: Duration::from_secs(30),
            models: ModelSettings::default(),
        }
    }
}
