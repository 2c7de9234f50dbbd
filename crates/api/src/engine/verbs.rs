//! Make, read, replace, remove: once for all kinds.

use super::secrets::{self, Secrets};
use super::{Desk, Draft, Held, Managed, everywhere, revisions};
use crate::error::Error;
use crate::reply::Reply;
use http::{HeaderValue, header};
use serde::Serialize;
use store::resources::{self, Stored};
use store::{Tx, references};
use types::ids::ResourceId;
use types::kinds::EgressGateway;
use types::{Kind, KindName, Problems, Reference};

/// An object as it is answered, and the version that it has.
pub(crate) struct Shown<K> {
    pub object: K,
    pub version: i64,
}

impl<K: Serialize> From<Shown<K>> for Reply<K> {
    /// An object with its version, which a later write can name in `If-Match`.
    fn from(shown: Shown<K>) -> Self {
        let mut reply = Self::of(&shown.object);
        let version = HeaderValue::from_str(&format!("\"{}\"", shown.version));
        reply.headers.extend(version.map(|version| (header::ETAG, version)));
        reply
    }
}

/// The wire form of a stored object.
pub(crate) fn present<K: Managed>(
    desk: &Desk,
    tx: &mut Tx<'_>,
    held: &Held<K>,
    secrets: &Secrets,
) -> Result<K, Error> {
    let mut shown = held.wish.clone();
    let secrets = if K::SHOWS_SECRETS { &Secrets::Shown } else { secrets };
    secrets.apply(&mut shown, &desk.app.store.keyring().read(), &context(&held.row.id))?;
    // What was stored before regions were filled in has none.
    desk.place(&mut shown);
    shown.show(&held.stamp(desk), &held.state, desk.world().now());
    shown.adorn(desk, tx)?;
    Ok(shown)
}

/// What a sealed secret is bound to, so that it cannot be moved to another object.
pub(super) fn context(id: &ResourceId) -> String {
    format!("resources/{id}")
}

/// The wish of a stored object with its secrets open, for whoever acts on it.
pub(crate) fn opened<K: Managed>(desk: &Desk, held: &Held<K>) -> Result<K, Error> {
    let mut wish = held.wish.clone();
    secrets::open(&mut wish, &desk.app.store.keyring().read(), &context(&held.row.id))?;
    Ok(wish)
}

pub(crate) fn get<K: Managed>(
    desk: &Desk,
    tx: &mut Tx<'_>,
    parents: &[String],
    name: &str,
    secrets: &Secrets,
) -> Result<Shown<K>, Error> {
    let held = Held::get(desk, tx, parents, name)?;
    Ok(Shown { object: present(desk, tx, &held, secrets)?, version: held.row.version })
}

/// Makes an object, or says that the name is taken.
pub(crate) fn create<K: Managed>(
    desk: &Desk,
    tx: &mut Tx<'_>,
    parents: &[String],
    wish: K,
) -> Result<K, Error> {
    create_as(desk, tx, parents, wish, ResourceId::new(desk.world()), |_| {})
}

/// As [`create`], under an id that was made before; `done` adds to the state what was done already.
pub(crate) fn create_as<K: Managed>(
    desk: &Desk,
    tx: &mut Tx<'_>,
    parents: &[String],
    mut wish: K,
    id: ResourceId,
    done: impl FnOnce(&mut K::State),
) -> Result<K, Error> {
    require_parent::<K>(desk, tx, parents)?;
    let sent = secrets::values(&wish);
    wish.complete(None, desk.world());
    let mut problems = Problems::default();
    secrets::keep_masked(&mut wish, &Default::default(), &mut problems);
    wish.check(&mut problems);
    problems.into_result()?;
    desk.place(&mut wish);
    require_references(desk, tx, &wish.references(), &[])?;
    let name = K::row_name(desk, tx, parents, &wish)?;
    if desk.find(tx, K::NAME, parents, &name)?.is_some() {
        return Err(exists(&wish));
    }
    require_quota::<K>(desk, tx)?;
    let mut state = wish.next_state(None, desk.world().now());
    K::settle(
        desk,
        tx,
        &mut Draft { wish: &mut wish, state: &mut state, old: None, id: &id, parents },
    )?;
    K::follow(desk, tx, &wish)?;
    done(&mut state);
    let made = Secrets::Created(made_by_server(&wish, &sent, &Default::default()));
    let row = new_row(desk, id, K::NAME, parents, &name);
    let first = revisions::first(desk, &mut wish);
    let mut held = Held { row, wish, state };
    write_row(desk, &mut held)?;
    held.row = resources::insert(tx, held.row.clone()).map_err(|error| match error {
        store::Error::Duplicate { .. } => exists(&held.wish),
        other => other.into(),
    })?;
    if let Some(revision) = first {
        revisions::keep(desk, tx, &held, &revision)?;
    }
    references::replace(tx, &held.row, &held.wish.references())?;
    present(desk, tx, &held, &made)
}

