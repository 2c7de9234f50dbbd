//! The way of requests to workloads, and the limits of that.

use super::Span;
use gateway::ModelSettings;
use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gateway {
    pub(crate) domains: Vec<String>,
    pub(crate) trust_forwarded: bool,
    pub(crate) standby: Span,
    pub(crate) wait_timeout: Span,
    pub(crate) waiting_max: usize,
    pub(crate) requests_max: usize,
    pub(crate) requests_workspace_max: usize,
    pub(crate) requests_public_max: usize,
    pub(crate) launch_grace: Span,
    pub(crate) connect_timeout: Span,
    pub(crate) answer_idle: Span,
    pub(crate) agent_idle: Span,
    pub(crate) agent_time: Span,
    pub(crate) demand_repeat: Span,
    pub(crate) request_history: Span,
    pub(crate) sessions_max: usize,
    pub(crate) sessions_workspace_max: usize,
    pub(crate) tool_lists_bytes_max: usize,
    pub(crate) tool_lists_workspace_bytes_max: usize,
    pub(crate) tool_list_bytes_max: usize,
    pub(crate) tool_list_request_bytes_max: u64,
    pub(crate) socket_idle: Span,
    pub(crate) body_bytes_max: u64,
}

impl Gateway {
    /// Returns the settings of the data plane. Its names and addresses are known once the server
    /// listens.
    pub(crate) fn settings(&self, models: ModelSettings) -> gateway::Settings {
        gateway::Settings {
            trust_forwarded: self.trust_forwarded,
            open: admission::Limits {
                total: self.requests_max as u64,
                share: self.requests_workspace_max as u64,
            },
            open_public_max: self.requests_public_max as u64,
            waiting_max: self.waiting_max,
            wait_timeout: self.wait_timeout.0,
            standby_delay: Some(self.standby.0).filter(|delay| !delay.is_zero()),
            launch_grace: self.launch_grace.0,
            connect_timeout: self.connect_timeout.0,
            answer_idle: self.answer_idle.0,
            agent_idle: self.agent_idle.0,
            agent_time: self.agent_time.0,
            demand_repeat: self.demand_repeat.0,
            request_history: self.request_history.0,
            sessions: admission::Limits {
                total: self.sessions_max as u64,
                share: self.sessions_workspace_max as u64,
            },
            tool_lists: admission::Limits {
                total: self.tool_lists_bytes_max as u64,
                share: self.tool_lists_workspace_bytes_max as u64,
            },
            tool_list_bytes_max: self.tool_list_bytes_max,
            tool_list_request_max: self.tool_list_request_bytes_max,
            body_max: self.body_bytes_max,
            socket_idle: self.socket_idle.0,
            models,
            ..gateway::Settings::default()
        }
    }
}
