//! The routes that the data plane has been told: which workload answers where. Kept in memory only.

use crate::address::Known;
use crate::demands::Demands;
use crate::headers;
use crate::models::Served;
use crate::traffic::Traffic;
use crate::turned_off::turned_off;
use crate::wait_queue::WaitQueues;
use http::HeaderMap;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::watch;
use types::KindName;
use types::edge::{
    DomainRoute, Fallback, PreviewAddress, PreviewRoute, RouteChange, TriggerRoute, WorkloadRoute,
};
use types::ids::ResourceId;

#[derive(Default)]
pub struct Routes {
    table: RwLock<Table>,
    /// Requests for workloads that have no instance yet, by id.
    pub(crate) waiting: WaitQueues,
    /// Replicas that requests want.
    pub(crate) demands: Demands,
    /// Notified when a preview, a domain or a model changes, when a sandbox is turned off, or when
    /// anything is removed.
    access: watch::Sender<()>,
}

#[derive(Default)]
struct Table {
    resources: HashMap<ResourceId, Resource>,
    workloads: HashMap<KindName, Workloads>,
    /// Only of workloads with replicas to choose among, so not of sandboxes.
    traffic: HashMap<ResourceId, Arc<Traffic>>,
    preview_labels: HashMap<String, Arc<Preview>>,
    hosts: HashMap<String, AtHost>,
    domains: HashMap<String, Arc<DomainRoute>>,
    /// By workspace, then by name.
    models: HashMap<String, HashMap<String, Arc<Served>>>,
    /// By path, starting with the workspace's name.
    triggers: HashMap<String, (Arc<WorkloadRoute>, TriggerRoute)>,
}

/// The workloads of one kind.
#[derive(Default)]
struct Workloads {
    /// By workspace, then by name.
    names: HashMap<String, HashMap<String, Arc<WorkloadRoute>>>,
    labels: HashMap<String, Arc<WorkloadRoute>>,
}

enum Resource {
    Workload(Arc<WorkloadRoute>),
    Preview(Arc<Preview>),
    Domain(Arc<DomainRoute>),
    Model(Arc<Served>),
}

/// What answers at a full host name below a custom domain.
enum AtHost {
    Workload(Arc<WorkloadRoute>),
    Preview(Arc<Preview>),
}

/// A preview, with its headers parsed and ready to set.
pub(crate) struct Preview {
    pub(crate) route: PreviewRoute,
    pub(crate) request_headers: Arc<HeaderMap>,
    pub(crate) response_headers: HeaderMap,
}

/// What answers for a host of a custom domain.
pub(crate) enum Hosted {
    Workload(Arc<WorkloadRoute>),
    Preview(Arc<Preview>),
    Fallback { preview: Arc<Preview>, domain: Arc<DomainRoute> },
    WorkloadFallback { workload: Arc<WorkloadRoute>, domain: Arc<DomainRoute> },
}

impl Routes {
    pub fn apply(&self, change: RouteChange) {
        let changes_access = match &change {
            RouteChange::Workload(route) => self.turns_off(route),
            _ => true,
        };
        let waited_for = match &change {
            RouteChange::Workload(route) => Some(route.id.clone()),
            RouteChange::Gone(id) => Some(id.clone()),
            RouteChange::Preview(_) | RouteChange::Domain(_) | RouteChange::Model(_) => None,
        };
        if let RouteChange::Gone(id) = &change {
            self.demands.forget(id);
        }
        match change {
            // Building a served model takes a while, so it is done before the lock is taken.
            RouteChange::Model(route) => {
                let served = match self.served(&route.id) {
                    // Told again without a change: cached answers stay valid for it.
                    Some(served) if served.route == *route => served,
                    before => {
                        let state = before.map(|served| Arc::clone(&served.state));
                        Arc::new(Served::new(*route, state.unwrap_or_default()))
                    }
                };
                self.table.write().insert_model(served);
            }
            change => self.table.write().apply(change),
        }
        if changes_access {
            self.access.send_replace(());
        }
        if let Some(id) = waited_for {
            if let Some(traffic) = self.traffic(&id) {
                traffic.follow(|| self.workload_by_id(&id));
            }
            self.waiting.notify(id.as_str());
        }
    }

    /// The ids of everything that has a route.
    pub fn ids(&self) -> Vec<ResourceId> {
        self.table.read().resources.keys().cloned().collect()
    }

    /// Returns whether a route ends requests that the workload has had so far.
    fn turns_off(&self, route: &WorkloadRoute) -> bool {
        let had_some = |before: &WorkloadRoute| turned_off(before).is_none();
        turned_off(route).is_some()
            && self.workload_by_id(&route.id).is_some_and(|before| had_some(&before))
    }

