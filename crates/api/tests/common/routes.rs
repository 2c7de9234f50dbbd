//! An edge that only notes what it is told.

use control::machine::{Edge, MachineFault, Wait};
use jobs::{Call, CallAnswer};
use std::time::Duration;
use tokio::sync::watch;
use types::edge::{Demand, DomainRoute, Load, RouteChange, WorkloadRoute};
use types::ids::ResourceId;
use types::instance::InstanceName;

/// Every route that was told, and what an edge asks for and knows.
#[derive(Default)]
pub struct Routes {
    told: watch::Sender<Vec<RouteChange>>,
    wanted: watch::Sender<Vec<Demand>>,
    /// Every call that was made to a workload.
    pub calls: parking_lot::Mutex<Vec<Call>>,
    /// The load of all instances; unknown while there is none.
    load: parking_lot::Mutex<Option<Load>>,
}

impl Edge for Routes {
    fn publish(&self, change: RouteChange) {
        self.told.send_modify(|told| told.push(change));
    }

    fn demands(&self) -> Wait<'_, Vec<Demand>> {
        Box::pin(async {
            let mut wanted = self.wanted.subscribe();
            wanted.wait_for(|wanted| !wanted.is_empty()).await.expect("it is kept");
            self.wanted.send_replace(Vec::new())
        })
    }

    fn load(&self, _: &InstanceName) -> Option<Load> {
        *self.load.lock()
    }

    /// A workload answers with its call's path, and fails where that says so.
    fn call<'a>(
        &'a self,
        _: &'a ResourceId,
        call: &'a Call,
    ) -> Wait<'a, Result<CallAnswer, MachineFault>> {
        self.calls.lock().push(call.clone());
        let status = if call.target.contains("fail") { 503 } else { 200 };
        let (body, length) = (call.target.clone(), call.target.len() as u64);
        Box::pin(async move { Ok(CallAnswer { status, body, length }) })
    }
}

impl Routes {
    /// How often anything was told.
    pub fn count(&self) -> usize {
        self.told.borrow().len()
    }

    /// What was told of a sandbox last.
    pub fn sandbox(&self, workspace: &str, name: &str) -> WorkloadRoute {
        last(&self.told.borrow(), workspace, name).expect("a route")
    }

    /// Waits until what was told last of a workload of the first workspace is as wanted.
    pub async fn until(
        &self,
        name: &str,
        wanted: impl Fn(&WorkloadRoute) -> bool,
    ) -> WorkloadRoute {
        let mut told = self.told.subscribe();
        let fits =
            |told: &Vec<RouteChange>| last(told, "main", name).is_some_and(|route| wanted(&route));
        let waited = tokio::time::timeout(Duration::from_secs(60), told.wait_for(fits)).await;
        let Ok(Ok(told)) = waited else {
            panic!("it was told otherwise: {:?}", last(&self.told.borrow(), "main", name));
        };
        last(&told, "main", name).expect("a route")
    }

    /// Waits until what was told last of a domain is as wanted.
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

    pub fn is_gone(&self, id: &ResourceId) -> bool {
        self.told.borrow().last() == Some(&RouteChange::Gone(id.clone()))
    }

    /// Requests want replicas of a revision.
    pub fn demand(&self, route: &WorkloadRoute, revision: &str, requests: u32) {
        let demand = Demand { workload: route.id.clone(), revision: revision.to_owned(), requests };
        self.wanted.send_modify(|wanted| wanted.push(demand));
    }

    /// What all instances have to do from now on.
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
