//! A machine that only pretends to run instances.

use super::builder::DIGEST_PREFIX;
use super::snapshots::PretendedSnapshots;
use super::tunnels::PretendedTunnels;
use super::volumes::PretendedVolumes;
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
use host::LocalRegistry;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::{mpsc, watch};
use types::Timestamp;
use types::egress::{EgressEvent, EgressRules};
use types::ids::{ResourceId, WorkspaceId};
use types::instance::{Fact, InstanceName, Outcome, Printed, RunsFor, WorkEnd};
use types::own_image::is_own_image;

pub const IMAGE: &str = "holm/python:latest";
/// An image in a registry that hands it out only to configurations with [`PASSWORD`].
pub const PRIVATE: &str = "registry.example/team/app:v1";
pub const PASSWORD: &str = "open sesame";
const DIGEST: &str = "sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef";

type Script = dyn Fn(&Launch) -> Result<Outcome, LaunchFault> + Send + Sync;

pub struct Pretended {
    script: Box<Script>,
    name: &'static str,
    instances: Mutex<BTreeMap<InstanceName, Option<Outcome>>>,
    /// Outcomes of replicas that have ended; all others are running.
    pub ended: watch::Sender<BTreeMap<InstanceName, Outcome>>,
    /// Whether the private image is on the machine.
    fetched: AtomicBool,
    /// The workspaces' own registry, which is real.
    kept: Option<(images::Store, LocalRegistry)>,
    volumes: Option<PretendedVolumes>,
    snapshots: Option<PretendedSnapshots>,
    tunnels: Option<PretendedTunnels>,
    listed: AtomicUsize,
    /// Whether work may end.
    gate: watch::Sender<bool>,
    pub launched: watch::Sender<Vec<Launch>>,
    pub retired: watch::Sender<Vec<String>>,
    /// The rules that instances were told, in order.
    pub told: watch::Sender<Vec<(InstanceName, EgressRules)>>,
    /// Whether telling it rules fails.
    deaf: AtomicBool,
    /// Whether requests keep all instances awake.
    pub busy: watch::Sender<bool>,
    /// Which instances were to sleep, and whether they do.
    pub rested: watch::Sender<Vec<(String, bool)>>,
    /// Whether launches wait.
    held: watch::Sender<bool>,
    /// The workspace whose launches wait for what they begin with, and how many have asked for it.
    unready: watch::Sender<Option<&'static str>>,
    asked: watch::Sender<usize>,
    events: watch::Sender<Vec<EgressEvent>>,
    facts: watch::Sender<Vec<Fact>>,
    /// Of which instances it was asked to tell again.
    pub asked_again: watch::Sender<Vec<InstanceName>>,
}

impl Pretended {
    pub fn new(
        script: impl Fn(&Launch) -> Result<Outcome, LaunchFault> + Send + Sync + 'static,
    ) -> Self {
        Self {
            script: Box::new(script),
            name: "pretended",
            instances: Mutex::default(),
            ended: watch::Sender::default(),
            fetched: AtomicBool::new(false),
            kept: None,
            volumes: None,
            snapshots: None,
            tunnels: None,
            listed: AtomicUsize::new(0),
            gate: watch::Sender::new(true),
            launched: watch::Sender::default(),
            retired: watch::Sender::default(),
            told: watch::Sender::default(),
            deaf: AtomicBool::new(false),
            busy: watch::Sender::new(false),
            rested: watch::Sender::default(),
            held: watch::Sender::new(false),
            unready: watch::Sender::default(),
            asked: watch::Sender::default(),
            events: watch::Sender::default(),
            facts: watch::Sender::default(),
            asked_again: watch::Sender::default(),
        }
    }

    /// Gives it a name of its own.
    pub fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// Adds the workspaces' own registry.
    pub fn keeping(self, store: images::Store, registry: LocalRegistry) -> Self {
        Self { kept: Some((store, registry)), ..self }
    }

    /// Adds tunnels.
    pub fn with_tunnels(self, tunnels: &PretendedTunnels) -> Self {
        Self { tunnels: Some(tunnels.clone()), ..self }
    }

    /// Adds volumes.
    pub fn with_volumes(self, volumes: &PretendedVolumes) -> Self {
        Self { volumes: Some(volumes.clone()), ..self }
    }

    /// Adds snapshots.
    pub fn with_snapshots(self, snapshots: &PretendedSnapshots) -> Self {
        Self { snapshots: Some(snapshots.clone()), ..self }
    }

    /// Adds an instance that an earlier run of the program has left.
    pub fn left(self, instance: InstanceName) -> Self {
        self.instances.lock().insert(instance, Some(Outcome::Exited(0)));
        self
    }