    /// Notified of each change after which an address may lead elsewhere or nowhere.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.access.subscribe()
    }

    pub(crate) fn workload(
        &self,
        kind: KindName,
        workspace: &str,
        name: &str,
    ) -> Option<Arc<WorkloadRoute>> {
        self.table.read().workloads.get(&kind)?.names.get(workspace)?.get(name).cloned()
    }

    pub(crate) fn workload_by_id(&self, id: &ResourceId) -> Option<Arc<WorkloadRoute>> {
        match self.table.read().resources.get(id)? {
            Resource::Workload(route) => Some(Arc::clone(route)),
            Resource::Preview(_) | Resource::Domain(_) | Resource::Model(_) => None,
        }
    }

    /// `None` means there is no such model.
    pub(crate) fn model(&self, workspace: &str, name: &str) -> Option<Arc<Served>> {
        self.table.read().models.get(workspace)?.get(name).cloned()
    }

    fn served(&self, id: &ResourceId) -> Option<Arc<Served>> {
        match self.table.read().resources.get(id)? {
            Resource::Model(served) => Some(Arc::clone(served)),
            Resource::Workload(_) | Resource::Preview(_) | Resource::Domain(_) => None,
        }
    }

    /// `None` means there is no such workload, or it has no replicas to choose among.
    pub(crate) fn traffic(&self, id: &ResourceId) -> Option<Arc<Traffic>> {
        self.table.read().traffic.get(id).cloned()
    }

    /// Finds a workload by its whole label: only the management side knows where the name in it
    /// ends.
    pub(crate) fn workload_by_label(
        &self,
        kind: KindName,
        label: &str,
    ) -> Option<Arc<WorkloadRoute>> {
        self.table.read().workloads.get(&kind)?.labels.get(label).cloned()
    }

    pub(crate) fn preview(&self, label: &str) -> Option<Arc<Preview>> {
        self.table.read().preview_labels.get(label).cloned()
    }

    pub(crate) fn serves_host(&self, host: &str) -> bool {
        let table = self.table.read();
        table.hosts.contains_key(host) || table.domain(host).is_some()
    }

    /// Returns the trigger at a path and the deployment that it calls.
    pub(crate) fn trigger(&self, path: &str) -> Option<(Arc<WorkloadRoute>, TriggerRoute)> {
        let table = self.table.read();
        if table.triggers.is_empty() {
            return None;
        }
        table.triggers.get(path).cloned()
    }

    pub(crate) fn hosted(&self, host: &str) -> Option<Hosted> {
        let table = self.table.read();
        match table.hosts.get(host) {
            Some(AtHost::Preview(preview)) => return Some(Hosted::Preview(Arc::clone(preview))),
            Some(AtHost::Workload(route)) => return Some(Hosted::Workload(Arc::clone(route))),
            None => {}
        }
        let domain = table.domain(host)?;
        let found = table.fallback(domain.fallback.as_ref()?)?;
        let domain = Arc::clone(domain);
        Some(match found {
            AtHost::Preview(preview) => Hosted::Fallback { preview, domain },
            AtHost::Workload(workload) => Hosted::WorkloadFallback { workload, domain },
        })
    }
}

impl Table {
    fn apply(&mut self, change: RouteChange) {
        match change {
            RouteChange::Workload(route) => {
                self.remove(&route.id);
                let route = Arc::new(route);
                self.begin_traffic(&route);
                for trigger in &route.triggers {
                    let called = (Arc::clone(&route), trigger.clone());
                    self.triggers.insert(trigger_path(&route, trigger), called);
                }
                for host in &route.hosts {
                    let at = AtHost::Workload(Arc::clone(&route));
                    self.hosts.insert(host.to_ascii_lowercase(), at);
                }
                self.resources.insert(route.id.clone(), Resource::Workload(Arc::clone(&route)));
                self.workloads.entry(route.kind).or_default().insert(route);
            }
            RouteChange::Preview(route) => {
                self.remove(&route.id);
                let preview = Arc::new(Preview::new(route));
                self.resources
                    .insert(preview.route.id.clone(), Resource::Preview(Arc::clone(&preview)));
                match &preview.route.at {
                    PreviewAddress::Label(label) => {
                        self.preview_labels.insert(label.clone(), Arc::clone(&preview));
                    }
                    PreviewAddress::Host(host) => {
                        let at = AtHost::Preview(Arc::clone(&preview));
                        self.hosts.insert(host.to_ascii_lowercase(), at);
                    }
                }
            }
            RouteChange::Domain(route) => {
                self.remove(&route.id);
                let route = Arc::new(route);
                self.resources.insert(route.id.clone(), Resource::Domain(Arc::clone(&route)));
                self.domains.insert(route.name.to_ascii_lowercase(), route);
            }
            RouteChange::Model(route) => {
                self.insert_model(Arc::new(Served::new(*route, Arc::default())));
            }
            RouteChange::Gone(id) => {
                self.traffic.remove(&id);
                self.remove(&id);
            }
        }
    }

    fn insert_model(&mut self, served: Arc<Served>) {
        let route = &served.route;
        self.remove(&route.id);
        self.resources.insert(route.id.clone(), Resource::Model(Arc::clone(&served)));
        let models = self.models.entry(route.workspace_name.clone()).or_default();
        models.insert(route.name.clone(), served);
    }

    /// The traffic of a deployment outlasts changes of its route.
    fn begin_traffic(&mut self, route: &WorkloadRoute) {
        if route.port.is_some() && !self.traffic.contains_key(&route.id) {
            self.traffic.insert(route.id.clone(), Arc::new(Traffic::new(route)));
        }
    }

