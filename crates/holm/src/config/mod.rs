//! The settings of the server: a struct per concern, read once at start.
//!
//! The defaults are `holm.example.toml` itself, so that what is documented is what is used. A
//! user's file and the environment are laid over it key by key; see [`layers`].

mod addresses;
mod builder;
mod builds;
mod check;
mod egress;
mod error;
mod gateway;
mod layers;
mod load;
mod log;
mod machine;
mod models;
mod objects;
mod storage;
mod values;
mod work;

use crate::duration::Span;
use clap::ValueEnum;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

pub(crate) use builds::Builds;
pub(crate) use error::Error;
pub(crate) use gateway::Gateway;
pub(crate) use layers::EXAMPLE;
pub(crate) use load::load;
pub(crate) use log::{Log, LogFormat};
pub(crate) use machine::{Backend, Egress, Images, Node, Registry};
pub(crate) use values::NameServer;
pub(crate) use work::{Callbacks, Deployments, Jobs, Runners};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) server: Server,
    pub(crate) data: Data,
    pub(crate) store: Store,
    pub(crate) auth: Auth,
    pub(crate) first_start: FirstStart,
    pub(crate) limits: Limits,
    pub(crate) meter: Meter,
    pub(crate) placement: Placement,
    pub(crate) gateway: Gateway,
    pub(crate) domains: Domains,
    pub(crate) node: Node,
    pub(crate) jobs: Jobs,
    pub(crate) deployments: Deployments,
    pub(crate) images: Images,
    pub(crate) registry: Registry,
    pub(crate) snapshots: storage::Snapshots,
    pub(crate) objects: objects::Objects,
    pub(crate) egress: egress::WayOut,
    pub(crate) models: models::Models,
    pub(crate) s3: storage::S3,
    pub(crate) builds: Builds,
    pub(crate) builder: builder::Builder,
    pub(crate) callbacks: Callbacks,
    pub(crate) runners: Runners,
    pub(crate) catalogue: Catalogue,
    pub(crate) log: Log,
    pub(crate) logs: Logs,
    pub(crate) metrics: Metrics,
    pub(crate) telemetry: Telemetry,
    /// Settings that are valid but most likely a mistake. Shown by `holm config check` and `holm
    /// doctor`, and logged by the server.
    #[serde(skip)]
    pub(crate) warnings: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Server {
    #[serde(deserialize_with = "values::address")]
    pub(crate) listen: SocketAddr,
    pub(crate) public_url: String,
    #[serde(deserialize_with = "values::address_or_none")]
    pub(crate) content_listen: Option<SocketAddr>,
    #[serde(deserialize_with = "values::text_or_none")]
    pub(crate) content_url: Option<String>,
    pub(crate) roles: Vec<Role>,
    pub(crate) body_bytes_max: usize,
    pub(crate) bodies_bytes_max: usize,
    pub(crate) bodies_workspace_bytes_max: usize,
    pub(crate) bodies_strangers_bytes_max: usize,
    pub(crate) header_timeout: Span,
    pub(crate) request_timeout: Span,
    pub(crate) answer_stall: Span,
    pub(crate) linger: Span,
    pub(crate) lingering_max: usize,
    pub(crate) threads: usize,
    pub(crate) busy_poll_us: u32,
    pub(crate) connections_max: usize,
    pub(crate) connections_signed_in: usize,
    pub(crate) connections_key_max: usize,
    pub(crate) connections_client_max: usize,
    pub(crate) streams_max: usize,
    pub(crate) streams_workspace_max: usize,
    pub(crate) streams_key_max: usize,
    pub(crate) drain_timeout: Span,
    #[serde(deserialize_with = "values::path_or_none")]
    pub(crate) tls_certificate: Option<PathBuf>,
    #[serde(deserialize_with = "values::path_or_none")]
    pub(crate) tls_key: Option<PathBuf>,
}

impl Server {
    pub(crate) fn bodies(&self) -> control::BodyLimits {
        control::BodyLimits {
            total: self.bodies_bytes_max as u64,
            workspace: self.bodies_workspace_bytes_max as u64,
            strangers: self.bodies_strangers_bytes_max as u64,
        }
    }
}

