//! The token endpoint.

use super::client::{self, Credentials};
use super::{Code, Fault, Params};
use crate::tokens::{self, Tokens};
use crate::{Auth, ScopeSet, Subject, clients, secrets};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use sha2::{Digest as _, Sha256};
use store::Tx;
use store::identity::codes::Code as AuthorizationCode;
use store::identity::devices::{self, Decision};
use store::identity::grants::{Grant, Refresh};
use store::identity::{Digest, codes, grants};
use types::ids::ClientId;

pub(super) const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// Tolerance for devices that ask early. Requests arrive with jitter, so only what is clearly too early is
/// refused.
const EARLY_S: i64 = 1;
/// What RFC 8628 adds to the interval of devices that ask too often.
const SLOWER_BY_S: i64 = 5;
/// Length of a PKCE verifier (RFC 7636).
const VERIFIER_CHARS: std::ops::RangeInclusive<usize> = 43..=128;

/// The outcome of a transaction. All of these keep its writes; a [`Fault`] undoes them.
pub(super) enum Outcome {
    Issued(Tokens),
    /// Refused, and everything that a stolen token gave access to was revoked.
    Revoked(Fault),
    /// Not decided yet; the request was recorded.
    Waiting(Fault),
}

impl Auth {
    /// Answers a token request. `authorization` is the header of that name.
    pub async fn token(
        &self,
        params: Params,
        authorization: Option<&str>,
    ) -> Result<Tokens, Fault> {
        let kind = params.need("grant_type")?.to_owned();
        let credentials = Credentials::read(&params, authorization)?;
        let auth = self.clone();
        let exchange = match kind.as_str() {
            "client_credentials" => by_client_credentials,
            "authorization_code" => by_code,
            "refresh_token" => by_refresh,
            DEVICE_GRANT => by_device_code,
            _ => {
                let kind = kind.escape_debug();
                let description = format!("`grant_type` `{kind}` is not known here");
                return Err(Fault::new(Code::UnsupportedGrantType, description));
            }
        };
        let outcome = self
            .store()
            .write(move |tx| exchange(&auth, tx, &params, credentials.as_ref()))
            .await?;
        match outcome {
            Outcome::Issued(tokens) => Ok(tokens),
            Outcome::Waiting(fault) => Err(fault),
            Outcome::Revoked(fault) => {
                self.forget();
                Err(fault)
            }
        }
    }
}

fn by_client_credentials(
    auth: &Auth,
    tx: &mut Tx<'_>,
    params: &Params,
    credentials: Option<&Credentials>,
) -> Result<Outcome, Fault> {
    let credentials =
        credentials.ok_or_else(|| Fault::client("`client_id` and `client_secret` are missing"))?;
    if clients::find(tx, &credentials.id)?.is_some() {
        let description =
            "this client acts for people only; use the credentials of a service account";
        return Err(Fault::new(Code::UnauthorizedClient, description));
    }
    let account = client::service_account(tx, credentials)?;
    let scopes = scopes(params)?;
    let itself = ClientId::known(account.id.as_str());
    let grant = tokens::grant(tx, &itself, Subject::ServiceAccount(account.id), scopes)?;
    Ok(Outcome::Issued(tokens::issue(auth, tx, &grant, scopes)?))
}

fn by_code(
    auth: &Auth,
    tx: &mut Tx<'_>,
    params: &Params,
    credentials: Option<&Credentials>,
) -> Result<Outcome, Fault> {
    let client = client::authenticate(tx, credentials)?;
    let digest = Digest::of(params.need("code")?);
    let code = codes::lock(tx, &digest)?.ok_or_else(|| Fault::grant("`code` is not valid"))?;
    // Before the code counts as used twice: otherwise anybody who saw it could end the sign-in.
    if code.client != client.id {
        return Err(Fault::grant("`code` was given to another client"));
    }
    if let Some(first) = &code.grant {
        grants::delete(tx, first)?;
        let description = "`code` was used before; what it gave has been revoked, because it may have been stolen";
        return Ok(Outcome::Revoked(Fault::grant(description)));
    }
    check_code(tx, &code, params)?;
    let scopes = ScopeSet::parse(&code.scope).map_err(|unknown| Fault::scope(&unknown))?;
    let grant = tokens::grant(tx, &client.id, Subject::User(code.user.clone()), scopes)?;
    codes::spend(tx, &digest, &grant.id)?;
    Ok(Outcome::Issued(tokens::issue(auth, tx, &grant, scopes)?))
}

fn check_code(tx: &Tx<'_>, code: &AuthorizationCode, params: &Params) -> Result<(), Fault> {
    if code.expires_at <= tx.world().now() {
        return Err(Fault::grant("`code` has expired"));
    }
    if params.need("redirect_uri")? != code.redirect_uri {
        return Err(Fault::grant("`redirect_uri` is not the one of the authorization request"));
    }
    match (&code.challenge, params.get("code_verifier")) {
        (None, None) => Ok(()),
        (Some(challenge), Some(verifier)) if verifies(verifier, challenge) => Ok(()),
        (Some(_), None) => Err(Fault::request("`code_verifier` is missing")),
        // Refused even without a challenge: somebody must have removed it from the authorization
        // request.
        (_, Some(_)) => Err(Fault::grant("`code_verifier` does not fit the `code_challenge`")),
    }
}