/// The columns that are the same for a new object of any kind.
fn new_row(desk: &Desk, id: ResourceId, kind: KindName, parents: &[String], name: &str) -> Stored {
    let now = desk.world().now();
    Stored {
        id,
        workspace: desk.member.workspace.clone(),
        kind,
        parent: parents.join("/"),
        name: name.to_owned(),
        external_id: None,
        status: None,
        search: String::new(),
        wish: String::new(),
        state: String::new(),
        seal_key: None,
        version: 0,
        created_at: now,
        updated_at: now,
        created_by: desk.actor().to_owned(),
        updated_by: desk.actor().to_owned(),
    }
}

/// Replaces the wish of an object. Read-only members are ignored, masked secrets kept, absent
/// members cleared.
pub(crate) fn replace<K: Managed>(
    desk: &Desk,
    tx: &mut Tx<'_>,
    parents: &[String],
    name: &str,
    mut wish: K,
) -> Result<Shown<K>, Error> {
    let mut held = Held::<K>::lock(desk, tx, parents, name)?;
    let mut old = held.wish.clone();
    secrets::open(&mut old, &desk.app.store.keyring().read(), &context(&held.row.id))?;
    let (stored, sent) = (secrets::values(&old), secrets::values(&wish));
    let mut problems = Problems::default();
    problems.require(
        wish.name() == name,
        K::NAME_AT.join("."),
        "cannot be changed: it must equal the name in the path",
    );
    wish.complete(Some(&old), desk.world());
    secrets::keep_masked(&mut wish, &stored, &mut problems);
    wish.check(&mut problems);
    desk.place(&mut old);
    desk.place(&mut wish);
    wish.check_change(&old, &mut problems);
    problems.into_result()?;
    require_references(desk, tx, &wish.references(), &old.references())?;
    let deploy = revisions::decide(tx, &held.row.id, &mut wish, &old)?;
    let now = desk.world().now();
    let mut state = wish.next_state(Some((&old, &held.state)), now);
    let id = &held.row.id;
    K::settle(
        desk,
        tx,
        &mut Draft { wish: &mut wish, state: &mut state, old: Some(&old), id, parents },
    )?;
    let kept = revisions::apply(desk, tx, &held, &mut wish, deploy)?;
    if text(&wish) == text(&old) && text(&state) == text(&held.state) {
        return Ok(Shown {
            object: present(desk, tx, &held, &Secrets::Masked)?,
            version: held.row.version,
        });
    }
    K::follow(desk, tx, &wish)?;
    let made = Secrets::JustMade(made_by_server(&wish, &sent, &stored));
    (held.wish, held.state) = (wish, state);
    desk.actor().clone_into(&mut held.row.updated_by);
    held.row.updated_at = now;
    write_row(desk, &mut held)?;
    held.row = resources::update(tx, held.row.clone())?;
    if let Some(revision) = kept {
        revisions::keep(desk, tx, &held, &revision)?;
    }
    references::replace(tx, &held.row, &held.wish.references())?;
    Ok(Shown { object: present(desk, tx, &held, &made)?, version: held.row.version })
}

/// Refuses unless the object still has the version that the caller has seen.
pub(crate) fn require_version<K: Managed>(
    desk: &Desk,
    tx: &mut Tx<'_>,
    parents: &[String],
    name: &str,
    seen: Option<i64>,
) -> Result<(), Error> {
    let Some(seen) = seen else { return Ok(()) };
    let held = Held::<K>::lock(desk, tx, parents, name)?;
    if held.row.version == seen {
        Ok(())
    } else {
        Err(Error::Changed { kind: K::NAME, version: held.row.version })
    }
}

/// Changes only what the server knows of an object.
pub(crate) fn change_state<K: Managed>(
    desk: &Desk,
    tx: &mut Tx<'_>,
    mut held: Held<K>,
    state: K::State,
) -> Result<Held<K>, Error> {
    held.state = state;
    held.row.status = K::status(&held.state);
    held.row.state = text(&held.state);
    held.row.updated_at = desk.world().now();
    desk.actor().clone_into(&mut held.row.updated_by);
    held.row = resources::update(tx, held.row)?;
    Ok(held)
}

