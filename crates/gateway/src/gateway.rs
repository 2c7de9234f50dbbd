//! The handle of the data plane: how it is built, and what it is asked and told.

use crate::address::{Address, BadAddress, Endpoint};
use crate::body::Body;
use crate::call::CallError;
use crate::context::Context;
use crate::destination;
use crate::drives::Drives;
use crate::guard::Guard;
use crate::inner::Inner;
use crate::machine::Machine;
use crate::models::{ModelParts, Models, OutsideError};
use crate::routes::Routes;
use crate::settings::Settings;
use crate::standby::Standby;
use crate::tunnels::Tunnels;
use crate::wire::BoxError;
use admission::{Limits, Pool, Recheck, tell_when_due};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use types::World;
use types::edge::{Demand, Load, RequestStats, Window};
use types::ids::{ResourceId, WorkspaceId};
use types::instance::{InstanceName, RunsFor};
use types::models::{ModelLogEntry, OutsideAnswer, OutsideRequest};

/// The data plane. Cheap to clone.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

/// The parts that a gateway is built from.
pub struct Parts {
    pub settings: Settings,
    pub guard: Arc<dyn Guard>,
    pub machine: Arc<dyn Machine>,
    pub world: World,
}

impl Gateway {
    /// Must be called within a runtime: it spawns background tasks.
    pub fn new(parts: Parts) -> Self {
        let Parts { settings, guard, machine, world } = parts;
        let settings = Arc::new(settings);
        let models = Arc::new(Models::new(&settings.models, world.clone()));
        let machine_name = machine.name().to_owned();
        let open = Pool::new("open requests to sandboxes", settings.open);
        let of_public = Limits { share: settings.open_public_max, ..settings.open };
        let open_public = Pool::new("open requests of strangers", of_public);
        let standby = Standby::new(Arc::clone(&settings), machine);
        let (routes, recheck) = (Routes::default(), Recheck::default());
        let recheck_due = watch::Sender::new(());
        let changes = vec![guard.changes(), routes.changes()];
        let telling = tell_when_due(changes, recheck_due.clone());
        let telling = AbortOnDropHandle::new(tokio::spawn(telling));
        let sessions = Pool::new("sessions of MCP servers", settings.sessions);
        let tool_lists = Pool::new("bytes of lists of tools", settings.tool_lists);
        let context = Arc::new(Context {
            settings,
            guard,
            drives: OnceLock::new(),
            tunnels: OnceLock::new(),
            world,
            routes,
            sessions,
            tool_lists,
            recheck,
            recheck_due,
        });
        Self(Arc::new(Inner {
            context,
            open,
            open_public,
            standby,
            machine_name,
            models,
            _telling: telling,
        }))
    }

    pub fn routes(&self) -> &Routes {
        &self.0.context.routes
    }

    pub fn standby(&self) -> &Standby {
        &self.0.standby
    }

    /// Sets who handles drives for sandboxes; may be called once. Holds only a weak reference.
    /// While nobody is set, requests for drives go to the sandbox.
    pub fn serve_drives(&self, drives: &Arc<dyn Drives>) {
        if self.0.context.drives.set(Arc::downgrade(drives)).is_err() {
            tracing::error!("somebody gives drives to sandboxes already");
        }
    }

    /// Does the same for tunnels.
    pub fn serve_tunnels(&self, tunnels: &Arc<dyn Tunnels>) {
        if self.0.context.tunnels.set(Arc::downgrade(tunnels)).is_err() {
            tracing::error!("somebody gives tunnels to sandboxes already");
        }
    }

    /// Sets who keeps the limits and prices of models; may be called once. Until then, no model
    /// answers.
    pub fn serve_models(&self, parts: ModelParts) {
        if self.0.models.parts.set(parts).is_err() {
            tracing::error!("somebody keeps the limits of models already");
        }
    }

    /// Refuses from now on, and at once, what would have to wait for an instance. For a server that
    /// stops: nothing starts there any more.
    pub fn stop_waiting(&self) {
        self.routes().waiting.close();
    }

