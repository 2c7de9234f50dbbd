//! An edge that only records what it is told.

use control::machine::{Edge, MachineFault};
use futures_util::future::BoxFuture;
use jobs::{Call, CallAnswer};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::watch;
use types::edge::{Demand, DomainRoute, Load, RouteChange, WorkloadRoute};
use types::ids::{ResourceId, WorkspaceId};
use types::instance::InstanceName;
use types::models::{ModelLogEntry, ModelRoute, OutsideAnswer, OutsideRequest};
use types::parts::Sensitive;

/// Every route that it was told, and what an edge asks for and knows.
#[derive(Default)]
pub struct Routes {
    told: watch::Sender<Vec<RouteChange>>,
    wanted: watch::Sender<Vec<Demand>>,
    /// Every call that was made to a workload.
    pub calls: parking_lot::Mutex<Vec<Call>>,
    /// The load of all instances; `None` means unknown.
    load: parking_lot::Mutex<Option<Load>>,
    /// Every request to an outside service, and the function that answers them.
    pub questions: parking_lot::Mutex<Vec<OutsideRequest>>,
    outside: parking_lot::Mutex<Option<Box<Outside>>>,
    model_log: watch::Sender<Vec<ModelLogEntry>>,
}

type Outside = dyn Fn(&OutsideRequest) -> Result<(u16, String), String> + Send + Sync;

impl Edge for Routes {
    fn publish(&self, change: RouteChange) {
        self.told.send_modify(|told| told.push(change));
    }

    fn routed(&self) -> Vec<ResourceId> {
        let mut routed = BTreeSet::new();
        for change in &*self.told.borrow() {
            match change {
                RouteChange::Workload(route) => routed.insert(route.id.clone()),
                RouteChange::Preview(route) => routed.insert(route.id.clone()),
                RouteChange::Domain(route) => routed.insert(route.id.clone()),
                RouteChange::Model(route) => routed.insert(route.id.clone()),
                RouteChange::Gone(id) => routed.remove(id),
            };
        }
        routed.into_iter().collect()
    }

    fn demands(&self) -> BoxFuture<'_, Vec<Demand>> {
        Box::pin(async {
            let mut wanted = self.wanted.subscribe();
            wanted.wait_for(|wanted| !wanted.is_empty()).await.expect("it is kept");
            self.wanted.send_replace(Vec::new())
        })
    }

    fn ask_outside<'a>(
        &'a self,
        _workspace: &'a WorkspaceId,
        request: &'a OutsideRequest,
    ) -> BoxFuture<'a, Result<OutsideAnswer, MachineFault>> {
        self.questions.lock().push(request.clone());
        let answer = match &*self.outside.lock() {
            Some(outside) => outside(request),
            None => Err("nobody is there".to_owned()),
        };
        let answer = answer.map_err(MachineFault);
        Box::pin(async move {
            let (status, body) = answer?;
            Ok(OutsideAnswer { status, body: Sensitive(body.into_bytes()) })
        })
    }

    fn model_log(&self) -> BoxFuture<'_, Vec<ModelLogEntry>> {
        Box::pin(async {
            let mut entries = self.model_log.subscribe();
            entries.wait_for(|entries| !entries.is_empty()).await.expect("it is kept");
            self.model_log.send_replace(Vec::new())
        })
    }

    fn load(&self, _: &InstanceName) -> Option<Load> {
        *self.load.lock()
    }

    /// Answers with the path of the call, and fails if the path says so.
    fn call<'a>(
        &'a self,
        _: &'a ResourceId,
        call: &'a Call,
    ) -> BoxFuture<'a, Result<CallAnswer, MachineFault>> {
        self.calls.lock().push(call.clone());
        let status = if call.target.contains("fail") { 503 } else { 200 };
        let (body, length) = (call.target.clone(), call.target.len() as u64);
        Box::pin(async move { Ok(CallAnswer { status, body, length }) })
    }
}

impl Routes {
    /// Returns how often it was told anything.
    pub fn count(&self) -> usize {
        self.told.borrow().len()
    }

    /// Returns the workload routes that it was told after the first `count` changes.
    pub fn since(&self, count: usize) -> Vec<WorkloadRoute> {
        let told = self.told.borrow();
        let workloads = told[count..].iter().filter_map(|change| match change {
            RouteChange::Workload(route) => Some(route.clone()),
            _ => None,
        });
        workloads.collect()
    }

    /// Returns the last route that it was told of a sandbox.
    pub fn sandbox(&self, workspace: &str, name: &str) -> WorkloadRoute {
        last(&self.told.borrow(), workspace, name).expect("a route")
    }

