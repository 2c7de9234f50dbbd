//! What workspaces serve and the server's own pages are two origins, and no credential of ours
//! passes between them.

use crate::stage::{KEY, Reply, Stage, private, request, settings};
use serde_json::Value;
use types::edge::{Opens, PreviewAddress, PreviewRoute};

const HOST: &str = "p.preview.holm.test";
/// `Authorization` at a public preview belongs to the app.
const BEARER: (&str, &str) = ("x-blaxel-authorization", "Bearer key-of-acme");
const NAVIGATES: [(&str, &str); 2] =
    [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];

async fn stage(opens: Opens) -> Stage {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080, 3000]).await;
    stage.preview(PreviewRoute { opens, ..private(3000) });
    stage
}

/// Returns the answers by every way to port 3000 of the sandbox, and the path where the way is one.
async fn by_all_ways(
    stage: &Stage,
    headers: &[(&str, &str)],
) -> Vec<(Reply, Option<&'static str>)> {
    stage.preview(PreviewRoute { at: PreviewAddress::Host("app.corp.example".into()), ..other() });
    let headers = [headers, &[BEARER]].concat();
    let at = |host, path| request("GET", host, path, &headers);
    let sandbox = "/acme/sandboxes/box/port/3000";
    vec![
        (stage.send(at("10.0.0.7:8700", "/acme/sandboxes/box/port/3000/x")).await, Some(sandbox)),
        (
            stage.send_content(at("10.0.0.7:8701", "/acme/sandboxes/box/port/3000/x")).await,
            Some(sandbox),
        ),
        (stage.send_content(at("10.0.0.7:8701", "/-/p.preview/x")).await, Some("/-/p.preview")),
        (stage.send(at(HOST, "/x")).await, None),
        (stage.send_content(at(HOST, "/x")).await, None),
        (stage.send(at("sbx-box-acme.holm.test", "/port/3000/x")).await, None),
        (stage.send(at("app.corp.example", "/x")).await, None),
    ]
}

fn other() -> PreviewRoute {
    PreviewRoute {
        id: types::ids::ResourceId::known("other"),
        opens: Opens::ToAll,
        ..private(3000)
    }
}

fn all<'r>(reply: &'r Reply, name: &str) -> Vec<&'r str> {
    reply.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
}