    /// Removes a resource. A name or host that another resource has taken by now stays with that
    /// one.
    fn remove(&mut self, id: &ResourceId) {
        match self.resources.remove(id) {
            None => {}
            Some(Resource::Workload(route)) => {
                if let Some(workloads) = self.workloads.get_mut(&route.kind) {
                    workloads.remove(&route);
                }
                for host in &route.hosts {
                    self.remove_host(host, id);
                }
                for trigger in &route.triggers {
                    let path = trigger_path(&route, trigger);
                    remove_if(&mut self.triggers, &path, |(kept, _)| kept.id == *id);
                }
            }
            Some(Resource::Preview(preview)) => {
                let own = |kept: &Arc<Preview>| kept.route.id == *id;
                match &preview.route.at {
                    PreviewAddress::Label(label) => remove_if(&mut self.preview_labels, label, own),
                    PreviewAddress::Host(host) => self.remove_host(host, id),
                }
            }
            Some(Resource::Model(served)) => {
                let route = &served.route;
                if let Some(models) = self.models.get_mut(&route.workspace_name) {
                    remove_if(models, &route.name, |kept| kept.route.id == *id);
                    if models.is_empty() {
                        self.models.remove(&route.workspace_name);
                    }
                }
            }
            Some(Resource::Domain(route)) => {
                remove_if(&mut self.domains, &route.name.to_ascii_lowercase(), |kept| {
                    kept.id == *id
                });
            }
        }
    }

    fn remove_host(&mut self, host: &str, id: &ResourceId) {
        remove_if(&mut self.hosts, &host.to_ascii_lowercase(), |kept| match kept {
            AtHost::Workload(route) => route.id == *id,
            AtHost::Preview(preview) => preview.route.id == *id,
        });
    }

    /// Returns the domain that answers for a host: the one of exactly this name if its fallback is
    /// an application, else the closest one that the host is below.
    fn domain(&self, host: &str) -> Option<&Arc<DomainRoute>> {
        if self.domains.is_empty() {
            return None;
        }
        let whole = |domain: &&Arc<DomainRoute>| {
            matches!(domain.fallback, Some(Fallback::Application { .. }))
        };
        let mut ends = host.match_indices('.').map(|(at, _)| &host[at + 1..]);
        let below = || ends.find_map(|end| self.domains.get(end));
        self.domains.get(host).filter(whole).or_else(below)
    }

    fn fallback(&self, fallback: &Fallback) -> Option<AtHost> {
        match fallback {
            Fallback::Preview(id) => match self.resources.get(id)? {
                Resource::Preview(preview) => Some(AtHost::Preview(Arc::clone(preview))),
                Resource::Workload(_) | Resource::Domain(_) | Resource::Model(_) => None,
            },
            // By name, so that an application that was deleted and created again takes the place of
            // the old one.
            Fallback::Application { workspace_name, name } => {
                let applications = self.workloads.get(&KindName::Application)?;
                let found = applications.names.get(workspace_name)?.get(name)?;
                Some(AtHost::Workload(Arc::clone(found)))
            }
        }
    }
}

impl Workloads {
    fn insert(&mut self, route: Arc<WorkloadRoute>) {
        if let Some(label) = &route.label {
            self.labels.insert(label.clone(), Arc::clone(&route));
        }
        let names = self.names.entry(route.workspace_name.clone()).or_default();
        names.insert(route.name.clone(), route);
    }

    fn remove(&mut self, route: &WorkloadRoute) {
        if let Some(label) = &route.label {
            remove_if(&mut self.labels, label, |kept| kept.id == route.id);
        }
        if let Some(names) = self.names.get_mut(&route.workspace_name) {
            remove_if(names, &route.name, |kept| kept.id == route.id);
            if names.is_empty() {
                self.names.remove(&route.workspace_name);
            }
        }
    }
}

/// Returns the path of a trigger, starting with the workspace's name.
fn trigger_path(route: &WorkloadRoute, trigger: &TriggerRoute) -> String {
    format!("{}/{}", route.workspace_name, trigger.address)
}

impl Known for Routes {
    fn host(&self, host: &str) -> bool {
        self.serves_host(host)
    }

    fn trigger(&self, path: &str) -> Option<bool> {
        Self::trigger(self, path).map(|(_, trigger)| trigger.waits)
    }
}

fn remove_if<T>(map: &mut HashMap<String, T>, key: &str, own: impl Fn(&T) -> bool) {
    if map.get(key).is_some_and(own) {
        map.remove(key);
    }
}

impl Preview {
    fn new(route: PreviewRoute) -> Self {
        let request_headers = Arc::new(headers::settable(&route.request_headers));
        let response_headers = headers::settable(&route.response_headers);
        Self { route, request_headers, response_headers }
    }

    /// Returns whether its own headers allow pages of other origins to use it.
    pub(crate) fn answers_preflights(&self) -> bool {
        self.response_headers.keys().any(|name| name.as_str().starts_with("access-control-allow-"))
    }
}
