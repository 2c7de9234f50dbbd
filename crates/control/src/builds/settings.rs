//! Settings of uploads and builds.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Most bytes of one upload.
    pub upload_bytes_max: u64,
    /// How long an upload address is valid.
    pub upload_valid: Duration,
    /// How long one upload may take, and how long it may pause.
    pub upload_timeout: Duration,
    pub upload_idle: Duration,
    /// Uploads at the same time, in all and of one workspace.
    pub uploads_max: u64,
    pub uploads_workspace_max: u64,
    /// Most bytes of a workspace's sources that arrive, wait or are being built.
    pub sources_workspace_bytes_max: u64,
    /// Unfinished builds, counted from the upload address on, in all and of one workspace.
    pub open_max: u64,
    pub open_workspace_max: u64,
    /// How long sources may wait for a free builder.
    pub wait_max: Duration,
    /// Builds at the same time on this server, in all and of one workspace.
    pub slots: u32,
    pub workspace_slots: u32,
    /// How long one build may take.
    pub timeout: Duration,
    /// A build is given up if its server has not renewed it for this long.
    pub lease: Duration,
    /// Attempts at a build that fails because of the machine, and the pause before the second.
    pub attempts_max: u32,
    pub backoff: Duration,
    /// Clients that poll every 3 s want to see the status `BUILDING`. It is shown for this long, or
    /// until somebody has seen it.
    pub shown_for: Duration,
    /// How many versions of one volume template are kept.
    pub template_versions_max: usize,
    /// How often the queue is checked for changes by other servers.
    pub poll: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        let minutes = |count: u64| Duration::from_secs(60 * count);
        let hours = |count: u64| minutes(60 * count);
        Self {
            upload_bytes_max: 1024 * MIB,
            upload_valid: hours(1),
            upload_timeout: hours(1),
            upload_idle: Duration::from_secs(30),
            uploads_max: 64,
            uploads_workspace_max: 8,
            sources_workspace_bytes_max: 8192 * MIB,
            open_max: 2000,
            open_workspace_max: 200,
            wait_max: hours(6),
            slots: 4,
            workspace_slots: 2,
            timeout: hours(1),
            lease: minutes(10),
            attempts_max: 3,
            backoff: Duration::from_secs(5),
            shown_for: Duration::from_millis(3500),
            template_versions_max: 10,
            poll: Duration::from_secs(1),
        }
    }
}
