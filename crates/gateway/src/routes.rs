//! What the data plane was told: which workload answers where. Memory only.

use crate::headers;
use crate::wait_queue::WaitQueues;
use http::HeaderMap;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::watch;
use types::edge::{DomainRoute, PreviewAddress, PreviewRoute, RouteChange, SandboxRoute};
use types::ids::ResourceId;

#[derive(Default)]
pub struct Routes {
    table: RwLock<Table>,
    /// Requests for sandboxes that have no instance yet, by id.
    pub(crate) waiting: WaitQueues,
    /// Told when a preview or a domain is another than before, or something is gone.
    doors: watch::Sender<()>,
}

#[derive(Default)]
struct Table {
    resources: HashMap<ResourceId, Resource>,
    /// By workspace, then by name.
    sandboxes: HashMap<String, HashMap<String, Arc<SandboxRoute>>>,
    /// By what stands behind `sbx-` in their hosts.
    sandbox_labels: HashMap<String, Arc<SandboxRoute>>,
    labels: HashMap<String, Arc<Preview>>,
    hosts: HashMap<String, Arc<Preview>>,
    domains: HashMap<String, Arc<DomainRoute>>,
}

#[derive(Clone)]
enum Resource {
    Sandbox(Arc<SandboxRoute>),
    Preview(Arc<Preview>),
    Domain(Arc<DomainRoute>),
}

/// A preview, with its headers ready to be set.
pub(crate) struct Preview {
    pub(crate) route: PreviewRoute,
    pub(crate) request_headers: HeaderMap,
    pub(crate) response_headers: HeaderMap,
}

/// What answers for a host of a custom domain.
pub(crate) enum Hosted {
    Preview(Arc<Preview>),
    Fallback { preview: Arc<Preview>, domain: Arc<DomainRoute> },
}

impl Routes {
    pub fn apply(&self, change: RouteChange) {
        let alters_doors = !matches!(&change, RouteChange::Sandbox(_));
        let called = match &change {
            RouteChange::Sandbox(route) => Some(route.id.clone()),
            RouteChange::Gone(id) => Some(id.clone()),
            RouteChange::Preview(_) | RouteChange::Domain(_) => None,
        };
        self.table.write().apply(change);
        if alters_doors {
            self.doors.send_replace(());
        }
        if let Some(id) = called {
            self.waiting.notify(id.as_str());
        }
    }

    /// Tells of each change after which a preview may not lead there any more.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.doors.subscribe()
    }

    pub(crate) fn sandbox(&self, workspace: &str, name: &str) -> Option<Arc<SandboxRoute>> {
        self.table.read().sandboxes.get(workspace)?.get(name).cloned()
    }

    pub(crate) fn sandbox_by_id(&self, id: &ResourceId) -> Option<Arc<SandboxRoute>> {
        match self.table.read().resources.get(id)? {
            Resource::Sandbox(route) => Some(Arc::clone(route)),
            Resource::Preview(_) | Resource::Domain(_) => None,
        }
    }

    /// Labels are given away where sandboxes are made: here nothing is taken apart.
    pub(crate) fn sandbox_by_label(&self, label: &str) -> Option<Arc<SandboxRoute>> {
        self.table.read().sandbox_labels.get(label).cloned()
    }

    pub(crate) fn preview(&self, label: &str) -> Option<Arc<Preview>> {
        self.table.read().labels.get(label).cloned()
    }

    pub(crate) fn serves_host(&self, host: &str) -> bool {
        let table = self.table.read();
        table.hosts.contains_key(host) || table.domain(host).is_some()
    }

    pub(crate) fn hosted(&self, host: &str) -> Option<Hosted> {
        let table = self.table.read();
        if let Some(preview) = table.hosts.get(host) {
            return Some(Hosted::Preview(Arc::clone(preview)));
        }
        let domain = table.domain(host)?;
        match table.resources.get(domain.fallback.as_ref()?)? {
            Resource::Preview(preview) => {
                Some(Hosted::Fallback { preview: Arc::clone(preview), domain: Arc::clone(domain) })
            }
            Resource::Sandbox(_) | Resource::Domain(_) => None,
        }
    }
}

impl Table {
    fn apply(&mut self, change: RouteChange) {
        match change {
            RouteChange::Sandbox(route) => {
                self.remove(&route.id);
                let route = Arc::new(route);
                self.resources.insert(route.id.clone(), Resource::Sandbox(Arc::clone(&route)));
                if let Some(label) = &route.label {
                    self.sandbox_labels.insert(label.clone(), Arc::clone(&route));
                }
                self.sandboxes
                    .entry(route.workspace_name.clone())
                    .or_default()
                    .insert(route.name.clone(), Arc::clone(&route));
            }
            RouteChange::Preview(route) => {
                self.remove(&route.id);
                let preview = Arc::new(Preview::new(route));
                self.resources
                    .insert(preview.route.id.clone(), Resource::Preview(Arc::clone(&preview)));
                match &preview.route.at {
                    PreviewAddress::Label(label) => {
                        self.labels.insert(label.clone(), Arc::clone(&preview))
                    }
                    PreviewAddress::Host(host) => {
                        self.hosts.insert(host.to_ascii_lowercase(), Arc::clone(&preview))
                    }
                };
            }
            RouteChange::Domain(route) => {
                self.remove(&route.id);
                let route = Arc::new(route);
                self.resources.insert(route.id.clone(), Resource::Domain(Arc::clone(&route)));
                self.domains.insert(route.name.to_ascii_lowercase(), route);
            }
            RouteChange::Gone(id) => self.remove(&id),
        }
    }

    /// A name that another resource has taken over meanwhile stays with that one.
    fn remove(&mut self, id: &ResourceId) {
        match self.resources.remove(id) {
            None => {}
            Some(Resource::Sandbox(route)) => {
                if let Some(label) = &route.label {
                    remove_if(&mut self.sandbox_labels, label, |kept| kept.id == *id);
                }
                if let Some(names) = self.sandboxes.get_mut(&route.workspace_name) {
                    remove_if(names, &route.name, |kept| kept.id == *id);
                    if names.is_empty() {
                        self.sandboxes.remove(&route.workspace_name);
                    }
                }
            }
            Some(Resource::Preview(preview)) => {
                let own = |kept: &Arc<Preview>| kept.route.id == *id;
                match &preview.route.at {
                    PreviewAddress::Label(label) => remove_if(&mut self.labels, label, own),
                    PreviewAddress::Host(host) => {
                        remove_if(&mut self.hosts, &host.to_ascii_lowercase(), own)
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

    /// The nearest domain that the host is below.
    fn domain(&self, host: &str) -> Option<&Arc<DomainRoute>> {
        if self.domains.is_empty() {
            return None;
        }
        let ends = host.match_indices('.').map(|(at, _)| &host[at + 1..]);
        ends.map(|end| self.domains.get(end)).find(Option::is_some).flatten()
    }
}

fn remove_if<T>(map: &mut HashMap<String, T>, key: &str, own: impl Fn(&T) -> bool) {
    if map.get(key).is_some_and(own) {
        map.remove(key);
    }
}

impl Preview {
    fn new(route: PreviewRoute) -> Self {
        let request_headers = headers::settable(&route.request_headers);
        let response_headers = headers::settable(&route.response_headers);
        Self { route, request_headers, response_headers }
    }

    /// Whether its headers are meant to let pages of other origins in.
    pub(crate) fn answers_preflights(&self) -> bool {
        self.response_headers.keys().any(|name| name.as_str().starts_with("access-control-allow-"))
    }
}
