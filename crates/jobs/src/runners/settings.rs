//! Settings of runners that an operator decides.

use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Settings {
    /// The base URL of the code host's API, without a trailing slash.
    pub api_url: String,
    /// Labels that every runner has besides the names of its job: they describe the machine.
    pub labels: Vec<String>,
    /// How long a runner may run without picking up a workflow job before it is replaced.
    pub pickup_s: i64,
    /// How long a runner may wait for room on a machine. It is then made anew, because its
    /// registration gets too old.
    pub queued_max_s: i64,
    /// How often the code host is polled for each repository, in case webhooks were lost.
    pub poll_s: i64,
    /// How often the execution of a runner is checked.
    pub look_s: i64,
    /// How long a server has to make or remove a runner before it is presumed dead.
    pub lease_s: i64,
    /// Most runners that are started in vain for one workflow job.
    pub attempts_max: i64,
    /// Most runners of a job at once, unless the job sets its own limit.
    pub runners_max: i64,
    /// Most unfinished workflow jobs of one workspace. Polling finds the rest again later.
    pub open_max: i64,
    /// Most requests to the code host at once.
    pub requests_max: usize,
    /// Most requests for polling one repository once.
    pub poll_requests_max: usize,
    /// How long the code host may take for one answer.
    pub answer_max: Duration,
    /// How long finished workflow jobs and the ids of deliveries are kept, so that late reports are
    /// recognized.
    pub kept_s: i64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            api_url: "https://api.github.com".into(),
            labels: ["self-hosted", "linux", "x64"].map(str::to_owned).into(),
            pickup_s: 120,
            queued_max_s: 1800,
            poll_s: 60,
            look_s: 5,
            lease_s: 60,
            attempts_max: 5,
            runners_max: 100,
            open_max: 10_000,
            requests_max: 8,
            poll_requests_max: 60,
            answer_max: Duration::from_secs(10),
            kept_s: 3 * 24 * 3600,
        }
    }
}
