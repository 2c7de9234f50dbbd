//! Models of providers: which hosts may be reached, and the limits of requests to them.

use super::error::Wrong;
use super::values;
use crate::duration::Span;
use gateway::ModelSettings;
use serde::Deserialize;
use std::path::PathBuf;
use types::parts::hosts::Places;

/// Smallest journal; a few calls with long names must fit.
const JOURNAL_BYTES_LEAST: u64 = 1 << 20;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Models {
    pub(crate) inside: Vec<String>,
    #[serde(deserialize_with = "values::path_or_none")]
    pub(crate) authorities: Option<PathBuf>,
    #[serde(deserialize_with = "values::path_or_none")]
    pub(crate) prices: Option<PathBuf>,
    pub(crate) unpriced: bool,
    pub(crate) output_tokens_max: u64,
    pub(crate) body_bytes_max: usize,
    pub(crate) bodies_bytes_max: usize,
    pub(crate) bodies_workspace_bytes_max: usize,
    pub(crate) body_timeout: Span,
    pub(crate) connect_timeout: Span,
    pub(crate) first_timeout: Span,
    pub(crate) between_timeout: Span,
    pub(crate) answer_timeout: Span,
    pub(crate) head_bytes_max: usize,
    pub(crate) answer_bytes_max: usize,
    pub(crate) event_bytes_max: usize,
    pub(crate) lookups_max: usize,
    pub(crate) lookups_workspace_max: usize,
    pub(crate) spares_max: usize,
    pub(crate) spares_workspace_max: usize,
    pub(crate) spares_provider_max: usize,
    pub(crate) spare_life: Span,
    pub(crate) streams_max: usize,
    pub(crate) attempts_max: usize,
    pub(crate) retry_percent: u32,
    pub(crate) retry_pause: Span,
    pub(crate) retry_after_max: Span,
    pub(crate) breaker_failures: u32,
    pub(crate) breaker_window: Span,
    pub(crate) breaker_pause: Span,
    pub(crate) cache_bytes_max: usize,
    pub(crate) cache_workspace_bytes_max: usize,
    pub(crate) cache_answer_bytes_max: usize,
    pub(crate) hook_timeout: Span,
    pub(crate) looks_max: usize,
    pub(crate) looks_workspace_max: usize,
    pub(crate) counts_max: usize,
    pub(crate) counts_workspace_max: usize,
    pub(crate) log_max: usize,
    pub(crate) log_body_bytes_max: usize,
    pub(crate) limit_wait_max: Span,
    pub(crate) limit_waiting_max: usize,
    pub(crate) limit_waiting_workspace_max: usize,
    pub(crate) limit_accounts_max: usize,
    pub(crate) limit_accounts_workspace_max: usize,
    pub(crate) usage_rows_max: usize,
    pub(crate) limit_wants_max: usize,
    pub(crate) journal_bytes_max: u64,
    pub(crate) list_life: Span,
    pub(crate) lists_max: usize,
    pub(crate) lists_asked_max: usize,
    pub(crate) lists_asked_workspace_max: usize,
    pub(crate) tokens_asked_max: usize,
    pub(crate) tokens_asked_workspace_max: usize,
    pub(crate) token_retry: Span,
    pub(crate) token_retry_max: Span,
}

