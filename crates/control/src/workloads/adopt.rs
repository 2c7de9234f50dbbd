//! Records the edge names of objects that earlier releases created without recording them. Those
//! releases allowed the same name twice; the oldest object keeps it.

use super::rows;
use crate::addresses;
use crate::context::Context;
use crate::control::Control;
use crate::engine::{Held, Managed};
use crate::error::Error;
use store::edge_names::{self, Taken};
use store::{Tx, resources, settings};
use types::edge::domain_name;
use types::ids::ResourceId;
use types::kinds::custom_domain::DomainStatus;
use types::kinds::{CustomDomain, Preview, Sandbox};

/// The setting, and its value, that mark this as done.
const DONE: (&str, &str) = ("edge-names-adopted", "yes");
/// Rows read at once.
const PAGE: i64 = 500;

/// Does this once for each database, before anything is served.
pub(crate) fn adopt(control: &Control, tx: &mut Tx<'_>) -> Result<(), Error> {
    if settings::get(tx, DONE.0)?.as_deref() == Some(DONE.1) {
        return Ok(());
    }
    each(control, tx, |tx, context, held: Held<Sandbox>| {
        addresses::take_label(context, tx, &held.row.id, &held.row.name).map(drop)
    })?;
    each(control, tx, domain)?;
    each(control, tx, preview)?;
    Ok(settings::set(tx, DONE.0, DONE.1)?)
}

/// Acts on all objects of a kind, oldest first.
fn each<K: Managed>(
    control: &Control,
    tx: &mut Tx<'_>,
    act: impl Fn(&mut Tx<'_>, &Context, Held<K>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut ages = Vec::new();
    let mut after: Option<ResourceId> = None;
    loop {
        let rows = resources::scan(tx, K::NAME, after.as_ref(), PAGE)?;
        let Some(last) = rows.last() else { break };
        after = Some(last.id.clone());
        ages.extend(rows.into_iter().map(|row| (row.created_at, row.id)));
    }
    ages.sort_unstable();
    for (_, id) in ages {
        if let Some((context, held)) = rows::lock_in::<K>(control, tx, &id)? {
            act(tx, &context, held)?;
        }
    }
    Ok(())
}

fn domain(tx: &mut Tx<'_>, context: &Context, held: Held<CustomDomain>) -> Result<(), Error> {
    if held.state.status != DomainStatus::Verified || held.state.shared_from_workspace.is_some() {
        return Ok(());
    }
    let wanted = addresses::holder(context, &held.row.id);
    if edge_names::take(tx, &domain_name(&held.row.name), &wanted)? == Taken::Own {
        return Ok(());
    }
    tracing::warn!(domain = held.row.name, "a domain was verified twice; the first keeps it");
    let mut state = held.state.clone();
    state.status = DomainStatus::Failed;
    state.verification_error = Some("another workspace has verified it before".to_owned());
    rows::put_state(tx, held, state).map(drop)
}

fn preview(tx: &mut Tx<'_>, context: &Context, held: Held<Preview>) -> Result<(), Error> {
    let (old, fallback) = addresses::before_states(context, &held);
    let wanted = addresses::holder(context, &held.row.id);
    let at = match edge_names::take(tx, &old.name(), &wanted)? {
        Taken::Own => old,
        Taken::By(_) => {
            tracing::warn!(preview = %held.row.id, "another preview has its address; it gets one of its own");
            edge_names::take(tx, &fallback.name(), &wanted)?;
            fallback
        }
    };
    let mut state = held.state.clone();
    state.at = Some(at);
    rows::put_state(tx, held, state).map(drop)
}
