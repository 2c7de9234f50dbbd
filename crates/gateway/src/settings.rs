//! Every number of the data plane, with what it is for.

use admission::Limits;
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Names of this server, in lower case: hosts of sandboxes and previews are below them.
    pub domains: Vec<String>,
    /// Where callers reach what workspaces serve: an address with another host or port than the
    /// server's own pages.
    pub content_url: String,
    /// Believe `X-Forwarded-*` of a request: only where a proxy stands in front of the server that
    /// sets them.
    pub trust_forwarded: bool,
    /// Where errors send their reader; the code follows behind `#`.
    pub docs_url: String,

    /// Requests that may be under way to all sandboxes, and to those of one workspace: those that
    /// wait, whose answers still come, and connections that changed their protocol.
    pub open: Limits,
    /// Requests that may wait for one sandbox to start or wake; more are refused.
    pub waiting_max: usize,
    /// How long one of them waits.
    pub wait_timeout: Duration,

    /// A sandbox without a visit for this long is paused. `None`: never.
    pub standby_delay: Option<Duration>,
    /// How long a paused sandbox keeps its memory. `None`: for ever.
    pub reclaim_delay: Option<Duration>,
    /// Sandboxes that are asked and paused at the same time.
    pub standby_parallel: usize,
    /// How long the guest may take to say whether something must stay awake.
    pub health_timeout: Duration,
    /// Times in a row that it may fail to say so before the sandbox is paused all the same.
    pub health_misses_max: u32,
    /// Attempts at waking, before those who wait are told that it failed.
    pub wake_attempts: u32,
    /// Between two of them.
    pub wake_pause: Duration,

    /// So long after its start the programs of a sandbox may still be starting: who asks for a port
    /// that none of them serves yet waits until then.
    pub launch_grace: Duration,
    /// How long a port of a sandbox may take to accept a connection.
    pub connect_timeout: Duration,
    /// A workload that neither takes nor sends a byte for this long is given up.
    pub answer_idle: Duration,
    /// Bytes of the body of one request. 0: any number.
    pub body_max: u64,
    /// Bytes of the head of an answer.
    pub head_bytes_max: usize,

    /// Connections to one sandbox that are kept for the next request, and how long.
    pub spare_max: usize,
    pub spare_life: Duration,

    /// A socket without traffic for this long no longer holds its sandbox awake.
    pub socket_idle: Duration,
    /// How long one side of a socket may go on after the other has ended, without traffic.
    pub socket_linger: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            domains: vec!["localhost".into()],
            content_url: "http://localhost".into(),
            trust_forwarded: false,
            docs_url: "docs/edge-errors.md".into(),
            open: Limits { total: 20_000, share: 5_000 },
            waiting_max: 1024,
            wait_timeout: Duration::from_secs(60),
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
            body_max: 0,
            head_bytes_max: 1 << 20,
            spare_max: 64,
            // Common servers close idle connections after five seconds.
            spare_life: Duration::from_secs(4),
            socket_idle: Duration::from_secs(15 * 60),
            socket_linger: Duration::from_secs(30),
        }
    }
}
