//! What the store promises, tested on both databases.

mod backups;
mod bill;
mod builds;
mod common;
mod cuts;
mod deliveries;
mod durability;
mod egress_addresses;
mod encodings;
mod executions;
mod failover;
mod feed;
mod firings;
mod grants;
mod logs;
mod models;
mod resources;
mod rivals;
mod runners;
mod secrets;
mod silence;
mod walks;
mod wishes;
mod workspaces;
