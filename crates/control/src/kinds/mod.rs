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
pub(crate) mod volume;
mod volume_template;
mod vpc;

use crate::context::Context;
use crate::error::Error;
use store::Tx;
use types::KindName;
use types::parts::Deployment;

/// The inference address of a workload.
fn inference_url(context: &Context, kind: KindName, name: &str) -> String {
    let (base, workspace) = (&context.control.settings.public_url, &context.member.workspace_name);
    format!("{base}/{workspace}/{}/{name}", kind.plural())
}

/// Ends the identity of a deployment that goes.
fn end_identity(context: &Context, tx: &mut Tx<'_>, state: &Deployment) -> Result<(), Error> {
    let Some(identity) = &state.identity else { return Ok(()) };
    Ok(auth::service_accounts::delete_of(tx, &context.member, identity)?)
}
