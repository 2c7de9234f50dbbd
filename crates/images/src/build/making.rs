//! One build: its work folder, and what each step does.

use super::budget::Budget;
use super::cache::is_plain;
use super::config::{Change, Document, absolute};
use super::copy::make_folders;
use super::dockerfile::{Base, Dockerfile, Plan, Stage};
use super::instruction::{Instruction, Step, Transfer};
use super::layers::{Written, tidy};
use super::project::{Given, Project};
use super::run::RunOrder;
use super::scope::{self, PLATFORM_ARGUMENTS, platform_argument};
use super::sources::{SourceLimits, read_project, unpack_archive};
use super::stage::{Layer, State};
use super::supplies::{From, Supplies, Supply};
use super::users::{self, Owner};
use super::{Fault, words};
use crate::digest::Hasher;
use crate::disk;
use crate::error::Error;
use crate::leases::Lease;
use crate::manifest::{self, Manifest, OCI_CONFIG, OCI_MANIFEST};
use crate::reference::Reference;
use crate::store::{Image, Store, check};
use crate::unpack::Tree;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Limits on what one build may take.
#[derive(Debug, Clone)]
pub struct Limits {
    pub sources: SourceLimits,
    /// Most bytes that one step may copy.
    pub step_bytes: u64,
    pub step_entries: usize,
    pub layers: usize,
    /// Most bytes of all cached steps of one workspace.
    pub cache_bytes: u64,
}

/// The workspace of a build, its time and its limits.
#[derive(Debug, Clone)]
pub struct Order {
    /// A plain name: letters, digits, `-` and `_`.
    pub workspace: String,
    /// Time as images record it: `2026-01-31T12:00:00Z`.
    pub now: String,
    pub limits: Limits,
}

/// The state of one build. Its files are removed when it is dropped or, after a crash, when the
/// store is next opened.
pub struct Build {
    pub(super) store: Store,
    pub(super) lease: Lease,
    folder: PathBuf,
    pub(super) order: Order,
    pub(super) limits: Limits,
    pub(super) given: Given,
    count: AtomicU64,
}

/// The result of a step.
pub enum Outcome {
    /// The step changed no file.
    Noted,
    Layer {
        was_cached: bool,
        bytes: u64,
    },
    /// A command has to be run.
    Run(Box<RunOrder>),
}

impl Build {
    pub fn begin(store: &Store, order: Order) -> Result<Self, Fault> {
        if !is_plain(&order.workspace) {
            return Err(Fault::Sources("the workspace has no plain name".to_owned()));
        }
        let folder = store.0.scratch();
        disk::make_folder(&folder.join("empty"))?;
        // A RUN as any user may bind it.
        disk::make_open_folder(&folder.join("context"))?;
        let limits = order.limits.clone();
        Ok(Self {
            lease: store.0.leases.take(),
            store: store.clone(),
            folder,
            order,
            limits,
            given: Given::default(),
            count: AtomicU64::new(0),
        })
    }

    /// Unpacks the uploaded archive, and reads the settings that it contains.
    pub fn unpack(&mut self, archive: &Path) -> Result<Project, Fault> {
        let folder = self.context();
        unpack_archive(archive, &folder, self.limits.sources)?;
        let project = read_project(&folder)?;
        self.given = project.given()?;
        Ok(project)
    }

    pub fn given(&self) -> &Given {
        &self.given
    }

    pub fn plan(&self, file: &Dockerfile) -> Result<Plan, super::Mistake> {
        file.plan(&self.given.arguments)
    }

    /// Returns the path of a new file in the build's folder.
    pub fn next_file(&self) -> PathBuf {
        self.folder.join(self.count.fetch_add(1, Ordering::Relaxed).to_string())
    }

