//! New revisions that no replacement of the object asks for: because something that it names has
//! changed, or because a fork gives it another wish.

use super::held::Held;
use super::managed::{Draft, Managed};
use super::verbs::{Replacement, opened, require_references, write_over};
use super::{pending, revisions};
use crate::context::Context;
use crate::error::Error;
use store::Tx;
use types::Kind;
use types::parts::{Deploy, Deployment};

/// Makes a new revision of an unchanged wish, if the object is deployed and `concerns` says that
/// the change affects it. The revision serves once it is ready, as after any change.
pub(crate) fn redeploy<K>(
    context: &Context,
    tx: &mut Tx<'_>,
    name: &str,
    concerns: impl Fn(&K) -> bool,
) -> Result<(), Error>
where
    K: Managed + Kind<State = Deployment>,
{
    let held = Held::<K>::lock(context, tx, &[], name)?;
    let is_built = held.state.lifecycle.building.is_some() || held.state.lifecycle.is_unbuilt();
    if is_built || !held.wish.enabled() || !concerns(&held.wish) {
        return Ok(());
    }
    let mut wish = opened(context, &held)?;
    let state = Deployment::next(Some((&held.state, true)), true, context.world().now());
    let revision = revisions::apply(context, tx, &held, &mut wish, Deploy::New { serves: true })?;
    write_over(context, tx, held, (wish, state), revision).map(drop)
}

/// Adds a revision. With `canary` it takes that percentage of the requests beside the revision that
/// serves; without, it serves once it is ready.
pub(crate) fn add_revision<K>(
    context: &Context,
    tx: &mut Tx<'_>,
    mut held: Held<K>,
    wish: K,
    canary: Option<i64>,
) -> Result<Held<K>, Error>
where
    K: Managed + Kind<State = Deployment>,
{
    let name = held.row.name.clone();
    let Replacement { mut wish, old, .. } = Replacement::new(context, &held, &name, wish)?;
    require_references(context, tx, &wish.references(), &old.references())?;
    let mut state = wish.next_state(Some((&old, &held.state)), context.world().now());
    pending::supersede(tx, context, &mut held, (&wish, &old), &mut state)?;
    let id = held.row.id.clone();
    let mut draft =
        Draft { wish: &mut wish, state: &mut state, old: Some(&old), id: &id, parents: &[] };
    K::prepare(context, tx, &mut draft)?;
    let serves = canary.is_none();
    let revision = revisions::apply(context, tx, &held, &mut wish, Deploy::New { serves })?;
    if let (Some(percent), Some(configuration)) = (canary, wish.revision_mut()) {
        configuration.canary.clone_from(&revision);
        configuration.canary_percent = Some(percent);
    }
    K::follow(context, tx, &wish)?;
    write_over(context, tx, held, (wish, state), revision)
}