    /// Asks a service on the internet on behalf of a workspace. Addresses inside our own network
    /// are refused, as they are for models.
    pub async fn ask_outside(
        &self,
        workspace: &WorkspaceId,
        request: &OutsideRequest,
    ) -> Result<OutsideAnswer, OutsideError> {
        self.0.models.ask_outside(workspace, request).await
    }

    /// Waits for requests to models whose log is on, and returns the log entries to be written.
    pub async fn model_log(&self) -> Vec<ModelLogEntry> {
        self.0.models.log_entries().await
    }

    /// Waits until requests want replicas that do not exist, and returns all that are wanted. A
    /// demand that is not met is returned again while requests wait. Only one caller at a time may
    /// use this.
    pub async fn demands(&self) -> Vec<Demand> {
        let Context { routes, settings, .. } = &*self.0.context;
        routes.demands.next(settings.demand_repeat).await
    }

    /// Returns how many requests an instance has and how long it has been idle. At a replica, an
    /// open socket counts as a request even while it lets the instance sleep. `None` means there is
    /// no such instance.
    pub fn load(&self, instance: &InstanceName) -> Option<Load> {
        let Load { requests, idle } = self.0.standby.load(instance.as_str())?;
        let Some(RunsFor::Replica(replica)) = instance.runs_for() else {
            return Some(Load { requests, idle });
        };
        let traffic = self.routes().traffic(&replica.workload);
        let given = traffic.map_or(0, |traffic| traffic.requests_of(instance.as_str()));
        Some(Load { requests: requests.max(given), idle: idle.filter(|_| given == 0) })
    }

    /// Returns statistics of the requests to a deployment, for a window or since its route was
    /// first told. `None` means it has no route.
    pub fn requests_of(
        &self,
        workload: &ResourceId,
        window: Option<Window>,
    ) -> Option<RequestStats> {
        let stats = self.routes().traffic(workload)?.stats.read(window);
        let route = self.routes().workload_by_id(workload)?;
        let targets = route.serving.targets().iter();
        let replicas = targets.map(|target| target.replicas.len()).sum::<usize>();
        Some(RequestStats { replicas: u32::try_from(replicas).unwrap_or(u32::MAX), ..stats })
    }

    /// Returns where the request wants to go, by its host or its path. `None` means it is not for
    /// the data plane. A malformed address (`Err`) belongs to nobody else, so it is answered here.
    pub fn address_of<B>(&self, request: &Request<B>) -> Option<Result<Address, BadAddress>> {
        let Context { routes, settings, .. } = &*self.0.context;
        let address = Address::parse(request.uri(), request.headers(), &settings.domains, routes);
        address.transpose()
    }

    /// Returns whether the request may call the trigger that its address names (true for any other
    /// address). A stranger must not learn that the trigger exists: a refused caller has to get the
    /// same answer as for a path that nobody has.
    pub async fn admits<B>(&self, request: &Request<B>, address: &Address) -> bool {
        let Endpoint::Trigger(path) = &address.endpoint else { return true };
        destination::may_trigger(&self.0.context, request, path).await
    }

    /// Calls a deployment without a caller waiting for the answer. Returns the answer with at most
    /// `body_max` bytes of its body, and the whole length of that body.
    pub async fn call(
        &self,
        workload: &ResourceId,
        request: Request<Bytes>,
        body_max: usize,
    ) -> Result<(Response<Bytes>, u64), CallError> {
        self.0.call(workload, request, body_max).await
    }

    /// Answers the request, whose [`address_of`](Self::address_of) is `address`. Errors are turned
    /// into answers too.
    pub async fn serve<B>(
        &self,
        request: Request<B>,
        address: Option<Result<Address, BadAddress>>,
    ) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        match self.0.answer(request, address).await {
            Ok(response) => response,
            Err(problem) => {
                let Context { world, settings, .. } = &*self.0.context;
                problem.response(world.now(), &settings.docs_url)
            }
        }
    }
}
