//! Steps that write files over those of their stage, or reuse a cached result.

use super::Fault;
use super::cache::{Cache, Cached, CachedLayer};
use super::layers::{Written, store};
use super::making::{Build, Outcome};
use super::rootfs::{Changes, view};
use super::stage::State;
use crate::digest::{Digest, Hasher};
use crate::disk;
use crate::error::Error;
use crate::unpack::Tree;
use std::path::PathBuf;

impl Build {
    /// Hashes everything that a step builds on.
    pub(super) fn chain(&self, state: &State, by: &str) -> Digest {
        let mut hasher = Hasher::default();
        for layer in &state.layers {
            hasher.update(layer.unpacked.to_string().as_bytes());
        }
        let config = &state.document.config;
        let rest = format!("\0{}\0{}\0{:?}\0{by}", config.user, state.workdir(), config.shell);
        hasher.update(rest.as_bytes());
        hasher.finish()
    }

    fn cache(&self) -> Cache<'_> {
        Cache {
            parts: &self.store.0,
            workspace: &self.order.workspace,
            bytes_max: self.limits.cache_bytes,
        }
    }

    pub(super) fn paths(&self, state: &State) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = Vec::new();
        for layer in &state.layers {
            let root = self.store.0.layers.root(&layer.unpacked);
            // Overlayfs refuses the same layer twice; the higher one hides everything of the lower
            // one.
            paths.retain(|lower| *lower != root);
            paths.push(root);
        }
        if paths.is_empty() {
            paths.push(self.empty());
        }
        paths
    }

    /// Returns the files of a stage as a read-only tree.
    pub(super) fn view(&self, state: &State) -> Result<Tree, Error> {
        let layers: Vec<PathBuf> =
            self.paths(state).into_iter().filter(|path| *path != self.empty()).collect();
        view(&layers, &self.empty(), self.store.0.settings.overlay, None)
    }

    /// Writes files over those of a stage, or reuses what was written before.
    pub(super) fn write(
        &self,
        state: &mut State,
        key: &Digest,
        by: &str,
        fill: impl FnOnce(&Tree) -> Result<(), Fault>,
    ) -> Result<Outcome, Fault> {
        if let Some(outcome) = self.reuse(state, key, by)? {
            return Ok(outcome);
        }
        let folder = self.next_folder("step")?;
        let (upper, work) = (folder.join("upper"), folder.join("work"));
        disk::make_folder(&upper)?;
        disk::make_folder(&work)?;
        let layers: Vec<PathBuf> =
            self.paths(state).into_iter().filter(|path| *path != self.empty()).collect();
        let form = self.store.0.settings.overlay;
        let changes = Changes { upper: &upper, work: &work };
        let tree = view(&layers, &self.empty(), form, Some(&changes))?;
        let filled = fill(&tree);
        drop(tree);
        let outcome =
            filled.and_then(|()| self.keep(state, key, by, &Written { upper: &upper, root: 0 }));
        disk::remove_tree(&folder)?;
        outcome
    }

    pub(super) fn reuse(
        &self,
        state: &mut State,
        key: &Digest,
        by: &str,
    ) -> Result<Option<Outcome>, Fault> {
        let Some(cached) = self.cache().find(key, &self.lease)? else { return Ok(None) };
        let bytes = cached.layer.as_ref().map_or(0, |layer| layer.bytes);
        state.push(cached.layer, &cached.created, by);
        Ok(Some(Outcome::Layer { was_cached: true, bytes }))
    }

    pub(super) fn keep(
        &self,
        state: &mut State,
        key: &Digest,
        by: &str,
        written: &Written<'_>,
    ) -> Result<Outcome, Fault> {
        let layer = store(&self.store, written, self.limits.step_bytes, &self.lease)?;
        if state.layers.len() + usize::from(layer.is_some()) > self.limits.layers {
            return Err(Fault::Sources(format!(
                "the image has more than {} layers",
                self.limits.layers
            )));
        }
        let bytes = layer.as_ref().map_or(0, |layer: &CachedLayer| layer.bytes);
        let cached = Cached { layer, created: self.order.now.clone() };
        self.cache().keep(key, &cached)?;
        state.push(cached.layer, &cached.created, by);
        Ok(Outcome::Layer { was_cached: false, bytes })
    }
}
