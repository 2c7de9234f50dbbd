//! A folder with somebody's project in it: what it holds, what it asks for, and how it travels.

pub(crate) mod folder;
pub(crate) mod folder;
