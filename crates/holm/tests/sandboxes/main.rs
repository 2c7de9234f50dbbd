//! Sandboxes with the real program, on this machine: their life, and what holds when the server is
//! killed.
//!
//! `HOLM_FAULTS=long` kills a hundred times; `HOLM_PROGRAM` names a different build of the program.

#![cfg(test)]

mod acme;
mod archives;
mod bills;
mod command_line;
mod dns;
mod domains;
mod fields;
mod hostile;
mod images_below;
mod inside;
mod internet;
mod killed;
mod life;
mod models_killed;
mod network;
mod origins;
mod provider;
mod registry;
mod restored;
mod runtimes;
mod settings;
mod settings_egress;
mod settings_models;
mod settings_objects;
mod settings_s3;
mod setup;
mod snapshots_killed;
mod template_copies;
mod tunnels;
mod volumes;
mod volumes_killed;
mod vpcs;
mod world;