    /// Waits until the last route of a workload in the first workspace is as wanted.
    pub async fn until(
        &self,
        name: &str,
        wanted: impl Fn(&WorkloadRoute) -> bool,
    ) -> WorkloadRoute {
        self.until_since(0, name, wanted).await
    }

    /// The same, after more than the first `count` changes. `wanted` is called while the changes
    /// are locked, so it must not ask for them.
    pub async fn until_since(
        &self,
        count: usize,
        name: &str,
        wanted: impl Fn(&WorkloadRoute) -> bool,
    ) -> WorkloadRoute {
        let mut told = self.told.subscribe();
        let fits = |told: &Vec<RouteChange>| {
            told.len() > count && last(told, "main", name).is_some_and(|route| wanted(&route))
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), told.wait_for(fits)).await;
        let Ok(Ok(told)) = waited else {
            panic!("it was told otherwise: {:?}", last(&self.told.borrow(), "main", name));
        };
        last(&told, "main", name).expect("a route")
    }

    /// Sets how outside services answer from now on.
    pub fn answer(
        &self,
        outside: impl Fn(&OutsideRequest) -> Result<(u16, String), String> + Send + Sync + 'static,
    ) {
        *self.outside.lock() = Some(Box::new(outside));
    }

    /// Records a request to a model whose log is enabled.
    pub fn requested(&self, entry: ModelLogEntry) {
        self.model_log.send_modify(|entries| entries.push(entry));
    }

    /// Waits until the last route of a model in the first workspace is as wanted.
    pub async fn until_model(
        &self,
        name: &str,
        wanted: impl Fn(&ModelRoute) -> bool,
    ) -> ModelRoute {
        let mut told = self.told.subscribe();
        let last = |told: &Vec<RouteChange>| {
            told.iter().rev().find_map(|change| match change {
                RouteChange::Model(route) if route.name == name => Some((**route).clone()),
                _ => None,
            })
        };
        let fits = |told: &Vec<RouteChange>| last(told).is_some_and(|route| wanted(&route));
        let waited = tokio::time::timeout(Duration::from_secs(60), told.wait_for(fits)).await;
        let Ok(Ok(told)) = waited else {
            panic!("it was told otherwise: {:?}", last(&self.told.borrow()));
        };
        last(&told).expect("a route")
    }

    /// Waits until the last route of a domain is as wanted.
    pub async fn until_domain(&self, name: &str, wanted: impl Fn(&DomainRoute) -> bool) {
        let mut told = self.told.subscribe();
        let fits = |told: &Vec<RouteChange>| {
            let last = told.iter().rev().find_map(|change| match change {
                RouteChange::Domain(route) if route.name == name => Some(route),
                _ => None,
            });
            last.is_some_and(&wanted)
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), told.wait_for(fits)).await;
        drop(waited.expect("in time").expect("an edge"));
    }

    /// Waits until these are the only ones that have routes.
    pub async fn until_routed(&self, ids: &[ResourceId]) {
        let mut told = self.told.subscribe();
        let wanted: BTreeSet<_> = ids.iter().cloned().collect();
        let only = async {
            while self.routed().into_iter().collect::<BTreeSet<_>>() != wanted {
                told.changed().await.expect("an edge");
            }
        };
        tokio::time::timeout(Duration::from_secs(60), only).await.expect("in time");
    }

    pub fn is_gone(&self, id: &ResourceId) -> bool {
        self.told.borrow().last() == Some(&RouteChange::Gone(id.clone()))
    }

    /// Returns whether the last that it was told of a workload in the first workspace is a route.
    pub fn has(&self, name: &str) -> bool {
        let told = self.told.borrow();
        let route = last(&told, "main", name);
        route.is_some_and(|route| {
            let gone = RouteChange::Gone(route.id.clone());
            let last = told.iter().rposition(|change| *change == gone);
            let at =
                told.iter().rposition(|change| *change == RouteChange::Workload(route.clone()));
            last < at
        })
    }

    /// Asks for replicas of a revision, as requests would.
    pub fn demand(&self, route: &WorkloadRoute, revision: &str, requests: u32) {
        let demand = Demand { workload: route.id.clone(), revision: revision.to_owned(), requests };
        self.wanted.send_modify(|wanted| wanted.push(demand));
    }

    /// Sets the load of all instances from now on.
    pub fn set_load(&self, load: Load) {
        *self.load.lock() = Some(load);
    }
}

fn last(told: &[RouteChange], workspace: &str, name: &str) -> Option<WorkloadRoute> {
    told.iter().rev().find_map(|change| match change {
        RouteChange::Workload(route) if route.workspace_name == workspace && route.name == name => {
            Some(route.clone())
        }
        _ => None,
    })
}