#[tokio::test]
async fn a_preview_does_not_answer_beside_our_own_pages() {
    let stage = Stage::start(settings()).await;
    let workload = stage.sandbox("box", &[8080, 3000]).await;
    stage.preview(PreviewRoute { opens: Opens::ToAll, ..private(3000) });
    for (method, label, host) in [
        ("GET", "p", "10.0.0.7:8700"),
        ("POST", "p", "holm.test"),
        ("GET", "p", "localhost"),
        ("GET", "no", "h"),
    ] {
        let path = format!("/-/{label}.preview/x%2F?bl_preview_token=secret");
        let reply = stage.send(request(method, host, &path, &[BEARER])).await;
        assert_eq!(reply.status, 307);
        assert_eq!(
            reply.headers["location"],
            format!("http://10.0.0.7:8701{path}"),
            "it goes where content is"
        );
        assert_eq!(reply.headers["referrer-policy"], "no-referrer");
        assert!(reply.body.is_empty() && !reply.headers.contains_key("set-cookie"));
    }
    assert_eq!(workload.served.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[tokio::test]
async fn the_listener_for_content_has_no_pages_of_ours() {
    let stage = stage(Opens::ToAll).await;
    for path in ["/", "/v0/sandboxes", "/oauth/sign-in", "/health", "/-/x/y"] {
        let reply = stage.send_content(request("GET", "10.0.0.7:8701", path, &[BEARER])).await;
        reply.problem(404, "ROUTE_NOT_FOUND");
    }
}

#[tokio::test]
async fn no_cookie_of_ours_reaches_a_workload() {
    let stage = stage(Opens::ToAll).await;
    let cookies =
        "a=b; holm_session=hush; __Host-holm_session=hush; holm_form=hush; holm_preview=hush; c=d";
    for (reply, _) in by_all_ways(&stage, &[("cookie", cookies)]).await {
        let told = reply.ok();
        assert!(!told.to_string().contains("hush"), "{told}");
        assert_eq!(told["headers"]["cookie"], "a=b; c=d");
    }
}

#[tokio::test]
async fn a_session_opens_no_workload() {
    let stage = stage(private(3000).opens).await;
    let session = [("cookie", "holm_session=key-of-acme; __Host-holm_session=key-of-acme")];
    let at = |host, path| request("GET", host, path, &session);
    let sandbox = "/acme/sandboxes/box/";
    stage.send(at("10.0.0.7:8700", sandbox)).await.problem(401, "AUTHENTICATION_REQUIRED");
    stage.send_content(at("10.0.0.7:8701", sandbox)).await.problem(401, "AUTHENTICATION_REQUIRED");
    stage
        .send_content(at("10.0.0.7:8701", "/-/p.preview/"))
        .await
        .problem(401, "AUTHENTICATION_REQUIRED");
    stage.send(at(HOST, "/")).await.problem(401, "AUTHENTICATION_REQUIRED");
}

#[tokio::test]
async fn a_workload_sets_cookies_for_its_own_place_only() {
    let stage = stage(Opens::ToAll).await;
    let sets = [
        "Set-Cookie: app=1; Path=/; Domain=holm.test; HttpOnly",
        "Set-Cookie: holm_session=theirs; Path=/",
        "Set-Cookie: __Host-holm_form=theirs; Secure; Path=/",
        "Set-Cookie: =holm_session=theirs",
    ]
    .map(|set| ("x-answer", set));
    for (reply, root) in by_all_ways(&stage, &sets).await {
        let wanted = root.map_or("app=1; Path=/; HttpOnly".to_owned(), |root| {
            format!("app=1; HttpOnly; Path={root}")
        });
        assert_eq!(all(&reply, "set-cookie"), [wanted]);
    }
}

#[tokio::test]
async fn what_is_served_by_path_has_no_origin_in_a_browser() {
    let stage = stage(Opens::ToAll).await;
    let answers = [
        "Content-Security-Policy: sandbox allow-same-origin allow-scripts",
        "Clear-Site-Data: \"*\"",
        "Strict-Transport-Security: max-age=9",
        "Alt-Svc: h2=\"evil.example:443\"",
        "NEL: {}",
        "Service-Worker-Allowed: /",
        "Accept-CH: Device-Memory",
        "Secure-Session-Registration: (ES256);path=\"/\"",
        "Use-As-Dictionary: match=\"/*\"",
        "X-Content-Type-Options: guess",
        "Referrer-Policy: unsafe-url",
    ]
    .map(|answer| ("x-answer", answer));
    for (reply, root) in by_all_ways(&stage, &answers).await {
        let policies = all(&reply, "content-security-policy");
        assert_eq!(
            policies[0], "sandbox allow-same-origin allow-scripts",
            "the workload's own holds too"
        );
        assert!(!reply.headers.contains_key("clear-site-data"));
        match (root, policies.get(1)) {
            (Some(_), Some(ours)) => {
                assert!(
                    ours.starts_with("sandbox ") && !ours.contains("allow-same-origin"),
                    "{ours}"
                );
                assert!(!ours.contains("top-navigation") && !ours.contains("escape"), "{ours}");
                assert_eq!(all(&reply, "x-content-type-options"), ["nosniff"]);
                assert_eq!(all(&reply, "referrer-policy"), ["no-referrer"]);
                for name in [
                    "strict-transport-security",
                    "alt-svc",
                    "nel",
                    "service-worker-allowed",
                    "accept-ch",
                    "secure-session-registration",
                    "use-as-dictionary",
                ] {
                    assert!(!reply.headers.contains_key(name), "{name}");
                }
            }
            (root, ours) => {
                assert_eq!((root, ours), (None, None), "a host of its own is left to the workload")
            }
        }
    }
}

#[tokio::test]
async fn the_headers_of_a_preview_loosen_nothing() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[3000]).await;
    let response_headers = [
        ("Content-Security-Policy", "default-src *"),
        ("Set-Cookie", "holm_session=theirs"),
        ("Clear-Site-Data", "\"cookies\""),
    ];
    let response_headers = response_headers.map(|(name, value)| (name.into(), value.into())).into();
    stage.preview(PreviewRoute { opens: Opens::ToAll, response_headers, ..private(3000) });
    let reply = stage.send_content(request("GET", "h", "/-/p.preview/", &[])).await;
    assert!(all(&reply, "content-security-policy")[1].starts_with("sandbox allow-scripts"));
    assert!(
        !reply.headers.contains_key("set-cookie") && !reply.headers.contains_key("clear-site-data")
    );
}

#[tokio::test]
async fn no_service_worker_comes_by_path() {
    let stage = stage(Opens::ToAll).await;
    let worker = [("service-worker", "script"), BEARER];
    for path in ["/acme/sandboxes/box/port/3000/sw.js", "/-/p.preview/sw.js"] {
        stage.send_content(request("GET", "h", path, &worker)).await.problem(400, "BAD_REQUEST");
    }
    stage
        .send(request("GET", "h", "/acme/sandboxes/box/sw.js", &worker))
        .await
        .problem(400, "BAD_REQUEST");
    stage.send(request("GET", HOST, "/sw.js", &worker)).await.ok();
}

