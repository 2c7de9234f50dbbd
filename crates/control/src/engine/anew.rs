//! Deploys a wish once more, because something that it names is another one now.

use super::held::Held;
use super::managed::Managed;
use super::revisions;
use super::verbs::{opened, write_over};
use crate::context::Context;
use crate::error::Error;
use store::Tx;
use types::Kind;
use types::parts::{Deploy, Deployment};

/// Makes a revision of the wish as it is, if the object runs what `concerns` it. The revision serves
/// once it is ready, as after any change.
pub(crate) fn deploy_anew<K>(
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
