//! The rules of each kind, one file per noun.

mod agent;
pub mod application;
pub mod custom_domain;
mod drive;
mod egress_gateway;
mod egress_ip;
mod function;
pub mod image;
pub mod image_share;
mod integration_connection;
mod job;
mod model;
mod policy;
pub mod preview;
pub mod preview_token;
mod sandbox;
pub mod schedule;
mod secret;
mod snapshot;
mod volume;
mod volume_template;
mod vpc;

use crate::context::Context;
use types::KindName;

/// The inference address of a workload.
fn inference_url(context: &Context, kind: KindName, name: &str) -> String {
    let (base, workspace) = (&context.control.settings.public_url, &context.member.workspace_name);
    format!("{base}/{workspace}/{}/{name}", kind.plural())
}
