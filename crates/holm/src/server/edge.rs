//! The link between control plane and data plane within one process: routes go one way, demand for
//! replicas goes the other, by direct calls.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use control::machine::{Edge, MachineFault};
use futures_util::future::BoxFuture;
use gateway::{CallError, Gateway};
use http::{Request, Response};
use jobs::{Call, CallAnswer};
use std::collections::HashMap;
use tokio::sync::watch;
use types::chain;
use types::edge::{Demand, Fallback, Load, PreviewAddress, RequestStats, RouteChange, Window};
use types::ids::{ResourceId, WorkspaceId};
use types::instance::InstanceName;
use types::models::{ModelLogEntry, OutsideAnswer, OutsideRequest};

/// The hosts of custom domains at which something answers, by object. Updated as routes change.
pub(super) type Hosts = watch::Receiver<HashMap<ResourceId, Hosted>>;

/// The hosts of one object and the workspace that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hosted {
    pub(super) workspace: WorkspaceId,
    pub(super) hosts: Vec<String>,
}

/// Most bytes that are kept of a workload's answer to an asynchronous call.
const ANSWER_BYTES_MAX: usize = 1 << 20;

pub(super) struct Local {
    gateway: Gateway,
    hosts: watch::Sender<HashMap<ResourceId, Hosted>>,
}

impl Local {
    pub(super) fn new(gateway: Gateway) -> Self {
        Self { gateway, hosts: watch::Sender::default() }
    }

    pub(super) fn hosts(&self) -> Hosts {
        self.hosts.subscribe()
    }
}

impl Edge for Local {
    fn publish(&self, change: RouteChange) {
        self.hosts.send_if_modified(|hosts| note(hosts, &change));
        self.gateway.routes().apply(change);
    }

    fn routed(&self) -> Vec<ResourceId> {
        self.gateway.routes().ids()
    }

    fn demands(&self) -> BoxFuture<'_, Vec<Demand>> {
        Box::pin(self.gateway.demands())
    }

    fn call<'a>(
        &'a self,
        workload: &'a ResourceId,
        call: &'a Call,
    ) -> BoxFuture<'a, Result<CallAnswer, MachineFault>> {
        Box::pin(async move {
            let request = request(call)?;
            answer_of(self.gateway.call(workload, request, ANSWER_BYTES_MAX).await)
        })
    }

    fn requests_of(&self, workload: &ResourceId, window: Option<Window>) -> Option<RequestStats> {
        self.gateway.requests_of(workload, window)
    }

    fn ask_outside<'a>(
        &'a self,
        workspace: &'a WorkspaceId,
        request: &'a OutsideRequest,
    ) -> BoxFuture<'a, Result<OutsideAnswer, MachineFault>> {
        Box::pin(async move {
            let answered = self.gateway.ask_outside(workspace, request).await;
            answered.map_err(|error| MachineFault(error.to_string()))
        })
    }

    fn model_log(&self) -> BoxFuture<'_, Vec<ModelLogEntry>> {
        Box::pin(self.gateway.model_log())
    }

    fn load(&self, instance: &InstanceName) -> Option<Load> {
        self.gateway.load(instance)
    }
}

/// Rebuilds the request of a stored call.
fn request(call: &Call) -> Result<Request<Bytes>, MachineFault> {
    let unread = |error: &dyn std::error::Error| MachineFault(chain(error));
    let body = STANDARD.decode(&call.body).map_err(|error| unread(&error))?;
    let mut request = Request::builder().method(call.method.as_str()).uri(&call.target);
    for (name, value) in &call.headers {
        request = request.header(name, value);
    }
    request.body(body.into()).map_err(|error| unread(&error))
}

/// Converts the outcome of a call. A workload that was asked and gave no usable answer counts as
/// having answered what a waiting caller would get from the edge.
fn answer_of(
    answered: Result<(Response<Bytes>, u64), CallError>,
) -> Result<CallAnswer, MachineFault> {
    match answered {
        Ok((answer, length)) => {
            let body = String::from_utf8_lossy(answer.body()).into_owned();
            Ok(CallAnswer { status: answer.status().as_u16(), body, length })
        }
        Err(error) => {
            let why = chain(&error);
            let status = error.asked().ok_or_else(|| MachineFault(why.clone()))?.as_u16();
            Ok(CallAnswer { status, length: why.len() as u64, body: why })
        }
    }
}

/// Notes the hosts of a route, and returns whether they changed.
fn note(all: &mut HashMap<ResourceId, Hosted>, change: &RouteChange) -> bool {
    let (id, workspace, hosts) = match change {
        RouteChange::Preview(route) => match &route.at {
            PreviewAddress::Host(host) => (&route.id, &route.workspace, std::slice::from_ref(host)),
            PreviewAddress::Label(_) => return all.remove(&route.id).is_some(),
        },
        RouteChange::Workload(route) => (&route.id, &route.workspace, route.hosts.as_slice()),
        RouteChange::Model(route) => return all.remove(&route.id).is_some(),
        RouteChange::Gone(id) => return all.remove(id).is_some(),
        RouteChange::Domain(route) => match &route.fallback {
            Some(Fallback::Application { .. }) => {
                (&route.id, &route.workspace, std::slice::from_ref(&route.name))
            }
            Some(Fallback::Preview(_)) | None => return all.remove(&route.id).is_some(),
        },
    };
    if hosts.is_empty() {
        return all.remove(id).is_some();
    }
    let hosts = hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
    let hosted = Hosted { workspace: workspace.clone(), hosts };
    all.insert(id.clone(), hosted.clone()) != Some(hosted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::KindName;
    use types::edge::WorkloadRoute;
    use types::ids::WorkspaceId;

    fn at(hosts: &[&str]) -> RouteChange {
        let workspace = (WorkspaceId::known("w"), "w".to_owned());
        let id = ResourceId::known("res_1");
        RouteChange::Workload(WorkloadRoute {
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..WorkloadRoute::new(KindName::Application, id, workspace, "n")
        })
    }

    #[test]
    fn a_call_without_an_answer_is_made_again_only_if_the_program_was_not_asked() {
        let answer = answer_of(Err(CallError::Switched)).unwrap();
        assert_eq!((answer.status, answer.length), (502, answer.body.len() as u64));
        assert!(answer_of(Err(CallError::Refused("it is disabled".into()))).is_err());
    }

    #[test]
    fn certificates_are_wanted_for_the_hosts_of_a_workload_while_it_has_them() {
        let mut all = HashMap::new();
        assert!(!note(&mut all, &at(&[])));
        assert!(note(&mut all, &at(&["A.example", "b.example"])));
        // Routes are published again whenever a replica comes or goes.
        assert!(!note(&mut all, &at(&["a.example", "b.example"])));
        let hosted = Hosted {
            workspace: WorkspaceId::known("w"),
            hosts: ["a.example", "b.example"].map(str::to_owned).to_vec(),
        };
        assert_eq!(all.values().collect::<Vec<_>>(), [&hosted]);
        assert!(note(&mut all, &at(&["b.example"])));
        assert!(note(&mut all, &RouteChange::Gone(ResourceId::known("res_1"))));
        assert!(all.is_empty());
    }
}
