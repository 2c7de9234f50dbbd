//! Revisions: each wish with a changed spec is kept, so that an earlier spec can serve again.

use super::held::Held;
use super::managed::Managed;
use super::secrets::{MASK, seal_context};
use crate::context::Context;
use crate::error::Error;
use crate::json;
use serde_json::Value;
use store::revisions::{self as kept, Revision};
use store::{Tx, resources};
use types::ids::ResourceId;
use types::parts::limits::{REVISIONS_KEPT_MAX, REVISIONS_LISTED_MAX};
use types::parts::{Deploy, RevisionConfiguration, RevisionMetadata, Status};
use types::{Kind, Problems, World};

fn new_id(world: &World) -> String {
    world.random_text(12)
}

/// Members of the spec that belong to the object, whichever of its revisions serves.
const NOT_RESTORED: [&str; 2] = ["enabled", "revision"];

/// Returns the content of a revision: the spec without what belongs to the object.
fn content<K: Kind>(wish: &K) -> Value {
    let mut spec = json::value(wish)["spec"].take();
    if let Some(members) = spec.as_object_mut() {
        members.retain(|name, _| !NOT_RESTORED.contains(&name.as_str()));
    }
    drop_empty(&mut spec);
    spec
}

/// Removes empty lists. Clients that send back what they have read write an empty list for each
/// absent one, and mean no change.
fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| member.as_array().is_none_or(|list| !list.is_empty()));
            members.values_mut().for_each(drop_empty);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

fn configuration<K: Kind>(wish: &K) -> RevisionConfiguration {
    wish.revision().cloned().unwrap_or_default()
}

/// Names the first revision and makes it active.
pub(super) fn first<K: Kind>(context: &Context, wish: &mut K) -> Option<String> {
    if !K::HAS_REVISIONS {
        return None;
    }
    let id = new_id(context.world());
    drop_canary(wish);
    wish.revision_mut()?.active = Some(id.clone());
    Some(id)
}

/// Removes the canary from the wish of an object that has no revision yet: one that was deleted and
/// is created again from what was read of it names one that has gone.
pub(super) fn drop_canary<K: Kind>(wish: &mut K) {
    if let Some(configuration) = wish.revision_mut() {
        (configuration.canary, configuration.canary_percent) = (None, None);
    }
}

/// Decides what a replacement means for the revisions.
pub(super) fn decide<K: Kind>(
    tx: &mut Tx<'_>,
    id: &ResourceId,
    wish: &K,
    old: &K,
) -> Result<Deploy, Error> {
    if !K::HAS_REVISIONS {
        return Ok(Deploy::Nothing);
    }
    require_active(tx, id, wish, old)?;
    let newest = kept::list(tx, id, 1)?.into_iter().next().map(|revision| revision.id);
    let changed = content(wish) != content(old);
    Ok(configuration(wish).decide(&configuration(old), newest.as_deref(), changed))
}

/// Decides what a newly built wish means for the revisions, even if its image is the same as
/// before.
pub(super) fn decide_built<K: Kind>(
    tx: &mut Tx<'_>,
    id: &ResourceId,
    wish: &K,
    old: &K,
) -> Result<Deploy, Error> {
    if !K::HAS_REVISIONS {
        return Ok(Deploy::Nothing);
    }
    let newest = kept::list(tx, id, 1)?.into_iter().next().map(|revision| revision.id);
    Ok(configuration(wish).decide(&configuration(old), newest.as_deref(), true))
}

/// Applies the decision to the wish. Returns the name of the new revision, if there is one.
pub(super) fn apply<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<K>,
    wish: &mut K,
    deploy: Deploy,
) -> Result<Option<String>, Error> {
    let stored = configuration(&held.wish);
    match deploy {
        Deploy::Nothing => {
            keep_active(wish, stored.active);
            require_canary(tx, &held.row.id, wish)?;
            Ok(None)
        }
        Deploy::New { serves } => {
            let id = new_id(context.world());
            keep_active(wish, if serves { Some(id.clone()) } else { stored.active });
            require_canary(tx, &held.row.id, wish)?;
            Ok(Some(id))
        }
        Deploy::Back { to } => {
            require_canary(tx, &held.row.id, wish)?;
            kept::activate(tx, &held.row.id, &to, context.world().now())?;
            Ok(None)
        }
    }
}

