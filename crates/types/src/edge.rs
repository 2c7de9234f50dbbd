//! What the data plane is told: which workloads answer where, and what guards them.
//!
//! The management side makes these out of its rows and hands them over as changes; whoever holds
//! all of them can route and guard without asking anybody.

use crate::ids::{ResourceId, WorkspaceId};
use crate::models::ModelRoute;
use crate::parts::TextMap;
use crate::{KindName, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// One change of what the data plane knows. Said twice, it changes nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteChange {
    Workload(WorkloadRoute),
    Preview(PreviewRoute),
    Domain(DomainRoute),
    Model(Box<ModelRoute>),
    /// The resource, of whatever kind, is no more.
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
    /// Behind the prefix of the kind in the name of its host. `None` when another workload was there
    /// first: it answers by its path alone.
    pub label: Option<String>,
    /// Whole host names at which it answers besides, below custom domains.
    pub hosts: Vec<String>,
    /// Paths below the workspace at which it is called besides.
    pub triggers: Vec<TriggerRoute>,
    /// Whether it answers without credentials.
    pub public: bool,
    /// Where its programs listen. `None`: the guest answers, and any port behind `/port/…`.
    pub port: Option<u16>,
    pub scale: Scale,
    /// Seconds that one request may take, where that is less than the data plane gives all of its
    /// kind.
    pub timeout_s: Option<u32>,
    /// For how many seconds a caller stays with one revision; 0: not at all.
    pub sticky_s: u32,
    pub serving: Serving,
}

/// A path of its own at which a workload is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerRoute {
    /// Behind the name of the workspace: `agents/writer/draft`, or `draft`.
    pub address: String,
    /// Whether it answers without credentials.
    pub public: bool,
    /// Whether the caller waits for the answer. The management side takes the calls of those that
    /// do not.
    pub waits: bool,
}

/// How many replicas a workload may have, all of its revisions together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    pub max: u32,
    /// Requests that one replica is given at a time before another is wanted.
    pub concurrency: u32,
}

impl Scale {
    /// A sandbox is one instance, which takes whatever comes.
    pub const ONE: Self = Self { max: 1, concurrency: u32::MAX };
}

/// Whether there is something to send requests to.
///
/// A sandbox has one target with one replica, always. An agent, a function or an application has a
/// target for each revision that serves, with its share of the requests and any number of replicas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Serving {
    /// There will be: requests wait.
    Starting,
    /// One target or more.
    To(Vec<Target>),
    /// Whatever answers at its port in the sandbox of this name, of the same workspace.
    Sandbox(String),
    /// There is none and none is coming. The text completes "the sandbox …", or whatever the kind is.
    Off { why: String },
}

/// What gets a share of the requests to a workload: instances that are all alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Empty for kinds without revisions.
    pub revision: String,
    /// Of 100, all targets together.
    pub weight: u32,
    /// None while the target is scaled to zero: a request wakes it up by asking for one.
    pub replicas: Vec<Replica>,
}

/// The instance of this name on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    pub machine: String,
    pub instance: String,
}

/// What the data plane asks of the management side: replicas for requests that it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    pub workload: ResourceId,
    pub revision: String,
    /// Requests for this revision that wait or are under way.
    pub requests: u32,
}

/// What an instance has to do, as the data plane knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Under way.
    pub requests: u32,
    /// How long it has had none.
    pub idle: Option<Duration>,
}

/// From when on and until when requests count. The data plane counts in whole minutes, and keeps so
/// many of them as it is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub start: Timestamp,
    /// Not included.
    pub end: Timestamp,
}

/// What the data plane knows of the requests to a workload, since its route was first told to it or
/// in a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestStats {
    pub all: Requests,
    /// Replicas that take requests now.
    pub replicas: u32,
    /// Of the revisions that serve now.
    pub revisions: BTreeMap<String, Requests>,
}

/// Times are upper bounds of what was measured, at most half as much again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    pub count: u64,
    /// Answered with a status from 500 on, by the workload or in its place.
    pub errors: u64,
    /// From the request to the head of its answer, for half of all requests.
    pub p50: Duration,
    pub p90: Duration,
    pub p99: Duration,
}

impl Serving {
    /// One instance with an identity, as a sandbox is.
    pub fn by(machine: impl Into<String>, instance: impl Into<String>) -> Self {
        let replica = Replica { machine: machine.into(), instance: instance.into() };
        Self::To(vec![Target { revision: String::new(), weight: 100, replicas: vec![replica] }])
    }
}

/// One address under which one port of a workload answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PreviewRoute {
    pub id: ResourceId,
    pub workspace: WorkspaceId,
    pub name: String,
    pub workload: ResourceId,
    pub at: PreviewAddress,
    pub port: u16,
    pub opens: Opens,
    /// Set on requests to the workload.
    pub request_headers: TextMap,
    /// Set on its answers.
    pub response_headers: TextMap,
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreviewAddress {
    /// In front of `.preview.` and the server's own name.
    Label(String),
    /// A whole host name, below a custom domain.
    Host(String),
}

impl PreviewAddress {
    /// The name that nobody else may have.
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
    /// In front of the label in the name of a host.
    pub host_prefix: &'static str,
    /// Whether they answer by path, as `/{workspace}/{plural of the kind}/{name}`. The others answer
    /// by their label alone, where there are no hosts at a path that
    /// [`host_url`](crate::hosts::host_url) makes of it.
    pub by_path: bool,
}

pub const WORKLOADS: [WorkloadKind; 4] = [
    WorkloadKind { kind: KindName::Sandbox, host_prefix: SANDBOX, by_path: true },
    WorkloadKind { kind: KindName::Agent, host_prefix: "agent-", by_path: true },
    WorkloadKind { kind: KindName::Function, host_prefix: "function-", by_path: true },
    WorkloadKind { kind: KindName::Application, host_prefix: "app-", by_path: false },
];

/// In front of the label of a sandbox.
const SANDBOX: &str = "sbx-";

/// The label of a sandbox. Both parts may hold hyphens, so that several sandboxes want the same.
pub fn sandbox_label(name: &str, workspace: &str) -> String {
    format!("{name}-{workspace}")
}

/// The name of a sandbox's host that nobody else may have, in front of the server's own name.
pub fn sandbox_name(label: &str) -> String {
    format!("{SANDBOX}{label}")
}

/// The label in such a name.
pub fn label_of(name: &str) -> Option<&str> {
    name.strip_prefix(SANDBOX)
}

/// In front of the label of an application.
const APPLICATION: &str = "app-";

/// The name of an application's host that nobody else may have, in front of the server's own name.
pub fn application_name(label: &str) -> String {
    format!("{APPLICATION}{label}")
}

/// What stands for all hosts below a domain, and the domain itself: only one workspace has it
/// verified.
pub fn domain_name(domain: &str) -> String {
    format!("*.{domain}")
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opens {
    ToAll,
    /// To who shows one of these tokens, or the credentials of a member of the workspace.
    ToTokens(Vec<TokenRoute>),
}

/// A token by its digest, so that the data plane cannot give it away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRoute {
    /// SHA-256.
    pub digest: [u8; 32],
    pub expires_at: Option<Timestamp>,
}

/// A verified custom domain: hosts below it are the previews and applications that name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainRoute {
    pub id: ResourceId,
    pub name: String,
    pub fallback: Option<Fallback>,
}

/// What answers for hosts of a domain that nothing else has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    Preview(ResourceId),
    /// The application of this name, which also answers for the domain itself.
    Application {
        workspace_name: String,
        name: String,
    },
}
