//! A folder with a user's project: its content, its manifest, and how it is packed and deployed.

pub(crate) mod credentials;
pub(crate) mod folder;
pub(crate) mod ignore;
pub(crate) mod manifest;
pub(crate) mod pack;
pub(crate) mod resource;
mod zip;