/// Returns a wish with the spec of an earlier revision and its secrets opened. All that belongs to
/// the object is as in `wish`.
pub(super) fn gone_back<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    id: &ResourceId,
    wish: &K,
    to: &str,
) -> Result<K, Error> {
    let revision = kept::find(tx, id, to)?.ok_or_else(|| unknown("active", to))?;
    let mut back = json::value(&parse::<K>(&revision)?);
    let mut sent = json::value(wish);
    back["metadata"] = sent["metadata"].take();
    for member in NOT_RESTORED {
        back["spec"][member] = sent["spec"][member].take();
    }
    restored(context, id, &Revision { wish: json::text(&back), ..revision })
}

fn keep_active<K: Kind>(wish: &mut K, active: Option<String>) {
    if let Some(configuration) = wish.revision_mut() {
        configuration.active = active;
    }
}

/// Refuses a wish that names a revision to serve which is not kept.
pub(super) fn require_active<K: Kind>(
    tx: &mut Tx<'_>,
    id: &ResourceId,
    wish: &K,
    old: &K,
) -> Result<(), Error> {
    let stored = configuration(old);
    match configuration(wish).other_active(&stored) {
        Some(asked) if kept::find(tx, id, asked)?.is_none() => Err(unknown("active", asked)),
        _ => Ok(()),
    }
}

/// Refuses a wish that names a canary which is not kept.
pub(super) fn require_canary<K: Kind>(
    tx: &mut Tx<'_>,
    id: &ResourceId,
    wish: &K,
) -> Result<(), Error> {
    match configuration(wish).canary.filter(|canary| !canary.is_empty()) {
        Some(canary) if kept::find(tx, id, &canary)?.is_none() => Err(unknown("canary", &canary)),
        _ => Ok(()),
    }
}

fn unknown(member: &str, id: &str) -> Error {
    let shown: String = id.chars().take(40).collect();
    let message = format!(
        "names the revision `{shown}`, which is not kept; list the revisions to see those that are"
    );
    Problems::one(format!("spec.revision.{member}"), message).into()
}

/// Returns the kept revisions with their wishes, newest first, with secrets masked.
pub fn earlier<K: Managed>(tx: &mut Tx<'_>, id: &ResourceId) -> Result<Vec<(Revision, K)>, Error> {
    let wish = |revision: Revision| {
        let mut wish: K = parse(&revision)?;
        wish.secrets(&mut |_, value| MASK.clone_into(value));
        Ok((revision, wish))
    };
    kept::list(tx, id, REVISIONS_LISTED_MAX)?.into_iter().map(wish).collect()
}

fn parse<K: Kind>(revision: &Revision) -> Result<K, Error> {
    serde_json::from_str(&revision.wish).map_err(|error| {
        Error::Store(store::Error::corrupt("revisions", revision.id.clone(), error))
    })
}

/// Returns the wish of one revision with its secrets opened, or `None` if the revision is no longer
/// kept.
pub(crate) fn wish_of<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    id: &ResourceId,
    revision: &str,
) -> Result<Option<K>, Error> {
    let kept = kept::find(tx, id, revision)?;
    kept.map(|kept| restored(context, id, &kept)).transpose()
}

/// Returns the wish of an earlier revision with its secrets opened.
fn restored<K: Managed>(
    context: &Context,
    id: &ResourceId,
    revision: &Revision,
) -> Result<K, Error> {
    let mut wish: K = parse(revision)?;
    super::secrets::open(&mut wish, &context.control.store.keyring().read(), &seal_context(id))?;
    Ok(wish)
}

