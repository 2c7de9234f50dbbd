//! Wishes that wait for an image to be built. Until then the earlier wish stays in effect. A wish
//! written meanwhile takes the place of the waiting one.

use super::held::Held;
use super::managed::{Draft, Managed};
use super::revisions;
use super::secrets::{self, Secrets, seal_context};
use super::verbs::{
    self, Checked, Replacement, exists, made_by_server, new_row, present, require_quota,
    require_references, write_over,
};
use crate::context::Context;
use crate::error::Error;
use crate::json;
use serde_json::Value;
use store::{Tx, builds, references};
use types::Kind;
use types::ids::ResourceId;
use types::parts::{Needs, Status};

/// A checked wish that waits for its image.
pub(crate) struct Pending<K: Kind> {
    /// The object as it is now.
    pub held: Held<K>,
    /// The wish as text, with its secrets sealed.
    pub wish: String,
    pub seal_key: Option<String>,
    /// The wish with its secrets sealed, and which of them its answer shows.
    sealed: K,
    secrets: Secrets,
}

impl<K: Managed> Pending<K> {
    fn new(context: &Context, held: Held<K>, mut wish: K, secrets: Secrets) -> Result<Self, Error> {
        let keyring = context.control.store.keyring();
        let seal_key = secrets::seal(&mut wish, &keyring.read(), &seal_context(&held.row.id))?;
        Ok(Self { held, wish: json::text(&wish), seal_key, sealed: wish, secrets })
    }

    /// Returns the answer: the wish as it will be, with the present state of the object.
    pub(crate) fn present(&self, context: &Context, tx: &mut Tx<'_>) -> Result<K, Error> {
        let shown = Held { wish: self.sealed.clone(), ..self.held.clone() };
        present(context, tx, &shown, &self.secrets)
    }
}

/// Creates an object that runs nothing until its image is built. It has no revision yet, and takes
/// nothing that others may want.
pub(crate) fn create_unbuilt<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    wish: K,
    id: ResourceId,
) -> Result<Pending<K>, Error> {
    let Checked { mut wish, sent, .. } = Checked::new(context, wish)?;
    verbs::require_region(context, &wish, None)?;
    require_references(context, tx, &wish.references(), &[])?;
    let name = K::row_name(context, tx, &[], &wish)?;
    if context.find(tx, K::NAME, &[], &name)?.is_some() {
        return Err(exists(&wish));
    }
    require_quota::<K>(context, tx)?;
    if K::HAS_REVISIONS {
        revisions::drop_canary(&mut wish);
    }
    let made = Secrets::Created(made_by_server(&wish, &sent, &Default::default()));
    let row = new_row(context, id, K::NAME, &[], &name);
    let mut held = Held { row, wish: wish.clone(), state: K::State::default() };
    verbs::write_row(context, &mut held)?;
    let held = held.insert(context, tx)?;
    verbs::require_room(context, tx, &held.row, 0)?;
    references::replace(tx, &held.row, &held.wish.references())?;
    Pending::new(context, held, wish, made)
}

/// Checks a wish that will replace an object's current one once its image is there. Masked secrets
/// keep their value, as in a replacement.
pub(crate) fn pend<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    name: &str,
    wish: K,
) -> Result<Pending<K>, Error> {
    let held = Held::<K>::lock(context, tx, &[], name)?;
    let Replacement { wish, old, sent, stored } = Replacement::new(context, &held, name, wish)?;
    require_references(context, tx, &wish.references(), &old.references())?;
    if K::HAS_REVISIONS {
        revisions::require_active(tx, &held.row.id, &wish, &old)?;
        revisions::require_canary(tx, &held.row.id, &wish)?;
    }
    let made = Secrets::JustMade(made_by_server(&wish, &sent, &stored));
    Pending::new(context, held, wish, made)
}