    pub fn add(&self, instance: &InstanceName) {
        self.instances.lock().insert(instance.clone(), Some(Outcome::SUCCESS));
    }

    pub fn lose(&self, instance: &InstanceName) {
        self.instances.lock().remove(instance);
    }

    /// Ends the program of a replica.
    pub fn end(&self, instance: &InstanceName, outcome: Outcome) {
        self.ended.send_modify(|ended| drop(ended.insert(instance.clone(), outcome)));
    }

    /// Waits until `count` instances were launched in all. Returns them.
    pub async fn until_launched(&self, count: usize) -> Vec<Launch> {
        self.until(|launched| launched.len() >= count).await
    }

    /// Waits until the launches are as wanted. Returns them.
    pub async fn until(&self, wanted: impl Fn(&[Launch]) -> bool) -> Vec<Launch> {
        until(&self.launched, |launched| wanted(launched)).await
    }

    /// Waits until an instance was removed.
    pub async fn until_retired(&self, instance: &str) {
        until(&self.retired, |retired| retired.iter().any(|one| one == instance)).await;
    }

    /// Waits until rules were told `count` times in all. Returns them.
    pub async fn until_told(&self, count: usize) -> Vec<(InstanceName, EgressRules)> {
        until(&self.told, |told| told.len() >= count).await
    }

    /// Makes launches wait from now on, or continue.
    pub fn set_held(&self, held: bool) {
        self.held.send_replace(held);
    }

    /// Makes launches of a workspace wait for what they begin with from now on, or of none.
    pub fn set_unready(&self, workspace: Option<&'static str>) {
        self.unready.send_replace(workspace);
    }

    /// Waits until something to begin with was asked for.
    pub async fn until_asked(&self) {
        until(&self.asked, |asked| *asked > 0).await;
    }

    /// Makes telling it rules fail from now on, or work again.
    pub fn set_deaf(&self, deaf: bool) {
        self.deaf.store(deaf, Ordering::SeqCst);
    }

    /// Reports facts, and waits until they are written down.
    pub async fn report(&self, facts: Vec<Fact>) {
        self.facts.send_replace(facts);
        until(&self.facts, Vec::is_empty).await;
    }

    /// Reports an event of an instance's rules.
    pub fn happened(&self, event: EgressEvent) {
        self.events.send_modify(|events| events.push(event));
    }

    /// Returns the names of the existing instances.
    pub fn names(&self) -> Vec<String> {
        self.instances.lock().keys().map(ToString::to_string).collect()
    }

    /// Prints what its environment says, and runs until it is ended.
    async fn attend_replica(
        &self,
        instance: &InstanceName,
        printed: mpsc::Sender<Printed>,
    ) -> Result<WorkEnd, MachineFault> {
        let at = Timestamp::from_ms(1_776_300_000_000);
        let says = {
            let launched = self.launched.borrow();
            let launch = launched.iter().find(|launch| launch.instance == *instance);
            launch.and_then(|launch| variable(launch, "SAYS"))
        };
        if let Some(says) = says {
            let (next, bytes) = (says.len() as u64, Bytes::from(says));
            let piece = Printed { next, at, stream: types::instance::Stream::Stdout, bytes };
            printed.send(piece).await.map_err(|_| missing(instance))?;
        }
        drop(printed);
        let mut ended = self.ended.subscribe();
        let found = ended.wait_for(|ended| ended.contains_key(instance)).await;
        let outcome = found.map_err(|_| missing(instance))?[instance].clone();
        Ok(WorkEnd { outcome, started_at: Some(at), ended_at: at })
    }

    /// Returns how often all instances were listed.
    pub fn listed(&self) -> usize {
        self.listed.load(Ordering::SeqCst)
    }

    pub fn close(&self) {
        self.gate.send_replace(false);
    }

    pub fn open(&self) {
        self.gate.send_replace(true);
    }
}

/// Returns a variable of the environment of a launch.
pub fn variable(launch: &Launch, name: &str) -> Option<String> {
    let found = launch.environment.iter().rev().find(|(known, _)| known == name);
    found.map(|(_, value)| value.clone())
}

/// Waits until a value is as wanted. Returns it.
async fn until<T: Clone>(of: &watch::Sender<T>, wanted: impl FnMut(&T) -> bool) -> T {
    let mut seen = of.subscribe();
    let seen =
        tokio::time::timeout(std::time::Duration::from_secs(60), seen.wait_for(wanted)).await;
    seen.expect("in time").expect("a machine").clone()
}

fn missing(instance: &InstanceName) -> MachineFault {
    MachineFault(format!("there is no instance {instance}"))
}

impl Machine for Pretended {
    fn name(&self) -> &str {
        self.name
    }

