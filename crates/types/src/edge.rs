//! Routes for the data plane: which workloads answer where, and what guards them.
//!
//! The management side derives these from its rows and sends them as changes; a data plane that has
//! received all of them can route and guard requests without asking anybody.

pub mod headers;

use crate::ids::{ResourceId, WorkspaceId};
use crate::models::ModelRoute;
use crate::parts::TextMap;
use crate::{KindName, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// One change of the data plane's routes. Applying it again changes nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteChange {
    Workload(WorkloadRoute),
    Preview(PreviewRoute),
    Domain(DomainRoute),
    Model(Box<ModelRoute>),
    /// The resource, of any kind, no longer exists.
    Gone(ResourceId),
}

/// How a workload is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadRoute {
    pub kind: KindName,
    pub id: ResourceId,
    pub workspace: WorkspaceId,
    pub workspace_name: String,
    pub name: String,
    /// Label that follows the kind's prefix in the workload's host name. `None` if another workload
    /// took it first; then the workload answers at its path only.
    pub label: Option<String>,
    /// Further host names at which it answers, below custom domains.
    pub hosts: Vec<String>,
    /// Further paths below the workspace at which it is called.
    pub triggers: Vec<TriggerRoute>,
    /// True if it answers without credentials.
    pub public: bool,
    /// Port on which its programs listen. `None` if the guest answers, which forwards `/port/…` to
    /// any port.
    pub port: Option<u16>,
    pub scale: Scale,
    /// Most seconds that one request may take, if less than the data plane allows for this kind.
    pub timeout_s: Option<u32>,
    /// How long a caller stays with one revision, in seconds; 0 means not at all.
    pub sticky_s: u32,
    pub serving: Serving,
}

impl WorkloadRoute {
    /// Returns the route of a workload that is starting: private, and at its path alone.
    pub fn new(
        kind: KindName,
        id: ResourceId,
        (workspace, workspace_name): (WorkspaceId, String),
        name: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            id,
            workspace,
            workspace_name,
            name: name.into(),
            label: None,
            hosts: Vec::new(),
            triggers: Vec::new(),
            public: false,
            port: None,
            scale: Scale::ONE,
            timeout_s: None,
            sticky_s: 0,
            serving: Serving::Starting,
        }
    }
}

/// A further path at which a workload is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerRoute {
    /// Path after the name of the workspace: `agents/writer/draft`, or `draft`.
    pub address: String,
    /// True if it answers without credentials.
    pub public: bool,
    /// True if the caller waits for the answer. Calls that nobody waits for are taken by the
    /// management side.
    pub waits: bool,
}

/// How many replicas a workload may have, over all of its revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    pub max: u32,
    /// Concurrent requests that one replica is given before another one is wanted.
    pub concurrency: u32,
}

impl Scale {
    /// The scale of a sandbox: one instance, which takes whatever comes.
    pub const ONE: Self = Self { max: 1, concurrency: u32::MAX };
}

/// Whether there is something to send requests to.
///
/// A sandbox always has one target with one replica. An agent, a function or an application has a
/// target for each revision that serves, with its share of the requests and any number of replicas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Serving {
    /// There will be a target: requests wait.
    Starting,
    /// One or more targets.
    To(Vec<Target>),
    /// Whatever answers at the workload's port in the sandbox of this name, in the same workspace.
    Sandbox(String),
    /// There is no target, and none is coming. The text completes "the sandbox …", or whatever the
    /// kind is called.
    Off { why: String },
}

/// A group of identical instances that gets a share of a workload's requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Revision that the instances run; empty for kinds without revisions.
    pub revision: String,
    /// Share of the requests. The weights of all targets add up to 100.
    pub weight: u32,
    /// Empty while the target is scaled to zero: a request wakes it by asking for a replica.
    pub replicas: Vec<Replica>,
}

/// One instance on one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    pub machine: String,
    pub instance: String,
}

/// A call for replicas, which the data plane sends to the management side for requests that it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    pub workload: ResourceId,
    pub revision: String,
    /// Requests for this revision that wait or are in progress.
    pub requests: u32,
}

/// The load of an instance, as far as the data plane knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Requests in progress.
    pub requests: u32,
    /// How long it has had no request.
    pub idle: Option<Duration>,
}

/// A period in which requests are counted. The data plane counts in whole minutes and keeps as many
/// of them as it is configured to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub start: Timestamp,
    /// End of the period, exclusive.
    pub end: Timestamp,
}

/// Statistics of the requests to a workload, since its route was first known or within a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestStats {
    pub all: Requests,
    /// Replicas that accept requests now.
    pub replicas: u32,
    /// By revision, for the revisions that serve now.
    pub revisions: BTreeMap<String, Requests>,
}

