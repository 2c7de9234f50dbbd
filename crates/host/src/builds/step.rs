//! Runs a RUN: one piece of work in an instance made only for it, with the same isolation and
//! limits as any other.

use super::caches::Held;
use super::drive::Job;
use crate::LocalMachine;
use control::machine::BuildFault;
use images::build::{RunOrder, What};
use node::{CreateError, Extras, Mounted, Owner, Spec, User, Writable, Written};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;
use types::guest::Settings;
use types::instance::{BuildStepId, GUEST_PORT, InstanceName, Medium, Outcome, Scratch, WorkEnd};
use types::work::Orders;

const HOSTNAME: &str = "build";
/// Grace period for a program to end when its time is up.
const GRACE: Duration = Duration::from_secs(2);
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// How many pieces of output can be on their way to the log.
const PIECES_MAX: usize = 16;
/// How often to try again while there is no room for a step.
const ROOM_POLL: Duration = Duration::from_millis(250);
/// Unless a size is given, a folder in memory gets one part in this many of the instance's memory.
const EMPTY_OF_MEMORY: u32 = 4;

/// An instance that is removed however the build ends.
struct Running {
    machine: LocalMachine,
    id: InstanceName,
}

impl Drop for Running {
    fn drop(&mut self) {
        match self.machine.0.node.destroy(&self.id) {
            Ok(()) | Err(node::Error::Missing(_)) => {}
            Err(error) => {
                tracing::error!(%error, instance = %self.id, "a step of a build cannot be removed; the next start does");
            }
        }
    }
}

impl Job {
    /// Runs a command to its end. What it wrote is complete then, and none of its processes runs
    /// any more.
    pub(super) fn run(&self, order: &RunOrder, number: u32) -> Result<Written, BuildFault> {
        let held = self.caches(order)?;
        let id = InstanceName::of_build_step(&BuildStepId {
            build: self.order.build.clone(),
            step: number,
        });
        let machine = self.shared.machine.clone();
        // An earlier try may have left one.
        drop(Running { machine: machine.clone(), id: id.clone() });
        let spec = self.spec(order, id.clone(), &held)?;
        self.create(&spec)?;
        let running = Running { machine: machine.clone(), id: id.clone() };
        let broken = |error: node::Error| BuildFault::Broken(types::chain(&error));
        let written = machine.0.node.written(&id).map_err(broken)?;
        let written = written
            .ok_or_else(|| BuildFault::Broken("what a step wrote is not handed over".to_owned()))?;
        let (printed, mut pieces) = mpsc::channel(PIECES_MAX);
        let both = async {
            let passing = async {
                while let Some(piece) = pieces.recv().await {
                    self.log.pass_on(piece).await;
                }
            };
            tokio::join!(machine.attend(&id, 0, printed), passing).0
        };
        let end = self.wait(both)?.map_err(|fault| BuildFault::Broken(fault.to_string()))?;
        // Nothing may write into the layer any more when it is packed.
        drop(running);
        drop(held);
        judge(&end, self.shared.settings.memory_mb)?;
        Ok(written)
    }

    /// Creates the instance. Waits while other work of the workspace, or of all, has the resources
    /// it needs. It would get them if it were alone, because no step is larger than that.
    fn create(&self, spec: &Spec) -> Result<(), BuildFault> {
        let mut is_told = false;
        loop {
            let error = match self.shared.machine.0.node.create(spec) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            let CreateError::Refused(refused) = error else { return Err(fault(&error)) };
            if !is_told {
                let why = crate::refusals::over_limit(refused);
                self.log.line(&format!("waiting for room: {why}"));
                is_told = true;
            }
            self.wait(tokio::time::sleep(ROOM_POLL))?;
        }
    }

    fn caches(&self, order: &RunOrder) -> Result<BTreeMap<String, Held>, BuildFault> {
        let mut held = BTreeMap::new();
        let mut names: Vec<&String> = order
            .mounts
            .iter()
            .filter_map(|mount| match &mount.what {
                What::Cache { name, .. } => Some(name),
                _ => None,
            })
            .collect();
        names.sort();
        names.dedup();
        for name in names {
            let taken = self.wait(self.shared.caches.take(self.order.workspace.as_str(), name))?;
            let taken = taken.map_err(|error| BuildFault::Broken(types::chain(&error)))?;
            held.insert(name.clone(), taken);
        }
        Ok(held)
    }

