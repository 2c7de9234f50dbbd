//! Tokens in place of keys, as docker and containerd request them: following the challenge, for one
//! repository, and only as long as the key is valid.

use super::{MANIFEST, Town, digest, header, link, refused};
use crate::common::Answer;
use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Request};
use proptest::strategy::{Strategy, ValueTree};
use serde_json::json;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::Notify;
use tower::ServiceExt;

const SCOPE: &str = "repository:main/job/a:pull,push";

impl Town {
    /// Requests a token as clients do, with the key as the password.
    async fn ask_token(&self, key: &str, scopes: &[&str]) -> Answer {
        let basic = format!("Basic {}", STANDARD.encode(format!("me:{key}")));
        let mut query = form_urlencoded::Serializer::new(String::from("service=localhost:8080"));
        for scope in scopes {
            query.append_pair("scope", scope);
        }
        let path = format!("/v2/token?account=me&{}", query.finish());
        self.cloud.raw(Method::GET, &path, &[("authorization", &basic)], vec![]).await
    }

    async fn token(&self, key: &str, scopes: &[&str]) -> String {
        let answer = self.ask_token(key, scopes).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.body["token"], answer.body["access_token"]);
        assert_eq!(answer.body["expires_in"], 300);
        answer.body["token"].as_str().unwrap().to_owned()
    }

    /// Sends a request with a bearer token.
    async fn with(&self, token: &str, method: &str, path: &str, body: &[u8]) -> Answer {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str()), ("content-type", MANIFEST)];
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.cloud.raw(method, &format!("/v2/{path}"), &headers, body.to_vec()).await
    }

    fn key(&self) -> &str {
        &self.cloud.first.api_key
    }
}

/// Returns the value of one part of a challenge.
fn part<'a>(challenge: &'a str, name: &str) -> Option<&'a str> {
    let (_, behind) = challenge.split_once(&format!("{name}=\""))?;
    Some(behind.split_once('"')?.0)
}

#[track_caller]
fn beyond(answer: &Answer) {
    refused(answer, 401, "UNAUTHORIZED");
    let challenge = header(answer, "www-authenticate");
    assert_eq!(part(challenge, "error"), Some("insufficient_scope"), "{challenge}");
}

#[tokio::test]
async fn a_program_follows_the_challenge_and_pushes_and_pulls() {
    let town = Town::start().await;
    // Like docker: the refusal says where a token is issued, and for what.
    let path = "main/job/a/blobs/uploads/";
    let stranger = town.cloud.raw(Method::POST, &format!("/v2/{path}"), &[], vec![]).await;
    refused(&stranger, 401, "UNAUTHORIZED");
    let challenge = header(&stranger, "www-authenticate").to_owned();
    assert!(challenge.starts_with("Bearer "), "{challenge}");
    assert_eq!(part(&challenge, "realm"), Some("http://localhost:8080/v2/token"));
    assert_eq!(part(&challenge, "service"), Some("localhost:8080"));
    assert_eq!(part(&challenge, "scope"), Some(SCOPE));
    let token = town.token(town.key(), &[SCOPE]).await;
    assert_eq!(town.with(&token, "GET", "", b"").await.status, 200);

    let config = b"{}";
    for blob in [config.as_slice(), b"layer"] {
        let path = format!("{path}?digest={}", digest(blob));
        assert_eq!(town.with(&token, "POST", &path, blob).await.status, 201);
    }
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": link("application/vnd.oci.image.config.v1+json", config),
        "layers": [link("application/vnd.oci.image.layer.v1.tar", b"layer")],
    });
    let at = "main/job/a/manifests/v1";
    let put = town.with(&token, "PUT", at, manifest.to_string().as_bytes()).await;
    assert_eq!(put.status, 201, "{}", put.text);
    assert_eq!(town.with(&token, "GET", at, b"").await.body, manifest);
    assert_eq!(
        town.with(&token, "GET", "main/job/a/tags/list", b"").await.body["tags"],
        json!(["v1"])
    );
    // A key still works, both ways.
    assert_eq!(town.call("GET", at, b"").await.body, manifest);
    let nobody = town.cloud.raw(Method::GET, "/v2/token", &[], vec![]).await;
    refused(&nobody, 401, "UNAUTHORIZED");
    assert!(header(&nobody, "www-authenticate").starts_with("Basic realm="));
    refused(&town.ask_token("wrong", &[SCOPE]).await, 401, "UNAUTHORIZED");
}

