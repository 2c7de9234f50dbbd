//! The operations create, get, replace and remove, for all kinds.

use super::held::Held;
use super::managed::{Draft, Managed, ShowsSecrets};
use super::secrets::{self, Secrets, seal_context};
use super::{pending, revisions};
use crate::context::Context;
use crate::error::{Error, Forbidden, Unfit, shown_name};
use crate::json::text;
use std::collections::BTreeMap;
use store::resources::{self, Stored};
use store::{Tx, references};
use types::ids::ResourceId;
use types::parts::Deploy;
use types::{Kind, KindName, Problems, Reference};

/// Most objects of a kind below one at the top. They are deleted with it in one transaction, for
/// which all others who write wait.
const BELOW_MAX: i64 = 1000;

/// An object as it appears in an answer, and its version.
pub struct Shown<K> {
    pub object: K,
    pub version: i64,
}

/// Returns the wire form of a stored object.
pub fn present<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<K>,
    secrets: &Secrets,
) -> Result<K, Error> {
    let mut shown = held.wish.clone();
    let secrets = match (K::SHOWS_SECRETS, secrets) {
        (ShowsSecrets::ToAll, _) => &Secrets::Shown,
        (ShowsSecrets::Never, Secrets::Shown) => &Secrets::Masked,
        (ShowsSecrets::ToAdmins | ShowsSecrets::Never, secrets) => secrets,
    };
    secrets.apply(
        &mut shown,
        &context.control.store.keyring().read(),
        &seal_context(&held.row.id),
    )?;
    // Rows of releases that did not fill in regions have none.
    context.fill_region(&mut shown);
    shown.show(&held.stamp(context), &held.state, context.world().now());
    shown.adorn(context, tx)?;
    Ok(shown)
}

/// Returns the wish of a stored object with its secrets opened, for code that acts on it.
pub fn opened<K: Managed>(context: &Context, held: &Held<K>) -> Result<K, Error> {
    let mut wish = held.wish.clone();
    secrets::open(&mut wish, &context.control.store.keyring().read(), &seal_context(&held.row.id))?;
    Ok(wish)
}

pub fn get<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    parents: &[String],
    name: &str,
    secrets: &Secrets,
) -> Result<Shown<K>, Error> {
    let mut held = Held::get(context, tx, parents, name)?;
    pending::note_seen::<K>(context, &mut held);
    Ok(Shown { object: present(context, tx, &held, secrets)?, version: held.row.version })
}

/// Creates an object, unless its name is taken.
pub fn create<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    parents: &[String],
    wish: K,
) -> Result<K, Error> {
    auth::workspaces::keep(tx, &context.member)?;
    lock_parent::<K>(context, tx, parents)?;
    require_room_below::<K>(context, tx, parents)?;
    let id = ResourceId::new(context.world());
    create_checked(context, tx, parents, Checked::new(context, wish)?, id, |_| {})
}

/// A wish for a new object, completed and checked.
#[derive(Clone)]
pub struct Checked<K> {
    pub(super) wish: K,
    /// The secrets that the caller sent in it.
    pub(super) sent: BTreeMap<String, String>,
    /// Whether its region was judged when the object was made whose files it begins with.
    inherits_region: bool,
}

impl<K: Managed> Checked<K> {
    pub fn new(context: &Context, mut wish: K) -> Result<Self, Error> {
        let sent = secrets::values(&wish);
        wish.complete(None, context.world());
        let mut problems = Problems::default();
        secrets::keep_masked(&mut wish, &Default::default(), &mut problems);
        wish.check(&mut problems);
        problems.into_result()?;
        context.fill_region(&mut wish);
        Ok(Self { wish, sent, inherits_region: false })
    }

    /// Does the same for a fork, which is in the region of what it is forked from.
    pub(crate) fn fork(context: &Context, wish: K) -> Result<Self, Error> {
        Ok(Self { inherits_region: true, ..Self::new(context, wish)? })
    }

    pub fn wish(&self) -> &K {
        &self.wish
    }
}