#[tokio::test]
async fn a_kept_token_is_for_the_pages_of_the_preview_and_for_people() {
    let stage = stage(private(3000).opens).await;
    let send = async |fields: &[(&str, &str)]| {
        let cookie = [("cookie", "holm_preview=secret")];
        stage.send(request("GET", HOST, "/", &[&cookie, fields].concat())).await
    };
    for own in [
        [("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "cors")],
        [("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")],
        [("origin", "http://p.preview.holm.test"), ("accept", "*/*")],
    ] {
        send(&own).await.ok();
    }
    for site in ["cross-site", "same-site"] {
        for fields in [
            [("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "script")],
            [("sec-fetch-mode", "cors"), ("sec-fetch-dest", "empty")],
            [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")],
        ] {
            let error = send(&[&[("sec-fetch-site", site)][..], &fields].concat())
                .await
                .problem(403, "FORBIDDEN");
            assert!(error["message"].as_str().unwrap().contains("another origin"));
        }
        // A link that somebody follows.
        send(&[&[("sec-fetch-site", site)][..], &NAVIGATES].concat()).await.ok();
    }
    // Browsers that send no `Sec-Fetch-*` headers, and what scripts may send.
    send(&[("origin", "https://evil.example"), ("accept", "text/html")])
        .await
        .problem(403, "FORBIDDEN");
    send(&[("origin", "null")]).await.problem(403, "FORBIDDEN");
    send(&[("origin", "null"), BEARER]).await.ok();
}

#[tokio::test]
async fn a_token_leaves_the_address_of_a_page() {
    let stage = stage(private(3000).opens).await;
    for (path, goes_to) in [
        ("/x?a=1&bl_preview_token=secret&b", "/x?a=1&b"),
        ("/?bl_preview_token=secret", "/"),
        ("//evil.example/?bl_preview_token=secret", "/.//evil.example/"),
    ] {
        for opens in [&NAVIGATES[..], &[("accept", "text/html,*/*")]] {
            let reply = stage.send(request("GET", HOST, path, opens)).await;
            assert_eq!(
                (reply.status.as_u16(), all(&reply, "location").as_slice()),
                (303, &[goes_to][..])
            );
            assert_eq!(
                all(&reply, "set-cookie"),
                ["holm_preview=secret; Path=/; HttpOnly; SameSite=Lax"]
            );
            assert_eq!(all(&reply, "referrer-policy"), ["no-referrer"]);
        }
    }
    let reply = stage
        .send_content(request(
            "GET",
            "10.0.0.7",
            "/-/p.preview/x?bl_preview_token=secret",
            &NAVIGATES,
        ))
        .await;
    assert_eq!(
        (reply.status.as_u16(), all(&reply, "location").as_slice()),
        (303, &["/-/p.preview/x"][..])
    );
    // A wrong token is an error. Where the address is not that of a window, the token may stay.
    let wrong = request("GET", HOST, "/?bl_preview_token=no", &NAVIGATES);
    stage.send(wrong).await.problem(401, "AUTHENTICATION_FAILED");
    let framed = [
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "iframe"),
        ("x-answer", "Referrer-Policy: unsafe-url"),
    ];
    let reply = stage.send(request("GET", HOST, "/?bl_preview_token=secret", &framed)).await;
    assert_eq!(
        (reply.ok()["uri"].as_str(), all(&reply, "referrer-policy").as_slice()),
        (Some("/"), &["no-referrer"][..])
    );
}

#[tokio::test]
async fn a_workload_is_not_told_the_token_of_the_page_before() {
    let stage = stage(private(3000).opens).await;
    let told = async |referer: &str| -> Value {
        let fields = [("referer", referer), ("x-blaxel-preview-token", "secret")];
        stage.send(request("GET", HOST, "/style.css", &fields)).await.ok()["headers"]["referer"]
            .take()
    };
    assert_eq!(
        told("http://p.preview.holm.test/?bl_preview_token=secret&a=1").await,
        "http://p.preview.holm.test/?a=1"
    );
    assert_eq!(
        told("http://p.preview.holm.test/?bl_preview_token=secret").await,
        "http://p.preview.holm.test/"
    );
    assert_eq!(
        told("http://p.preview.holm.test/x?a=bl").await,
        "http://p.preview.holm.test/x?a=bl"
    );
    assert_eq!(told("bl_preview_token=secret").await, Value::Null);
}

#[tokio::test]
async fn what_only_we_say_is_said_by_nobody_in_another_spelling() {
    let stage = stage(Opens::ToAll).await;
    let forged = [
        ("X_Blaxel_Subject_Id", "forged"),
        ("x-blaxel_subject-type", "forged"),
        ("x_blaxel_authorization", KEY),
        ("x_forwarded_for", "forged"),
        ("x_request_id", "forged"),
        ("content_length", "forged"),
        ("x_own_name", "kept"),
    ];
    for (reply, _) in by_all_ways(&stage, &forged).await {
        let told = reply.ok();
        assert!(!told.to_string().contains("forged") && !told.to_string().contains(KEY), "{told}");
        assert_eq!(told["headers"]["x_own_name"], "kept");
    }
    let request_headers =
        [("X-Plan".into(), "free".into()), ("X_Blaxel_Subject_Id".into(), "forged".into())].into();
    stage.preview(PreviewRoute { opens: Opens::ToAll, request_headers, ..private(3000) });
    let told = stage
        .send(request("GET", HOST, "/", &[("x_plan", "forged"), ("x-plan", "forged")]))
        .await
        .ok();
    assert_eq!(
        (&told["headers"]["x-plan"], told.to_string().contains("forged")),
        (&"free".into(), false)
    );
}
