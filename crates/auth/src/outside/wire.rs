//! Requests to the provider.

use super::error::OutsideError;
use super::provider::Provider;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use jose::PublicKey;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Client, RequestBuilder};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use url::form_urlencoded;

const TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: usize = 1 << 20;

pub(super) struct Wire(Client);

#[derive(Deserialize)]
pub(super) struct Discovery {
    issuer: String,
    pub(super) authorization_endpoint: String,
    pub(super) token_endpoint: String,
    pub(super) jwks_uri: String,
}

#[derive(Deserialize)]
struct TokenAnswer {
    id_token: String,
}

#[derive(Deserialize)]
struct KeyAnswer {
    keys: Vec<PublicKey>,
}

impl Wire {
    pub(super) fn new() -> Result<Self, OutsideError> {
        // A redirect would let the provider send our secret elsewhere.
        let client =
            Client::builder().timeout(TIMEOUT).redirect(reqwest::redirect::Policy::none()).build();
        client.map(Self).map_err(|error| failed("no connection can be made", &error))
    }

    pub(super) async fn discover(&self, issuer: &str) -> Result<Discovery, OutsideError> {
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let found: Discovery = answer(self.0.get(url)).await?;
        if found.issuer == issuer {
            Ok(found)
        } else {
            Err(OutsideError::Provider("it names another issuer".into()))
        }
    }

    pub(super) async fn keys(&self, jwks_uri: &str) -> Result<Vec<PublicKey>, OutsideError> {
        Ok(answer::<KeyAnswer>(self.0.get(jwks_uri)).await?.keys)
    }

    pub(super) async fn id_token(
        &self,
        endpoint: &str,
        provider: &Provider,
        fields: &[(&str, &str)],
    ) -> Result<String, OutsideError> {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = self
            .0
            .post(endpoint)
            .header(AUTHORIZATION, basic(provider))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(body);
        Ok(answer::<TokenAnswer>(request).await?.id_token)
    }
}

/// Returns the `Authorization` header. Both parts are form-encoded first (RFC 6749, section 2.3.1).
fn basic(provider: &Provider) -> String {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    format!(
        "Basic {}",
        BASE64.encode(format!(
            "{}:{}",
            encoded(&provider.client_id),
            encoded(&provider.client_secret)
        ))
    )
}

async fn answer<T: DeserializeOwned>(request: RequestBuilder) -> Result<T, OutsideError> {
    let sent = request.header(ACCEPT, "application/json").send().await;
    let mut response =
        sent.map_err(|error| failed("it cannot be reached", &error.without_url()))?;
    if !response.status().is_success() {
        return Err(OutsideError::Provider(format!("it answers {}", response.status())));
    }
    let mut body = Vec::new();
    while let Some(part) = response
        .chunk()
        .await
        .map_err(|error| failed("its answer broke off", &error.without_url()))?
    {
        body.extend_from_slice(&part);
        if body.len() > ANSWER_BYTES_MAX {
            return Err(OutsideError::Provider("its answer is too long".into()));
        }
    }
    serde_json::from_slice(&body)
        .map_err(|_| OutsideError::Provider("its answer lacks what the standard asks for".into()))
}

fn failed(what: &str, error: &reqwest::Error) -> OutsideError {
    tracing::warn!(error = error as &dyn std::error::Error, "the outside sign-in provider: {what}");
    OutsideError::Provider(what.to_owned())
}
