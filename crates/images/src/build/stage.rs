//! The state of a stage: its layers, its configuration, and the arguments that it has declared.

use super::cache::CachedLayer;
use super::config::{Document, Happened};
use super::scope::Scope;
use crate::digest::Digest;
use crate::manifest::Descriptor;
use std::collections::{BTreeMap, HashSet};

#[derive(Clone)]
pub struct State {
    pub document: Document,
    pub(super) layers: Vec<Layer>,
    pub(super) arguments: BTreeMap<String, String>,
    pub(super) has_cmd: bool,
    pub(super) escape: char,
    /// Whether its files stand in for the vendor's sandbox image, which does not exist here.
    pub(super) is_stand_in: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Layer {
    pub(super) packed: Descriptor,
    pub(super) unpacked: Digest,
    pub(super) bytes: u64,
}

impl State {
    pub(super) fn new(document: Document, layers: Vec<Layer>, escape: char) -> Self {
        let arguments = BTreeMap::new();
        Self { document, layers, arguments, has_cmd: false, escape, is_stand_in: false }
    }

    pub(super) fn scope(&self) -> Scope<'_> {
        Scope { environment: &self.document.config.env, arguments: &self.arguments }
    }

    pub(super) fn workdir(&self) -> &str {
        match self.document.config.working_dir.as_str() {
            "" => "/",
            folder => folder,
        }
    }

    /// Returns the state from which another stage continues. There, a command that this stage has
    /// set counts as one of the base.
    pub fn as_base(&self) -> Self {
        let mut next = self.clone();
        next.has_cmd = false;
        next.document.config.on_build.clear();
        next
    }

    /// Takes the ONBUILD instructions that the image has for images based on it.
    pub fn take_triggers(&mut self) -> Vec<String> {
        std::mem::take(&mut self.document.config.on_build)
    }

    pub(super) fn push(&mut self, layer: Option<CachedLayer>, created: &str, by: &str) {
        self.document.history.push(Happened {
            created: Some(created.to_owned()),
            created_by: by.to_owned(),
            empty_layer: layer.is_none(),
            ..Happened::default()
        });
        self.document.created = Some(created.to_owned());
        if let Some(CachedLayer { packed, unpacked, bytes }) = layer {
            self.document.rootfs.diff_ids.push(unpacked);
            self.layers.push(Layer { packed, unpacked, bytes });
        }
    }

    /// Records a step that wrote nothing. It gets the time of the step before it, so that the same
    /// sources give the same image.
    pub(super) fn note(&mut self, now: &str, by: &str) {
        let created = self.document.created.clone().unwrap_or_else(|| now.to_owned());
        self.push(None, &created, by);
    }

    /// Returns the size of all layers but these.
    pub fn bytes_beside(&self, others: &HashSet<Digest>) -> u64 {
        let own = self.layers.iter().filter(|layer| !others.contains(&layer.unpacked));
        own.map(|layer| layer.bytes).sum()
    }
}