/// Keeps what was just written as a revision, and deletes the oldest ones.
pub(super) fn keep<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<K>,
    id: &str,
) -> Result<(), Error> {
    let serving = configuration(&held.wish);
    let active = serving.active.as_deref() == Some(id);
    let revision = Revision {
        id: id.to_owned(),
        resource_id: held.row.id.clone(),
        wish: held.row.wish.clone(),
        seal_key: held.row.seal_key.clone(),
        created_at: held.row.updated_at,
        created_by: context.actor().to_owned(),
        activated_at: active.then_some(held.row.updated_at),
    };
    kept::insert(tx, &revision)?;
    // The revision that serves until the new one is ready may be older than all that are kept.
    let serving = [serving.active.as_deref(), serving.canary.as_deref(), K::serving(&held.state)];
    kept::trim(tx, &held.row.id, REVISIONS_KEPT_MAX, serving)?;
    Ok(())
}

/// Returns the revisions of an object, newest first.
pub fn revisions<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    name: &str,
) -> Result<Vec<RevisionMetadata>, Error> {
    let held = Held::<K>::get(context, tx, &[], name)?;
    let configuration = configuration(&held.wish);
    let kept = kept::list(tx, &held.row.id, REVISIONS_LISTED_MAX)?;
    let before = previous(&kept, configuration.active.as_deref(), K::serving(&held.state));
    let status = resources::find_by_id(tx, &held.row.id)?.and_then(|row| row.status);
    let metadata = |revision: Revision| {
        let active = configuration.active.as_deref() == Some(revision.id.as_str());
        let canary = configuration.canary.as_deref() == Some(revision.id.as_str());
        RevisionMetadata {
            active: Some(active),
            canary: Some(canary),
            previous_active: Some(before.as_deref() == Some(revision.id.as_str())),
            traffic_percent: Some(traffic_of::<K>(&held.state, &configuration, &revision.id)),
            status: Some(status_of(&held, &revision.id, (active || canary).then_some(status))),
            created_at: Some(revision.created_at),
            created_by: Some(revision.created_by),
            id: Some(revision.id),
        }
    };
    Ok(kept.into_iter().map(metadata).collect())
}

/// Returns the status of one revision. `wished` has the status of the object if the object's wish
/// names the revision.
fn status_of<K: Managed>(held: &Held<K>, id: &str, wished: Option<Option<Status>>) -> String {
    let status = match wished {
        // Until another revision is ready, this one takes all requests.
        _ if K::serving(&held.state) == Some(id) => Some(Status::Deployed),
        Some(_) if K::has_failed(&held.state, id) => Some(Status::Failed),
        Some(status) => status,
        None => Some(Status::Deactivated),
    };
    status.map_or_else(String::new, |status| status.name().to_owned())
}

/// Returns the percentage of the requests that a revision gets. A canary that failed gets none.
fn traffic_of<K: Kind>(state: &K::State, configuration: &RevisionConfiguration, id: &str) -> i64 {
    let active = configuration.active.as_deref();
    // Until the active revision is ready, and if it fails, the one before it serves on.
    let serving = K::serving(state).or(active);
    let is_apart = |canary: &&str| ![serving, active].contains(&Some(*canary));
    let canary = configuration.canary.as_deref().filter(|canary| !canary.is_empty());
    let canary = canary.filter(is_apart).filter(|canary| !K::has_failed(state, canary));
    let share = canary.and(configuration.canary_percent).unwrap_or(0);
    match Some(id) {
        id if id == serving => 100 - share,
        id if id == canary => share,
        _ => 0,
    }
}

/// Returns the revision that serves in place of the active one, or else served before it: the last
/// activated among the others.
fn previous(kept: &[Revision], active: Option<&str>, serving: Option<&str>) -> Option<String> {
    let is_other = |revision: &&Revision| active != Some(revision.id.as_str());
    let others = || kept.iter().filter(is_other);
    let serves = others().find(|revision| serving == Some(revision.id.as_str()));
    let activated = || {
        let activated = others().filter(|revision| revision.activated_at.is_some());
        activated.max_by_key(|revision| revision.activated_at)
    };
    serves.or_else(activated).map(|revision| revision.id.clone())
}

#[cfg(test)]
mod tests {
    use super::drop_empty;
    use serde_json::json;

    #[test]
    fn an_empty_list_is_none() {
        let mut sent =
            json!({"triggers": [], "runtime": {"ports": [], "envs": [{"a": []}, {"b": 1}]}});
        drop_empty(&mut sent);
        assert_eq!(sent, json!({"runtime": {"envs": [{}, {"b": 1}]}}));
    }
}
