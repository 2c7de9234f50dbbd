//! A folder with somebody's project in it: what it holds, what it asks for, and how it travels.

pub(crate) mod credentials;
pub(crate) mod folder;
pub(crate) mod ignore;
pub(crate) mod manifest;
pub(crate) mod pack;
pub(crate) mod resource;
mod zip;
