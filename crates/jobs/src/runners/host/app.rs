//! Access tokens: either one that the user gave, or those that an app is granted for an hour.

use super::super::connections::{Connection, Credentials};
use super::{CodeHost, Fault, accepted, read};
use jose::Rsa;
use parking_lot::Mutex;
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;
use std::collections::HashMap;
use types::Timestamp;
use types::ids::ResourceId;
use types::parts::Sensitive;

/// How long a proof of the app is valid. The code host allows ten minutes; `SKEW_S` allows for
/// differing clocks.
const LIFE_S: i64 = 540;
const SKEW_S: i64 = 60;
/// A token with less time left than this is replaced.
const LEFT_S: i64 = 300;
const REMEMBERED_MAX: usize = 1000;

#[derive(Clone)]
struct Kept {
    version: i64,
    token: Sensitive<String>,
    expires_at: Timestamp,
}

#[derive(Default)]
pub(super) struct Tokens(Mutex<HashMap<ResourceId, Kept>>);

impl Tokens {
    /// Returns the token that signs requests of a connection.
    pub(super) async fn get(
        &self,
        host: &CodeHost,
        connection: &Connection,
    ) -> Result<Sensitive<String>, Fault> {
        match &connection.credentials {
            None => {
                Err(Fault::Credentials("the connection has neither `token` nor an app's secrets"))
            }
            Some(Credentials::Token(token)) => Ok(token.clone()),
            Some(Credentials::App { id, key, installation }) => {
                let now = host.world.now();
                let kept = self.0.lock().get(&connection.id).cloned();
                let fresh = |kept: &Kept| {
                    kept.version == connection.version && kept.expires_at > now.plus_s(LEFT_S)
                };
                if let Some(kept) = kept.filter(fresh) {
                    return Ok(kept.token);
                }
                let proof = sign(id, &key.0, now)?;
                let kept = install(host, connection, installation, &proof).await?;
                Ok(self.keep(&connection.id, kept))
            }
        }
    }

    /// Forgets a token that the code host no longer accepts.
    pub(super) fn forget(&self, connection: &ResourceId) {
        self.0.lock().remove(connection);
    }

    fn keep(&self, connection: &ResourceId, kept: Kept) -> Sensitive<String> {
        let mut all = self.0.lock();
        if all.len() >= REMEMBERED_MAX {
            all.clear();
        }
        all.insert(connection.clone(), kept.clone());
        kept.token
    }
}

/// Asks for a token of an installation of the app.
async fn install(
    host: &CodeHost,
    connection: &Connection,
    installation: &str,
    proof: &Sensitive<String>,
) -> Result<Kept, Fault> {
    #[derive(Deserialize)]
    struct Token {
        token: Sensitive<String>,
        expires_at: Timestamp,
    }
    if installation.is_empty() || !installation.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Fault::Credentials("the connection's `installationId` is not a number"));
    }
    let path = format!("/app/installations/{installation}/access_tokens");
    let (answer, headers) = host.send(proof, Method::POST, &path, None, None).await?;
    host.paces.note(&connection.id, answer.status, &headers, host.world.now())?;
    let made: Token = read(&accepted(answer)?)?;
    Ok(Kept { version: connection.version, token: made.token, expires_at: made.expires_at })
}

/// Makes a JSON Web Token (RS256) that proves that we are the app.
fn sign(app: &str, key: &str, now: Timestamp) -> Result<Sensitive<String>, Fault> {
    const BAD: Fault = Fault::Credentials("the connection's `privateKey` is not an RSA key in PEM");
    // Keys are often stored in one line, with line ends written as `\n`.
    let key = key.replace("\\n", "\n");
    let from = now.plus_s(-SKEW_S).seconds();
    let claims = json!({"iat": from, "exp": now.plus_s(LIFE_S).seconds(), "iss": app});
    let token = Rsa::from_pem(&key).and_then(|key| key.sign(&claims)).map_err(|_| BAD)?;
    Ok(Sensitive(token))
}