/// Creates an object under an id that was made before. The caller has checked that its parent
/// exists. `done` adds to the state what has been done already.
pub fn create_checked<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    parents: &[String],
    checked: Checked<K>,
    id: ResourceId,
    done: impl FnOnce(&mut K::State),
) -> Result<K, Error> {
    let Checked { mut wish, sent, inherits_region } = checked;
    auth::workspaces::keep(tx, &context.member)?;
    require_references(context, tx, &wish.references(), &[])?;
    let name = K::row_name(context, tx, parents, &wish)?;
    if context.find(tx, K::NAME, parents, &name)?.is_some() {
        return Err(exists(&wish));
    }
    require_quota::<K>(context, tx)?;
    if !inherits_region {
        require_region(context, &wish, None)?;
    }
    let mut state = wish.next_state(None, context.world().now());
    let mut draft = Draft { wish: &mut wish, state: &mut state, old: None, id: &id, parents };
    K::prepare(context, tx, &mut draft)?;
    K::follow(context, tx, &wish)?;
    done(&mut state);
    let made = Secrets::Created(made_by_server(&wish, &sent, &Default::default()));
    let row = new_row(context, id, K::NAME, parents, &name);
    let first = revisions::first(context, &mut wish);
    let mut held = Held { row, wish, state };
    write_row(context, &mut held)?;
    let held = held.insert(context, tx)?;
    require_room(context, tx, &held.row, 0)?;
    if let Some(revision) = first {
        revisions::keep(context, tx, &held, &revision)?;
    }
    references::replace(tx, &held.row, &held.wish.references())?;
    present(context, tx, &held, &made)
}

/// Refuses a region that this installation does not have. An object stays in the one that it is in,
/// even if the operator has called it otherwise since.
pub(super) fn require_region<K: Kind>(
    context: &Context,
    wish: &K,
    old: Option<&K>,
) -> Result<(), Error> {
    match old {
        Some(old) if old.region() == wish.region() => Ok(()),
        _ => context.require_region(wish.region(), "spec.region"),
    }
}

/// Returns a new row with the columns that are the same for all kinds.
pub(super) fn new_row(
    context: &Context,
    id: ResourceId,
    kind: KindName,
    parents: &[String],
    name: &str,
) -> Stored {
    let now = context.world().now();
    Stored {
        id,
        workspace: context.member.workspace.clone(),
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
        created_by: context.actor().to_owned(),
        updated_by: context.actor().to_owned(),
    }
}

/// A replacement in progress, with the secrets of both wishes opened.
pub(super) struct Replacement<K> {
    pub(super) wish: K,
    pub(super) old: K,
    /// The secrets that came with the new wish, and those that are stored.
    pub(super) sent: BTreeMap<String, String>,
    pub(super) stored: BTreeMap<String, String>,
}

impl<K: Managed> Replacement<K> {
    /// Completes a wish and checks it against the one that it replaces.
    pub(super) fn new(
        context: &Context,
        held: &Held<K>,
        name: &str,
        mut wish: K,
    ) -> Result<Self, Error> {
        let mut old = opened(context, held)?;
        let (stored, sent) = (secrets::values(&old), secrets::values(&wish));
        let mut problems = Problems::default();
        problems.require(
            wish.name() == name,
            K::NAME_AT.join("."),
            "cannot be changed: it must equal the name in the path",
        );
        wish.complete(Some(&old), context.world());
        secrets::keep_masked(&mut wish, &stored, &mut problems);
        wish.check(&mut problems);
        context.fill_region(&mut old);
        context.fill_region(&mut wish);
        wish.check_change(&old, &mut problems);
        problems.into_result()?;
        require_region(context, &wish, Some(&old))?;
        Ok(Self { wish, old, sent, stored })
    }
}

/// Replaces the wish of an object. Read-only members are ignored, masked secrets keep their value,
/// and absent members are cleared.
pub fn replace<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    parents: &[String],
    name: &str,
    wish: K,
) -> Result<Shown<K>, Error> {
    Ok(replace_held(context, tx, parents, name, wish)?.0)
}

