//! The management API and what is served beside it, tested by requests to a whole control plane.
//! All tests are one program: linking one for each file took longer than running it.

mod bad_input;
mod builds;
mod common;
mod deployments;
mod doors;
mod hooks;
mod hostile;
mod mcp;
mod models;
mod nouns_bill;
mod nouns_buckets;
mod nouns_catalogue;
mod nouns_changes;
mod nouns_egress;
mod nouns_followed;
mod nouns_hub;
mod nouns_jobs;
mod nouns_logs;
mod nouns_model_usage;
mod nouns_network;
mod nouns_people;
mod nouns_previews;
mod nouns_sandboxes;
mod nouns_schedules;
mod nouns_templates;
mod nouns_tunnels;
mod nouns_workloads;
mod oauth;
mod openapi;
mod registry;
mod resources;
mod runners;
mod servers;
mod spending;
mod storage;