/// Counts and latencies of requests. Latencies are upper bounds, at most half as much again as
/// measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    pub count: u64,
    /// Requests answered with a status of 500 or above, by the workload or on its behalf.
    pub errors: u64,
    /// Time from the request to the head of its answer that half of all requests did not exceed.
    pub p50: Duration,
    pub p90: Duration,
    pub p99: Duration,
}

impl Serving {
    /// Makes a target of one instance, as a sandbox has.
    pub fn by(machine: impl Into<String>, instance: impl Into<String>) -> Self {
        let replica = Replica { machine: machine.into(), instance: instance.into() };
        Self::To(vec![Target { revision: String::new(), weight: 100, replicas: vec![replica] }])
    }

    pub fn targets(&self) -> &[Target] {
        match self {
            Self::To(targets) => targets,
            Self::Starting | Self::Sandbox(_) | Self::Off { .. } => &[],
        }
    }
}

/// An address at which one port of a workload answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PreviewRoute {
    pub id: ResourceId,
    pub workspace: WorkspaceId,
    pub name: String,
    pub workload: ResourceId,
    pub at: PreviewAddress,
    pub port: u16,
    pub opens: Opens,
    /// Headers set on requests to the workload.
    pub request_headers: TextMap,
    /// Headers set on its answers.
    pub response_headers: TextMap,
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreviewAddress {
    /// The label in front of `.preview.` and the server's own name.
    Label(String),
    /// A complete host name below a custom domain.
    Host(String),
}

impl PreviewAddress {
    /// Returns the name that is reserved for this preview.
    pub fn name(&self) -> String {
        match self {
            Self::Label(label) => format!("{label}.preview"),
            Self::Host(host) => host.clone(),
        }
    }
}

/// A kind whose workloads answer at the edge.
#[derive(Debug, Clone, Copy)]
pub struct WorkloadKind {
    pub kind: KindName,
    /// Prefix of the label in host names.
    pub host_prefix: &'static str,
    /// True if its workloads answer by path, as `/{workspace}/{plural of the kind}/{name}`. The
    /// others answer only by their label; where no host names exist, that is a path which
    /// [`host_url`](crate::hosts::host_url) makes of it.
    pub by_path: bool,
}

pub const WORKLOADS: [WorkloadKind; 4] = [
    WorkloadKind { kind: KindName::Sandbox, host_prefix: SANDBOX, by_path: true },
    WorkloadKind { kind: KindName::Agent, host_prefix: "agent-", by_path: true },
    WorkloadKind { kind: KindName::Function, host_prefix: "function-", by_path: true },
    WorkloadKind { kind: KindName::Application, host_prefix: APPLICATION, by_path: false },
];

/// Prefix of a sandbox's label.
const SANDBOX: &str = "sbx-";

/// Returns the label of a sandbox. Both parts may contain hyphens, so several sandboxes may want
/// the same label.
pub fn sandbox_label(name: &str, workspace: &str) -> String {
    format!("{name}-{workspace}")
}

/// Returns the host name that is reserved for a sandbox, without the server's own name.
pub fn sandbox_name(label: &str) -> String {
    format!("{SANDBOX}{label}")
}

/// Returns the label in a host name that [`sandbox_name`] made.
pub fn label_of(name: &str) -> Option<&str> {
    name.strip_prefix(SANDBOX)
}

/// Prefix of an application's label.
const APPLICATION: &str = "app-";

/// Returns the host name that is reserved for an application, without the server's own name.
pub fn application_name(label: &str) -> String {
    format!("{APPLICATION}{label}")
}

/// Returns the name that stands for a domain and all hosts below it: only one workspace can have it
/// verified.
pub fn domain_name(domain: &str) -> String {
    format!("*.{domain}")
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opens {
    ToAll,
    /// Open to whoever shows one of these tokens, or the credentials of a member of the workspace.
    ToTokens(Vec<TokenRoute>),
}

/// A token, by its digest, so that the data plane cannot reveal it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRoute {
    /// SHA-256 of the token.
    pub digest: [u8; 32],
    pub expires_at: Option<Timestamp>,
}

/// A verified custom domain. Hosts below it belong to the previews and applications that name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainRoute {
    pub id: ResourceId,
    pub workspace: WorkspaceId,
    pub name: String,
    pub fallback: Option<Fallback>,
}

/// What answers for hosts of a domain that nothing else claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    Preview(ResourceId),
    /// The application of this name. It also answers for the domain itself.
    Application {
        workspace_name: String,
        name: String,
    },
}
