//! Access tokens: what a connection holds is exchanged at a service for a token that is valid for a
//! while. This module only writes the request and reads the answer; who sends it and when to renew
//! is decided elsewhere.

use super::errors::BadProvider;
use super::paths::Base;
use crate::catalogue::{TokenService, catalogue};
use jose::Rsa;
use serde::Deserialize;
use serde_json::json;
use types::Timestamp;
use types::models::OutsideRequest;
use types::parts::{Sensitive, TextMap};

/// The secret under which a connection holds a token that was fetched. If it is set, it is sent as
/// a bearer token.
pub const ACCESS_TOKEN: &str = "accessToken";

/// How long a signed request for a token is valid. Google allows an hour at most.
const ASSERTION_S: i64 = 3600;
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// A secret that looks like the key file of a service account and is none, with the reason. It is
/// never sent as a key, because it may hold a private one.
struct BadAccount(String);

/// The proof that a connection may ask for tokens.
enum Grant<'s> {
    Refresh { id: &'s str, secret: &'s str, token: &'s str },
    Account(Box<ServiceAccount>),
}

/// The key file that Google issues for a service account.
#[derive(Deserialize)]
struct ServiceAccount {
    client_email: String,
    private_key: String,
    project_id: Option<String>,
    token_uri: Option<String>,
}

pub(super) fn held(secrets: &TextMap) -> Option<&str> {
    find(secrets, &[ACCESS_TOKEN, "ACCESS_TOKEN"])
}

/// Returns whether these secrets have to be exchanged for a token instead of being sent. A key file
/// that cannot be read has to be, too: [`token_request`] says what is wrong with it.
pub fn is_exchanged(secrets: &TextMap) -> bool {
    !matches!(grant(secrets), Ok(None))
}

/// Returns what is wrong with the key file in these secrets, if anything is.
pub(super) fn fault(secrets: &TextMap) -> Option<String> {
    grant(secrets).err().map(|BadAccount(what)| what)
}

/// Returns the project that a service account belongs to.
pub(super) fn project(secrets: &TextMap) -> Option<String> {
    match grant(secrets).ok()?? {
        Grant::Account(account) => account.project_id,
        Grant::Refresh { .. } => None,
    }
}

fn find<'s>(secrets: &'s TextMap, names: &[&str]) -> Option<&'s str> {
    names
        .iter()
        .find_map(|name| secrets.get(*name))
        .map(|text| text.trim())
        .filter(|text| !text.is_empty())
}

fn grant(secrets: &TextMap) -> Result<Option<Grant<'_>>, BadAccount> {
    let id = find(secrets, &["CLIENT_ID", "clientId", "client_id"]);
    let secret = find(secrets, &["CLIENT_SECRET", "clientSecret", "client_secret"]);
    let token = find(secrets, &["REFRESH_TOKEN", "refreshToken", "refresh_token"]);
    if let (Some(id), Some(secret), Some(token)) = (id, secret, token) {
        return Ok(Some(Grant::Refresh { id, secret, token }));
    }
    let is_account =
        |text: &&String| text.trim_start().starts_with('{') && text.contains("private_key");
    let Some(account) = secrets.values().find(is_account) else { return Ok(None) };
    let account = serde_json::from_str(account).map_err(|error| bad_account(&error))?;
    Ok(Some(Grant::Account(Box::new(account))))
}

/// Says what is wrong with a key file. Of serde's words only those about a missing field are used,
/// because the others may repeat what is in the file.
fn bad_account(error: &serde_json::Error) -> BadAccount {
    let told = error.to_string();
    let missing = |field: &&str| told.starts_with(&format!("missing field `{field}`"));
    let why = match (["client_email", "private_key"].iter().find(|field| missing(field)), error) {
        (Some(field), _) => format!("lacks `{field}`"),
        (None, error) if error.is_data() => "has a field of the wrong type".to_owned(),
        (None, error) => format!("is no JSON: see line {}", error.line()),
    };
    BadAccount(format!("a service account whose key file {why}"))
}

/// Builds the request for a token from what a connection of this type holds. Returns `None` if it
/// needs no token.
pub fn token_request(
    integration: &str,
    config: &TextMap,
    secrets: &TextMap,
    now: Timestamp,
) -> Option<Result<OutsideRequest, BadProvider>> {
    let grant = grant(secrets).transpose()?;
    let (provider, service) = match catalogue().of_integration(integration) {
        Some((_, entry)) => (entry.display_name.as_str(), entry.token.as_ref()),
        None => match catalogue().service(integration) {
            Some(service) => (service.display_name.as_str(), service.token.as_ref()),
            None => ("this service", None),
        },
    };
    Some(match grant {
        Ok(grant) => asked(provider, service, config, &grant, now),
        Err(BadAccount(what)) => Err(BadProvider::Wrong { provider, what }),
    })
}

