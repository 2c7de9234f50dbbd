//! The authorization endpoint, where a person allows a client to act for them.

use super::{Code, Fault, Params};
use crate::clients::{self, Client};
use crate::{Auth, ScopeSet, secrets};
use store::identity::users::User;
use store::identity::{Digest, codes};
use types::ids::ClientId;
use url::Url;

const CODE_LIFE_S: i64 = 120;
/// Length of a PKCE challenge: SHA-256 in base64url (RFC 7636).
const CHALLENGE_CHARS: usize = 43;

/// A checked request that may be shown to a person.
#[derive(Debug, Clone)]
pub struct Request {
    pub client_name: String,
    pub redirect_uri: String,
    pub scopes: ScopeSet,
    client: ClientId,
    state: Option<String>,
    challenge: Option<String>,
}

/// Why a request is not shown.
#[derive(Debug, thiserror::Error)]
pub enum Wrong {
    /// Client or address cannot be trusted: tell the person, and do not redirect the browser.
    #[error("{0}")]
    Show(String),
    /// The client must be told, by redirecting the browser to this address.
    #[error("the client is told at its redirect address")]
    Redirect(String),
    #[error("the store failed")]
    Store(#[from] store::Error),
}

impl Auth {
    /// Checks a request. Nothing is sent to the redirect address until it is known to belong to the
    /// client.
    pub async fn check_authorization(&self, params: &Params) -> Result<Request, Wrong> {
        let client_id = params
            .get("client_id")
            .ok_or_else(|| Wrong::Show("The address lacks `client_id`.".into()))?;
        let wanted = client_id.to_owned();
        let client = self.store().read(move |tx| clients::find(tx, &wanted)).await?;
        let client = client.ok_or_else(|| {
            Wrong::Show("The program that sent you here is not registered.".into())
        })?;
        let redirect_uri = params
            .get("redirect_uri")
            .filter(|uri| client.redirect_uris.iter().any(|known| known == uri));
        let redirect_uri = redirect_uri.ok_or_else(|| {
            Wrong::Show("The address lacks `redirect_uri`, or has one that is not registered for this program.".into())
        })?;
        let state = params.get("state").map(str::to_owned);
        match self.check_rest(params, &client) {
            Ok((scopes, challenge)) => Ok(Request {
                client_name: client.name,
                redirect_uri: redirect_uri.to_owned(),
                scopes,
                client: client.id,
                state,
                challenge,
            }),
            Err(Fault::Store(error)) => Err(Wrong::Store(error)),
            Err(Fault::Throttled(throttled)) => Err(Wrong::Show(throttled.to_string())),
            Err(Fault::Refused { code, description }) => {
                let fields = [("error", code.name()), ("error_description", description.as_str())];
                Err(Wrong::Redirect(self.answer(redirect_uri, state.as_deref(), &fields)))
            }
        }
    }

    fn check_rest(
        &self,
        params: &Params,
        client: &Client,
    ) -> Result<(ScopeSet, Option<String>), Fault> {
        if params.need("response_type")? != "code" {
            return Err(Fault::new(
                Code::UnsupportedResponseType,
                "`response_type` must be `code`",
            ));
        }
        let scopes = ScopeSet::parse(params.get("scope").unwrap_or_default())
            .map_err(|unknown| Fault::scope(&unknown))?;
        let challenge = params.get("code_challenge");
        match (challenge, params.get("code_challenge_method")) {
            (None, None) if client.is_public() => Err(Fault::request(
                "`code_challenge` is missing; public clients need PKCE with `S256`",
            )),
            (None, None) => Ok((scopes, None)),
            (Some(challenge), Some("S256")) if is_challenge(challenge) => {
                Ok((scopes, Some(challenge.to_owned())))
            }
            (Some(_), Some("S256")) => {
                Err(Fault::request("`code_challenge` must be SHA-256 in base64url"))
            }
            _ => Err(Fault::request(
                "`code_challenge_method` must be `S256`, with a `code_challenge`",
            )),
        }
    }

    /// Records the person's approval. Returns where to send the browser, with a code for the
    /// client.
    pub async fn approve(&self, request: &Request, user: &User) -> Result<String, store::Error> {
        let secret = secrets::new_secret(self.world(), "hc");
        let code = codes::Code {
            digest: Digest::of(&secret),
            client: request.client.clone(),
            user: user.id.clone(),
            redirect_uri: request.redirect_uri.clone(),
            challenge: request.challenge.clone(),
            scope: request.scopes.to_string(),
            expires_at: self.world().now().plus_s(CODE_LIFE_S),
            grant: None,
        };
        self.store().write(move |tx| codes::create(tx, &code)).await?;
        Ok(self.answer(&request.redirect_uri, request.state.as_deref(), &[("code", &secret)]))
    }

    /// Returns where to send the browser after the person has refused.
    pub fn refuse(&self, request: &Request) -> String {
        let fields = [
            ("error", Code::AccessDenied.name()),
            ("error_description", "the person did not agree"),
        ];
        self.answer(&request.redirect_uri, request.state.as_deref(), &fields)
    }

    /// Returns the redirect address with these parameters. It also names the issuer, so that a
    /// client of several servers cannot mix up their answers (RFC 9207).
    fn answer(&self, redirect_uri: &str, state: Option<&str>, pairs: &[(&str, &str)]) -> String {
        let Ok(mut url) = Url::parse(redirect_uri) else { return redirect_uri.to_owned() };
        url.query_pairs_mut()
            .extend_pairs(pairs)
            .extend_pairs(state.map(|state| ("state", state)))
            .append_pair("iss", self.issuer());
        url.into()
    }
}

fn is_challenge(text: &str) -> bool {
    text.len() == CHALLENGE_CHARS
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}
