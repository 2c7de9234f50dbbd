//! The settings of requests to models, with all their limits.

use admission::Limits;
use rustls::RootCertStore;
use std::time::Duration;
use types::kinds::model::ModelRouting;
use types::parts::hosts::{BadPlace, Places};

#[derive(Debug, Clone)]
pub struct ModelSettings {
    /// What may be reached although it is not on the internet.
    pub inside: Places,
    /// Authorities that are trusted besides those of the machine.
    pub authorities: RootCertStore,

    /// Largest body of a request, in bytes.
    pub body_max: usize,
    /// Bytes of the bodies of all requests under way, in all and of one workspace.
    pub bodies: Limits,
    /// How long the body of a request may take to arrive.
    pub body_time: Duration,

    pub connect_timeout: Duration,
    /// Longest wait for the first byte of an answer, unless the model sets one.
    pub first_timeout: Duration,
    /// Longest wait between two pieces of an answer, unless the model sets one.
    pub between_timeout: Duration,
    /// Longest time that an answer may take in all.
    pub time: Duration,
    /// Largest head of an answer, in bytes.
    pub head_bytes_max: usize,
    /// Largest answer that has to be read whole, in bytes: to translate it, or for hooks to check
    /// it.
    pub answer_max: usize,
    /// Largest event of a stream, in bytes.
    pub event_max: usize,

    /// How many names of providers are looked up at a time, in all and for one workspace.
    pub lookups: Limits,
    /// How many connections to providers are kept for later requests, in all and of those that one
    /// workspace made.
    pub spares: Limits,
    /// How many of them lead to one provider.
    pub spare_place_max: usize,
    pub spare_life: Duration,
    /// Most requests at a time on one HTTP/2 connection.
    pub streams_max: usize,

    /// How many models one request may be sent to. How often each of them is asked is up to the
    /// model.
    pub attempts_max: usize,
    /// Retries allowed, as a percentage of the requests to a model.
    pub retry_percent: u32,
    /// Pause before the first retry. Each further pause is twice as long.
    pub retry_pause: Duration,
    /// The longest `Retry-After` of a provider that is waited for. Longer ones count as failures.
    pub retry_after_max: Duration,
    /// Failures in a row, within `breaker_window`, after which a model is not asked for
    /// `breaker_pause`.
    pub breaker_failures: u32,
    pub breaker_window: Duration,
    pub breaker_pause: Duration,

    /// Bytes of answers that are cached, in all and of one workspace.
    pub cache: Limits,
    /// Largest answer that is cached, in bytes.
    pub cache_answer_max: usize,

    /// How long a webhook may take, or the search for a pattern.
    pub hook_timeout: Duration,
    /// How many requests and answers are searched for patterns at a time, in all and of one
    /// workspace.
    pub looks: Limits,
    /// In how many calls tokens are counted at a time because the provider did not report them, in
    /// all and of one workspace.
    pub counts: Limits,

    /// How many entries may wait to be written to the log.
    pub log_max: usize,
    /// Bytes of a request, and of an answer, that an entry of the log keeps.
    pub log_body_max: usize,

    /// Tokens that an answer is assumed to have at most if neither the request nor the price table
    /// says.
    pub output_max: u64,
    /// Whether a model without a price may be asked under a limit of money; it then counts as free.
    pub unpriced: bool,
}

/// How long a provider may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerTimeouts {
    /// Until the head of its answer.
    pub(crate) first: Duration,
    /// Between two pieces of it.
    pub(crate) between: Duration,
    /// In all.
    pub(crate) total: Duration,
}

impl ModelSettings {
    /// Sets `inside` from hosts, `*.suffix`, addresses and ranges.
    pub fn with_inside(mut self, entries: &[String]) -> Result<Self, BadPlace> {
        self.inside = Places::parse(entries)?;
        Ok(self)
    }

    pub(crate) fn answer_timeouts(&self, routing: &ModelRouting) -> AnswerTimeouts {
        let asked =
            |ms: Option<i64>| ms.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        AnswerTimeouts {
            first: asked(routing.first_token_timeout_ms).unwrap_or(self.first_timeout),
            between: asked(routing.token_timeout_ms).unwrap_or(self.between_timeout),
            total: self.time,
        }
    }
}

impl Default for ModelSettings {
    fn default() -> Self {
        Self {
            inside: Places::default(),
            authorities: RootCertStore::empty(),
            body_max: 32 << 20,
            bodies: Limits { total: 1 << 30, share: 256 << 20 },
            body_time: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(10),
            first_timeout: Duration::from_secs(300),
            between_timeout: Duration::from_secs(120),
            time: Duration::from_secs(3600),
            head_bytes_max: 64 << 10,
            answer_max: 32 << 20,
            event_max: 4 << 20,
            lookups: Limits { total: 64, share: 16 },
            spares: Limits { total: 2048, share: 512 },
            spare_place_max: 512,
            spare_life: Duration::from_secs(30),
            streams_max: 100,
            attempts_max: 8,
            retry_percent: 20,
            retry_pause: Duration::from_millis(200),
            retry_after_max: Duration::from_secs(5),
            breaker_failures: 10,
            breaker_window: Duration::from_secs(30),
            breaker_pause: Duration::from_secs(10),
            cache: Limits { total: 256 << 20, share: 32 << 20 },
            cache_answer_max: 1 << 20,
            hook_timeout: Duration::from_secs(5),
            looks: Limits { total: 8, share: 2 },
            counts: Limits { total: 2, share: 1 },
            log_max: 10_000,
            log_body_max: 16 << 10,
            output_max: 16_384,
            unpriced: false,
        }
    }
}
