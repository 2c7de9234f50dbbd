//! OAuth over HTTP, as programs and browsers see it. The decisions themselves are tested in the
//! crate `auth`.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common::browser::{Browser, FORM, Page, form};
use crate::common::{Cloud, settings};
use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use control::{Rate, Settings};
use http::{Method, Request, StatusCode, header};
use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use tower::ServiceExt;
use types::Remote;

const CALLBACK: &str = "https://app.example/cb";
const VERIFIER: &str = "a-verifier-of-forty-three-characters-or-more-0";

async fn token(cloud: &Cloud, path: &str, body: Value) -> (StatusCode, Value) {
    let headers = [("content-type", "application/json")];
    let answer = cloud.raw(Method::POST, path, &headers, body.to_string().into_bytes()).await;
    (answer.status, answer.body)
}

async fn client(cloud: &Cloud) -> String {
    let body = json!({"name": "App <b>", "redirect_uris": [CALLBACK]});
    let made = cloud.call(Method::POST, "/v0/oauth/clients", Some(body)).await.ok();
    assert_eq!(made["client_secret"], Value::Null);
    made["client_id"].as_str().unwrap().to_owned()
}

fn authorization(client: &str) -> String {
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER));
    let fields = [
        ("response_type", "code"),
        ("client_id", client),
        ("redirect_uri", CALLBACK),
        ("state", "s"),
        ("code_challenge", &*challenge),
        ("code_challenge_method", "S256"),
    ];
    format!("/oauth/authorize?{}", form(&fields))
}

#[track_caller]
fn guarded(page: &Page) {
    let header = |name: &str| page.headers.get(name).map_or("", |value| value.to_str().unwrap());
    assert!(
        header("content-security-policy")
            .starts_with("default-src 'none'; style-src 'self'; form-action 'self'")
    );
    assert!(header("content-security-policy").contains("frame-ancestors 'none'"));
    assert_eq!(header("x-frame-options"), "DENY");
    assert_eq!(header("referrer-policy"), "same-origin");
    assert_eq!(header("cache-control"), "no-store");
    assert!(!page.text.contains("<script") && !page.text.contains("style="));
}

