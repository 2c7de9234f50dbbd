//! What `control` asks of the machine, and of the gateway about what is awake.

use crate::instances::{runs, seen};
use crate::leases::Purpose;
use crate::refusals;
use crate::{Interrupted, LocalMachine};
use bytes::Bytes;
use control::drive_store::DriveStore;
use control::machine::{
    ImageAt, Launch, LaunchFault, Machine, MachineFault, ProcessAnswer, Seen, UnknownImage,
};
use control::registry::Registry;
use control::snapshot_store::SnapshotStore;
use control::tunnel_maker::TunnelMaker;
use control::volume_store::VolumeStore;
use futures_util::future::BoxFuture;
use gateway::{Initial, Machine as _, Standby};
use http_body_util::{BodyExt, Full, Limited};
use node::{Error, Owner, State, View};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use types::chain;
use types::egress::{EgressEvent, EgressRules};
use types::ids::{ResourceId, WorkspaceId};
use types::instance::{Fact, InstanceName, Printed, Resize, Stamp, WorkEnd};

/// The most facts that are recorded at once.
const FACTS_AT_ONCE: usize = 500;
/// How long one look for facts waits. The end of the program has to wait for it.
const FACTS_WAIT_MAX: Duration = Duration::from_millis(500);
/// How long to wait after a failed look, which means that its thread panicked or the program is
/// ending.
const FACTS_RETRY_AFTER: Duration = Duration::from_secs(1);

/// How long an instance that sleeps may take to wake, to hear that it is to end.
const WAKE_MAX: Duration = Duration::from_secs(10);

/// How long to wait for the kernel of an instance to accept a connection.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest answer to a call that `control` makes to an instance.
const ANSWER_BYTES_MAX: usize = 1 << 20;

impl From<Interrupted> for MachineFault {
    fn from(interrupted: Interrupted) -> Self {
        Self(interrupted.to_string())
    }
}

/// This machine together with the standby, which puts its instances to sleep and wakes them.
pub struct MachineControl {
    machine: LocalMachine,
    standby: Arc<Standby>,
}

impl MachineControl {
    /// Tells the standby about the instances that run already. Those that only do work sleep after
    /// its end, if at all, so it need not know them.
    pub fn new(machine: LocalMachine, standby: Standby) -> Self {
        let serves =
            |view: &&View| runs(&view.state) && machine.0.leases.purpose(&view.id).is_visited();
        for view in machine.0.node.list().iter().filter(serves) {
            let found = if matches!(view.state, State::Paused { .. }) {
                Initial::Paused
            } else {
                Initial::Awake
            };
            standby.track(view.id.as_str(), found);
        }
        let standby = Arc::new(standby);
        machine.wake_members(&standby);
        Self { machine, standby }
    }

    async fn takes_connections(&self, instance: &InstanceName, port: u16) -> bool {
        let connected = self.machine.connect(instance.as_str(), port);
        matches!(tokio::time::timeout(PROBE_TIMEOUT, connected).await, Ok(Ok(_)))
    }

    /// Takes back the extra processor time for the start. Returns false if that failed, because an
    /// instance must not be called before.
    fn ends_start(&self, instance: &InstanceName) -> bool {
        match self.machine.0.end_start(instance) {
            Ok(()) => true,
            Err(node::Error::Missing(_)) => false,
            Err(error) => {
                tracing::error!(%error, %instance, "it cannot be given its usual processor time");
                false
            }
        }
    }
}

fn fault(error: &Error) -> MachineFault {
    MachineFault(chain(error))
}

impl Machine for MachineControl {
    fn name(&self) -> &str {
        &self.machine.0.name
    }

    fn find_image(&self, image: &str) -> Result<ImageAt, UnknownImage> {
        self.machine.0.find(image)
    }

    fn has_image(&self, digest: &str) -> bool {
        self.machine.0.has(digest)
    }

    fn fetch_image<'a>(&'a self, launch: &'a Launch) -> BoxFuture<'a, Result<String, LaunchFault>> {
        Box::pin(self.machine.fetch(launch))
    }

