//! One file for each command.

pub(crate) mod apply;
pub(crate) mod backup;
pub(crate) mod cancel;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod connect;
pub(crate) mod cp;
pub(crate) mod delete;
pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod get;
pub(crate) mod image;
pub(crate) mod keys;
pub(crate) mod login;
pub(crate) mod logout;
pub(crate) mod logs;
mod progress;
pub(crate) mod restore;
pub(crate) mod run;
pub(crate) mod token;
pub(crate) mod up;
pub(crate) mod usage;
pub(crate) mod user;
pub(crate) mod version;
pub(crate) mod workspaces;