#[tokio::test]
async fn a_token_opens_what_was_asked_for_and_nothing_else() {
    let town = Town::start().await;
    town.push("main/job/a", "v1", "one").await;
    town.push("main/job/b", "v1", "two").await;
    let pull = town.token(town.key(), &["repository:main/job/a:pull"]).await;
    assert_eq!(town.with(&pull, "GET", "main/job/a/manifests/v1", b"").await.status, 200);
    beyond(&town.with(&pull, "GET", "main/job/b/manifests/v1", b"").await);
    beyond(&town.with(&pull, "GET", "main/a/manifests/v1", b"").await);
    beyond(&town.with(&pull, "POST", "main/job/a/blobs/uploads/", b"").await);
    beyond(&town.with(&pull, "DELETE", "main/job/a/manifests/v1", b"").await);
    beyond(&town.with(&pull, "GET", "_catalog", b"").await);
    // Nor can it be exchanged for a token with more rights.
    let more = town.with(&pull, "GET", "token?scope=repository:main/job/b:pull", b"").await;
    refused(&more, 401, "UNAUTHORIZED");
    // Nothing else on this server accepts it, in any form in which keys are sent.
    town.cloud
        .raw(Method::GET, "/v0/images", &[("authorization", &format!("Bearer {pull}"))], vec![])
        .await
        .refused(401);
    refused(&town.send(&pull, "GET", "", &[], b"").await, 401, "UNAUTHORIZED");
    // A blob of another repository can be mounted if the token covers both.
    let mount = format!("main/job/a/blobs/uploads/?mount={}&from=main/job/b", digest(b"two"));
    let push = town.token(town.key(), &[SCOPE]).await;
    assert_eq!(town.with(&push, "POST", &mount, b"").await.status, 202, "an upload as any other");
    let both = town.token(town.key(), &[SCOPE, "repository:main/job/b:pull"]).await;
    assert_eq!(town.with(&both, "POST", &mount, b"").await.status, 201);
    let all = town.token(town.key(), &["registry:catalog:* repository:main/job/a:*"]).await;
    let listed = town.with(&all, "GET", "_catalog", b"").await;
    assert_eq!(listed.body, json!({"repositories": ["main/job/a", "main/job/b"]}));
    assert_eq!(town.with(&all, "DELETE", "main/job/a/manifests/v1", b"").await.status, 202);
    let many: Vec<String> = (0..17).map(|n| format!("repository:main/job/a{n}:pull")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    refused(&town.ask_token(town.key(), &many).await, 400, "DENIED");
}

#[tokio::test]
async fn a_token_gives_no_more_than_its_key() {
    let town = Town::start().await;
    town.push("main/job/a", "v1", "secret").await;
    let (guest, account) = town.cloud.stranger("guest@example.com").await;
    guest.post("/v0/workspaces", json!({"name": "theirs", "accountId": account})).await.ok();
    // A stranger gets a token that gives access to nothing, whether or not the name exists.
    for name in ["main/job/a", "main/job/none", "nomn/job/a"] {
        let token = town.token(guest.key(), &[&format!("repository:{name}:pull,push")]).await;
        assert_eq!(town.with(&token, "GET", "", b"").await.status, 200);
        beyond(&town.with(&token, "GET", &format!("{name}/manifests/v1"), b"").await);
        beyond(&town.with(&token, "POST", &format!("{name}/blobs/uploads/"), b"").await);
    }
}

#[tokio::test]
async fn a_token_ends_with_its_time_and_with_its_key() {
    let town = Town::start().await;
    town.push("main/job/a", "v1", "one").await;
    let at = "main/job/a/manifests/v1";
    let made = town.cloud.post("/v0/api_keys", json!({"name": "ci"})).await.ok();
    let (key, id) = (made["apiKey"].as_str().unwrap(), made["id"].as_str().unwrap());
    let token = town.token(key, &[SCOPE]).await;
    assert_eq!(town.with(&token, "GET", at, b"").await.status, 200);
    town.cloud.clock.advance_s(301);
    let late = town.with(&token, "GET", at, b"").await;
    refused(&late, 401, "UNAUTHORIZED");
    assert_eq!(part(header(&late, "www-authenticate"), "error"), Some("invalid_token"));
    let token = town.token(key, &[SCOPE]).await;
    assert_eq!(town.with(&token, "GET", at, b"").await.status, 200);
    town.cloud.delete(&format!("/v0/api_keys/{id}")).await.ok();
    refused(&town.with(&token, "GET", at, b"").await, 401, "UNAUTHORIZED");
    refused(&town.ask_token(key, &[SCOPE]).await, 401, "UNAUTHORIZED");
}

#[tokio::test]
async fn no_scope_breaks_anything_or_opens_what_it_does_not_name() {
    let town = Town::start().await;
    town.push("main/job/a", "v1", "one").await;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let texts = "(repository:)?(main/job/[ab/.*]{0,3}|\\PC{0,20}):?(pull|push|,|\\*){0,3}";
    for _ in 0..200 {
        let scope = texts.new_tree(&mut runner).unwrap().current();
        // Words of one parameter are separate scopes.
        let names_it = scope.split(' ').any(|word| word.starts_with("repository:main/job/a:"));
        let answer = town.ask_token(town.key(), &[&scope]).await;
        assert_eq!(answer.status, 200, "{scope}: {}", answer.text);
        let token = answer.body["token"].as_str().unwrap();
        let got = town.with(token, "GET", "main/job/a/manifests/v1", b"").await;
        assert!(got.status == 401 || names_it, "{scope}");
    }
}

#[tokio::test]
async fn a_manifest_that_comes_after_its_key_was_revoked_is_refused() {
    let town = Town::start().await;
    let manifest = town.push("main/job/a", "v1", "content").await.to_string();
    let path = "/v2/main/job/a/manifests/v2";
    for by_token in [false, true] {
        let made = town.cloud.post("/v0/api_keys", json!({"name": "pusher"})).await.ok();
        let text = |member: &str| made[member].as_str().unwrap().to_owned();
        let authorization = match by_token {
            true => format!("Bearer {}", town.token(&text("apiKey"), &[SCOPE]).await),
            false => format!("Basic {}", STANDARD.encode(format!("me:{}", text("apiKey")))),
        };
        let headers = [("authorization", authorization.as_str()), ("content-type", MANIFEST)];
        let delete =
            async { town.cloud.delete(&format!("/v0/api_keys/{}", text("id"))).await.ok() };
        let answer = town.cloud.late((Method::PUT, path), &headers, &manifest, delete).await;
        refused(&answer, 401, "UNAUTHORIZED");
        refused(&town.call("GET", "main/job/a/manifests/v2", b"").await, 404, "MANIFEST_UNKNOWN");
    }
}

#[tokio::test]
async fn an_upload_ends_with_the_key_that_it_came_with() {
    let town = Town::start().await;
    let made = town.cloud.post("/v0/api_keys", json!({"name": "pusher"})).await.ok();
    let text = |member: &str| made[member].as_str().unwrap().to_owned();
    let key = text("apiKey");
    let begun = town.send(&key, "POST", "main/job/a/blobs/uploads/", &[], b"").await;
    // The rest of the body never comes, and the key is deleted once somebody waits for it.
    let waits = Arc::new(Notify::new());
    let waited_for = Arc::clone(&waits);
    let body = Body::from_stream(futures_util::stream::poll_fn(move |_| {
        waits.notify_one();
        Poll::<Option<std::io::Result<bytes::Bytes>>>::Pending
    }));
    let basic = format!("Basic {}", STANDARD.encode(format!("me:{key}")));
    let request = Request::patch(header(&begun, "location"))
        .header("authorization", basic)
        .body(body)
        .unwrap();
    let delete = async {
        waited_for.notified().await;
        town.cloud.delete(&format!("/v0/api_keys/{}", text("id"))).await.ok()
    };
    let (answer, _) = tokio::join!(town.cloud.router.clone().oneshot(request), delete);
    assert_eq!(answer.unwrap().status(), 401);
}