/// Removes an object with everything below it, and answers what it was.
pub(crate) fn remove<K: Managed>(
    desk: &Desk,
    tx: &mut Tx<'_>,
    parents: &[String],
    name: &str,
) -> Result<K, Error> {
    let held = Held::<K>::lock(desk, tx, parents, name)?;
    K::release(desk, tx, &held)?;
    let last = present(desk, tx, &held, &Secrets::Masked)?;
    resources::delete(tx, &held.row, desk.actor())?;
    Ok(last)
}

/// Fills the columns of the row from the typed parts, with secrets sealed.
fn write_row<K: Managed>(desk: &Desk, held: &mut Held<K>) -> Result<(), Error> {
    held.row.seal_key =
        secrets::seal(&mut held.wish, &desk.app.store.keyring().read(), &context(&held.row.id))?;
    held.row.wish = text(&held.wish);
    held.row.state = text(&held.state);
    held.row.status = K::status(&held.state);
    held.row.external_id = held.wish.external_id().filter(|id| !id.is_empty()).map(str::to_owned);
    held.row.search = search_text(&held.wish);
    Ok(())
}

fn text(value: &impl serde::Serialize) -> String {
    // Our types have text keys only; this cannot fail.
    serde_json::to_string(value).unwrap_or_default()
}

/// What the text filter of lists looks at.
fn search_text<K: Kind>(wish: &K) -> String {
    let mut text = wish.name().to_lowercase();
    for part in wish.display_name().into_iter().chain(wish.external_id()) {
        text.push('\n');
        text.push_str(&part.to_lowercase());
    }
    for (key, value) in wish.labels().into_iter().flatten() {
        text.push_str(&format!("\n{}={}", key.to_lowercase(), value.to_lowercase()));
    }
    text
}

/// Secrets that neither the caller sent nor the store had.
fn made_by_server<K: Kind>(
    wish: &K,
    sent: &std::collections::BTreeMap<String, String>,
    stored: &std::collections::BTreeMap<String, String>,
) -> Vec<String> {
    let now = secrets::values(wish);
    let fresh = |(name, value): &(String, String)| {
        sent.get(name) != Some(value) && stored.get(name) != Some(value)
    };
    now.into_iter().filter(fresh).map(|(name, _)| name).collect()
}

fn exists<K: Kind>(wish: &K) -> Error {
    Error::Exists { kind: K::NAME, name: wish.name().to_owned() }
}

/// The object around a new one must be there.
fn require_parent<K: Kind>(desk: &Desk, tx: &mut Tx<'_>, parents: &[String]) -> Result<(), Error> {
    let (Some(kind), Some((name, above))) = (K::PARENTS.last(), parents.split_last()) else {
        return Ok(());
    };
    match resources::lock(tx, &desk.member.workspace, *kind, &above.join("/"), name)? {
        Some(_) => Ok(()),
        None => Err(Error::NoResource { kind: *kind, name: name.chars().take(80).collect() }),
    }
}

/// What an object newly names must exist. What it named before may have been deleted since.
fn require_references(
    desk: &Desk,
    tx: &mut Tx<'_>,
    wanted: &[Reference],
    before: &[Reference],
) -> Result<(), Error> {
    let mut problems = Problems::default();
    for reference in wanted {
        let known =
            before.iter().any(|old| old.kind == reference.kind && old.name == reference.name);
        if !known && !refers(desk, tx, reference)? {
            let shown: String = reference.name.chars().take(80).collect();
            problems.add(
                &reference.field,
                format!("names the {} `{shown}`, which does not exist", reference.kind),
            );
        }
    }
    Ok(problems.into_result()?)
}

/// Whether what is named exists. Gateways are named without the VPC around them.
fn refers(desk: &Desk, tx: &mut Tx<'_>, reference: &Reference) -> Result<bool, Error> {
    if reference.kind == KindName::EgressGateway {
        let gateways = everywhere::<EgressGateway>(desk, tx)?;
        return Ok(gateways.iter().any(|gateway| gateway.name() == reference.name));
    }
    Ok(desk.find(tx, reference.kind, &[], &reference.name)?.is_some())
}

fn require_quota<K: Kind>(desk: &Desk, tx: &mut Tx<'_>) -> Result<(), Error> {
    let Some(limit) = desk.app.settings.quotas.get(&K::NAME).copied() else { return Ok(()) };
    if resources::count(tx, &desk.member.workspace, K::NAME)? >= limit {
        return Err(Error::Quota { kind: K::NAME, limit });
    }
    Ok(())
}
