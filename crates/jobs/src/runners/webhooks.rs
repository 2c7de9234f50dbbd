//! Webhooks of the code host: who signed them and what they say.

use super::rules::Sighting;
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use sha2::Sha256;
use types::hex;

/// Most bytes of a webhook. Those about workflow jobs have some tens of thousands.
pub const WEBHOOK_BYTES_MAX: usize = 1 << 20;
const DELIVERY_MAX: usize = 100;
const LABELS_MAX: usize = 100;
const EVENT: &str = "workflow_job";
const SIGNATURE_PREFIX: &str = "sha256=";
/// Most digits of a signature that are read.
const DIGITS_MAX: usize = 128;

/// A webhook as it arrived.
#[derive(Debug, Clone, Copy)]
pub struct Webhook<'a> {
    /// Header `X-GitHub-Event`.
    pub event: &'a str,
    /// Header `X-GitHub-Delivery`.
    pub delivery: &'a str,
    /// Header `X-Hub-Signature-256`.
    pub signature: &'a str,
    pub body: &'a [u8],
}

/// What the code host says about one workflow job, in a webhook or in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) id: i64,
    pub(super) run_id: i64,
    pub(super) labels: Vec<String>,
    pub(super) sighting: Option<Sighting>,
}

#[derive(Deserialize)]
pub(super) struct RawJob {
    id: i64,
    run_id: i64,
    status: String,
    #[serde(default)]
    labels: Vec<String>,
    #[serde(default)]
    runner_name: Option<String>,
}

#[derive(Deserialize)]
struct Body {
    action: String,
    workflow_job: RawJob,
    repository: RawRepository,
}

#[derive(Deserialize)]
struct RawRepository {
    full_name: String,
}

impl Webhook<'_> {
    /// True if it was signed with this secret; checked in constant time. An empty secret signs
    /// nothing.
    pub(super) fn is_signed_with(&self, secret: &str) -> bool {
        let digits = self.signature.strip_prefix(SIGNATURE_PREFIX);
        let given = digits.filter(|digits| digits.len() <= DIGITS_MAX).and_then(hex::decode);
        // The signature is computed in any case, so that a missing secret takes as long as a wrong
        // one.
        #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("any key length");
        mac.update(self.body);
        let right = mac.verify_slice(&given.unwrap_or_default()).is_ok();
        right && !secret.is_empty()
    }

    /// Returns the repository, in lower case, and the workflow job, or `None` if the webhook is
    /// about something else.
    pub(super) fn read(&self) -> Option<(String, Report)> {
        if self.event != EVENT || self.delivery.is_empty() || self.delivery.len() > DELIVERY_MAX {
            return None;
        }
        let body: Body = serde_json::from_slice(self.body).ok()?;
        let mut raw = body.workflow_job;
        // The action is what happened; the status beside it may already be a later one.
        raw.status = body.action;
        Some((body.repository.full_name.to_ascii_lowercase(), Report::from(raw)))
    }
}

impl From<RawJob> for Report {
    fn from(raw: RawJob) -> Self {
        let runner = raw.runner_name.filter(|name| !name.is_empty());
        let sighting = match raw.status.as_str() {
            "queued" => Some(Sighting::Queued),
            "in_progress" => Some(Sighting::InProgress { runner }),
            "completed" => Some(Sighting::Completed { runner }),
            // It waits for an approval or for another job of its group, so it needs no runner yet.
            _ => None,
        };
        let labels = raw.labels.into_iter().take(LABELS_MAX).collect();
        Self { id: raw.id, run_id: raw.run_id, labels, sighting }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sign(secret: &str, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
        mac.update(body);
        format!("{SIGNATURE_PREFIX}{}", hex::encode(&mac.finalize().into_bytes()))
    }

    fn webhook<'a>(signature: &'a str, body: &'a [u8]) -> Webhook<'a> {
        Webhook { event: EVENT, delivery: "d1", signature, body }
    }

    /// The example from the code host's documentation.
    #[test]
    fn the_published_example_is_verified() {
        let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        assert!(webhook(signature, b"Hello, World!").is_signed_with("It's a Secret to Everybody"));
        assert!(!webhook(signature, b"Hello, World?").is_signed_with("It's a Secret to Everybody"));
    }

    #[test]
    fn an_empty_secret_signs_nothing() {
        let signature = sign("", b"x");
        assert!(!webhook(&signature, b"x").is_signed_with(""));
    }

    #[test]
    fn the_action_says_what_happened() {
        let body = br#"{"action":"queued","workflow_job":{"id":5,"run_id":2,"status":"in_progress","labels":["a"],
                        "runner_name":null},"repository":{"full_name":"Me/Repo"}}"#;
        let report =
            Report { id: 5, run_id: 2, labels: vec!["a".into()], sighting: Some(Sighting::Queued) };
        assert_eq!(webhook("", body).read(), Some(("me/repo".into(), report)));
        let other = Webhook { event: "push", ..webhook("", body) };
        assert_eq!(other.read(), None);
    }

    proptest! {
        #[test]
        fn only_what_was_signed_is_taken(
            secret in "[ -~]{1,40}", body in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(),
            bit in 0..8u8, other in "[ -~]{1,40}",
        ) {
            let signature = sign(&secret, &body);
            prop_assert!(webhook(&signature, &body).is_signed_with(&secret));
            prop_assert_eq!(webhook(&signature, &body).is_signed_with(&other), secret == other);
            let mut changed = body.clone();
            changed.push(0);
            let place = at.index(changed.len());
            changed[place] ^= 1 << bit;
            prop_assert!(!webhook(&signature, &changed).is_signed_with(&secret));
        }

        #[test]
        fn any_signature_and_any_body_are_borne(
            signature in "(sha256=)?([0-9a-f]{0,140}|.{0,80})", body in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            prop_assert!(!webhook(&signature, &body).is_signed_with("secret"));
            prop_assert!(webhook(&signature, &body).read().is_none());
        }

        #[test]
        fn any_json_is_borne(
            action in "queued|in_progress|completed|waiting|.{0,8}", id in any::<i64>(), name in ".{0,30}",
            labels in prop::collection::vec(".{0,10}", 0..150), runner in prop::option::of(".{0,10}"),
        ) {
            let body = serde_json::json!({
                "action": action, "repository": {"full_name": name},
                "workflow_job": {"id": id, "run_id": 1, "status": "queued", "labels": labels, "runner_name": runner},
            });
            let (repository, report) = webhook("", body.to_string().as_bytes()).read().unwrap();
            prop_assert_eq!(repository, name.to_ascii_lowercase());
            prop_assert_eq!(report.id, id);
            prop_assert!(report.labels.len() <= LABELS_MAX);
            let known = ["queued", "in_progress", "completed"].contains(&action.as_str());
            prop_assert_eq!(report.sighting.is_some(), known);
        }
    }
}
