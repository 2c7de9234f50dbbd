//! A builder that only pretends to build; the sources say what it should do.

use super::volumes::PretendedVolumes;
use bytes::Bytes;
use control::machine::{BuildFault, BuildOrder, Builder, Built, FillOrder, Filled, MachineFault};
use control::volume_store::VolumeFault;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use tokio::sync::{mpsc, watch};
use types::Timestamp;
use types::ids::{BuildId, WorkspaceId};
use types::instance::{Printed, Stream};

/// Start of the digests of images that it has made; the pretended machine has such images.
pub const DIGEST_PREFIX: &str = "sha256:b0b0";

#[derive(Default)]
pub struct PretendedBuilder {
    sources: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Whether waiting builds may continue.
    gate: watch::Sender<bool>,
    pub began: watch::Sender<Vec<BuildOrder>>,
    pub forgot: watch::Sender<Vec<String>>,
    /// Images that are kept for a build.
    pub images: Mutex<BTreeMap<String, String>>,
    /// Ids of workspaces for which it keeps something for later builds.
    pub keeps: Mutex<BTreeSet<String>>,
    /// Where it unpacks the initial contents of volumes.
    pub volumes: Mutex<Option<PretendedVolumes>>,
}

impl PretendedBuilder {
    pub fn open(&self) {
        self.gate.send_replace(true);
    }

    pub fn close(&self) {
        self.gate.send_replace(false);
    }

    /// Counts the builds whose sources are here.
    pub fn kept(&self) -> usize {
        self.sources.lock().len()
    }

    pub async fn until_began(&self, count: usize) {
        let mut began = self.began.subscribe();
        began.wait_for(|began| began.len() >= count).await.expect("a builder");
    }

    async fn script(
        &self,
        order: &BuildOrder,
        printed: &mpsc::Sender<Printed>,
    ) -> Result<Built, BuildFault> {
        let sources = self.sources.lock().get(order.build.as_str()).cloned();
        let sources = sources.ok_or_else(|| BuildFault::Broken("no sources".into()))?;
        let text = String::from_utf8_lossy(&sources).into_owned();
        let line = Printed {
            next: 1,
            at: Timestamp::from_ms(1_776_300_000_000),
            stream: Stream::Stdout,
            bytes: Bytes::from(format!("Step 1: {text}\n")),
        };
        let _ = printed.send(line).await;
        match text.split(' ').next().unwrap_or_default() {
            "fails" => return Err(BuildFault::Failed("step 1 failed".into())),
            "nonsense" => return Err(BuildFault::Sources("it has no Dockerfile".into())),
            "broken" => return Err(BuildFault::Broken("the disk is full".into())),
            "waits" => {
                let _ = self.gate.subscribe().wait_for(|open| *open).await;
            }
            _ => {}
        }
        let hex: String =
            Sha256::digest(&sources).iter().map(|byte| format!("{byte:02x}")).collect();
        let digest = format!("{DIGEST_PREFIX}{}", &hex[..60]);
        self.images.lock().insert(order.build.to_string(), digest.clone());
        Ok(Built { digest, size_bytes: 1000 + sources.len() as u64 })
    }
}

impl Builder for PretendedBuilder {
    fn take_sources<'a>(
        &'a self,
        build: &'a BuildId,
        mut bytes: mpsc::Receiver<io::Result<Bytes>>,
        bytes_max: u64,
    ) -> BoxFuture<'a, Result<u64, BuildFault>> {
        Box::pin(async move {
            self.sources.lock().insert(build.to_string(), Vec::new());
            let mut all = Vec::new();
            while let Some(piece) = bytes.recv().await {
                let piece = piece.map_err(|error| BuildFault::Sources(error.to_string()))?;
                all.extend_from_slice(&piece);
                if all.len() as u64 > bytes_max {
                    return Err(BuildFault::Sources("too large".into()));
                }
            }
            let count = all.len() as u64;
            self.sources.lock().insert(build.to_string(), all);
            Ok(count)
        })
    }

    fn build<'a>(
        &'a self,
        order: &'a BuildOrder,
        printed: mpsc::Sender<Printed>,
    ) -> BoxFuture<'a, Result<Built, BuildFault>> {
        Box::pin(async move {
            self.keeps.lock().insert(order.workspace.to_string());
            self.began.send_modify(|began| began.push(order.clone()));
            self.script(order, &printed).await
        })
    }

    fn fill<'a>(&'a self, order: &'a FillOrder) -> BoxFuture<'a, Result<Filled, BuildFault>> {
        Box::pin(async move {
            let sources = self.sources.lock().get(order.build.as_str()).cloned();
            let sources = sources.ok_or_else(|| BuildFault::Broken("no sources".into()))?;
            let text = String::from_utf8_lossy(&sources).into_owned();
            let (word, number) = text.split_once(' ').unwrap_or((&text, "50"));
            match word {
                "link" => return Err(BuildFault::Failed("it has a link".into())),
                "waits" => {
                    let _ = self.gate.subscribe().wait_for(|open| *open).await;
                }
                _ => {}
            }
            let size_mb = number.parse().expect("megabytes");
            let volumes = self.volumes.lock().clone().expect("volumes");
            volumes.fill(&order.volume, size_mb).map_err(|fault| match fault {
                VolumeFault::OverShare(why) => BuildFault::OverShare(why),
                other => BuildFault::Broken(other.to_string()),
            })?;
            let copy = volumes.copy(&order.volume, order.workspace.as_str());
            Ok(Filled { bytes: sources.len() as u64, copy })
        })
    }

    fn release<'a>(
        &'a self,
        build: &'a BuildId,
        _: &'a WorkspaceId,
        _: &'a str,
    ) -> BoxFuture<'a, Result<(), MachineFault>> {
        Box::pin(async move {
            self.images.lock().remove(build.as_str());
            Ok(())
        })
    }

    fn forget<'a>(&'a self, build: &'a BuildId) -> BoxFuture<'a, Result<(), MachineFault>> {
        Box::pin(async move {
            self.sources.lock().remove(build.as_str());
            self.forgot.send_modify(|forgot| forgot.push(build.to_string()));
            Ok(())
        })
    }

    fn keeps_for(&self) -> BoxFuture<'_, Result<Vec<WorkspaceId>, MachineFault>> {
        let keeps = self.keeps.lock().iter().cloned().map(WorkspaceId::known).collect();
        Box::pin(async { Ok(keeps) })
    }

    fn forget_workspace<'a>(
        &'a self,
        workspace: &'a WorkspaceId,
    ) -> BoxFuture<'a, Result<(), MachineFault>> {
        Box::pin(async move {
            self.keeps.lock().remove(workspace.as_str());
            self.forgot.send_modify(|forgot| forgot.push(workspace.to_string()));
            Ok(())
        })
    }
}
