//! What an operator decides about runners.

use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Settings {
    /// The code host's API, without a trailing slash.
    pub api_url: String,
    /// Labels that every runner has beside the names of its job: what says what it runs on.
    pub labels: Vec<String>,
    /// A runner that runs so long without picking up a workflow job is replaced.
    pub pickup_s: i64,
    /// A runner that no machine has had room for is made anew after this: its registration gets
    /// old.
    pub queued_max_s: i64,
    /// How often the code host is asked about each repository, in case webhooks were lost.
    pub poll_s: i64,
    /// How often the execution of a runner is looked at.
    pub look_s: i64,
    /// A server that makes or removes a runner and has not finished by then is taken for gone.
    pub lease_s: i64,
    /// Runners that are started in vain for one workflow job.
    pub attempts_max: i64,
    /// Runners that a job has at once, unless it says otherwise itself.
    pub runners_max: i64,
    /// Workflow jobs of one workspace that are not done; more are found again by asking later.
    pub open_max: i64,
    /// Requests to the code host at once.
    pub requests_max: usize,
    /// Requests that asking about one repository may take.
    pub poll_requests_max: usize,
    /// The code host has so long for one answer.
    pub answer_max: Duration,
    /// How long settled workflow jobs and the ids of deliveries are kept, so that late ones are
    /// known.
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