fn asked(
    provider: &'static str,
    service: Option<&TokenService>,
    config: &TextMap,
    grant: &Grant<'_>,
    now: Timestamp,
) -> Result<OutsideRequest, BadProvider> {
    let wrong = |what: String| BadProvider::Wrong { provider, what };
    let said = config.get("tokenUrl").or_else(|| config.get("token_url")).map(String::as_str);
    let of_account = match grant {
        Grant::Account(account) => account.token_uri.as_deref(),
        Grant::Refresh { .. } => None,
    };
    let url = said.or(of_account).or(service.map(|service| service.url.as_str()));
    let Some(url) = url else {
        return Err(BadProvider::Lacks { provider, what: "`tokenUrl` in its config".into() });
    };
    let base = Base::parse(url).map_err(|why| wrong(format!("a `tokenUrl` that {why}")))?;
    let target = base.target("", None, &[])?;
    // Only a setting of the connection can allow a secret to cross a network unencrypted.
    if !target.is_tls && said.is_none() {
        return Err(wrong("a service of tokens without https".into()));
    }
    let scope = config.get("scope").map(String::as_str);
    let scope = scope.or(service.and_then(|service| service.scope.as_deref()));
    let mut form = form_urlencoded::Serializer::new(String::new());
    match grant {
        Grant::Refresh { id, secret, token } => {
            form.append_pair("grant_type", "refresh_token");
            form.append_pair("client_id", id);
            form.append_pair("client_secret", secret);
            form.append_pair("refresh_token", token);
        }
        Grant::Account(account) => {
            let Some(scope) = scope else {
                return Err(BadProvider::Lacks { provider, what: "`scope` in its config".into() });
            };
            let signed = assertion(account, scope, url, now)
                .map_err(|_| wrong("a service account whose private key is none".into()))?;
            form.append_pair("grant_type", JWT_BEARER);
            form.append_pair("assertion", &signed);
        }
    }
    let header = |name: &str, value: &str| (name.to_owned(), Sensitive(value.to_owned()));
    Ok(OutsideRequest {
        method: "POST",
        url: target.url.to_string(),
        headers: vec![
            header("content-type", "application/x-www-form-urlencoded"),
            header("accept", "application/json"),
        ],
        body: Sensitive(form.finish().into_bytes()),
    })
}

fn assertion(
    account: &ServiceAccount,
    scope: &str,
    audience: &str,
    now: Timestamp,
) -> Result<String, jose::BadKey> {
    let now = now.seconds();
    let claims = json!({
        "iss": account.client_email,
        "scope": scope,
        "aud": audience,
        "iat": now,
        "exp": now.saturating_add(ASSERTION_S),
    });
    Rsa::from_pem(&account.private_key)?.sign(&claims)
}

/// A token and how long it is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessToken {
    pub value: Sensitive<String>,
    pub expires_in_s: u64,
    /// Replaces the refresh token that was sent, which may be invalid now.
    pub refresh_token: Option<Sensitive<String>>,
}

/// Why there is no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    /// What was sent is not valid, or no longer valid. Asking again does not help.
    #[error("the token was refused: {0}")]
    Refused(String),
    #[error("the answer has no access token")]
    Unreadable,
}

/// Reads the answer to [`token_request`], whatever its status.
pub fn read_token(body: &[u8]) -> Result<AccessToken, BadToken> {
    #[derive(Deserialize)]
    struct Answer {
        access_token: Option<String>,
        expires_in: Option<serde_json::Value>,
        refresh_token: Option<String>,
        error: Option<serde_json::Value>,
    }
    // Some services issue tokens that do not expire, and do not say so.
    const HOUR_S: u64 = 3600;
    let answer: Answer = serde_json::from_slice(body).map_err(|_| BadToken::Unreadable)?;
    if let Some(value) = answer.access_token.filter(|token| !token.is_empty()) {
        let seconds = answer.expires_in.as_ref().and_then(|seconds| {
            seconds.as_u64().or_else(|| seconds.as_str().and_then(|text| text.parse().ok()))
        });
        return Ok(AccessToken {
            value: Sensitive(value),
            expires_in_s: seconds.unwrap_or(HOUR_S),
            refresh_token: answer.refresh_token.map(Sensitive),
        });
    }
    // The word is from a short list (RFC 6749, 5.2). The description may repeat what was sent.
    let word = answer.error.as_ref().and_then(serde_json::Value::as_str);
    match word {
        Some(word) => Err(BadToken::Refused(word.chars().take(60).collect())),
        None => Err(BadToken::Unreadable),
    }
}
