//! Drives, and the tokens that give access to them.

use crate::http::call::{Anyone, Call, Wish};
use crate::http::error::Error;
use crate::http::query::NoQuery;
use crate::http::reply::{Reply, Silent};
use auth::Member;
use control::engine::Held;
use control::{drive_folders, drives};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use types::kinds::Drive;
use types::parts::Sensitive;
use types::wire::{Deleted, DriveAccessToken, JsonWebKeys};

const TOKEN_LIFE_S: i64 = 3600;

pub(crate) async fn create(
    call: Call<Member, NoQuery, Wish<Drive>>,
) -> Result<Reply<Drive>, Error> {
    Ok(drives::create(call.context(), call.body.0, call.key).await?.into())
}

pub(crate) async fn remove(call: Call<Member>) -> Result<Reply<Deleted>, Error> {
    let last = drives::remove(call.context(), call.path.name().to_owned()).await?;
    Ok(Reply::of(&Deleted { message: "the drive is removed".into(), name: last.metadata.name }))
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct FolderQuery {
    /// The folder to remove, with everything in it.
    #[schemars(length(max = 4096))]
    pub path: String,
}

pub(crate) async fn remove_folder(call: Call<Member, FolderQuery>) -> Result<Silent, Error> {
    let (context, name) = (call.context(), call.path.name().to_owned());
    drive_folders::remove_folder(context, name, call.query.path).await?;
    Ok(Silent)
}

pub(crate) async fn jwks(call: Call<Anyone>) -> Result<Reply<JsonWebKeys>, Error> {
    let key = call.app.drive_key.public().as_object().cloned().unwrap_or_default();
    Ok(Reply::of(&JsonWebKeys { keys: vec![key] }))
}

pub(crate) async fn access_token(call: Call<Member>) -> Result<Reply<DriveAccessToken>, Error> {
    let (context, name) = (call.context(), call.path.name().to_owned());
    let drive = call.app.store.read(move |tx| Held::<Drive>::get(&context, tx, &[], &name)).await?;
    let now = call.app.world.now();
    let claims = json!({
        "iss": call.app.settings.public_url,
        "aud": "drives",
        "sub": call.who.who.subject.as_str(),
        "drive": drive.row.name,
        "workspace": call.who.workspace_name,
        "iat": now.seconds(),
        "exp": now.plus_s(TOKEN_LIFE_S).seconds(),
        "jti": call.app.world.random_text(20),
    });
    let access_token = Sensitive(call.app.drive_key.sign(&claims)?);
    Ok(Reply::of(&DriveAccessToken {
        access_token,
        expires_in: TOKEN_LIFE_S,
        token_type: "Bearer".into(),
    }))
}
