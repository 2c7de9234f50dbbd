//! The control plane: the generic engine for resources, the rules of each kind of resource, the
//! workloads that run for them, executions and billing. It knows neither HTTP nor status codes.
//!
//! [`engine`] does what all kinds have in common; each module under [`kinds`] holds the rules of
//! one kind. [`workloads`] turns rows into running instances.

mod addresses;
pub mod archives;
mod attachments;
pub mod billing;
pub mod builds;
mod catalogue;
pub mod context;
pub mod control;
mod cursor;
pub mod domains;
pub mod drive_buckets;
pub mod drive_folders;
mod drive_key;
pub mod drive_store;
pub mod drives;
pub mod egress;
pub mod engine;
pub mod error;
pub mod executions;
pub mod forks;
mod hub;
pub mod idempotency;
pub mod installation;
pub mod json;
pub mod kinds;
pub mod machine;
mod machine_fault;
mod missing;
pub mod models;
mod new_names;
mod notes;
pub mod pager;
mod placement;
pub mod placement_policies;
pub mod providers;
pub mod query;
pub mod registry;
pub mod repositories;
mod run_to_end;
pub mod schedule_executions;
mod servers;
mod settings;
mod shared_secret;
mod snapshot_base;
pub mod snapshot_store;
pub mod snapshots;
mod start;
pub mod tunnel_maker;
pub mod tunnels;
mod usage;
pub mod volume_store;
pub mod volume_templates;
pub mod volumes;
mod workload_identity;
pub mod workloads;
pub mod workspace_defaults;
pub mod workspace_removal;

pub use catalogue::Catalogue;
pub use context::Context;
pub use control::Control;
pub use egress::EgressPool;
pub use error::Error;
pub use missing::Missing;
pub use servers::known_machines;
pub use settings::{
    Bill, BodyLimits, Deployments, Egress, Models, Rate, RegistryUpkeep, S3Limits, Settings,
    Snapshots, StreamLimits, TemplateCopies,
};
pub use start::{Parts, start};
