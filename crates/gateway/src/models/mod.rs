//! Requests for models, which are answered by a provider on the internet and not by an instance.
//!
//! ```text
//! caller    who may: takes a key from whatever slot the client of a provider puts it into
//! request   what is asked for: the body, read whole and parsed once
//! hooks     checks on requests and answers that users configure
//! patterns  searches for the patterns of users, within a time limit; `texts` in what
//! cache     answers that are given again
//! plan      which models are asked, one after the other
//! attempt   one of them: reserved, asked, asked again
//! call      all of that, from a request to its answer
//! answer    an answer as it passes; `answer_head` writes its head
//! account   what a call used, counted however the call ends
//! log_entry what the log of the model gets of it, `redact` what it must not get
//! served    a model, with everything that is derived from its route once
//! loops     requests that come back to this installation
//! upstream  connections to providers
//! outside   requests that the management side makes to services on the internet
//! ```
//!
//! **No database is asked, and no body is copied.** What is known about models is in memory
//! ([`Routes`](crate::Routes)); limits are in the ledger.

mod account;
mod answer;
mod answer_head;
mod attempt;
mod breaker;
mod cache;
mod call;
mod caller;
mod collected;
mod decode;
mod failed;
mod failure;
mod hooks;
mod log;
mod log_entry;
mod loops;
mod outside;
mod patterns;
mod plan;
mod prepared;
mod problem;
mod redact;
mod request;
mod served;
mod settings;
mod texts;
mod upstream;
mod without_usage;

pub(crate) use answer::ModelBody;
pub(crate) use caller::{Shown, admit};
pub(crate) use hooks::Stopped;
pub use outside::OutsideError;
pub(crate) use problem::{ModelProblem, dialect_of, fault};
pub(crate) use served::Served;
pub use settings::ModelSettings;
pub(crate) use upstream::Pieces;

use ::models::ledger::Ledger;
use ::models::prices::PriceTable;
use admission::{Pool, Turns};
use cache::Cache;
use log::Log;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use types::World;
use types::models::ModelCall;
use upstream::{Client, SharedClient};

/// The parts that serving models needs, besides the data plane itself.
pub struct ModelParts {
    pub ledger: Ledger,
    pub prices: Arc<PriceTable>,
    /// The name of this installation, which providers are told.
    pub installation: String,
}

/// Memory for what is held back of requests and answers, taken from a workspace's share (by the
/// workspace's name).
pub(crate) type Room = admission::Room<String>;

pub(crate) struct Models {
    pub(crate) settings: ModelSettings,
    client: SharedClient,
    cache: Cache,
    log: Log,
    /// Turns for searches for patterns.
    looks: Turns,
    /// Turns for counting the tokens of calls whose provider reported none.
    counts: Arc<Turns>,
    /// Bytes that are buffered, by workspace.
    bodies: Pool<String>,
    /// Set once the bookkeeping is ready.
    pub(crate) parts: OnceLock<ModelParts>,
    world: World,
}

impl Models {
    /// Must be called within a runtime.
    pub(crate) fn new(settings: &ModelSettings, world: World) -> Self {
        Self {
            client: Arc::new(Client::new(settings)),
            cache: Cache::new(settings),
            log: Log::new(settings.log_max),
            looks: Turns::from(settings.looks),
            counts: Arc::new(Turns::from(settings.counts)),
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
        let outcome = call.outcome.name();
        metrics::counter!("holm_model_requests_total", "outcome" => outcome).increment(1);
        metrics::histogram!("holm_model_first_byte_seconds").record(first_byte.as_secs_f64());
    }
}