fn verifies(verifier: &str, challenge: &str) -> bool {
    VERIFIER_CHARS.contains(&verifier.len())
        && secrets::same(&BASE64.encode(Sha256::digest(verifier.as_bytes())), challenge)
}

fn by_refresh(
    auth: &Auth,
    tx: &mut Tx<'_>,
    params: &Params,
    credentials: Option<&Credentials>,
) -> Result<Outcome, Fault> {
    let digest = Digest::of(params.need("refresh_token")?);
    let Refresh { grant, used_at } = grants::lock_refresh(tx, &digest)?
        .ok_or_else(|| Fault::grant("`refresh_token` is not valid"))?;
    check_owner(tx, &grant, credentials)?;
    if used_at.is_some() {
        grants::delete(tx, &grant.id)?;
        let description = "`refresh_token` was used before; all tokens of this sign-in have been revoked, because one \
                           may have been stolen";
        return Ok(Outcome::Revoked(Fault::grant(description)));
    }
    if grant.expires_at <= tx.world().now() {
        return Err(Fault::grant("`refresh_token` has expired"));
    }
    let scopes = narrowed(params, &grant)?;
    grants::use_refresh(tx, &digest)?;
    Ok(Outcome::Issued(tokens::issue(auth, tx, &grant, scopes)?))
}

fn by_device_code(
    auth: &Auth,
    tx: &mut Tx<'_>,
    params: &Params,
    credentials: Option<&Credentials>,
) -> Result<Outcome, Fault> {
    let client = client::authenticate(tx, credentials)?;
    let digest = Digest::of(params.need("device_code")?);
    let device = devices::find(tx, &digest)?.filter(|device| device.client == client.id);
    let device = device.ok_or_else(|| Fault::grant("`device_code` is not valid"))?;
    if device.expires_at <= tx.world().now() {
        return Err(Fault::new(Code::ExpiredToken, "`device_code` has expired; start again"));
    }
    match &device.decision {
        Decision::Waiting => wait(tx, &device),
        Decision::Refused => Err(Fault::new(Code::AccessDenied, "the person did not agree")),
        Decision::Approved { by } => {
            let scopes =
                ScopeSet::parse(&device.scope).map_err(|unknown| Fault::scope(&unknown))?;
            if !devices::delete(tx, &digest)? {
                return Err(Fault::grant("`device_code` was used before"));
            }
            let grant = tokens::grant(tx, &client.id, Subject::User(by.clone()), scopes)?;
            Ok(Outcome::Issued(tokens::issue(auth, tx, &grant, scopes)?))
        }
    }
}

/// Records that a device asked before the person has decided, and tells it how to go on.
fn wait(tx: &mut Tx<'_>, device: &devices::Device) -> Result<Outcome, Fault> {
    let now = tx.world().now();
    let least_ms = (device.interval_s - EARLY_S) * 1000;
    let early = device.polled_at.is_some_and(|before| now.since(before) < least_ms);
    let interval_s = if early { device.interval_s + SLOWER_BY_S } else { device.interval_s };
    devices::polled(tx, &device.digest, interval_s)?;
    Ok(Outcome::Waiting(if early {
        Fault::new(Code::SlowDown, format!("ask every {interval_s} s at most"))
    } else {
        Fault::new(Code::AuthorizationPending, "the person has not decided yet")
    }))
}

/// Checks that the grant was made to this client. Public clients need not identify themselves, and
/// the published ones do not.
pub(super) fn check_owner(
    tx: &mut Tx<'_>,
    grant: &Grant,
    credentials: Option<&Credentials>,
) -> Result<(), Fault> {
    let of_another = || Fault::grant("the token was given to another client");
    if credentials.is_some_and(|credentials| credentials.id != grant.client.as_str()) {
        return Err(of_another());
    }
    if let Subject::ServiceAccount(_) = grant.subject {
        let credentials = credentials
            .ok_or_else(|| Fault::client("`client_id` and `client_secret` are missing"))?;
        return client::service_account(tx, credentials).map(drop);
    }
    let owner = clients::find(tx, grant.client.as_str())?.ok_or_else(of_another)?;
    match credentials {
        None if owner.is_public() => Ok(()),
        _ => client::authenticate(tx, credentials).map(drop),
    }
}

pub(super) fn scopes(params: &Params) -> Result<ScopeSet, Fault> {
    ScopeSet::parse(params.get("scope").unwrap_or_default())
        .map_err(|unknown| Fault::scope(&unknown))
}

fn narrowed(params: &Params, grant: &Grant) -> Result<ScopeSet, Fault> {
    let granted = ScopeSet::parse(&grant.scope).map_err(|unknown| Fault::scope(&unknown))?;
    if params.get("scope").is_none() {
        return Ok(granted);
    }
    let wanted = scopes(params)?;
    if wanted.within(granted) {
        Ok(wanted)
    } else {
        Err(Fault::new(Code::InvalidScope, "`scope` asks for more than was granted"))
    }
}