#[tokio::test]
async fn strangers_who_guess_lock_nobody_out_of_their_own_browser() {
    let cloud = Cloud::start().await;
    let (mut own, mut stranger) = (Browser::new(&cloud), Browser::new(&cloud));
    own.sign_in("").await;
    let page = own.get("/oauth/sign-in").await;
    own.post("/oauth/sign-out", &[("proof", &page.proof())]).await;
    for _ in 0..10 {
        assert_eq!(stranger.try_password("", "guess").await.status, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(stranger.sign_in("").await.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(own.sign_in("").await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn a_person_signs_in_consents_and_the_program_gets_tokens() {
    let cloud = Cloud::start().await;
    let client = client(&cloud).await;
    let (mut browser, start) = (Browser::new(&cloud), authorization(&client));
    let sign_in = browser.get(&start).await;
    assert!(sign_in.location().starts_with("/oauth/sign-in?next=%2Foauth%2Fauthorize"));
    assert_eq!(browser.sign_in(&start).await.location(), start);
    let consent = browser.get(&start).await;
    guarded(&consent);
    assert!(consent.text.contains("<bdi>App &lt;b&gt;</bdi>") && !consent.text.contains("<b>"));
    assert!(
        consent.headers["content-security-policy"]
            .to_str()
            .unwrap()
            .contains("form-action 'self' https://app.example;")
    );
    let proof = consent.proof();
    let refused = browser.post(&start, &[("proof", &*proof), ("decision", "refuse")]).await;
    assert!(refused.location().contains("error=access_denied"));
    let allowed = browser.post(&start, &[("proof", &*proof), ("decision", "allow")]).await;
    let (base, query) = allowed.location().split_once('?').unwrap();
    let query: BTreeMap<_, _> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    assert_eq!((base, &*query["state"], &*query["iss"]), (CALLBACK, "s", "http://localhost:8080"));
    let body = json!({
        "grant_type": "authorization_code", "client_id": client, "redirect_uri": CALLBACK,
        "code": query["code"], "code_verifier": VERIFIER,
    });
    let (status, tokens) = token(&cloud, "/oauth/token", body).await;
    assert_eq!(status, StatusCode::OK, "{tokens}");
    let bearer = format!("Bearer {}", tokens["access_token"].as_str().unwrap());
    let who = cloud
        .call_with(Method::GET, "/v0/oauth/userinfo", &[("authorization", &bearer)], None)
        .await
        .ok();
    assert_eq!(who["email"], cloud.first.email);
    cloud.call_with(Method::GET, "/v0/workspaces", &[("authorization", &bearer)], None).await.ok();
}

#[tokio::test]
async fn a_form_of_another_site_is_refused() {
    let cloud = Cloud::start().await;
    let client = client(&cloud).await;
    let (mut browser, start) = (Browser::new(&cloud), authorization(&client));
    browser.sign_in(&start).await;
    let proof = browser.get(&start).await.proof();
    for fields in [&[("decision", "allow")][..], &[("decision", "allow"), ("proof", "guess")]] {
        assert_eq!(browser.post(&start, fields).await.status, StatusCode::FORBIDDEN);
    }
    let cross = Request::post(&*start)
        .header(header::CONTENT_TYPE, FORM)
        .header("sec-fetch-site", "cross-site");
    let page = browser.send(cross, form(&[("decision", "allow"), ("proof", &*proof)])).await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
    // Browsers that send only this: another port of our host is another origin, although it shares
    // our cookies.
    let host = |from: &str| {
        Request::post(&*start).header("host", "localhost:8080").header("origin", from.to_owned())
    };
    for (origin, wanted) in [
        ("http://localhost:8081", StatusCode::FORBIDDEN),
        ("null", StatusCode::FORBIDDEN),
        ("https://evil.example", StatusCode::FORBIDDEN),
        ("http://localhost:8080", StatusCode::SEE_OTHER),
    ] {
        let post = host(origin).header(header::CONTENT_TYPE, FORM);
        let page = browser.send(post, form(&[("decision", "allow"), ("proof", &*proof)])).await;
        assert_eq!(page.status, wanted, "{origin}");
    }
    // The proof of one browser is not valid in another.
    let mut other = Browser::new(&cloud);
    other.sign_in(&start).await;
    let page = other.post(&start, &[("decision", "allow"), ("proof", &*proof)]).await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn signing_in_leads_nowhere_else() {
    let cloud = Cloud::start().await;
    for next in ["https://evil.example/", "//evil.example", "/\\evil.example", "/v0/workspaces"] {
        assert_eq!(Browser::new(&cloud).sign_in(next).await.location(), "/oauth/sign-in", "{next}");
    }
    for next in [
        "/oauth/device/../../-/p.preview/",
        "/oauth/device/%2e%2e/%2e%2e/-/p.preview/",
        "/oauth/devices",
    ] {
        assert_eq!(Browser::new(&cloud).sign_in(next).await.location(), "/oauth/sign-in", "{next}");
    }
}

#[tokio::test]
async fn a_session_is_for_our_pages_alone() {
    let cloud = Cloud::start().await;
    let signed_in = Browser::new(&cloud).sign_in("/oauth/device").await;
    let cookie = signed_in.headers[header::SET_COOKIE].to_str().unwrap();
    assert!(
        cookie.starts_with("holm_session=") && cookie.contains("; HttpOnly; SameSite=Lax;"),
        "{cookie}"
    );
    assert!(cookie.contains("; Path=/oauth;") && !cookie.contains("Domain"), "{cookie}");
}

#[tokio::test]
async fn a_wrong_password_says_so_and_signing_out_ends_the_session() {
    let cloud = Cloud::start().await;
    let mut browser = Browser::new(&cloud);
    let page = browser.get("/oauth/sign-in").await;
    guarded(&page);
    let fields = [("proof", &*page.proof()), ("email", "\"><script>@x.example"), ("password", "x")];
    let page = browser.post("/oauth/sign-in", &fields).await;
    assert_eq!(page.status, StatusCode::UNAUTHORIZED);
    guarded(&page);
    assert!(page.text.contains("role=\"alert\""));
    browser.sign_in("").await;
    let page = browser.get("/oauth/sign-in").await;
    assert!(page.text.contains(&cloud.first.email));
    browser.post("/oauth/sign-out", &[("proof", &*page.proof())]).await;
    assert!(!browser.get("/oauth/sign-in").await.text.contains(&cloud.first.email));
}

#[tokio::test]
async fn a_device_is_signed_in_on_its_page() {
    let cloud = Cloud::start().await;
    for path in [
        "/v0/login/device",
        "/v0/oauth/device/code",
        "/v0/oauth/device_authorization",
        "/oauth/device/code",
    ] {
        let (status, device) =
            token(&cloud, path, json!({"client_id": "blaxel", "scope": "offline_access"})).await;
        assert_eq!(status, StatusCode::OK, "{path}: {device}");
    }
    let (_, device) = token(&cloud, "/v0/login/device", json!({"client_id": "blaxel"})).await;
    let poll = json!({
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code", "client_id": "blaxel",
        "device_code": device["device_code"],
    });
    let (status, pending) = token(&cloud, "/v0/oauth/token", poll.clone()).await;
    assert_eq!(
        (status, &pending["error"]),
        (StatusCode::BAD_REQUEST, &json!("authorization_pending"))
    );
    let complete = device["verification_uri_complete"].as_str().unwrap();
    let path = complete.strip_prefix("http://localhost:8080").unwrap();
    let mut browser = Browser::new(&cloud);
    assert!(browser.get(path).await.location().contains("user_code"));
    assert_eq!(browser.sign_in(path).await.location(), path);
    // What a page asks for unseen uses up no attempts of the person.
    let from_elsewhere = |path: &str| Request::get(path).header("sec-fetch-site", "same-site");
    for _ in 0..12 {
        let guess = from_elsewhere("/oauth/device?user_code=BBBB-BBBB");
        assert!(browser.send(guess, String::new()).await.location().contains("sign-in"));
    }
    let link = from_elsewhere(path).header("sec-fetch-mode", "navigate");
    let page = browser.send(link, String::new()).await;
    guarded(&page);
    let code = device["user_code"].as_str().unwrap();
    assert!(page.text.contains(code));
    let fields = [("proof", &*page.proof()), ("user_code", code), ("decision", "allow")];
    assert_eq!(browser.post("/oauth/device", &fields).await.status, StatusCode::OK);
    let (status, tokens) = token(&cloud, "/v0/oauth/token", poll).await;
    assert_eq!(status, StatusCode::OK);
    let members: Vec<_> = tokens.as_object().unwrap().keys().cloned().collect();
    assert_eq!(members, ["access_token", "token_type", "expires_in", "refresh_token"]);
}

#[tokio::test]
async fn errors_are_json_that_name_the_parameter() {
    let cloud = Cloud::start().await;
    for (path, body, error, named) in [
        ("/v0/oauth/token", json!({}), "invalid_request", "grant_type"),
        ("/oauth/token", json!({"grant_type": "magic"}), "unsupported_grant_type", "grant_type"),
        ("/oauth/token", json!({"grant_type": 7}), "invalid_request", "grant_type"),
        ("/oauth/token", json!([]), "invalid_request", "JSON"),
        ("/oauth/revoke", json!({"client_id": "blaxel"}), "invalid_request", "token"),
        ("/oauth/device/code", json!({}), "invalid_request", "client_id"),
    ] {
        let (status, answer) = token(&cloud, path, body).await;
        assert_eq!(
            (status, &answer["error"]),
            (StatusCode::BAD_REQUEST, &json!(error)),
            "{answer}"
        );
        assert!(answer["error_description"].as_str().unwrap().contains(named), "{answer}");
    }
    let wrong = format!("Basic {}", STANDARD.encode("sva_x:y"));
    let headers = [("authorization", &*wrong), ("content-type", FORM)];
    let answer = cloud
        .raw(Method::POST, "/oauth/token", &headers, b"grant_type=client_credentials".to_vec())
        .await;
    assert_eq!(
        (answer.status, &answer.body["error"]),
        (StatusCode::UNAUTHORIZED, &json!("invalid_client"))
    );
    assert!(answer.headers[header::WWW_AUTHENTICATE].to_str().unwrap().starts_with("Basic"));
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_in_our_shape() {
    let cloud = Cloud::start().await;
    let long = vec![b'x'; 100_000];
    cloud.raw(Method::POST, "/oauth/token", &[], long.clone()).await.refused(413);
    cloud.raw(Method::POST, "/oauth/sign-in", &[], long).await.refused(413);
    cloud.raw(Method::DELETE, "/oauth/token", &[], Vec::new()).await.refused(405);
    cloud.call(Method::DELETE, "/v0/oauth/clients/%00", None).await.refused(400);
}

#[tokio::test]
async fn discovery_leads_to_endpoints_that_exist() {
    let cloud = Cloud::start().await;
    let found = cloud
        .raw(Method::GET, "/.well-known/oauth-authorization-server", &[], Vec::new())
        .await
        .ok();
    for path in ["/v0/.well-known/openid-configuration", "/.well-known/openid-configuration"] {
        assert_eq!(cloud.raw(Method::GET, path, &[], Vec::new()).await.ok(), found);
    }
    assert_eq!(found["issuer"], "http://localhost:8080");
    let keys = found["jwks_uri"].as_str().unwrap().strip_prefix("http://localhost:8080").unwrap();
    let keys = cloud.raw(Method::GET, keys, &[], Vec::new()).await.ok();
    assert_eq!(keys["keys"][0]["kty"], "OKP");
    assert!(keys["keys"][0].get("d").is_none());
    let mut browser = Browser::new(&cloud);
    for (name, endpoint) in
        found.as_object().unwrap().iter().filter(|(name, _)| name.ends_with("_endpoint"))
    {
        let path = endpoint.as_str().unwrap().strip_prefix("http://localhost:8080").unwrap();
        assert_ne!(browser.post(path, &[]).await.status, StatusCode::NOT_FOUND, "{name}");
    }
    let moved = browser.get("/v0/oauth/authorize?client_id=x").await;
    assert_eq!(moved.location(), "/oauth/authorize?client_id=x");
}

#[tokio::test]
async fn a_bad_client_or_address_is_shown_and_not_followed() {
    let cloud = Cloud::start().await;
    let client = client(&cloud).await;
    let mut browser = Browser::new(&cloud);
    let evil = authorization(&client).replace("app.example", "evil.example");
    for path in [&evil, "/oauth/authorize", "/oauth/authorize?client_id=%3Cscript%3E"] {
        let page = browser.get(path).await;
        assert_eq!(page.status, StatusCode::BAD_REQUEST);
        guarded(&page);
        assert!(page.headers.get(header::LOCATION).is_none());
    }
}

#[tokio::test]
async fn clients_are_registered_by_account_admins_only() {
    let cloud = Cloud::start().await;
    let id = client(&cloud).await;
    let listed = cloud.call(Method::GET, "/v0/oauth/clients", None).await.ok();
    assert_eq!(listed[0]["client_id"], id);
    let made = json!({"name": "Server", "redirect_uris": [CALLBACK], "confidential": true});
    let made = cloud.call(Method::POST, "/v0/oauth/clients", Some(made)).await.ok();
    assert!(made["client_secret"].as_str().unwrap().starts_with("hs_"));
    let bad = json!({"name": "X", "redirect_uris": ["http://evil.example/"]});
    let refused = cloud.call(Method::POST, "/v0/oauth/clients", Some(bad)).await;
    assert!(refused.refused(400).contains("redirect_uris.0"));
    let nobody = [("authorization", "")];
    cloud.call_with(Method::GET, "/v0/oauth/clients", &nobody, None).await.refused(401);
    cloud
        .call_with(Method::DELETE, &format!("/v0/oauth/clients/{id}"), &nobody, None)
        .await
        .refused(401);
    cloud.call(Method::DELETE, &format!("/v0/oauth/clients/{id}"), None).await.ok();
    cloud.call(Method::DELETE, &format!("/v0/oauth/clients/{id}"), None).await.refused(404);
}

#[tokio::test]
async fn an_invited_person_joins_by_the_link() {
    let cloud = Cloud::start().await;
    let body = json!({"email": "bob@holm.example", "role": "admin"});
    cloud.call(Method::POST, "/v0/users", Some(body)).await.ok();
    let who = cloud.auth.identify(&cloud.first.api_key).await.unwrap();
    let member = cloud.auth.enter(&who, None).unwrap();
    let people = cloud.store.read(move |tx| auth::people::list(tx, &member)).await.unwrap();
    let auth::people::Person::Invited(invitation) = &people[1] else { panic!("{people:?}") };
    let link = auth::invitations::link("", invitation);
    let mut browser = Browser::new(&cloud);
    let page = browser.get(&link).await;
    guarded(&page);
    assert!(page.text.contains("bob@holm.example"));
    let proof = page.proof();
    let mut fields =
        [("proof", &*proof), ("invitation", invitation.id.as_str()), ("password", "short")];
    let page = browser.post("/oauth/join", &fields).await;
    assert_eq!(page.status, StatusCode::BAD_REQUEST);
    assert!(page.text.contains("10 to 256"));
    fields[2].1 = "long enough to be good";
    assert_eq!(browser.post("/oauth/join", &fields).await.status, StatusCode::OK);
    assert!(browser.get("/oauth/sign-in").await.text.contains("bob@holm.example"));
    assert_eq!(browser.get(&link).await.status, StatusCode::NOT_FOUND);
}

#[test]
fn any_body_and_query_get_an_answer() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let cloud = runtime.block_on(Cloud::start());
    let word =
        "grant_type|code|client_id|scope|refresh_token|next|user_code|invitation|proof|[a-z]{1,4}";
    let pairs = proptest::collection::vec((word, ".{0,12}"), 0..6);
    let paths = [
        "/oauth/token",
        "/oauth/revoke",
        "/oauth/device/code",
        "/oauth/sign-in",
        "/oauth/device",
        "/oauth/join",
    ];
    let input =
        (pairs, proptest::collection::vec(any::<u8>(), 0..60), 0..paths.len(), any::<bool>());
    proptest!(ProptestConfig::with_cases(200), |((pairs, raw, path, get) in input)| {
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let status = runtime.block_on(async {
            let mut browser = Browser::new(&cloud);
            if get {
                return browser.get(&format!("/oauth/authorize?{}", form(&pairs))).await.status;
            }
            let answer = cloud.raw(Method::POST, paths[path], &[], raw.clone()).await.status;
            assert!(!answer.is_server_error());
            browser.post(paths[path], &pairs).await.status
        });
        prop_assert!(!status.is_server_error());
    });
}

#[tokio::test]
async fn one_client_gets_its_share_of_device_codes_and_others_get_theirs() {
    let cloud = Cloud::start().await;
    let ask = async |last: u8| {
        let request =
            Request::post("/v0/login/device").header(header::CONTENT_TYPE, "application/json");
        let request = request.extension(Remote::of([192, 0, 2, last].into()));
        let request = request.body(Body::from(json!({"client_id": "blaxel"}).to_string())).unwrap();
        cloud.router.clone().oneshot(request).await.unwrap()
    };
    for _ in 0..auth::Limits::default().client_devices_max {
        assert_eq!(ask(1).await.status(), StatusCode::OK);
    }
    let refused = ask(1).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.headers().contains_key(header::RETRY_AFTER));
    assert_eq!(ask(2).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn the_rate_of_a_key_holds_for_oauth_too() {
    let key_rate = Rate { per_second: 1, burst: 2 };
    let cloud = Cloud::start_with(Settings { key_rate, ..settings() }).await;
    for address in ["/v0/oauth/userinfo", "/v0/oauth/clients"] {
        cloud.get(address).await.ok();
        cloud.get(address).await.ok();
        let refusal = cloud.get(address).await;
        assert!(refusal.headers.contains_key("retry-after"));
        refusal.refused(429);
        cloud.clock.advance_s(2);
    }
}
