//! What all builds share.

use super::caches::Caches;
use super::fetch::Fetcher;
use super::settings::Settings;
use super::sources::Folder;
use crate::LocalMachine;
use types::World;

/// What is needed to work on a build.
pub(super) struct Shared {
    pub(super) machine: LocalMachine,
    pub(super) settings: Settings,
    pub(super) folder: Folder,
    pub(super) caches: Caches,
    pub(super) fetcher: Fetcher,
    pub(super) world: World,
}
