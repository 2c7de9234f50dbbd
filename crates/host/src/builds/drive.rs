//! Runs one build, from its sources to its image.

use super::fault::{fault, over_limit};
use super::log::Log;
use super::shared::Shared;
use control::machine::{BuildFault, BuildOrder, Built};
use images::build::{
    Base, Build, Dockerfile, Fault, Instruction, Languages, Limits, Order, Outcome, Plan, Site,
    SourceLimits, Stage, State, Statement, Step, Supplies,
};
use images::{Image, Reference};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::watch;
use types::KindName;
use types::ids::{BuildId, WorkspaceId};

const MIB: u64 = 1 << 20;
const STEP_ENTRIES_MAX: usize = 1_000_000;
/// How much of a Dockerfile line is shown in the log.
const SHOWN_CHARS: usize = 200;

pub(super) struct Job {
    pub(super) shared: Arc<Shared>,
    pub(super) order: BuildOrder,
    pub(super) log: Log,
    runtime: Handle,
    stopped: watch::Receiver<()>,
    until: Instant,
    pub(super) registries: Option<String>,
}

/// How far a build is: instructions of all stages that are needed.
struct Progress {
    number: usize,
    of: usize,
    /// The number of the next command that runs, which is part of its instance's name.
    runs: u32,
}

impl Job {
    pub(super) fn new(
        shared: Arc<Shared>,
        order: BuildOrder,
        log: Log,
        runtime: Handle,
        stopped: watch::Receiver<()>,
    ) -> Self {
        let until = Instant::now() + shared.settings.time_max;
        Self { shared, order, log, runtime, stopped, until, registries: None }
    }

