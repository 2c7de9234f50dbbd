//! Background work: tasks, deployments, runners, callbacks.

use super::Span;
use serde::Deserialize;

/// The queue of tasks.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Jobs {
    pub(crate) slots: u32,
    pub(crate) memory_mb: u32,
    pub(crate) workspace_tasks_max: u32,
    pub(crate) call_slots: u32,
    pub(crate) workspace_calls_max: u32,
    pub(crate) tasks_max: u32,
    pub(crate) open_max: u32,
    pub(crate) open_public_max: u32,
    pub(crate) asked_day_bytes_max: u64,
    pub(crate) backoff_first: Span,
    pub(crate) backoff_max: Span,
    pub(crate) lost_attempts_max: u32,
    pub(crate) lease: Span,
    pub(crate) heartbeat: Span,
    pub(crate) machine_wait: Span,
    pub(crate) poll: Span,
    pub(crate) retention: Span,
}

impl Jobs {
    pub(crate) fn settings(&self, workspace_share_percent: u32) -> jobs::Settings {
        jobs::Settings {
            workspace_share_percent,
            slots: self.slots,
            memory_mb: self.memory_mb,
            workspace_tasks_max: self.workspace_tasks_max,
            call_slots: self.call_slots,
            workspace_calls_max: self.workspace_calls_max,
            lease: self.lease.0,
            heartbeat: self.heartbeat.0,
            machine_wait: self.machine_wait.0,
            backoff_first: self.backoff_first.0,
            backoff_max: self.backoff_max.0,
            lost_attempts_max: self.lost_attempts_max,
            retention: self.retention.0,
            tasks_max: self.tasks_max,
            open_max: self.open_max,
            open_public_max: self.open_public_max,
            asked_day_bytes_max: self.asked_day_bytes_max,
            poll: self.poll.0,
        }
    }
}

/// Agents, MCP servers and applications.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Deployments {
    pub(crate) start_timeout: Span,
    pub(crate) replicas: u32,
    pub(crate) replicas_max: u32,
    pub(crate) concurrency: u32,
    pub(crate) starting_max: u32,
    pub(crate) launches_max: usize,
    pub(crate) start_millicores: u32,
    pub(crate) looks_max: usize,
    pub(crate) extra_idle: Span,
    pub(crate) last_idle: Span,
    pub(crate) drain_timeout: Span,
    pub(crate) restart_pause: Span,
    pub(crate) restart_pause_max: Span,
}

impl Deployments {
    pub(crate) fn settings(&self, workspace_share_percent: u32) -> control::Deployments {
        control::Deployments {
            workspace_share_percent,
            start_timeout: self.start_timeout.0,
            replicas: self.replicas,
            replicas_max: self.replicas_max,
            concurrency: self.concurrency,
            starting_max: self.starting_max,
            launches_max: self.launches_max,
            looks_max: self.looks_max,
            extra_idle: self.extra_idle.0,
            last_idle: self.last_idle.0,
            drain_timeout: self.drain_timeout.0,
            restart_pause: self.restart_pause.0,
            restart_pause_max: self.restart_pause_max.0,
        }
    }
}

/// Self-hosted runners for the workflows of a code host.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Runners {
    pub(crate) api_url: String,
    pub(crate) labels: Vec<String>,
    pub(crate) pickup: Span,
    pub(crate) poll: Span,
    pub(crate) attempts_max: u32,
    pub(crate) runners_max: u32,
    pub(crate) open_max: u32,
    pub(crate) requests_max: usize,
    pub(crate) answer_timeout: Span,
}

impl Runners {
    pub(crate) fn settings(&self) -> jobs::runners::Settings {
        let seconds = |span: Span| i64::try_from(span.0.as_secs()).unwrap_or(i64::MAX);
        jobs::runners::Settings {
            api_url: self.api_url.clone(),
            labels: self.labels.clone(),
            pickup_s: seconds(self.pickup),
            poll_s: seconds(self.poll),
            attempts_max: self.attempts_max.into(),
            runners_max: self.runners_max.into(),
            open_max: self.open_max.into(),
            requests_max: self.requests_max,
            answer_max: self.answer_timeout.0,
            ..jobs::runners::Settings::default()
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Callbacks {
    pub(crate) attempts_max: u32,
    pub(crate) timeout: Span,
    pub(crate) concurrency: usize,
    pub(crate) workspace_concurrency: usize,
    pub(crate) pause: Span,
    pub(crate) pause_max: Span,
    pub(crate) inside: Vec<String>,
}