    pub(super) fn next_folder(&self, what: &str) -> Result<PathBuf, Error> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let folder = self.folder.join(format!("{what}-{number}"));
        disk::make_folder(&folder)?;
        Ok(folder)
    }

    pub(super) fn context(&self) -> PathBuf {
        self.folder.join("context")
    }

    pub(super) fn empty(&self) -> PathBuf {
        self.folder.join("empty")
    }

    pub fn scratch(&self, plan: &Plan) -> State {
        State::new(Document::scratch(), Vec::new(), plan.escape)
    }

    /// Begins a stage with an image of the store, which the build keeps from here on.
    pub fn image(&self, plan: &Plan, supply: Supply) -> Result<State, Fault> {
        let digest = match supply {
            Supply::Image(digest) => digest,
            Supply::StandIn => {
                let mut state = self.scratch(plan);
                state.is_stand_in = true;
                return Ok(state);
            }
        };
        self.lease.hold(crate::leases::Held::Image(digest));
        let Some((image, _pinned)) = self.store.pin(&digest)? else {
            return Err(Fault::Sources("an image is gone since it was found".to_owned()));
        };
        let (document, layers) = self.documents(&image)?;
        Ok(State::new(document, layers, plan.escape))
    }

    fn documents(&self, image: &Image) -> Result<(Document, Vec<Layer>), Error> {
        let parts = &self.store.0;
        let (manifest, _) = parts.documents(&image.digest)?;
        let max = parts.settings.limits.document_bytes_max;
        let bytes = parts.blobs.document("configuration", &manifest.config.digest, max)?;
        let mut document: Document = manifest::read("configuration", &bytes)?;
        document.complete_history();
        let mut layers = Vec::new();
        for (packed, unpacked) in manifest.layers.into_iter().zip(document.layers()) {
            let bytes = parts.layers.bytes(unpacked)?.unwrap_or(0);
            let packed = packed.into_oci();
            layers.push(Layer { packed, unpacked: *unpacked, bytes });
        }
        Ok((document, layers))
    }

    /// Lists what a step needs from outside: names of images, and addresses to download.
    pub fn wants(
        &self,
        plan: &Plan,
        stage: &Stage,
        state: &State,
        step: &Step,
    ) -> Result<(Vec<String>, Vec<String>), Fault> {
        let mut images = Vec::new();
        let mut want = |name: &str| {
            match plan.source(name, stage.index).map_err(Fault::Sources)? {
                Base::Image(name) => images.push(name),
                Base::Scratch | Base::Stage(_) => {}
            }
            Ok::<_, Fault>(())
        };
        let mut addresses = Vec::new();
        match &step.instruction {
            Instruction::Copy(transfer) => {
                if let Some(from) = &transfer.from {
                    want(from)?;
                }
                if !self.addresses(state, transfer)?.is_empty() && transfer.from.is_none() {
                    return Err(Fault::Sources("COPY takes no addresses; ADD does".to_owned()));
                }
            }
            Instruction::Add(transfer) => addresses = self.addresses(state, transfer)?,
            Instruction::Run(run) => {
                for mount in &run.mounts {
                    let from = mount.split(',').find_map(|part| part.trim().strip_prefix("from="));
                    if let Some(from) = from {
                        want(from)?;
                    }
                }
            }
            _ => {}
        }
        Ok((images, addresses))
    }

    /// Performs one step, or returns the command that has to be run for it.
    pub fn apply(&self, site: &Site<'_>, state: &mut State, step: &Step) -> Result<Outcome, Fault> {
        let by = step.statement.text.as_str();
        match &step.instruction {
            Instruction::Arg(arguments) => {
                let budget = Budget::default();
                for (name, default) in arguments {
                    self.declare(site.plan, state, name, default.as_deref(), &budget)?;
                }
                scope::check_arguments(&state.arguments).map_err(Fault::Sources)?;
                state.note(&self.order.now, by);
                Ok(Outcome::Noted)
            }
            Instruction::Copy(transfer) => self.copy(site, state, transfer, by, false),
            Instruction::Add(transfer) => self.copy(site, state, transfer, by, true),
            Instruction::Workdir(path) => self.workdir(state, path, by),
            Instruction::Run(run) => self.prepare_run(site, state, run, by),
            other => {
                let State { document, arguments, has_cmd, escape, .. } = state;
                let budget = Budget::default();
                let mut change = Change { document, arguments, escape: *escape, budget, has_cmd };
                change.apply(other).map_err(Fault::Sources)?;
                state.note(&self.order.now, by);
                Ok(Outcome::Noted)
            }
        }
    }

    fn declare(
        &self,
        plan: &Plan,
        state: &mut State,
        name: &str,
        default: Option<&str>,
        budget: &Budget,
    ) -> Result<(), Fault> {
        let default = match default {
            Some(text) => {
                let value = words::value(text, state.escape, &state.scope(), budget);
                Some(value.map_err(Fault::Sources)?)
            }
            None => plan.globals.get(name).cloned(),
        };
        let given = self.given.arguments.get(name).cloned();
        let platform =
            PLATFORM_ARGUMENTS.contains(&name).then(|| platform_argument(name)).flatten();
        if let Some(value) = given.or(default).or(platform) {
            state.arguments.insert(name.to_owned(), value);
        }
        Ok(())
    }

    fn workdir(&self, state: &mut State, path: &str, by: &str) -> Result<Outcome, Fault> {
        let path = words::value(path, state.escape, &state.scope(), &Budget::default());
        let path = path.map_err(Fault::Sources)?;
        if path.is_empty() || path.contains('\0') {
            return Err(Fault::Sources("WORKDIR names no folder".to_owned()));
        }
        let path = absolute(state.workdir(), &path);
        let place = PathBuf::from(path.trim_start_matches('/'));
        let is_there = place.as_os_str().is_empty() || self.view(state)?.folder(&place).is_ok();
        let outcome = match is_there {
            true => {
                state.note(&self.order.now, by);
                Outcome::Noted
            }
            false => {
                let Owner { uid, gid } = self.user(state)?;
                let key = self.chain(state, &format!("workdir {uid}:{gid} {path}"));
                self.write(state, &key, by, |tree| make_folders(tree, &place, (uid, gid)))?
            }
        };
        state.document.config.working_dir = path;
        Ok(outcome)
    }

    /// Returns the user that USER names, or else root.
    pub(super) fn user(&self, state: &State) -> Result<Owner, Fault> {
        match state.document.config.user.as_str() {
            "" => Ok(Owner { uid: 0, gid: 0 }),
            user => users::user(&self.view(state)?, user),
        }
    }

    fn copy(
        &self,
        site: &Site<'_>,
        state: &mut State,
        transfer: &Transfer,
        by: &str,
        unpacks: bool,
    ) -> Result<Outcome, Fault> {
        let from = self.source(site, transfer.from.as_deref().unwrap_or_default())?;
        let prepared = self.transfer(state, transfer, &from, &site.supplies.downloads, unpacks)?;
        let mut hasher = Hasher::default();
        hasher
            .update(self.chain(state, if unpacks { "add" } else { "copy" }).to_string().as_bytes());
        hasher.update(prepared.digest(&from)?.to_string().as_bytes());
        let key = hasher.finish();
        let bytes_max = self.limits.step_bytes;
        let before = state.clone();
        self.write(state, &key, by, |tree| prepared.write(&before, &from, tree, bytes_max))
    }

    /// Resolves `--from`. An empty name means the sources themselves.
    fn source(&self, site: &Site<'_>, name: &str) -> Result<From, Fault> {
        if name.is_empty() {
            let folder = self.context();
            let tree = Tree::open(&folder)?;
            return Ok(From { tree, has_owners: false, is_stand_in: false, folder: Some(folder) });
        }
        let other;
        let state = match site.plan.source(name, site.stage.index).map_err(Fault::Sources)? {
            Base::Stage(index) => site
                .done
                .get(&index)
                .ok_or_else(|| Fault::Sources(format!("the stage `{name}` was not built")))?,
            Base::Image(name) => {
                let supply =
                    site.supplies.images.get(&name).ok_or_else(|| {
                        Fault::Sources(format!("the image `{name}` was not found"))
                    })?;
                other = self.image(site.plan, *supply)?;
                &other
            }
            Base::Scratch => return Err(Fault::Sources("there is nothing in `scratch`".into())),
        };
        Ok(From {
            tree: self.view(state)?,
            has_owners: true,
            is_stand_in: state.is_stand_in && state.layers.is_empty(),
            folder: None,
        })
    }

    fn prepare_run(
        &self,
        site: &Site<'_>,
        state: &mut State,
        run: &super::instruction::Run,
        by: &str,
    ) -> Result<Outcome, Fault> {
        if state.layers.is_empty() {
            return Err(Fault::Sources("there is nothing yet that could run: FROM scratch".into()));
        }
        let source = |name: &str| self.source(site, name);
        let order = self.order(state, run, by, &source)?;
        match self.reuse(state, &order.key, by)? {
            Some(outcome) => Ok(outcome),
            None => {
                order.copy()?;
                Ok(Outcome::Run(Box::new(order)))
            }
        }
    }

    /// Stores what a command wrote, over the layers of its order, as the next layer. `root` is the
    /// id on this machine that was root inside.
    pub fn finish_run(
        &self,
        state: &mut State,
        order: &RunOrder,
        upper: &Path,
        root: u32,
    ) -> Result<Outcome, Fault> {
        let written = Written { upper, root };
        let mounts: Vec<&str> = order.mounts.iter().map(|mount| mount.target.as_str()).collect();
        tidy(&self.view(state)?, &written, &mounts)?;
        self.keep(state, &order.key, &order.by, &written)
    }

    /// Stores the image of the last stage for workspaces that are granted it, and returns it.
    pub fn store(&self, mut state: State, name: &Reference) -> Result<Image, Fault> {
        let parts = &self.store.0;
        state.document.created.get_or_insert_with(|| self.order.now.clone());
        let config = manifest::write("configuration", &state.document)?;
        if config.len() as u64 > parts.settings.limits.document_bytes_max {
            return Err(Fault::Sources("the configuration of the image is too large".to_owned()));
        }
        if state.layers.is_empty() {
            return Err(Fault::Sources("there is no file in the image".to_owned()));
        }
        let setup = manifest::read("configuration", &config)?;
        let config = parts.store_document(OCI_CONFIG, &config, &self.lease)?;
        let layers = state.layers.iter().map(|layer| layer.packed.clone()).collect();
        let document = Manifest::new(config, layers);
        check(&document, &setup, parts.settings.limits.layers_max)?;
        let bytes = manifest::write("manifest", &document)?;
        let image = parts.store_document(OCI_MANIFEST, &bytes, &self.lease)?;
        parts.unpack(&image.digest, &self.lease)?;
        parts.keep_granted(name, image.digest)?;
        Ok(self.store.image(image.digest)?)
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        // If this fails, the next start that opens the store removes the folder.
        let _ = disk::remove_tree(&self.folder);
    }
}

/// The place of a step within the build.
pub struct Site<'a> {
    pub plan: &'a Plan,
    pub stage: &'a Stage,
    /// Finished stages by their index.
    pub done: &'a BTreeMap<usize, State>,
    pub supplies: &'a Supplies,
}
