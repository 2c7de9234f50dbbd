//! The OAuth flows of the command line.

use super::contexts::{Credentials, ServiceAccount};
use crate::error::Error;
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Id under which the server knows the command line.
const CLIENT_ID: &str = "holm";
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
const TIMEOUT: Duration = Duration::from_secs(30);
/// Added to the interval when the server says to slow down (RFC 8628).
const SLOW_DOWN_S: u64 = 5;

/// What a person needs to confirm a device.
#[derive(Debug, Deserialize)]
pub(crate) struct Device {
    device_code: String,
    pub(crate) user_code: String,
    pub(crate) verification_uri: String,
    #[serde(default)]
    pub(crate) verification_uri_complete: Option<String>,
    expires_in: u64,
    #[serde(default = "default_interval_s")]
    interval: u64,
}

fn default_interval_s() -> u64 {
    5
}

#[derive(Deserialize)]
struct Tokens {
    access_token: String,
    refresh_token: String,
    expires_in: i64,
}

impl Tokens {
    fn session(self, now_s: i64, account: Option<&ServiceAccount>) -> Credentials {
        Credentials::Session {
            access_token: self.access_token,
            refresh_token: self.refresh_token,
            expires_at: now_s.saturating_add(self.expires_in),
            account: account.cloned(),
        }
    }
}

pub(crate) async fn start_device(http: &reqwest::Client, base: &Url) -> Result<Device, Error> {
    let body = json!({"client_id": CLIENT_ID, "scope": "offline_access"});
    let (status, answer) = post(http, base, "oauth/device/code", &body).await?;
    if !status.is_success() {
        return Err(refused(status, &answer));
    }
    serde_json::from_value(answer).map_err(|error| not_holm(base, &error.to_string()))
}

/// Polls until the person has confirmed or refused, or the code has expired.
pub(crate) async fn wait_for_device(
    http: &reqwest::Client,
    base: &Url,
    device: &Device,
    now_s: i64,
) -> Result<Credentials, Error> {
    let body = json!({"grant_type": DEVICE_GRANT, "client_id": CLIENT_ID, "device_code": device.device_code});
    let mut interval_s = device.interval.clamp(1, 60);
    let mut waited_s = 0;
    while waited_s < device.expires_in {
        tokio::time::sleep(Duration::from_secs(interval_s)).await;
        waited_s += interval_s;
        let (status, answer) = post(http, base, "oauth/token", &body).await?;
        match answer.get("error").and_then(Value::as_str) {
            _ if status == StatusCode::OK => {
                let now_s = now_s + i64::try_from(waited_s).unwrap_or(0);
                return read_tokens(base, answer, now_s, None);
            }
            Some("authorization_pending") => {}
            Some("slow_down") => interval_s += SLOW_DOWN_S,
            _ => return Err(refused(status, &answer)),
        }
    }
    Err(Error::NoCredentials("the code has expired; run `holm login` again".into()))
}

/// Adds who asks: the service account that a session belongs to, or else the command line.
fn by(account: Option<&ServiceAccount>, mut body: Value) -> Value {
    match account {
        Some(account) => {
            body["client_id"] = account.client_id.as_str().into();
            body["client_secret"] = account.client_secret.as_str().into();
        }
        None => body["client_id"] = CLIENT_ID.into(),
    }
    body
}

pub(crate) async fn renew(
    http: &reqwest::Client,
    base: &Url,
    refresh_token: &str,
    account: Option<&ServiceAccount>,
    now_s: i64,
) -> Result<Credentials, Error> {
    let body = json!({"grant_type": "refresh_token", "refresh_token": refresh_token});
    let (status, answer) = post(http, base, "oauth/token", &by(account, body)).await?;
    match (status, account) {
        (StatusCode::OK, _) => read_tokens(base, answer, now_s, account),
        // The session was ended or has expired. A service account can begin another one by itself,
        // a person must sign in again.
        (StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED, Some(account)) => {
            client_credentials(http, base, account, now_s).await
        }
        (StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED, None) => Err(Error::NotSignedIn),
        _ => Err(refused(status, &answer)),
    }
}

pub(crate) async fn client_credentials(
    http: &reqwest::Client,
    base: &Url,
    account: &ServiceAccount,
    now_s: i64,
) -> Result<Credentials, Error> {
    let body = by(Some(account), json!({"grant_type": "client_credentials"}));
    let (status, answer) = post(http, base, "oauth/token", &body).await?;
    match answer.get("error").and_then(Value::as_str) {
        _ if status == StatusCode::OK => read_tokens(base, answer, now_s, Some(account)),
        // OAuth answers these with 400 too.
        Some("invalid_client" | "unauthorized_client") => Err(Error::NoCredentials(format!(
            "the server does not accept these client credentials: {}",
            super::Said::read(status, &answer.to_string()).message
        ))),
        _ => Err(refused(status, &answer)),
    }
}

/// Reads `id:secret`, either plain or in base64 as the published clients write it.
pub(crate) fn decode_pair(text: &str) -> Option<Credentials> {
    let decoded = match text.split_once(':') {
        Some(_) => text.to_owned(),
        None => String::from_utf8(
            base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text.trim()).ok()?,
        )
        .ok()?,
    };
    let (id, secret) = decoded.split_once(':')?;
    let (client_id, client_secret) = (id.to_owned(), secret.to_owned());
    Some(Credentials::ServiceAccount(ServiceAccount { client_id, client_secret }))
}

fn read_tokens(
    base: &Url,
    answer: Value,
    now_s: i64,
    account: Option<&ServiceAccount>,
) -> Result<Credentials, Error> {
    // The parser's message may quote the answer, which contains tokens.
    let tokens: Tokens = serde_json::from_value(answer)
        .map_err(|_| not_holm(base, "the token answer lacks a member"))?;
    Ok(tokens.session(now_s, account))
}

async fn post(
    http: &reqwest::Client,
    base: &Url,
    path: &str,
    body: &Value,
) -> Result<(StatusCode, Value), Error> {
    let url = base.join(path).map_err(|error| not_holm(base, &error.to_string()))?;
    let unreachable = |source: reqwest::Error| Error::Unreachable {
        server: base.to_string(),
        source: source.without_url(),
    };
    let response = http.post(url).timeout(TIMEOUT).json(body).send().await.map_err(unreachable)?;
    let status = response.status();
    let bytes = response.bytes().await.map_err(unreachable)?;
    Ok((status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
}

fn refused(status: StatusCode, answer: &Value) -> Error {
    super::refused(status, &answer.to_string())
}

fn not_holm(base: &Url, message: &str) -> Error {
    Error::NotHolm { server: base.to_string(), message: message.to_owned() }
}

/// Ends a session on the server.
pub(crate) async fn revoke(
    http: &reqwest::Client,
    base: &Url,
    refresh_token: &str,
    account: Option<&ServiceAccount>,
) -> Result<(), Error> {
    let body = by(account, json!({"token": refresh_token}));
    let (status, answer) = post(http, base, "oauth/revoke", &body).await?;
    if status.is_success() { Ok(()) } else { Err(refused(status, &answer)) }
}
