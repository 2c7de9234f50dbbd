//! Drives and the tokens that open them.

use crate::call::{Anyone, Call};
use crate::engine::{self, Desk, Draft, Held, Managed};
use crate::error::Error;
use crate::reply::Reply;
use auth::Member;
use serde_json::json;
use store::Tx;
use types::kinds::Drive;
use types::parts::Sensitive;
use types::wire::{Deleted, DriveAccessToken, JsonWebKeys};

const TOKEN_LIFE_S: i64 = 3600;

impl Managed for Drive {
    fn settle(desk: &Desk, _: &mut Tx<'_>, draft: &mut Draft<'_, Self>) -> Result<(), Error> {
        super::catalogues::require_region(desk, draft.wish.spec.region.as_deref(), "spec.region")
    }
}

pub(crate) async fn remove(call: Call<Member>) -> Result<Reply<Deleted>, Error> {
    let (desk, name) = (call.desk(), call.path.name().to_owned());
    let last =
        call.app.store.write(move |tx| engine::remove::<Drive>(&desk, tx, &[], &name)).await?;
    Ok(Reply::of(&Deleted { message: "the drive is removed".into(), name: last.metadata.name }))
}

pub(crate) async fn jwks(call: Call<Anyone>) -> Result<Reply<JsonWebKeys>, Error> {
    let key = call.app.drive_key.public().as_object().cloned().unwrap_or_default();
    Ok(Reply::of(&JsonWebKeys { keys: vec![key] }))
}

pub(crate) async fn access_token(call: Call<Member>) -> Result<Reply<DriveAccessToken>, Error> {
    let (desk, name) = (call.desk(), call.path.name().to_owned());
    let drive = call.app.store.read(move |tx| Held::<Drive>::get(&desk, tx, &[], &name)).await?;
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
    let access_token = Sensitive(call.app.drive_key.sign(&claims));
    Ok(Reply::of(&DriveAccessToken {
        access_token,
        expires_in: TOKEN_LIFE_S,
        token_type: "Bearer".into(),
    }))
}
