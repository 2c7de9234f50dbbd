//! Drives and the tokens that open them.

use crate::call::{Anyone, Call};
use crate::engine::{self, Desk, Draft, Held, Managed};
use crate::error::Error;
use crate::reply::Reply;
use auth::Member;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use store::{Store, Tx};
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
    let last = call.app.store.write(move |tx| engine::remove::<Drive>(&desk, tx, &[], &name)).await?;
    Ok(Reply::of(&Deleted { message: "the drive is removed".into(), name: last.metadata.name }))
}

/// The key that signs drive tokens. All servers of one database share it.
pub(crate) struct DriveKey {
    pair: Ed25519KeyPair,
    id: String,
}

impl DriveKey {
    pub(crate) async fn load(store: &Store) -> Result<Self, store::Error> {
        let seed = crate::secret::shared(store, "drive-key").await?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed)
            .map_err(|_| store::Error::Unusable("the stored drive key is damaged".into()))?;
        let id = URL_SAFE_NO_PAD.encode(&Sha256::digest(pair.public_key())[..9]);
        Ok(Self { pair, id })
    }

    fn public(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.pair.public_key());
        json!({"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": self.id, "x": x})
    }

    fn sign(&self, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", part(&json!({"alg": "EdDSA", "typ": "JWT", "kid": self.id})), part(claims));
        let signature = URL_SAFE_NO_PAD.encode(self.pair.sign(text.as_bytes()));
        format!("{text}.{signature}")
    }
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
    Ok(Reply::of(&DriveAccessToken { access_token, expires_in: TOKEN_LIFE_S, token_type: "Bearer".into() }))
}