    fn find_image(&self, image: &str) -> Result<ImageAt, UnknownImage> {
        match image {
            IMAGE => Ok(ImageAt::Hand),
            PRIVATE => Ok(ImageAt::Registry { name: image.into() }),
            _ => {
                let there_are = vec![IMAGE.into()];
                Err(UnknownImage { wanted: image.into(), there_are, elsewhere: false })
            }
        }
    }

    fn has_image(&self, digest: &str) -> bool {
        let kept = |(store, _): &(images::Store, _)| digest.parse().is_ok_and(|it| store.has(&it));
        digest.starts_with(DIGEST_PREFIX)
            || (digest == DIGEST && self.fetched.load(Ordering::Relaxed))
            || self.kept.as_ref().is_some_and(kept)
    }

    fn fetch_image<'a>(&'a self, launch: &'a Launch) -> BoxFuture<'a, Result<String, LaunchFault>> {
        Box::pin(async move {
            let image = &launch.image;
            if !launch.registries.as_ref().is_some_and(|config| config.contains(PASSWORD)) {
                return Err(LaunchFault::Pull(format!(
                    "{image}: the registry does not let us have the image"
                )));
            }
            self.fetched.store(true, Ordering::Relaxed);
            Ok(DIGEST.into())
        })
    }

    /// The content of the other registry comes from an archive that the test has imported.
    fn fetch_for<'a>(
        &'a self,
        _: &'a WorkspaceId,
        image: &'a str,
        registries: Option<&'a str>,
    ) -> BoxFuture<'a, Result<String, LaunchFault>> {
        Box::pin(async move {
            let refused = || LaunchFault::Pull(format!("{image}: the registry refuses"));
            if !registries.is_some_and(|config| config.contains(PASSWORD)) {
                return Err(refused());
            }
            let (store, _) = self.kept.as_ref().ok_or_else(refused)?;
            let name = image.parse().map_err(|_| refused())?;
            let found = store.find(&name).ok().flatten().ok_or_else(refused)?;
            Ok(found.to_string())
        })
    }

    fn registry(&self) -> Option<Arc<dyn Registry>> {
        self.kept.as_ref().map(|(_, registry)| Arc::new(registry.clone()) as Arc<dyn Registry>)
    }

    fn volumes(&self) -> Option<Arc<dyn VolumeStore>> {
        self.volumes.clone().map(|volumes| Arc::new(volumes) as Arc<dyn VolumeStore>)
    }

    fn snapshots(&self) -> Option<Arc<dyn SnapshotStore>> {
        self.snapshots.clone().map(|snapshots| Arc::new(snapshots) as Arc<dyn SnapshotStore>)
    }

    fn tunnels(&self) -> Option<Arc<dyn TunnelMaker>> {
        self.tunnels.clone().map(|tunnels| Arc::new(tunnels) as Arc<dyn TunnelMaker>)
    }

    fn drives(&self) -> Option<Arc<dyn DriveStore>> {
        self.volumes.clone().map(|volumes| Arc::new(volumes) as Arc<dyn DriveStore>)
    }

    fn make_ready<'a>(&'a self, launch: &'a Launch) -> BoxFuture<'a, Result<(), LaunchFault>> {
        Box::pin(async move {
            self.asked.send_modify(|asked| *asked += 1);
            let workspace = variable(launch, "BL_WORKSPACE");
            let ready =
                |unready: &Option<&str>| unready.is_none() || *unready != workspace.as_deref();
            self.unready.subscribe().wait_for(ready).await.expect("a machine");
            Ok(())
        })
    }

    fn launch(&self, launch: Launch) -> BoxFuture<'_, Result<(), LaunchFault>> {
        Box::pin(async move {
            let store = self.volumes.as_ref().zip(launch.root.as_ref());
            let has_disk = store.is_some_and(|(store, disk)| store.has_image_below(disk));
            let named = launch.image == PRIVATE || is_own_image(&launch.image);
            let granted = named && !has_disk;
            assert_eq!(launch.granted.is_some(), granted, "{launch:?}");
            self.launched.send_modify(|launched| launched.push(launch.clone()));
            self.held.subscribe().wait_for(|held| !held).await.expect("a machine");
            let how = (self.script)(&launch)?;
            if launch.serves.is_some() && how != Outcome::SUCCESS {
                self.end(&launch.instance, how.clone());
            }
            self.instances.lock().insert(launch.instance, Some(how));
            Ok(())
        })
    }

    fn retire<'a>(&'a self, instance: &'a InstanceName) -> BoxFuture<'a, Result<(), MachineFault>> {
        Box::pin(async move {
            if self.instances.lock().remove(instance).is_some() {
                if let Some(tunnels) = &self.tunnels {
                    tunnels.lose(instance);
                }
                self.retired.send_modify(|retired| retired.push(instance.to_string()));
            }
            Ok(())
        })
    }

    fn rest<'a>(&'a self, instance: &'a InstanceName) -> BoxFuture<'a, Result<(), MachineFault>> {
        let sleeps = !*self.busy.borrow();
        self.rested.send_modify(|rested| rested.push((instance.to_string(), sleeps)));
        let in_use = || MachineFault("the instance is in use".into());
        Box::pin(async move { sleeps.then_some(()).ok_or_else(in_use) })
    }

    fn instances(&self) -> Vec<Seen> {
        self.listed.fetch_add(1, Ordering::SeqCst);
        self.instances
            .lock()
            .keys()
            .map(|instance| Seen { instance: instance.clone(), runs: true })
            .collect()
    }

    fn instances_of(&self, sandbox: &ResourceId) -> Vec<Seen> {
        let of_it = |seen: &Seen| seen.instance.launch_of(sandbox).is_some();
        let names = self.instances.lock().keys().cloned().collect::<Vec<_>>();
        names.into_iter().map(|instance| Seen { instance, runs: true }).filter(of_it).collect()
    }

    fn runs(&self, instance: &InstanceName) -> bool {
        self.instances.lock().contains_key(instance)
    }

    fn facts(&self) -> BoxFuture<'_, Vec<Fact>> {
        Box::pin(async {
            let mut facts = self.facts.subscribe();
            facts.wait_for(|facts| !facts.is_empty()).await.expect("a machine").clone()
        })
    }

    fn let_go(&self, number: u64) -> BoxFuture<'_, Result<(), MachineFault>> {
        self.facts.send_modify(|facts| facts.retain(|fact| fact.number > number));
        Box::pin(async { Ok(()) })
    }

    fn say_again(&self, instances: Vec<InstanceName>) -> BoxFuture<'_, Result<(), MachineFault>> {
        self.asked_again.send_modify(|asked| asked.extend(instances));
        Box::pin(async { Ok(()) })
    }

    fn attend<'a>(
        &'a self,
        instance: &'a InstanceName,
        _: u64,
        printed: mpsc::Sender<Printed>,
    ) -> BoxFuture<'a, Result<WorkEnd, MachineFault>> {
        Box::pin(async move {
            if let Some(RunsFor::Replica(_)) = instance.runs_for() {
                return self.attend_replica(instance, printed).await;
            }
            self.gate.subscribe().wait_for(|open| *open).await.map_err(|_| missing(instance))?;
            let outcome = self
                .instances
                .lock()
                .get(instance)
                .cloned()
                .flatten()
                .ok_or_else(|| missing(instance))?;
            let at = Timestamp::from_ms(1_776_300_000_000);
            Ok(WorkEnd { outcome, started_at: Some(at), ended_at: at })
        })
    }

    fn interrupt<'a>(
        &'a self,
        instance: &'a InstanceName,
    ) -> BoxFuture<'a, Result<(), MachineFault>> {
        self.end(instance, Outcome::Interrupted);
        Box::pin(async { Ok(()) })
    }

    /// An instance that must appear unresponsive says so in its environment.
    fn probe<'a>(&'a self, instance: &'a InstanceName, port: u16) -> BoxFuture<'a, bool> {
        let launched = self.launched.borrow();
        let listens =
            launched.iter().find(|launch| launch.instance == *instance).is_none_or(|launch| {
                variable(launch, "SILENT").is_none() && launch.serves == Some(port)
            });
        let runs = !self.ended.borrow().contains_key(instance) && self.runs(instance);
        Box::pin(async move { listens && runs })
    }

    fn set_egress<'a>(
        &'a self,
        instance: &'a InstanceName,
        rules: EgressRules,
    ) -> BoxFuture<'a, Result<(), MachineFault>> {
        Box::pin(async move {
            if self.deaf.load(Ordering::SeqCst) {
                return Err(MachineFault("its firewall is broken".into()));
            }
            if !self.runs(instance) {
                return Err(missing(instance));
            }
            self.told.send_modify(|told| told.push((instance.clone(), rules)));
            Ok(())
        })
    }

    fn egress_events(&self) -> BoxFuture<'_, Vec<EgressEvent>> {
        Box::pin(async move {
            let mut events = self.events.subscribe();
            let some = events.wait_for(|events| !events.is_empty()).await.map(drop);
            some.expect("a machine");
            self.events.send_replace(Vec::new())
        })
    }

    fn start_process<'a>(
        &'a self,
        instance: &'a InstanceName,
        _: Bytes,
    ) -> BoxFuture<'a, Result<ProcessAnswer, MachineFault>> {
        Box::pin(async move { Err(missing(instance)) })
    }
}