/// What a server process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Serves the management API.
    Api,
    /// Leads requests to running workloads.
    Gateway,
    /// Runs workloads on this machine.
    Node,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Data {
    pub(crate) folder: PathBuf,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Store {
    /// May contain a password.
    #[serde(deserialize_with = "values::text_or_none")]
    pub(crate) url: Option<String>,
    pub(crate) connections: usize,
    pub(crate) waiting_max: usize,
    pub(crate) batch_max: usize,
    pub(crate) log_pages: u32,
    pub(crate) log_pages_max: u32,
    pub(crate) recent_changes_max: usize,
    pub(crate) feed_poll: Span,
    #[serde(deserialize_with = "values::path_or_none")]
    pub(crate) key_file: Option<PathBuf>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("connections", &self.connections).finish_non_exhaustive()
    }
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Auth {
    pub(crate) client_guesses_max: u32,
    pub(crate) client_devices_max: u32,
    pub(crate) devices_max: u32,
    pub(crate) oidc_name: String,
    #[serde(deserialize_with = "values::text_or_none")]
    pub(crate) oidc_issuer: Option<String>,
    #[serde(deserialize_with = "values::text_or_none")]
    pub(crate) oidc_client_id: Option<String>,
    #[serde(deserialize_with = "values::text_or_none")]
    pub(crate) oidc_client_secret: Option<String>,
}

impl Auth {
    pub(crate) fn limits(&self) -> auth::Limits {
        auth::Limits {
            client_guesses_max: self.client_guesses_max,
            client_devices_max: self.client_devices_max,
            devices_max: self.devices_max.into(),
        }
    }
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth").field("oidc_issuer", &self.oidc_issuer).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FirstStart {
    pub(crate) admin_email: String,
    pub(crate) account: String,
    pub(crate) workspace: String,
}

impl FirstStart {
    pub(crate) fn wishes(&self) -> auth::setup::Wishes {
        auth::setup::Wishes {
            email: self.admin_email.clone(),
            account: self.account.clone(),
            workspace: self.workspace.clone(),
            ..auth::setup::Wishes::default()
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    pub(crate) key_per_second: u32,
    pub(crate) key_burst: u32,
    pub(crate) workspace_per_second: u32,
    pub(crate) workspace_burst: u32,
    pub(crate) trigger_per_second: u32,
    pub(crate) trigger_burst: u32,
    pub(crate) objects_max: u32,
    pub(crate) objects_bytes_max: u64,
    pub(crate) bare_list_max: u32,
    pub(crate) list_bytes_max: usize,
    pub(crate) sandbox_drives_max: usize,
    pub(crate) answers_day_bytes_max: u64,
    pub(crate) quotas: BTreeMap<String, u32>,
}

/// Usage, prices and budgets.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Meter {
    pub(crate) budget_every: Span,
    pub(crate) budgets_max: u32,
    pub(crate) roll_every: Span,
    pub(crate) pack_every: Span,
    pub(crate) points_max: usize,
    /// Prices of a new installation, by billing dimension.
    pub(crate) prices: BTreeMap<String, Price>,
}

/// US dollars for one unit. Keeps the text as it was written, so that no digit changes on the way.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Price(pub(crate) String);

impl TryFrom<String> for Price {
    type Error = meter::BadAmount;

    fn try_from(text: String) -> Result<Self, meter::BadAmount> {
        text.parse::<meter::Price>().map(|_| Self(text))
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Placement {
    pub(crate) regions: Vec<Region>,
}

/// A place where workloads can run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Region {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) country: String,
    #[serde(default)]
    pub(crate) continent: String,
}

/// Custom domains of users.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Domains {
    pub(crate) nameservers: Vec<NameServer>,
    #[serde(deserialize_with = "values::path_or_none")]
    pub(crate) certificates: Option<PathBuf>,
    pub(crate) acme: Acme,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Acme {
    #[serde(deserialize_with = "values::text_or_none")]
    pub(crate) directory: Option<String>,
    #[serde(deserialize_with = "values::text_or_none")]
    pub(crate) contact: Option<String>,
    pub(crate) agree: bool,
    pub(crate) orders_workspace_hour_max: u32,
    #[serde(deserialize_with = "values::path_or_none")]
    pub(crate) root: Option<PathBuf>,
}

impl Config {
    pub(crate) fn images_folder(&self) -> PathBuf {
        self.images.folder.clone().unwrap_or_else(|| self.data.folder.join("images"))
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Catalogue {
    #[serde(deserialize_with = "values::path_or_none")]
    pub(crate) file: Option<PathBuf>,
}

/// Output of workloads. The server's own log is [`Log`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Logs {
    pub(crate) task_bytes_max: u64,
    pub(crate) replica_day_bytes_max: u64,
    pub(crate) workspace_day_bytes_max: u64,
    pub(crate) keep: Span,
    pub(crate) searches_max: usize,
    pub(crate) searches_workspace_max: usize,
}

impl Logs {
    pub(crate) fn settings(&self) -> jobs::logs::Settings {
        jobs::logs::Settings {
            task_bytes_max: self.task_bytes_max,
            replica_day_bytes_max: self.replica_day_bytes_max,
            workspace_day_bytes_max: self.workspace_day_bytes_max,
            keep: self.keep.0,
        }
    }

    pub(crate) fn searches(&self) -> jobs::logs::SearchLimits {
        jobs::logs::SearchLimits {
            total: self.searches_max,
            workspace: self.searches_workspace_max,
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Metrics {
    pub(crate) enabled: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Telemetry {
    #[serde(deserialize_with = "values::text_or_none")]
    pub(crate) otlp_endpoint: Option<String>,
    pub(crate) sample_ratio: f64,
}

#[cfg(test)]
mod tests;
