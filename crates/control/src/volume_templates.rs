//! The content of volume templates: uploaded, unpacked and kept in versions.
//!
//! An upload is handled like every upload ([`crate::builds`]). What is made of it is a file system
//! that new volumes are copies of. It is kept under a number that no other upload of the template
//! has, and becomes a version in the one transaction that says so. Content that no row names any
//! more is removed when the rows are followed ([`crate::workloads`]).
//!
//! If there is an object service, it has a copy of the content before the version is ready, and the
//! row has the digest of that copy. The file system on a machine is then only a cache: whatever
//! machine makes a volume from the version fetches what it lacks.

use crate::builds::{self, UploadAddress};
use crate::context::Context;
use crate::engine::{self, Held, Secrets};
use crate::error::{Absent, Conflict, Error, Unfit};
use crate::json;
use crate::missing::Missing;
use crate::workloads::rows;
use store::Tx;
use store::builds::Build;
use types::ids::ResourceId;
use types::instance::{KeptFor, VolumeCopy, VolumeName, VolumeSource};
use types::kinds::volume_template::{Awaited, Content, State, Version};
use types::kinds::{Volume, VolumeTemplate};
use types::wire::TemplateVersionDeleted;

const VERSION_CHARACTERS: usize = 63;
/// Largest version name that is counted on from. A larger number is a name like any other, or else
/// one version could leave no number for the next.
const COUNTED_MAX: u64 = 1_000_000_000_000;
/// Failed versions that are kept with their reasons.
const FAILED_MAX: usize = 3;
/// The version name that stands for the newest version.
pub const LATEST: &str = "latest";

/// Returns the name under which the content of one upload is kept.
pub(crate) fn name_of(id: &ResourceId, number: u64) -> VolumeName {
    VolumeName::of(&KeptFor::Template { id: id.clone(), number })
}

/// Begins to wait for the upload of a version, and stops waiting for an earlier one. A version
/// without a name gets the next number.
pub fn ask(
    context: &Context,
    tx: &mut Tx<'_>,
    template: &str,
    version: Option<&str>,
) -> Result<UploadAddress, Error> {
    let control = &context.control;
    if control.builder.is_none() || control.volume_store().is_none() {
        return Err(Error::Missing(Missing::ReceiveTemplate));
    }
    let mut held = Held::<VolumeTemplate>::lock(context, tx, &[], template)?;
    let version = version_name(&held.state, version)?;
    held.state.numbers += 1;
    let number = held.state.numbers;
    held.state.awaited = Some(Awaited { version, number });
    let kept_as = name_of(&held.row.id, number);
    let (held, url) = builds::await_upload(context, tx, held, kept_as.to_string(), None)?;
    let object = json::text(&engine::present(context, tx, &held, &Secrets::Masked)?);
    Ok(UploadAddress { object, url, version: held.row.version })
}

fn version_name(state: &State, wanted: Option<&str>) -> Result<String, Error> {
    let Some(wanted) = wanted else { return Ok(state.counted.saturating_add(1).to_string()) };
    let begins = wanted.starts_with(|first: char| first.is_ascii_alphanumeric());
    let fits = wanted.len() <= VERSION_CHARACTERS
        && wanted.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if !begins || !fits || wanted == LATEST {
        return Err(Unfit::TemplateVersionName { max: VERSION_CHARACTERS }.into());
    }
    if state.versions.iter().any(|version| version.is_ready() && version.name == wanted) {
        return Err(Conflict::TemplateVersion { version: wanted.to_owned() }.into());
    }
    Ok(wanted.to_owned())
}

/// Returns the template that waits for the result of an upload, and the version that is to have it.
fn waiting(
    tx: &mut Tx<'_>,
    build: &Build,
) -> Result<Option<(Held<VolumeTemplate>, Awaited)>, Error> {
    let Some(held) = rows::lock::<VolumeTemplate>(tx, &build.resource)? else { return Ok(None) };
    let awaited = held.state.awaited.clone();
    let is_it = |awaited: &Awaited| {
        name_of(&held.row.id, awaited.number).as_str() == build.repository.as_str()
    };
    Ok(awaited.filter(is_it).map(|awaited| (held, awaited)))
}

