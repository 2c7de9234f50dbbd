//! One attempt at one delivery.

use super::NoClient;
use super::gate::{Closed, Gate};
use super::rules::Outcome;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::header::{
    CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER, USER_AGENT,
};
use reqwest::redirect::Policy;
use reqwest::{Response, StatusCode};
use sha2::Sha256;
use std::sync::Arc;
use std::time::Duration;
use store::deliveries::Claimed;
use types::parts::Sensitive;
use types::time::retry_after;
use types::{Timestamp, hex};
use url::Url;

const REDIRECTS_MAX: usize = 3;
/// Most characters of an error that are kept.
const WORDS_MAX: usize = 200;
/// Headers with the neutral names and with those that published clients know.
const SIGNATURE: [HeaderName; 2] =
    [HeaderName::from_static("x-blaxel-signature"), HeaderName::from_static("x-service-signature")];
const TIMESTAMP: [HeaderName; 2] =
    [HeaderName::from_static("x-blaxel-timestamp"), HeaderName::from_static("x-service-timestamp")];
/// The same at each attempt, so that a receiver recognizes repetitions.
const DELIVERY: [HeaderName; 2] = [
    HeaderName::from_static("x-blaxel-delivery-id"),
    HeaderName::from_static("x-service-delivery-id"),
];

#[derive(Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    gate: Gate,
    timeout: Duration,
}

impl Client {
    pub(super) fn new(gate: Gate, timeout: Duration) -> Result<Self, NoClient> {
        let http = reqwest::Client::builder()
            .dns_resolver(Arc::new(gate.clone()))
            // A proxy would resolve names by itself. Redirects are checked here. Each call gets a
            // connection of its own, to an address that was checked for it.
            .no_proxy()
            .redirect(Policy::none())
            .pool_max_idle_per_host(0)
            .build()?;
        Ok(Self { http, gate, timeout })
    }

    pub(super) async fn send(&self, delivery: &Claimed, now: Timestamp) -> Outcome {
        let late = |_| Outcome::None(format!("no answer within {} s", self.timeout.as_secs_f32()));
        tokio::time::timeout(self.timeout, self.follow(delivery, now)).await.unwrap_or_else(late)
    }

    /// Never reads the body of an answer: it is of no use here, and may be endless.
    async fn follow(&self, delivery: &Claimed, now: Timestamp) -> Outcome {
        let headers = headers(delivery, now);
        let Ok(mut url) = Url::parse(&delivery.url) else {
            return Outcome::Refused("it is no address".into());
        };
        for _ in 0..=REDIRECTS_MAX {
            if let Err(closed) = self.gate.admit(&url) {
                return Outcome::Refused(closed.to_string());
            }
            let request =
                self.http.post(url.clone()).headers(headers.clone()).body(delivery.body.clone());
            let response = match request.send().await {
                Ok(response) => response,
                Err(error) => return unanswered(error),
            };
            match redirect(&url, &response) {
                Some(target) => url = target,
                None => return answered(&response, now),
            }
        }
        Outcome::Refused(format!("it leads on more than {REDIRECTS_MAX} times"))
    }
}

fn headers(delivery: &Claimed, now: Timestamp) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers
        .insert(USER_AGENT, HeaderValue::from_static(concat!("holm/", env!("CARGO_PKG_VERSION"))));
    let mut set = |names: [HeaderName; 2], text: &str| {
        if let Ok(value) = HeaderValue::from_str(text) {
            names.into_iter().for_each(|name| drop(headers.insert(name, value.clone())));
        }
    };
    set(DELIVERY, delivery.id.as_str());
    set(TIMESTAMP, &now.seconds().to_string());
    if let Some(secret) = &delivery.secret {
        set(SIGNATURE, &signature(secret, delivery.body.as_bytes()));
    }
    headers
}

/// Returns `sha256=` and the HMAC of the raw body, as published clients verify it.
fn signature(Sensitive(secret): &Sensitive<String>, body: &[u8]) -> String {
    #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("a key of any length");
    mac.update(body);
    format!("sha256={}", hex::encode(&mac.finalize().into_bytes()))
}

/// Returns the target of a redirect that keeps method and body. Other redirects would lose the
/// body, so they count as answers, and so do those that leave encryption.
fn redirect(from: &Url, response: &Response) -> Option<Url> {
    if !matches!(response.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT)
    {
        return None;
    }
    let target = from.join(response.headers().get(LOCATION)?.to_str().ok()?).ok()?;
    (from.scheme() == target.scheme() || target.scheme() != "http").then_some(target)
}

fn answered(response: &Response, now: Timestamp) -> Outcome {
    let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    Outcome::Status {
        code: response.status().as_u16(),
        retry_after: asked.and_then(|text| retry_after(text, now)),
    }
}

/// Returns the text of the innermost cause: the outer ones repeat the address, which may contain a
/// secret of the receiver.
fn unanswered(error: reqwest::Error) -> Outcome {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    if cause.is::<Closed>() {
        return Outcome::Refused(cause.to_string());
    }
    let act = if error.is_connect() { "could not be reached" } else { "did not answer properly" };
    let words: String =
        cause.to_string().chars().filter(|letter| !letter.is_control()).take(WORDS_MAX).collect();
    Outcome::None(format!("the receiver {act}: {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_what_the_published_clients_compute() {
        // RFC 4231, case 2.
        let signed = signature(&Sensitive("Jefe".into()), b"what do ya want for nothing?");
        assert_eq!(
            signed,
            "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }
}