impl Models {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        let wrong = |key, message: String| Err(Wrong::new(key, message));
        if let Err(bad) = Places::parse(&self.inside) {
            return wrong("models.inside", format!("has an entry that cannot be: {bad}"));
        }
        if self.retry_percent > 100 {
            return wrong("models.retry_percent", "must be at most 100".to_owned());
        }
        if self.head_bytes_max < 8192 {
            return wrong("models.head_bytes_max", "must be at least 8192".to_owned());
        }
        if self.journal_bytes_max < JOURNAL_BYTES_LEAST {
            return wrong(
                "models.journal_bytes_max",
                format!("must be at least {JOURNAL_BYTES_LEAST}"),
            );
        }
        Ok(())
    }

    /// Returns the numbers that must not be zero, with their keys.
    pub(super) fn counts(&self) -> [(&'static str, usize); 30] {
        [
            ("models.body_bytes_max", self.body_bytes_max),
            ("models.bodies_bytes_max", self.bodies_bytes_max),
            ("models.bodies_workspace_bytes_max", self.bodies_workspace_bytes_max),
            ("models.answer_bytes_max", self.answer_bytes_max),
            ("models.event_bytes_max", self.event_bytes_max),
            ("models.lookups_max", self.lookups_max),
            ("models.lookups_workspace_max", self.lookups_workspace_max),
            ("models.spares_max", self.spares_max),
            ("models.spares_workspace_max", self.spares_workspace_max),
            ("models.spares_provider_max", self.spares_provider_max),
            ("models.streams_max", self.streams_max),
            ("models.attempts_max", self.attempts_max),
            ("models.breaker_failures", self.breaker_failures as usize),
            ("models.looks_max", self.looks_max),
            ("models.looks_workspace_max", self.looks_workspace_max),
            ("models.counts_max", self.counts_max),
            ("models.counts_workspace_max", self.counts_workspace_max),
            ("models.log_max", self.log_max),
            ("models.log_body_bytes_max", self.log_body_bytes_max),
            ("models.limit_waiting_max", self.limit_waiting_max),
            ("models.limit_waiting_workspace_max", self.limit_waiting_workspace_max),
            ("models.limit_accounts_max", self.limit_accounts_max),
            ("models.limit_accounts_workspace_max", self.limit_accounts_workspace_max),
            ("models.usage_rows_max", self.usage_rows_max),
            ("models.limit_wants_max", self.limit_wants_max),
            ("models.lists_max", self.lists_max),
            ("models.lists_asked_max", self.lists_asked_max),
            ("models.lists_asked_workspace_max", self.lists_asked_workspace_max),
            ("models.tokens_asked_max", self.tokens_asked_max),
            ("models.tokens_asked_workspace_max", self.tokens_asked_workspace_max),
        ]
    }

    pub(super) fn spans(&self) -> [(&'static str, Span); 12] {
        [
            ("models.body_timeout", self.body_timeout),
            ("models.connect_timeout", self.connect_timeout),
            ("models.first_timeout", self.first_timeout),
            ("models.between_timeout", self.between_timeout),
            ("models.answer_timeout", self.answer_timeout),
            ("models.spare_life", self.spare_life),
            ("models.breaker_window", self.breaker_window),
            ("models.breaker_pause", self.breaker_pause),
            ("models.hook_timeout", self.hook_timeout),
            ("models.list_life", self.list_life),
            ("models.token_retry", self.token_retry),
            ("models.token_retry_max", self.token_retry_max),
        ]
    }

    /// Returns the limits of requests that the server itself sends to providers, apart from those
    /// that it passes on.
    pub(crate) fn asking(&self) -> control::Models {
        control::Models {
            listed_for: self.list_life.0,
            lists_max: self.lists_max,
            asks_max: self.lists_asked_max as u64,
            asks_workspace_max: self.lists_asked_workspace_max as u64,
            tokens_max: self.tokens_asked_max as u64,
            tokens_workspace_max: self.tokens_asked_workspace_max as u64,
            token_retry: self.token_retry.0,
            token_retry_max: self.token_retry_max.0,
        }
    }

    /// Returns how many limits and subjects are kept in memory.
    pub(crate) const fn accounts(&self) -> admission::Limits {
        admission::Limits {
            total: self.limit_accounts_max as u64,
            share: self.limit_accounts_workspace_max as u64,
        }
    }

    /// Returns how many requests may wait for a limit.
    pub(crate) const fn waiting(&self) -> admission::Limits {
        admission::Limits {
            total: self.limit_waiting_max as u64,
            share: self.limit_waiting_workspace_max as u64,
        }
    }

    /// Makes the settings of the models' gateway, without the authorities that are in a file.
    pub(crate) fn settings(&self) -> ModelSettings {
        let share = |total: usize, share: usize| admission::Limits {
            total: total as u64,
            share: share as u64,
        };
        ModelSettings {
            // The check has already made sure that all entries can be parsed.
            inside: Places::parse(&self.inside).unwrap_or_default(),
            body_max: self.body_bytes_max,
            bodies: share(self.bodies_bytes_max, self.bodies_workspace_bytes_max),
            body_time: self.body_timeout.0,
            connect_timeout: self.connect_timeout.0,
            first_timeout: self.first_timeout.0,
            between_timeout: self.between_timeout.0,
            time: self.answer_timeout.0,
            head_bytes_max: self.head_bytes_max,
            answer_max: self.answer_bytes_max,
            event_max: self.event_bytes_max,
            lookups: share(self.lookups_max, self.lookups_workspace_max),
            spares: share(self.spares_max, self.spares_workspace_max),
            spare_place_max: self.spares_provider_max,
            spare_life: self.spare_life.0,
            streams_max: self.streams_max,
            attempts_max: self.attempts_max,
            retry_percent: self.retry_percent,
            retry_pause: self.retry_pause.0,
            retry_after_max: self.retry_after_max.0,
            breaker_failures: self.breaker_failures,
            breaker_window: self.breaker_window.0,
            breaker_pause: self.breaker_pause.0,
            cache: share(self.cache_bytes_max, self.cache_workspace_bytes_max),
            cache_answer_max: self.cache_answer_bytes_max,
            hook_timeout: self.hook_timeout.0,
            looks: share(self.looks_max, self.looks_workspace_max),
            counts: share(self.counts_max, self.counts_workspace_max),
            log_max: self.log_max,
            log_body_max: self.log_body_bytes_max,
            output_max: self.output_tokens_max,
            unpriced: self.unpriced,
            ..ModelSettings::default()
        }
    }
}
