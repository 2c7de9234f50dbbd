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
use crate::engine::Held;
use crate::error::Error;
use crate::executions::triggered::{Triggered, give_back_addresses};
use crate::placement_policies::{self, Placed};
use crate::workload_identity;
use store::Tx;
use types::kinds::policy::PolicyResourceType;
use types::{Kind, KindName};

/// Returns the inference address of a workload, which is one of the server on its machine.
fn inference_url(context: &Context, kind: KindName, name: &str, machine: Option<&str>) -> String {
    let base = context.control.public_url_at(machine);
    let workspace = &context.member.workspace_name;
    format!("{base}/{workspace}/{}/{name}", kind.plural())
}

/// Refuses a wish if its policies do not allow it to run where it asks to. A disabled workload runs
/// nowhere, so it is not checked. A changed policy counts from the next change of the workload on.
fn require_place<K: Kind>(
    context: &Context,
    tx: &mut Tx<'_>,
    wish: &K,
    resource: impl Into<Option<PolicyResourceType>>,
) -> Result<(), Error> {
    if !wish.enabled() {
        return Ok(());
    }
    let references = wish.references().into_iter();
    let policies = references.filter(|to| to.kind == KindName::Policy).map(|to| to.name);
    let policies: Vec<String> = policies.collect();
    let region = context.region(wish.region());
    let what = Placed { resource: resource.into(), region: Some(&region), flavors: &[] };
    placement_policies::require(context, tx, &policies, what)
}

/// Gives back what an object with triggers holds: the addresses of the triggers, its executions and
/// its service account.
fn release_triggered<K: Triggered>(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<K>,
) -> Result<(), Error> {
    let (workspace, name) = (&held.row.workspace, held.row.name.as_str());
    give_back_addresses::<K>(tx, workspace, name)?;
    context.control.queue.cancel_all(tx, workspace, (K::NAME, name))?;
    Ok(workload_identity::end(context, tx, &held.row)?)
}
