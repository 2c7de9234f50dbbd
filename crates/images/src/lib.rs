//! Images on this machine: a content-addressed store of layers, unpacked once and shared, and the
//! ways in and out.
//!
//! - In: OCI layouts, `docker save` archives and plain root filesystems ([`Store::import_folder`],
//!   [`Store::import_archive`], [`Store::import_rootfs`]).
//! - From registries: [`Puller::pull`]. Made here: [`Store::make`], and [`build`] for tenants.
//! - Out: [`Store::resolve`] answers the folders that an overlay is mounted from; [`Store::export`]
//!   writes a layout.
//! - Pushed here: [`Store::begin_upload`], [`Repository::put_manifest`]; started after
//!   [`Store::prepare`].
//! - [`Store::pin`] keeps what runs; [`Store::collect`] removes what nothing needs.
//!
//! ```text
//! blobs/sha256/<digest>   as they came, each verified while it was written
//! partial/<digest>        downloads that can be continued
//! layers/<form>/<digest>  unpacked for overlayfs, named by the digest of the unpacked archive
//! names/<digest>          which image a name means
//! builds/<workspace>/     which layer a step of a build gave
//! repositories/<digest>/  what the repositories of workspaces have
//! ready/<digest>          images of workspaces that were looked at and may be started
//! uploads/<id>/           blobs that come in pieces
//! scratch/<n>/            work in progress of one process; what is left of one that has ended is cleared away
//! ```
//!
//! Whatever has its final name is whole and on disk, so a crash at any moment leaves nothing but
//! `scratch`, a download to continue, or blobs that the next collection removes. Several processes
//! may have a store open.

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
pub use reference::{DEFAULT_HOST, DEFAULT_TAG, InvalidReference, Reference};
pub use repositories::{Blob, Filed, Keep, PushFault, Pushed, Repository};
pub use settings::{Devices, Limits, Names, Overlay, Privileges, Rules, Settings};
pub use store::{Image, Listed, Store};
pub use uploads::{LeftUpload, Upload};