/// Replaces the wish of an object, and also returns the object as it is stored now.
pub(crate) fn replace_held<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    parents: &[String],
    name: &str,
    wish: K,
) -> Result<(Shown<K>, Held<K>), Error> {
    let mut held = Held::<K>::lock(context, tx, parents, name)?;
    let Replacement { mut wish, old, mut sent, stored } =
        Replacement::new(context, &held, name, wish)?;
    let deploy = revisions::decide(tx, &held.row.id, &wish, &old)?;
    if let Deploy::Back { to } = &deploy {
        wish = revisions::gone_back(context, tx, &held.row.id, &wish, to)?;
        // Callers once sent these, so the answer does not show them.
        sent = secrets::values(&wish);
    }
    require_references(context, tx, &wish.references(), &old.references())?;
    let now = context.world().now();
    let mut state = wish.next_state(Some((&old, &held.state)), now);
    pending::supersede(tx, context, &mut held, (&wish, &old), &mut state)?;
    let id = &held.row.id;
    let mut draft = Draft { wish: &mut wish, state: &mut state, old: Some(&old), id, parents };
    K::prepare(context, tx, &mut draft)?;
    let kept = revisions::apply(context, tx, &held, &mut wish, deploy)?;
    if text(&wish) == text(&old) && text(&state) == text(&held.state) {
        let object = present(context, tx, &held, &Secrets::Masked)?;
        return Ok((Shown { object, version: held.row.version }, held));
    }
    K::follow(context, tx, &wish)?;
    let made = Secrets::JustMade(made_by_server(&wish, &sent, &stored));
    let held = write_over(context, tx, held, (wish, state), kept)?;
    Ok((Shown { object: present(context, tx, &held, &made)?, version: held.row.version }, held))
}

/// Stores a new wish and state of an object, and the revision that begins with them, if any.
pub(crate) fn write_over<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    mut held: Held<K>,
    (wish, state): (K, K::State),
    revision: Option<String>,
) -> Result<Held<K>, Error> {
    (held.wish, held.state) = (wish, state);
    context.actor().clone_into(&mut held.row.updated_by);
    held.row.updated_at = context.world().now();
    let bytes_before = held.row.bytes();
    write_row(context, &mut held)?;
    held.row = resources::update(tx, held.row.clone())?;
    require_room(context, tx, &held.row, bytes_before)?;
    if let Some(revision) = revision {
        revisions::keep(context, tx, &held, &revision)?;
    }
    references::replace(tx, &held.row, &held.wish.references())?;
    Ok(held)
}

/// Refuses unless the object still has the version that the caller has seen.
pub fn require_version<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    parents: &[String],
    name: &str,
    seen: Option<i64>,
) -> Result<(), Error> {
    let Some(seen) = seen else { return Ok(()) };
    let held = Held::<K>::lock(context, tx, parents, name)?;
    if held.row.version == seen {
        Ok(())
    } else {
        Err(Error::Changed { kind: K::NAME, version: held.row.version })
    }
}

/// Changes only the state of an object, that is, what the server alone knows of it.
pub fn change_state<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    mut held: Held<K>,
    state: K::State,
) -> Result<Held<K>, Error> {
    held.state = state;
    held.row.status = K::status(&held.state);
    held.row.state = text(&held.state);
    held.row.updated_at = context.world().now();
    context.actor().clone_into(&mut held.row.updated_by);
    held.row = resources::update(tx, held.row)?;
    Ok(held)
}

/// Removes an object with everything below it, and returns it as it last was.
pub fn remove<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    parents: &[String],
    name: &str,
) -> Result<K, Error> {
    let held = Held::<K>::lock(context, tx, parents, name)?;
    K::require_unused(context, tx, &held)?;
    K::release(context, tx, &held)?;
    let last = present(context, tx, &held, &Secrets::Masked)?;
    resources::delete(tx, &held.row, context.actor())?;
    Ok(last)
}

/// Fills the columns of the row from the typed parts, and seals the secrets.
pub(super) fn write_row<K: Managed>(context: &Context, held: &mut Held<K>) -> Result<(), Error> {
    held.row.seal_key = secrets::seal(
        &mut held.wish,
        &context.control.store.keyring().read(),
        &seal_context(&held.row.id),
    )?;
    held.row.wish = text(&held.wish);
    held.row.state = text(&held.state);
    held.row.status = K::status(&held.state);
    held.row.external_id = held.wish.external_id().filter(|id| !id.is_empty()).map(str::to_owned);
    held.row.search = search_text(&held.wish);
    Ok(())
}

