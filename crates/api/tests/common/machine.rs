//! A machine that only pretends to run instances.

use super::builder::DIGEST_PREFIX;
use bytes::Bytes;
use control::machine::{
    ImageAt, Launch, LaunchFault, Machine, MachineFault, ProcessAnswer, Seen, UnknownImage, Wait,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::{mpsc, watch};
use types::Timestamp;
use types::instance::{Fact, InstanceName, Outcome, Printed, WorkEnd};

pub const IMAGE: &str = "holm/python:latest";
/// In a registry that lets those have it whose configuration says [`PASSWORD`].
pub const PRIVATE: &str = "registry.example/team/app:v1";
pub const PASSWORD: &str = "open sesame";
const DIGEST: &str = "sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef";

type Script = dyn Fn(&Launch) -> Result<Outcome, LaunchFault> + Send + Sync;

pub struct Pretended {
    script: Box<Script>,
    instances: Mutex<BTreeMap<InstanceName, Option<Outcome>>>,
    /// Whether the private image is on the machine.
    fetched: AtomicBool,
    listed: AtomicUsize,
    /// Whether work may end.
    gate: watch::Sender<bool>,
    pub launched: watch::Sender<Vec<Launch>>,
    pub retired: watch::Sender<Vec<String>>,
}

impl Pretended {
    pub fn new(
        script: impl Fn(&Launch) -> Result<Outcome, LaunchFault> + Send + Sync + 'static,
    ) -> Self {
        Self {
            script: Box::new(script),
            instances: Mutex::default(),
            fetched: AtomicBool::new(false),
            listed: AtomicUsize::new(0),
            gate: watch::Sender::new(true),
            launched: watch::Sender::default(),
            retired: watch::Sender::default(),
        }
    }

    /// As if an earlier run of the program had left an instance.
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

    /// How often all instances were listed.
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

fn missing(instance: &InstanceName) -> MachineFault {
    MachineFault(format!("there is no instance {instance}"))
}

impl Machine for Pretended {
    fn name(&self) -> &str {
        "pretended"
    }

    fn find_image(&self, image: &str) -> Result<ImageAt, UnknownImage> {
        match image {
            IMAGE => Ok(ImageAt::Hand),
            PRIVATE => Ok(ImageAt::Registry { name: image.into() }),
            _ => Err(UnknownImage { wanted: image.into(), there_are: vec![IMAGE.into()] }),
        }
    }

    fn has_image(&self, digest: &str) -> bool {
        digest.starts_with(DIGEST_PREFIX)
            || digest == DIGEST && self.fetched.load(Ordering::Relaxed)
    }

    fn fetch_image<'a>(&'a self, launch: &'a Launch) -> Wait<'a, Result<String, LaunchFault>> {
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

    fn launch(&self, launch: Launch) -> Wait<'_, Result<(), LaunchFault>> {
        Box::pin(async move {
            assert_eq!(launch.granted.is_some(), launch.image != IMAGE, "{launch:?}");
            self.launched.send_modify(|launched| launched.push(launch.clone()));
            let how = (self.script)(&launch)?;
            self.instances.lock().insert(launch.instance, Some(how));
            Ok(())
        })
    }

    fn retire<'a>(&'a self, instance: &'a InstanceName) -> Wait<'a, Result<(), MachineFault>> {
        Box::pin(async move {
            if self.instances.lock().remove(instance).is_some() {
                self.retired.send_modify(|retired| retired.push(instance.to_string()));
            }
            Ok(())
        })
    }

    fn rest<'a>(&'a self, _: &'a InstanceName) -> Wait<'a, Result<(), MachineFault>> {
        Box::pin(async { Ok(()) })
    }

    fn instances(&self) -> Vec<Seen> {
        self.listed.fetch_add(1, Ordering::SeqCst);
        self.instances
            .lock()
            .keys()
            .map(|instance| Seen { instance: instance.clone(), runs: true })
            .collect()
    }

    fn runs(&self, instance: &InstanceName) -> bool {
        self.instances.lock().contains_key(instance)
    }

    fn facts(&self) -> Wait<'_, Vec<Fact>> {
        Box::pin(std::future::pending())
    }

    fn let_go(&self, _: u64) -> Wait<'_, Result<(), MachineFault>> {
        Box::pin(async { Ok(()) })
    }

    fn attend<'a>(
        &'a self,
        instance: &'a InstanceName,
        _: u64,
        _: mpsc::Sender<Printed>,
    ) -> Wait<'a, Result<WorkEnd, MachineFault>> {
        Box::pin(async move {
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

    fn interrupt<'a>(&'a self, _: &'a InstanceName) -> Wait<'a, Result<(), MachineFault>> {
        Box::pin(async { Ok(()) })
    }

    fn start_process<'a>(
        &'a self,
        instance: &'a InstanceName,
        _: Bytes,
    ) -> Wait<'a, Result<ProcessAnswer, MachineFault>> {
        Box::pin(async move { Err(missing(instance)) })
    }
}
