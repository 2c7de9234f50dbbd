//! Requests for models: no instance answers them, but a provider out there.
//!
//! ```text
//! door      who may, by whatever slot the client of a provider puts a key into
//! asked     what is asked for: the body, read whole and looked at once
//! hooks     what looks at requests and answers
//! patterns  looking for what users want to be found, no longer than it may take
//! cache     answers that are given again
//! plan      which models are asked, one after the other
//! attempt   one of them: reserved, asked, asked again
//! call      all of that, from a request to its answer
//! answer    an answer as it passes
//! account   what was used, counted whatever happens
//! served    a model with what is made of its route once
//! upstream  connections to providers
//! outside   what the management side asks of services out there
//! ```
//!
//! **No database is asked, and no body is copied.** What is known of models is in memory
//! ([`Routes`](crate::Routes)); limits are in the ledger.

mod account;
mod answer;
mod asked;
mod attempt;
mod breaker;
mod cache;
mod call;
mod collected;
mod decode;
mod door;
mod failed;
mod failure;
mod hooks;
mod log;
mod outside;
mod patterns;
mod plan;
mod prepared;
mod problem;
mod served;
mod settings;
mod turns;
mod upstream;

pub(crate) use answer::ModelBody;
pub(crate) use door::{Shown, admit};
pub(crate) use hooks::Stopped;
pub use outside::OutsideError;
pub(crate) use problem::{ModelProblem, dialect_of, fault};
/// What gathers bytes of a workspace, by its name.
pub(crate) type Room = admission::Room<String>;
pub(crate) use served::Served;
pub use settings::ModelSettings;
pub(crate) use upstream::Pieces;

use ::models::ledger::Ledger;
use ::models::prices::PriceTable;
use admission::Pool;
use cache::Cache;
use log::Log;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use turns::Turns;
use types::World;
use types::models::{ModelCall, ModelOutcome};
use upstream::{Client, SharedClient};

/// What serving models takes, beside the data plane itself.
pub struct ModelParts {
    pub ledger: Ledger,
    pub prices: Arc<PriceTable>,
}

pub(crate) struct Models {
    pub(crate) settings: ModelSettings,
    client: SharedClient,
    cache: Cache,
    log: Log,
    /// Of those who look for patterns.
    looks: Turns,
    /// Bytes that are gathered, by workspace.
    bodies: Pool<String>,
    /// Set when whoever keeps the books is there.
    pub(crate) parts: OnceLock<ModelParts>,
    world: World,
}

impl Models {
    /// Within a runtime.
    pub(crate) fn new(settings: &ModelSettings, world: World) -> Self {
        Self {
            client: Arc::new(Client::new(settings)),
            cache: Cache::new(settings),
            log: Log::new(settings.log_max),
            looks: Turns::new(settings.looks),
            bodies: Pool::new("bytes of requests to models", settings.bodies),
            parts: OnceLock::new(),
            settings: settings.clone(),
            world,
        }
    }

    pub(crate) async fn log_entries(&self) -> Vec<types::models::ModelLogEntry> {
        self.log.next().await
    }

    fn counted(&self, call: &ModelCall, first_byte: Duration) {
        let outcome = match call.outcome {
            ModelOutcome::Answered => "answered",
            ModelOutcome::Cached => "cached",
            ModelOutcome::Aborted => "aborted",
            ModelOutcome::Interrupted => "interrupted",
            ModelOutcome::Failed(_) => "failed",
        };
        metrics::counter!("holm_model_requests_total", "outcome" => outcome).increment(1);
        metrics::histogram!("holm_model_first_byte_seconds").record(first_byte.as_secs_f64());
    }
}
