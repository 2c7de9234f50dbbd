//! Asking for an upload: a wish that waits for its image, and an address for the sources.

use super::buildable::Buildable;
use crate::billing::allow;
use crate::context::Context;
use crate::engine::{self, Held, Managed, Pending};
use crate::error::{Error, Unfit};
use crate::json;
use crate::kinds::image::lock_or_make;
use crate::missing::Missing;
use crate::workloads::rows;
use admission::Refused;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use store::Tx;
use store::builds::{self, Asker, NewBuild};
use types::ids::{BuildId, ResourceId};
use types::own_image::{BadImageName, OwnRepository};
use types::parts::Status;
use types::wire::{CreateImageAnswer, CreateImageRequest};

/// Length of the secret in an upload address; it has 260 bits.
const SECRET_CHARACTERS: usize = 52;
/// Says where the address for the sources is. Tools of the management API answer without headers.
const UPLOAD_MESSAGE: &str = "upload the sources to the address in `X-Blaxel-Upload-Url`, which a tool answers as `uploadUrl`";
/// Path on this server to which sources are uploaded.
pub const UPLOADS_PATH: &str = "/v0/uploads";

/// The answer to a request for an upload: the object as JSON, and the address for its sources. It
/// is kept as a whole under the idempotency key.
#[derive(Debug, Serialize, Deserialize)]
pub struct UploadAddress {
    pub object: String,
    pub url: String,
    /// The object's version.
    pub version: i64,
}

/// Creates an object that waits for its image.
pub fn create<K: Buildable>(
    context: &Context,
    tx: &mut Tx<'_>,
    wish: K,
) -> Result<UploadAddress, Error> {
    require_builder(context)?;
    let name = wish.name().to_owned();
    if is_gone::<K>(context, tx, &name)? {
        engine::remove::<K>(context, tx, &[], &name)?;
    }
    let id = ResourceId::new(context.world());
    let begun = wish.clone();
    let pending = engine::create_unbuilt(context, tx, wish, id.clone())?;
    begun.require_free(context, tx)?;
    begun.begin(context, tx, &id)?;
    ask(context, tx, pending)
}

/// Makes a new wish for an object wait for its image. One that is terminated is created again.
pub fn replace<K: Buildable>(
    context: &Context,
    tx: &mut Tx<'_>,
    name: &str,
    wish: K,
) -> Result<UploadAddress, Error> {
    require_builder(context)?;
    if wish.name() == name && is_gone::<K>(context, tx, name)? {
        return create(context, tx, wish);
    }
    let wanted = wish.clone();
    let pending = engine::pend(context, tx, name, wish)?;
    wanted.require_free(context, tx)?;
    ask(context, tx, pending)
}

/// Checks whether only the record of a terminated object has this name, which is free.
fn is_gone<K: Buildable>(context: &Context, tx: &mut Tx<'_>, name: &str) -> Result<bool, Error> {
    let found = Held::<K>::find(context, tx, &[], name)?;
    Ok(found.is_some_and(|held| held.row.is_terminated()))
}

/// Requests the build of an image that nothing runs yet.
pub fn image(
    context: &Context,
    tx: &mut Tx<'_>,
    request: &CreateImageRequest,
) -> Result<UploadAddress, Error> {
    let repository = OwnRepository::new(&request.resource_type, &request.name)
        .map_err(BadImageName::in_request)?;
    require_builder(context)?;
    let held = lock_or_make(context, tx, &repository)?;
    if let Some(owner) = &held.state.source_workspace {
        return Err(Unfit::ImageBuiltByOther { owner: owner.clone() }.into());
    }
    let (held, url) = await_upload(context, tx, held, repository.to_string(), None)?;
    let answer = CreateImageAnswer {
        build: Some(true),
        image: None,
        message: Some(UPLOAD_MESSAGE.to_owned()),
        name: Some(repository.name().to_owned()),
        resource_type: Some(repository.resource_type().to_owned()),
    };
    Ok(UploadAddress { object: json::text(&answer), url, version: held.row.version })
}

fn require_builder(context: &Context) -> Result<(), Error> {
    match context.control.builder.is_some() && context.control.machine().is_some() {
        true => Ok(()),
        false => Err(Error::Missing(Missing::Build)),
    }
}

fn ask<K: Buildable>(
    context: &Context,
    tx: &mut Tx<'_>,
    mut pending: Pending<K>,
) -> Result<UploadAddress, Error> {
    let repository = format!("{}/{}", K::REPOSITORY, pending.held.row.name);
    let wish = (pending.wish.clone(), pending.seal_key.clone());
    let (held, url) = await_upload(context, tx, pending.held, repository, Some(wish))?;
    let version = held.row.version;
    pending.held = held;
    let object = json::text(&pending.present(context, tx)?);
    Ok(UploadAddress { object, url, version })
}

/// Begins to wait for an upload for an object. This ends an earlier wait, or a build that is not
/// finished.
pub(crate) fn await_upload<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    held: Held<K>,
    repository: String,
    wish: Option<(String, Option<String>)>,
) -> Result<(Held<K>, String), Error> {
    let (member, now) = (&context.member, context.world().now());
    allow(context, tx)?;
    require_room(context, tx, &held.row.id)?;
    let (id, secret) = (BuildId::new(context.world()), new_secret(context));
    let mut state = held.state.clone();
    if let Some(lifecycle) = K::lifecycle(&mut state) {
        lifecycle.record_build(&id, Status::Uploading, "the sources are awaited", now);
    }
    let (wish, seal_key) = wish.unzip();
    let build = NewBuild {
        id,
        workspace: member.workspace.clone(),
        resource: held.row.id.clone(),
        kind: K::NAME,
        repository,
        wish,
        seal_key: seal_key.flatten(),
        created_by: context.actor().to_owned(),
        asker: Asker { subject: member.who.subject.clone(), key: member.who.key.clone() },
        secret: digest(&secret),
        until: now.plus(context.control.settings.builds.upload_valid),
    };
    builds::replace(tx, &build)?;
    let url = format!("{}{UPLOADS_PATH}/{secret}", context.control.settings.public_url);
    Ok((rows::put_state(tx, held, state)?, url))
}

/// Limits unfinished builds, of one workspace and in all. Each object has at most one.
fn require_room(context: &Context, tx: &mut Tx<'_>, resource: &ResourceId) -> Result<(), Error> {
    const RESOURCE: &str = "builds that have not ended";
    let settings = &context.control.settings.builds;
    let open = builds::open(tx, &context.member.workspace, resource)?;
    let is_over = |count: i64, limit: u64| u64::try_from(count).is_ok_and(|count| count >= limit);
    if is_over(open.of_workspace, settings.open_workspace_max) {
        let limit = settings.open_workspace_max;
        return Err(Refused::Share { resource: RESOURCE, limit }.into());
    }
    if is_over(open.all, settings.open_max) {
        return Err(Refused::Total { resource: RESOURCE, limit: settings.open_max }.into());
    }
    Ok(())
}

fn new_secret(context: &Context) -> String {
    context.world().random_text(SECRET_CHARACTERS)
}

/// Returns the digest of a secret, which is all that is stored of it.
pub(super) fn digest(secret: &str) -> String {
    types::hex::encode(&Sha256::digest(secret.as_bytes()))
}