    fn fetch_for<'a>(
        &'a self,
        workspace: &'a WorkspaceId,
        image: &'a str,
        registries: Option<&'a str>,
    ) -> BoxFuture<'a, Result<String, LaunchFault>> {
        Box::pin(self.machine.fetch_for(workspace.as_str(), image, registries))
    }

    fn registry(&self) -> Option<Arc<dyn Registry>> {
        Some(Arc::new(self.machine.0.registry.clone()))
    }

    fn volumes(&self) -> Option<Arc<dyn VolumeStore>> {
        let keeps = self.machine.0.keeps_volumes;
        keeps.then(|| Arc::new(self.machine.clone()) as Arc<dyn VolumeStore>)
    }

    fn snapshots(&self) -> Option<Arc<dyn SnapshotStore>> {
        Some(Arc::new(self.machine.clone()))
    }

    fn drives(&self) -> Option<Arc<dyn DriveStore>> {
        let keeps = self.machine.0.keeps_volumes;
        keeps.then(|| Arc::new(self.machine.clone()) as Arc<dyn DriveStore>)
    }

    fn tunnels(&self) -> Option<Arc<dyn TunnelMaker>> {
        Some(Arc::new(self.machine.clone()))
    }

    fn require_room(&self, workspace: &WorkspaceId, resize: &Resize) -> Result<(), LaunchFault> {
        let broken = |error: &dyn std::error::Error| LaunchFault::Broken(chain(error));
        let owner = Owner::new(workspace.as_str()).map_err(|error| broken(&error))?;
        let disk = resize.disk.clone().filter(|_| self.machine.0.keeps_volumes);
        let room = self.machine.0.node.require_room(&owner, &Resize { disk, ..resize.clone() });
        room.map_err(|error| refusals::of_launch(&error).unwrap_or_else(|| broken(&error)))
    }

    fn make_ready<'a>(&'a self, launch: &'a Launch) -> BoxFuture<'a, Result<(), LaunchFault>> {
        Box::pin(async move { self.machine.bring(&mut launch.clone()).await.map(drop) })
    }

    fn launch(&self, launch: Launch) -> BoxFuture<'_, Result<(), LaunchFault>> {
        Box::pin(async move {
            let visited = Purpose::of(&launch).is_visited();
            let serves = visited.then(|| launch.instance.clone());
            self.machine.launch(launch).await?;
            if let Some(instance) = serves {
                self.standby.track(instance.as_str(), Initial::Awake);
            }
            Ok(())
        })
    }

    fn retire<'a>(&'a self, instance: &'a InstanceName) -> BoxFuture<'a, Result<(), MachineFault>> {
        self.standby.forget(instance.as_str());
        self.machine.0.starting.lock().remove(instance);
        let id = instance.clone();
        Box::pin(async move {
            self.machine
                .on_node(move |inner| {
                    match inner.node.destroy(&id) {
                        Ok(()) | Err(Error::Missing(_)) => {
                            inner.end_rules(&id);
                            inner.leases.give_back(&id);
                        }
                        Err(error) => return Err(fault(&error)),
                    }
                    Ok(())
                })
                .await
        })
    }

    fn set_egress<'a>(
        &'a self,
        instance: &'a InstanceName,
        rules: EgressRules,
    ) -> BoxFuture<'a, Result<(), MachineFault>> {
        Box::pin(self.machine.set_egress(instance, rules))
    }

    fn egress_events(&self) -> BoxFuture<'_, Vec<EgressEvent>> {
        Box::pin(self.machine.egress_events())
    }

    fn rest<'a>(&'a self, instance: &'a InstanceName) -> BoxFuture<'a, Result<(), MachineFault>> {
        Box::pin(async move {
            if self.machine.0.leases.purpose(instance).is_visited() {
                let paused = self.standby.pause(instance.as_str()).await;
                return paused.map_err(|error| MachineFault(error.to_string()));
            }
            let id = instance.clone();
            self.machine.on_node(move |inner| inner.node.pause(&id).map_err(|e| fault(&e))).await
        })
    }

    fn instances(&self) -> Vec<Seen> {
        self.machine.0.node.list().iter().map(seen).collect()
    }

    fn instances_of(&self, sandbox: &ResourceId) -> Vec<Seen> {
        let of_it = |name: &InstanceName| name.launch_of(sandbox).is_some();
        self.machine.0.node.list_where(of_it).iter().map(seen).collect()
    }

    fn runs(&self, instance: &InstanceName) -> bool {
        self.machine.0.node.inspect(instance).is_ok_and(|view| runs(&view.state))
    }

    fn give_sign(&self) -> Option<Stamp> {
        Some(self.machine.0.node.give_sign())
    }

    fn facts(&self) -> BoxFuture<'_, Vec<Fact>> {
        Box::pin(async move {
            loop {
                let look = self.machine.on_node(|inner| {
                    Ok::<_, MachineFault>(inner.node.facts(FACTS_AT_ONCE, FACTS_WAIT_MAX))
                });
                match look.await {
                    Ok(facts) if facts.is_empty() => {}
                    Ok(facts) => return facts,
                    Err(fault) => {
                        tracing::error!(%fault, "facts cannot be read; it is tried again");
                        tokio::time::sleep(FACTS_RETRY_AFTER).await;
                    }
                }
            }
        })
    }

    fn let_go(&self, number: u64) -> BoxFuture<'_, Result<(), MachineFault>> {
        Box::pin(self.machine.on_node(move |inner| {
            inner.node.forget(number).map_err(|error| MachineFault(error.to_string()))
        }))
    }

    fn say_again(&self, instances: Vec<InstanceName>) -> BoxFuture<'_, Result<(), MachineFault>> {
        Box::pin(self.machine.on_node(move |inner| {
            inner.node.say_again(&instances);
            Ok(())
        }))
    }

    fn attend<'a>(
        &'a self,
        instance: &'a InstanceName,
        from: u64,
        printed: mpsc::Sender<Printed>,
    ) -> BoxFuture<'a, Result<WorkEnd, MachineFault>> {
        Box::pin(async move {
            self.machine.wake_work(instance).await?;
            self.machine.attend(instance, from, printed).await
        })
    }

    fn start_failure<'a>(&'a self, instance: &'a InstanceName) -> BoxFuture<'a, Option<String>> {
        Box::pin(self.machine.start_failure(instance))
    }

    fn interrupt<'a>(
        &'a self,
        instance: &'a InstanceName,
    ) -> BoxFuture<'a, Result<(), MachineFault>> {
        Box::pin(async move {
            // A sleeping instance cannot hear it. One that had ended before this program started is
            // not known to standby, which must not wait for it.
            let until = Instant::now() + WAKE_MAX;
            let _visit = match self.machine.0.leases.purpose(instance) {
                Purpose::Replica => self.standby.enter_known(instance.as_str(), until).await.ok(),
                Purpose::Serve | Purpose::Work => None,
            };
            self.machine.interrupt(instance).await
        })
    }

    fn probe<'a>(&'a self, instance: &'a InstanceName, port: u16) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            // A sleeping instance that listens accepts the connection all the same, and stays
            // asleep.
            if self.takes_connections(instance, port).await {
                return self.ends_start(instance);
            }
            // One that does not listen yet stays awake until it does, however long that takes.
            let Ok(_visit) = self.standby.enter(instance.as_str()).await else { return false };
            self.takes_connections(instance, port).await && self.ends_start(instance)
        })
    }

    fn start_process<'a>(
        &'a self,
        instance: &'a InstanceName,
        order: Bytes,
    ) -> BoxFuture<'a, Result<ProcessAnswer, MachineFault>> {
        Box::pin(async move {
            let request = process_request(order);
            let fault = |error: &dyn std::error::Error| MachineFault(chain(error));
            let answer = self
                .standby
                .call(instance.as_str(), request.map(Full::new))
                .await
                .map_err(|error| fault(&error))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX)
                .collect()
                .await
                .map_err(|error| fault(&*error))?;
            Ok(ProcessAnswer { status: head.status.as_u16(), body: body.to_bytes() })
        })
    }
}

/// Returns the call of the sandbox API that starts a process.
fn process_request(order: Bytes) -> http::Request<Bytes> {
    let mut request = http::Request::new(order);
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = http::Uri::from_static("/process");
    let json = http::HeaderValue::from_static("application/json");
    request.headers_mut().insert(http::header::CONTENT_TYPE, json);
    request
}