/// Returns the text that the text filter of lists searches.
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

/// Returns the names of the secrets that the server made: the caller did not send them, nor were
/// they stored.
pub(super) fn made_by_server<K: Kind>(
    wish: &K,
    sent: &BTreeMap<String, String>,
    stored: &BTreeMap<String, String>,
) -> Vec<String> {
    let now = secrets::values(wish);
    let fresh = |(name, value): &(String, String)| {
        sent.get(name) != Some(value) && stored.get(name) != Some(value)
    };
    now.into_iter().filter(fresh).map(|(name, _)| name).collect()
}

pub(super) fn exists<K: Kind>(wish: &K) -> Error {
    Error::Exists { kind: K::NAME, name: wish.name().to_owned() }
}

/// Checks that the parent of a new object exists, and locks it.
fn lock_parent<K: Kind>(
    context: &Context,
    tx: &mut Tx<'_>,
    parents: &[String],
) -> Result<(), Error> {
    let (Some(kind), Some((name, above))) = (K::PARENTS.last(), parents.split_last()) else {
        return Ok(());
    };
    match resources::lock(tx, &context.member.workspace, *kind, &above.join("/"), name)? {
        Some(_) => Ok(()),
        None => Err(Error::no_resource(*kind, name)),
    }
}

/// Refuses a further object where too many would be deleted at once with what contains them.
fn require_room_below<K: Kind>(
    context: &Context,
    tx: &mut Tx<'_>,
    parents: &[String],
) -> Result<(), Error> {
    let (Some(above), Some(top)) = (K::PARENTS.first(), parents.first()) else { return Ok(()) };
    if resources::count_below(tx, &context.member.workspace, K::NAME, top, BELOW_MAX)? < BELOW_MAX {
        return Ok(());
    }
    Err(Unfit::ManyBelow { kind: K::NAME, above: *above, max: BELOW_MAX }.into())
}

/// Checks that objects which a wish newly refers to exist. Older references may have lost theirs
/// since.
pub(crate) fn require_references(
    context: &Context,
    tx: &mut Tx<'_>,
    wanted: &[Reference],
    before: &[Reference],
) -> Result<(), Error> {
    let mut problems = Problems::default();
    for reference in wanted {
        let known =
            before.iter().any(|old| old.kind == reference.kind && old.name == reference.name);
        if !known && !refers(context, tx, reference)? {
            let (kind, name) = (reference.kind, shown_name(&reference.name));
            let why = format!("names the {kind} `{name}`, which does not exist");
            problems.add(&reference.field, why);
        }
    }
    Ok(problems.into_result()?)
}

/// Checks whether the referenced object exists. What is inside others is referred to without them,
/// as a gateway is without its VPC.
fn refers(context: &Context, tx: &mut Tx<'_>, reference: &Reference) -> Result<bool, Error> {
    if !reference.kind.parents().is_empty() {
        let workspace = &context.member.workspace;
        return Ok(!resources::named(tx, workspace, reference.kind, &reference.name)?.is_empty());
    }
    Ok(context.find(tx, reference.kind, &[], &reference.name)?.is_some())
}

pub(super) fn require_quota<K: Kind>(context: &Context, tx: &mut Tx<'_>) -> Result<(), Error> {
    let Some(limit) = context.control.settings.quotas.get(&K::NAME).copied() else { return Ok(()) };
    if resources::count_towards(tx, &context.member.workspace, K::NAME, limit)? >= limit {
        return Err(Error::Quota { kind: K::NAME, limit });
    }
    Ok(())
}

/// Refuses what has just been written if it made an object larger and the workspace's objects take
/// more than they may.
pub(super) fn require_room(
    context: &Context,
    tx: &mut Tx<'_>,
    row: &Stored,
    bytes_before: usize,
) -> Result<(), Error> {
    let max = context.control.settings.objects_bytes_max;
    if row.is_small() || row.bytes() <= bytes_before {
        return Ok(());
    }
    match resources::bytes(tx, &row.workspace)? > max {
        true => Err(Forbidden::ObjectRoom { bytes: max }.into()),
        false => Ok(()),
    }
}
