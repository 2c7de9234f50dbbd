//! The image store of this machine: content-addressed layers, unpacked once and shared, and the
//! ways to bring images in and out.
//!
//! - Import: OCI layouts, `docker save` archives and plain root filesystems
//!   ([`Store::import_folder`], [`Store::import_archive`], [`Store::import_rootfs`]).
//! - Pull from a registry: [`Puller::pull`]. Build here: [`Store::make`] for recipes, and [`build`]
//!   for tenants' Dockerfiles.
//! - Run and export: [`Store::resolve`] returns the folders that an overlay is mounted from;
//!   [`Store::export`] writes an OCI layout.
//! - Push to a repository here: [`Store::begin_upload`], [`Repository::put_manifest`]. A pushed
//!   image can be started after [`Store::prepare`].
//! - [`Store::pin`] keeps an image while it runs; [`Store::collect`] removes whatever nothing
//!   needs.
//!
//! ```text
//! blobs/sha256/<digest>   blobs as received, each verified while it was written
//! partial/<digest>        downloads that can be resumed
//! layers/<form>/<digest>  layers unpacked for overlayfs, by the digest of the unpacked archive
//! names/<digest>          maps one image name to its image
//! builds/<workspace>/     cache of build steps and the layers they produced
//! repositories/<digest>/  contents of the workspaces' repositories
//! ready/<digest>          images of workspaces that were checked and may be started
//! uploads/<id>/           blobs that arrive in pieces
//! scratch/<n>/            work in progress of one process; removed after that process has ended
//! ```
//!
//! Whatever has its final name is complete and flushed to disk, so a crash at any moment leaves
//! only `scratch`, a download to resume, or blobs that the next collection removes. Several
//! processes may have a store open.

mod blobs;
mod bootstrap;
pub mod build;
mod builder;
mod collect;
pub mod contents;
mod digest;
mod disk;
mod error;
mod export;
mod extend;
mod import;
mod layers;
mod leases;
mod manifest;
mod names;
mod packing;
mod pull;
mod ready;
mod recipe;
mod reference;
mod repositories;
mod reuse;
mod scratch;
mod settings;
mod store;
mod tar;
mod unpack;
mod uploads;

pub use builder::{Builder, RecipeError, Step};
pub use collect::Collected;
pub use digest::{Digest, InvalidDigest};
pub use error::Error;
pub use import::{Imported, Naming};
pub use leases::Lease;
pub use manifest::{Config, Platform};
pub use pull::{Credentials, Progress, PullError, Puller, RetryPolicy};
pub use recipe::{Changes, Content, Recipe};
pub use reference::{DEFAULT_HOST, DEFAULT_TAG, InvalidReference, Reference, names_registry};
pub use repositories::{Blob, Filed, Keep, PushFault, Pushed, Repository};
pub use settings::{Devices, Limits, Names, Overlay, Privileges, Rules, Settings};
pub use store::{Image, Listed, Store};
pub use uploads::{LeftUpload, Upload};