    pub(super) fn time_left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Waits for something, but no longer than the build may take or anybody is interested in it.
    pub(super) fn wait<T>(&self, work: impl Future<Output = T>) -> Result<T, BuildFault> {
        let mut stopped = self.stopped.clone();
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                done = work => Ok(done),
                () = tokio::time::sleep_until(self.until.into()) => Err(self.too_slow()),
                _ = stopped.changed() => Err(stop()),
            }
        })
    }

    fn too_slow(&self) -> BuildFault {
        BuildFault::TooSlow(self.shared.settings.time_max)
    }

    fn check_time(&self) -> Result<(), BuildFault> {
        if self.time_left().is_zero() {
            return Err(self.too_slow());
        }
        if self.stopped.has_changed().is_err() {
            return Err(stop());
        }
        Ok(())
    }

    pub(super) fn build(mut self) -> Result<Built, BuildFault> {
        let store = self.shared.machine.0.images.clone();
        let mut build = Build::begin(&store, self.begin_with()).map_err(|error| fault(&error))?;
        let text = self.sources(&mut build)?;
        let wrong = |error: images::build::Mistake| BuildFault::Sources(error.to_string());
        let plan = build.plan(&Dockerfile::parse(&text).map_err(wrong)?).map_err(wrong)?;
        let state = self.stages(&build, &plan)?;
        let public = store.public_layers().map_err(|error| fault(&error.into()))?;
        let bytes = state.bytes_beside(&public);
        let image = self.keep(&build, state, bytes)?;
        Ok(Built { digest: image.digest.to_string(), size_bytes: image.size_bytes })
    }

    fn begin_with(&self) -> Order {
        let settings = &self.shared.settings;
        Order {
            workspace: self.order.workspace.as_str().to_owned(),
            now: self.shared.world.now().to_string(),
            limits: Limits {
                sources: SourceLimits {
                    bytes: settings.unpacked_bytes_max,
                    entries: settings.sources_entries_max,
                    ratio: settings.sources_ratio_max,
                },
                step_bytes: u64::from(settings.disk_mb) * MIB,
                step_entries: STEP_ENTRIES_MAX,
                layers: settings.layers_max,
                cache_bytes: settings.cache_bytes_max,
            },
        }
    }

    /// Unpacks what was uploaded. Returns the Dockerfile, which may be a generated one for the
    /// project's language.
    fn sources(&mut self, build: &mut Build) -> Result<String, BuildFault> {
        let archive = self.shared.folder.path(&self.order.build);
        let wrong = |error: Fault| match error {
            Fault::Sources(why) => BuildFault::Sources(why),
            Fault::Store(error) => BuildFault::Broken(types::chain(&error)),
        };
        let project = build.unpack(&archive).map_err(wrong)?;
        self.registries.clone_from(&project.registries);
        if let Some(text) = project.dockerfile {
            return Ok(text);
        }
        if self.order.kind == KindName::Sandbox {
            return Err(BuildFault::Sources(
                "there is no Dockerfile at the top of the archive; a sandbox is built from one"
                    .to_owned(),
            ));
        }
        let languages = Languages {
            python: self.shared.settings.python_image.clone(),
            node: self.shared.settings.node_image.clone(),
        };
        let text = project.dockerfile_of_language(build.given(), &languages).map_err(wrong)?;
        self.log.line("there is no Dockerfile; this one is used:");
        text.lines().for_each(|line| self.log.line(&format!("  {line}")));
        Ok(text)
    }

    fn stages(&self, build: &Build, plan: &Plan) -> Result<State, BuildFault> {
        let of = plan.stages.iter().map(|stage| stage.steps.len() + 1).sum();
        let mut progress = Progress { number: 0, of, runs: 0 };
        let mut done: BTreeMap<usize, State> = BTreeMap::new();
        let mut last = None;
        for stage in &plan.stages {
            if let Some(state) = last.take() {
                let (index, state): (usize, State) = state;
                done.insert(index, state);
            }
            let state = self.stage(build, plan, stage, &done, &mut progress)?;
            last = Some((stage.index, state));
        }
        let (_, state) = last.ok_or_else(|| BuildFault::Sources("there is no stage".to_owned()))?;
        Ok(state)
    }

    fn stage(
        &self,
        build: &Build,
        plan: &Plan,
        stage: &Stage,
        done: &BTreeMap<usize, State>,
        progress: &mut Progress,
    ) -> Result<State, BuildFault> {
        self.announce(progress, &stage.from);
        let at = |error: BuildFault| at_line(stage.from.line, error);
        let mut state = match &stage.base {
            Base::Scratch => build.scratch(plan),
            Base::Stage(index) => {
                let base = done.get(index);
                base.ok_or_else(|| BuildFault::Broken("a stage is missing".to_owned()))?.as_base()
            }
            Base::Image(name) => {
                let supply = self.supply(name).map_err(at)?;
                build.image(plan, supply).map_err(|error| at(fault(&error)))?
            }
        };
        for text in state.take_triggers() {
            let step = plan.trigger(stage.from.line, &text).map_err(|mistake| {
                BuildFault::Failed(format!("{mistake} (ONBUILD of the image to begin with)"))
            })?;
            progress.of += 1;
            self.step(build, plan, stage, done, progress, &mut state, &step)?;
        }
        for step in &stage.steps {
            self.step(build, plan, stage, done, progress, &mut state, step)?;
        }
        Ok(state)
    }

    #[expect(clippy::too_many_arguments, reason = "they are all of where the build is")]
    fn step(
        &self,
        build: &Build,
        plan: &Plan,
        stage: &Stage,
        done: &BTreeMap<usize, State>,
        progress: &mut Progress,
        state: &mut State,
        step: &Step,
    ) -> Result<(), BuildFault> {
        self.check_time()?;
        self.announce(progress, &step.statement);
        let at = |error: BuildFault| at_line(step.statement.line, error);
        let (images, addresses) =
            build.wants(plan, stage, state, step).map_err(|error| at(fault(&error)))?;
        let mut supplies = Supplies::default();
        for name in images {
            let supply = self.supply(&name).map_err(at)?;
            supplies.images.insert(name, supply);
        }
        for address in addresses {
            let download = self.download(&address, build.next_file()).map_err(at)?;
            supplies.downloads.insert(address, download);
        }
        let site = Site { plan, stage, done, supplies: &supplies };
        let begun = Instant::now();
        let outcome = build.apply(&site, state, step).map_err(|error| at(fault(&error)))?;
        let outcome = match outcome {
            Outcome::Run(order) => {
                let number = progress.runs;
                progress.runs += 1;
                let written = self.run(&order, number).map_err(at)?;
                build
                    .finish_run(state, &order, &written.upper(), written.root)
                    .map_err(|error| at(fault(&error)))?
            }
            other => other,
        };
        self.report(&step.instruction, &outcome, begun.elapsed());
        Ok(())
    }

    fn announce(&self, progress: &mut Progress, statement: &Statement) {
        progress.number += 1;
        let mut shown: String = statement.text.chars().take(SHOWN_CHARS).collect();
        if shown.len() < statement.text.len() {
            shown.push('…');
        }
        self.log.line(&format!("[{}/{}] {shown}", progress.number, progress.of));
    }

    fn report(&self, instruction: &Instruction, outcome: &Outcome, time: Duration) {
        match outcome {
            Outcome::Layer { was_cached: true, .. } => self.log.line("CACHED"),
            Outcome::Layer { bytes, .. } => {
                self.log.line(&format!("done in {:.1} s, {}", time.as_secs_f64(), size(*bytes)));
            }
            Outcome::Noted if matches!(instruction, Instruction::Maintainer(_)) => {
                self.log.line("MAINTAINER is old; a LABEL says the same");
            }
            Outcome::Noted | Outcome::Run(_) => {}
        }
    }

    /// Stores the image, in its workspace's room for images.
    fn keep(&self, build: &Build, state: State, bytes: u64) -> Result<Image, BuildFault> {
        let workspace = self.order.workspace.as_str();
        let name = self.name()?;
        let pulled = &self.shared.machine.0.pulled;
        let room = self.wait(pulled.begin(workspace))?;
        let room = room.map_err(over_limit)?;
        if bytes > room.bytes {
            return Err(BuildFault::OverShare(format!(
                "the image has {} of its own, and its workspace has room for {} on this machine; delete images that are \
                 not needed",
                size(bytes),
                size(room.bytes)
            )));
        }
        let image = build.store(state, &name).map_err(|error| fault(&error))?;
        pulled
            .keep(room, workspace, image.digest, bytes)
            .map_err(|error| BuildFault::Broken(types::chain(&error)))?;
        Ok(image)
    }

    /// Returns the name under which the image stays on the machine until the registry has it.
    fn name(&self) -> Result<Reference, BuildFault> {
        let BuildOrder { build, workspace, repository, .. } = &self.order;
        names_of(build, workspace, repository).parse().map_err(|_| {
            BuildFault::Broken(format!("`{}` cannot name an image", self.order.repository))
        })
    }
}

/// Returns the repository that keeps a build's images on the machine. Each build has its own,
/// because what one releases another may still need.
pub(super) fn names_of(build: &BuildId, workspace: &WorkspaceId, repository: &str) -> String {
    format!("{}/{repository}/{}", workspace.as_str(), build.as_str())
}

fn stop() -> BuildFault {
    BuildFault::Broken("the build was stopped".to_owned())
}

/// Adds the line of the Dockerfile to errors that its author can fix.
fn at_line(line: usize, error: BuildFault) -> BuildFault {
    match error {
        BuildFault::Failed(why) => BuildFault::Failed(format!("Dockerfile, line {line}: {why}")),
        BuildFault::Sources(why) => BuildFault::Sources(format!("Dockerfile, line {line}: {why}")),
        other => other,
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} B"),
        10_000..=9_999_999 => format!("{} kB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}