/// Checks whether anybody still wants the result of an upload.
pub(crate) fn is_wanted(tx: &mut Tx<'_>, build: &Build) -> Result<bool, Error> {
    Ok(waiting(tx, build)?.is_some())
}

/// Notes why an upload failed. Returns `false` if nobody wants it any more.
pub(crate) fn fail(tx: &mut Tx<'_>, build: &Build, reason: &str) -> Result<bool, Error> {
    let Some((held, awaited)) = waiting(tx, build)? else { return Ok(false) };
    let content = Content::Failed { reason: reason.to_owned() };
    let mut state = held.state.clone();
    conclude(&mut state, Version { name: awaited.version, content });
    rows::put_state(tx, held, state).map(|_| true)
}

/// Makes the unpacked content the newest version. Returns `false` if nobody wants it any more.
pub(crate) fn place(context: &Context, tx: &mut Tx<'_>, build: &Build) -> Result<bool, Error> {
    let Some((held, awaited)) = waiting(tx, build)? else { return Ok(false) };
    let Some((volumes, machine)) = context.control.volume_store() else { return Ok(false) };
    let size_mb = volumes.size_mb(&name_of(&held.row.id, awaited.number));
    let (Some(size_mb), Some((digest, bytes))) = (size_mb, build.image.clone()) else {
        return Err(engine::corrupt(&held.row.id, "what was unpacked for it is not there"));
    };
    // Without a copy, the name of the volume is in its place.
    let copy = Some(digest).filter(|digest| *digest != build.repository);
    let content = Content::Ready { number: awaited.number, bytes, size_mb, machine, copy };
    let mut state = held.state.clone();
    state.last_version_uploaded_at = Some(tx.world().now());
    conclude(&mut state, Version { name: awaited.version, content });
    keep_newest(
        &mut state.versions,
        Version::is_ready,
        context.control.settings.builds.template_versions_max,
    );
    rows::put_state(tx, held, state).map(|_| true)
}

/// Returns the number that versions without a name are counted from, after a version of this name.
fn counted_after(counted: u64, version: &str) -> u64 {
    let number = version.parse().ok().filter(|number| *number <= COUNTED_MAX);
    number.map_or(counted, |number| counted.max(number))
}

/// Ends the wait with a version. It takes the place of one of the same name that failed.
fn conclude(state: &mut State, version: Version) {
    state.awaited = None;
    state.counted = counted_after(state.counted, &version.name);
    state.versions.retain(|kept| kept.is_ready() || kept.name != version.name);
    state.versions.push(version);
    keep_newest(&mut state.versions, |version| !version.is_ready(), FAILED_MAX);
}

/// Removes the oldest of the versions of one sort that are more than `max`.
fn keep_newest(versions: &mut Vec<Version>, of_sort: fn(&Version) -> bool, max: usize) {
    let mut over = versions.iter().filter(|version| of_sort(version)).count().saturating_sub(max);
    versions.retain(|version| {
        let goes = over > 0 && of_sort(version);
        over -= usize::from(goes);
        !goes
    });
}

/// Removes one version, unless it is the last. Volumes that began with it are not touched.
pub fn remove_version(
    context: &Context,
    tx: &mut Tx<'_>,
    template: &str,
    version: &str,
) -> Result<TemplateVersionDeleted, Error> {
    let held = Held::<VolumeTemplate>::lock(context, tx, &[], template)?;
    let mut state = held.state.clone();
    if state.awaited.as_ref().is_some_and(|awaited| awaited.version == version) {
        state.awaited = None;
        store::builds::cancel(tx, &held.row.id)?;
    } else {
        state.versions.retain(|kept| kept.name != version);
        if state.versions.len() == held.state.versions.len() {
            return Err(Absent::TemplateVersion { version: version.to_owned() }.into());
        }
        let is_last = held.state.latest().is_some() && state.latest().is_none();
        if is_last || state.versions.is_empty() {
            return Err(Unfit::LastTemplateVersion.into());
        }
    }
    let held = engine::change_state(context, tx, held, state)?;
    let template = engine::present(context, tx, &held, &Secrets::Masked)?;
    Ok(TemplateVersionDeleted {
        message: "the version is removed".into(),
        template: Some(template),
    })
}