    fn spec(
        &self,
        order: &RunOrder,
        id: InstanceName,
        held: &BTreeMap<String, Held>,
    ) -> Result<Spec, BuildFault> {
        let settings = &self.shared.settings;
        let broken = |error: &dyn std::error::Error| BuildFault::Broken(types::chain(error));
        let owner = Owner::new(self.order.workspace.as_str()).map_err(|error| broken(&error))?;
        let (mounts, scratch) = self.mounts(order, held)?;
        Ok(Spec {
            owner,
            again: false,
            layers: order.layers.clone(),
            snapshot: None,
            memory_mb: settings.memory_mb,
            cpu_millicores: Spec::cpu_for(settings.memory_mb),
            pids_max: self.shared.machine.0.pids_max,
            writable: Writable::Disk { mb: settings.disk_mb },
            hostname: HOSTNAME.to_owned(),
            workdir: order.workdir.clone(),
            user: User::ROOT,
            first: self.shared.machine.0.first_process(GUEST_PORT, &self.settings(order, &id), &[]),
            scratch,
            extras: Extras {
                hands_over: true,
                is_offline: !order.has_network || !settings.has_network,
                mounts,
            },
            firewall: node::Firewall::default(),
            id,
        })
    }

    fn settings(&self, order: &RunOrder, id: &InstanceName) -> Settings {
        let left = self.time_left().as_millis();
        let work = Orders {
            command: order.command.clone(),
            secret: self.shared.machine.0.key.secret(id),
            timeout_ms: u64::try_from(left).ok(),
            grace_ms: u64::try_from(GRACE.as_millis()).unwrap_or(u64::MAX),
            output_bytes_max: OUTPUT_BYTES_MAX,
        };
        Settings {
            env: order.environment.iter().cloned().collect(),
            workdir: Some(order.workdir.clone()),
            user: Some(order.user.clone()),
            work: Some(work),
            ..Settings::default()
        }
    }

    fn mounts(
        &self,
        order: &RunOrder,
        held: &BTreeMap<String, Held>,
    ) -> Result<(Vec<node::Mount>, Vec<Scratch>), BuildFault> {
        let settings = &self.shared.settings;
        let (mut mounts, mut scratch) = (Vec::new(), Vec::new());
        for mount in &order.mounts {
            let what = match &mount.what {
                What::Bind(path) => Mounted::Bind(path.clone()),
                What::File { content, mode, owner } => {
                    Mounted::File { content: content.clone(), mode: *mode, owner: *owner }
                }
                What::Cache { name, read_only, mode, owner } => {
                    let held = held.get(name).ok_or_else(|| {
                        BuildFault::Broken(format!("the folder `{name}` was not taken"))
                    })?;
                    Mounted::Kept {
                        file: held.file.clone(),
                        size_mb: settings.cache_mount_mb,
                        mode: *mode,
                        owner: *owner,
                        read_only: *read_only,
                    }
                }
                What::Empty { size_mb } => {
                    let most = settings.memory_mb / EMPTY_OF_MEMORY;
                    scratch.push(Scratch {
                        path: mount.target.clone(),
                        size_mb: size_mb.map_or(most, |mb| mb.min(most)),
                        read_only: false,
                        medium: Medium::Memory,
                    });
                    continue;
                }
            };
            mounts.push(node::Mount { path: mount.target.clone(), what });
        }
        Ok((mounts, scratch))
    }
}

fn fault(error: &CreateError) -> BuildFault {
    match error {
        CreateError::Spec(_) => BuildFault::Failed(error.to_string()),
        other => BuildFault::Broken(types::chain(other)),
    }
}

fn judge(end: &WorkEnd, memory_mb: u32) -> Result<(), BuildFault> {
    let failed = |why: String| Err(BuildFault::Failed(why));
    match &end.outcome {
        Outcome::Exited(0) => Ok(()),
        Outcome::Exited(code) => failed(format!("the command ended with exit code {code}")),
        Outcome::Killed(signal) => failed(format!("the command was killed by signal {signal}")),
        Outcome::OutOfMemory => {
            failed(format!("the command needs more than the {memory_mb} MB of memory of a build"))
        }
        Outcome::NotStarted(why) | Outcome::NoImage(why) => {
            failed(format!("the command does not start: {why}"))
        }
        Outcome::TimedOut => failed("the time of the build is over".to_owned()),
        Outcome::Interrupted => failed("the build was stopped".to_owned()),
        Outcome::Lost(why) => Err(BuildFault::Broken(why.clone())),
    }
}