/// Puts a wish into effect whose image has been built; `set` writes the image's name into it. Each
/// build becomes a revision of its own, even if its image is the same as before. In that case a
/// kind without revisions keeps running what it runs.
pub(crate) fn apply_built<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    held: Held<K>,
    wish: &str,
    set: impl FnOnce(&mut K),
) -> Result<(), Error> {
    let mut wish: K = serde_json::from_str(wish)
        .map_err(|error| super::corrupt(&held.row.id, format!("its pending wish: {error}")))?;
    let keyring = context.control.store.keyring();
    secrets::open(&mut wish, &keyring.read(), &seal_context(&held.row.id))?;
    set(&mut wish);
    let old = verbs::opened(context, &held)?;
    require_references(context, tx, &wish.references(), &old.references())?;
    let mut state = next_state(context, &held, (&wish, &old));
    let unbuilt = is_unbuilt(&held);
    let deploy = match unbuilt {
        true => None,
        false => Some(revisions::decide_built(tx, &held.row.id, &wish, &old)?),
    };
    let (id, old) = (&held.row.id, (!unbuilt).then_some(&old));
    let mut draft = Draft { wish: &mut wish, state: &mut state, old, id, parents: &[] };
    K::prepare(context, tx, &mut draft)?;
    let revision = match deploy {
        None => revisions::first(context, &mut wish),
        Some(deploy) => revisions::apply(context, tx, &held, &mut wish, deploy)?,
    };
    K::follow(context, tx, &wish)?;
    write_over(context, tx, held, (wish, state), revision).map(drop)
}

/// Checks whether an object has never been deployed.
fn is_unbuilt<K: Managed>(held: &Held<K>) -> bool {
    K::lifecycle(&mut held.state.clone()).is_some_and(|lifecycle| lifecycle.is_unbuilt())
}

/// Returns the state of an object that gets its image.
fn next_state<K: Managed>(context: &Context, held: &Held<K>, (wish, old): (&K, &K)) -> K::State {
    let now = context.world().now();
    let before = K::lifecycle(&mut held.state.clone()).map(|lifecycle| lifecycle.clone());
    let unbuilt = is_unbuilt(held);
    let mut state = wish.next_state((!unbuilt).then_some((old, &held.state)), now);
    if let (Some(lifecycle), Some(before)) = (K::lifecycle(&mut state), before) {
        if unbuilt || (K::HAS_REVISIONS && lifecycle.building.is_some()) {
            *lifecycle = before.deploy(wish.enabled(), Needs::Machine, now);
        } else if lifecycle.building.is_some() {
            lifecycle.stay("the build gave the image that is in use already", now);
        }
    }
    state
}

/// Decides what a write means for a build that waits: another spec cancels the build, while other
/// metadata is carried over into the wish that the build will apply. `state` is what follows from
/// the write otherwise.
pub(super) fn supersede<K: Managed>(
    tx: &mut Tx<'_>,
    context: &Context,
    held: &mut Held<K>,
    (wish, old): (&K, &K),
    state: &mut K::State,
) -> Result<(), Error> {
    let before = K::lifecycle(&mut held.state).filter(|lifecycle| lifecycle.building.is_some());
    let (Some(before), Some(lifecycle)) = (before, K::lifecycle(state)) else { return Ok(()) };
    let (new, old) = (json::value(wish), json::value(old));
    if new.get("spec") != old.get("spec") {
        // The state may have lost its build already, if it was deployed anew.
        if lifecycle.building.is_some() {
            let message = "the spec was changed: what was uploaded before is not built";
            lifecycle.stay(message, context.world().now());
        }
        builds::cancel(tx, &held.row.id)?;
    } else if let (Some(_), Some(metadata)) = (before.open_build(), new.get("metadata")) {
        carry_metadata(tx, &held.row.id, metadata)?;
    }
    Ok(())
}

fn carry_metadata(tx: &mut Tx<'_>, id: &ResourceId, metadata: &Value) -> Result<(), Error> {
    let Some(build) = builds::open_of(tx, id)? else { return Ok(()) };
    let Some(wish) = &build.wish else { return Ok(()) };
    let mut wish: Value = serde_json::from_str(wish)
        .map_err(|error| super::corrupt(id, format!("its pending wish: {error}")))?;
    if let Some(place) = wish.get_mut("metadata") {
        *place = metadata.clone();
    }
    Ok(builds::put_wish(tx, &build.id, &json::text(&wish), build.seal_key.as_deref())?)
}

/// Notes that a caller has seen the object as building, so it need not be shown as such for longer.
pub(super) fn note_seen<K: Managed>(context: &Context, held: &mut Held<K>) {
    if let Some(lifecycle) = K::lifecycle(&mut held.state)
        && lifecycle.shown_status() == Some(Status::Building)
        && let Some(build) = lifecycle.open_build()
    {
        context.control.builds.saw(build);
    }
}