/// The content that a volume begins as a copy of.
pub(crate) struct Origin {
    pub(crate) source: VolumeSource,
    /// The volume must be at least this large.
    pub(crate) size_mb: u32,
    machine: String,
}

impl Origin {
    /// Returns true if a machine has the content, or can fetch it.
    pub(crate) fn is_for(&self, machine: &str) -> bool {
        self.machine == machine || self.source.copy.is_some()
    }
}

/// Returns the template that a volume names, and the version of it.
pub(crate) fn named(
    context: &Context,
    tx: &mut Tx<'_>,
    wish: &Volume,
) -> Result<Option<(Held<VolumeTemplate>, String)>, Error> {
    let named = wish.spec.template.as_deref().filter(|template| !template.is_empty());
    let Some(named) = named else { return Ok(None) };
    let (name, version) = named.split_once(':').unwrap_or((named, LATEST));
    let version = Some(version).filter(|version| !version.is_empty()).unwrap_or(LATEST);
    let template = Held::<VolumeTemplate>::get(context, tx, &[], name)?;
    Ok(Some((template, version.to_owned())))
}

/// Finds what a new volume begins with. `None` if it names no template.
pub(crate) fn origin(
    context: &Context,
    tx: &mut Tx<'_>,
    wish: &Volume,
) -> Result<Option<Origin>, Error> {
    let Some((template, wanted)) = named(context, tx, wish)? else { return Ok(None) };
    let state = &template.state;
    let found = match wanted.as_str() {
        LATEST => state.latest(),
        name => state.versions.iter().find(|version| version.is_ready() && version.name == name),
    };
    let template_name = template.row.name.clone();
    match found.map(|version| &version.content) {
        Some(Content::Ready { number, size_mb, machine, copy, .. }) => {
            let copied = |digest: &String| VolumeCopy { digest: digest.clone(), size_mb: *size_mb };
            let name = name_of(&template.row.id, *number);
            let source = VolumeSource { name, copy: copy.as_ref().map(copied) };
            Ok(Some(Origin { source, size_mb: *size_mb, machine: machine.clone() }))
        }
        _ if wanted == LATEST => Err(Unfit::EmptyTemplate { template: template_name }.into()),
        _ => {
            let version = wanted.chars().take(VERSION_CHARACTERS).collect();
            Err(Unfit::NoTemplateVersion { template: template_name, version }.into())
        }
    }
}

/// Notes that the object service has a copy of a version. Nothing is noted if the version is gone;
/// the copy goes with the next look at all copies.
pub(crate) fn copied(
    tx: &mut Tx<'_>,
    template: &ResourceId,
    number: u64,
    digest: &str,
) -> Result<(), Error> {
    let Some(held) = rows::lock::<VolumeTemplate>(tx, template)? else { return Ok(()) };
    let mut state = held.state.clone();
    let copies = state.versions.iter_mut().filter_map(|version| match &mut version.content {
        Content::Ready { number: of, copy, .. } if *of == number => Some(copy),
        _ => None,
    });
    copies.for_each(|copy| *copy = Some(digest.to_owned()));
    rows::put_state(tx, held, state).map(drop)
}

/// Returns the numbers under which content is kept for a template, or will be.
pub(crate) fn numbers(state: &State) -> impl Iterator<Item = u64> {
    let kept = state.versions.iter().filter_map(|version| match version.content {
        Content::Ready { number, .. } => Some(number),
        Content::Failed { .. } => None,
    });
    kept.chain(state.awaited.iter().map(|awaited| awaited.number))
}
