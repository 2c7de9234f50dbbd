//! Previews: who may open one, and that it opens nothing else.

use crate::stage::{Stage, private, request, settings, token};
use std::sync::atomic::Ordering;
use types::Timestamp;
use types::edge::{DomainRoute, Fallback, Opens, PreviewAddress, PreviewRoute, RouteChange};
use types::ids::{ResourceId, WorkspaceId};

const HOST: &str = "p.preview.holm.test";

async fn stage() -> Stage {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080, 3000]).await;
    stage
}

#[tokio::test]
async fn a_public_preview_is_open_and_keeps_the_apps_credentials() {
    let stage = stage().await;
    stage.preview(PreviewRoute { opens: Opens::ToAll, ..private(3000) });
    let sent = [
        ("authorization", "Bearer of-the-app"),
        ("x-blaxel-subject-id", "root"),
        ("x-blaxel-authorization", "Bearer key-of-acme"),
    ];
    let told = stage.send(request("GET", HOST, "/a//b%2Fc?d&bl_preview_token=x", &sent)).await.ok();
    assert_eq!((told["port"].as_u64(), told["uri"].as_str()), (Some(3000), Some("/a//b%2Fc?d")));
    assert_eq!(told["headers"]["authorization"], "Bearer of-the-app");
    assert!(told["headers"].get("x-blaxel-subject-id").is_none());
    assert!(!told.to_string().contains("key-of-acme"), "{told}");
    let told =
        stage.send_content(request("GET", "10.0.0.1:8701", "/-/p.preview/x", &[])).await.ok();
    assert_eq!(told["uri"], "/x");
}

#[tokio::test]
async fn a_private_preview_opens_to_its_token_and_to_members() {
    let stage = stage().await;
    stage.preview(private(3000));
    stage.send(request("GET", HOST, "/", &[])).await.problem(401, "AUTHENTICATION_REQUIRED");
    for wrong in [
        ("x-blaxel-preview-token", "no"),
        ("cookie", "holm_preview=no"),
        ("authorization", "Bearer no"),
    ] {
        stage.send(request("GET", HOST, "/", &[wrong])).await.problem(401, "AUTHENTICATION_FAILED");
    }
    for right in [
        ("x-blaxel-preview-token", "secret"),
        ("cookie", "a=b; holm_preview=secret; c=d"),
        ("authorization", "Bearer key-of-acme"),
    ] {
        let told = stage.send(request("GET", HOST, "/", &[right])).await.ok();
        assert!(
            !told.to_string().contains("secret") && !told.to_string().contains("key-of-acme"),
            "{told}"
        );
        if right.0 == "cookie" {
            assert_eq!(told["headers"]["cookie"], "a=b; c=d");
        }
    }
}

#[tokio::test]
async fn a_token_in_the_address_stays_with_the_browser() {
    let stage = stage().await;
    stage.preview(private(3000));
    let reply = stage.send(request("GET", HOST, "/x?a=1&bl_preview_token=secret&b", &[])).await;
    assert_eq!(reply.ok()["uri"], "/x?a=1&b");
    let cookie = reply.headers["set-cookie"].to_str().unwrap();
    assert_eq!(cookie, "holm_preview=secret; Path=/; HttpOnly; SameSite=Lax");
    let reply = stage
        .send_content(request("GET", "h", "/-/p.preview/x?bl_preview_token=secret", &[]))
        .await;
    assert!(reply.headers["set-cookie"].to_str().unwrap().contains("Path=/-/p.preview;"));
    // A token in a header needs no cookie.
    let reply =
        stage.send(request("GET", HOST, "/x", &[("x-blaxel-preview-token", "secret")])).await;
    assert!(!reply.headers.contains_key("set-cookie"));
}

#[tokio::test]
async fn a_browser_of_this_machine_goes_on_to_the_host_of_the_preview() {
    let stage = stage().await;
    stage.preview(private(3000));
    let opens = [("sec-fetch-mode", "navigate")];
    for (host, port) in [("127.0.0.1:8701", ":8701"), ("[::1]:8701", ":8701"), ("localhost", "")] {
        let reply = stage
            .send_content(request("GET", host, "/-/p.preview/x%2F?bl_preview_token=secret", &opens))
            .await;
        assert_eq!(reply.status, 307);
        let location = format!("http://p.preview.localhost{port}/x%2F?bl_preview_token=secret");
        assert_eq!(reply.headers["location"], location.as_str());
    }
    let reply = stage.send_content(request("GET", "localhost", "/-/p.preview", &opens)).await;
    assert_eq!(reply.headers["location"], "http://p.preview.localhost/");
    // On other machines there is no such host, and programs do not find it.
    stage
        .send_content(request("GET", "10.0.0.7", "/-/p.preview/", &opens))
        .await
        .problem(401, "AUTHENTICATION_REQUIRED");
    stage
        .send_content(request("GET", "localhost", "/-/p.preview/", &[]))
        .await
        .problem(401, "AUTHENTICATION_REQUIRED");
    stage
        .send_content(request("GET", "localhost", "/-/none.preview/", &opens))
        .await
        .problem(404, "ROUTE_NOT_FOUND");
}

#[tokio::test]
async fn a_token_opens_one_port_however_the_path_is_spelled() {
    let stage = stage().await;
    stage.preview(private(3000));
    for path in [
        "/port/8080/process",
        "/%70ort/8080/",
        "//port/8080/",
        "/../port/8080/",
        "/port%2F8080/",
        "/acme/sandboxes/box/process",
    ] {
        let told = stage
            .send(request("GET", HOST, path, &[("x-blaxel-preview-token", "secret")]))
            .await
            .ok();
        assert_eq!((told["port"].as_u64(), told["uri"].as_str()), (Some(3000), Some(path)));
    }
}

#[tokio::test]
async fn a_preview_of_the_whole_sandbox_reaches_guest_and_ports() {
    let stage = stage().await;
    stage.preview(private(443));
    let at = |path| request("GET", HOST, path, &[("x-blaxel-preview-token", "secret")]);
    assert_eq!(stage.send(at("/process")).await.ok()["port"], 8080);
    let told = stage.send(at("/port/3000/x")).await.ok();
    assert_eq!((told["port"].as_u64(), told["uri"].as_str()), (Some(3000), Some("/x")));
}

#[tokio::test]
async fn what_has_expired_opens_nothing() {
    let stage = stage().await;
    let soon = Some(Timestamp::from_ms(stage.clock.load(Ordering::Relaxed) + 10));
    stage.preview(PreviewRoute {
        opens: Opens::ToTokens(vec![token("secret", soon)]),
        ..private(3000)
    });
    let at = || request("GET", HOST, "/", &[("x-blaxel-preview-token", "secret")]);
    stage.send(at()).await.ok();
    stage.clock.fetch_add(10, Ordering::Relaxed);
    stage.send(at()).await.problem(401, "AUTHENTICATION_FAILED");
    stage.preview(PreviewRoute { opens: Opens::ToAll, expires_at: soon, ..private(3000) });
    stage.send(at()).await.problem(404, "ROUTE_NOT_FOUND");
}

#[tokio::test]
async fn headers_are_set_and_preflights_answered() {
    let stage = stage().await;
    let map = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    };
    let preview = PreviewRoute {
        request_headers: map(&[
            ("X-App", "1"),
            ("Content-Length", "9"),
            ("X-Blaxel-Subject-Id", "root"),
        ]),
        response_headers: map(&[
            ("Access-Control-Allow-Origin", "https://a.example"),
            ("Transfer-Encoding", "x"),
            ("Set-Cookie", "a=b; Domain=holm.example"),
            ("Clear-Site-Data", "*"),
        ]),
        ..private(3000)
    };
    stage.preview(preview);
    let reply = stage
        .send(request("GET", HOST, "/", &[("x-blaxel-preview-token", "secret"), ("x-app", "0")]))
        .await;
    assert_eq!(reply.ok()["headers"]["x-app"], "1");
    assert!(reply.ok()["headers"].get("x-blaxel-subject-id").is_none());
    assert_eq!(reply.headers["access-control-allow-origin"], "https://a.example");
    let preflight = request(
        "OPTIONS",
        HOST,
        "/",
        &[("access-control-request-method", "PUT"), ("origin", "https://a.example")],
    );
    let reply = stage.send(preflight).await;
    assert_eq!((reply.status.as_u16(), reply.body.len()), (204, 0));
    assert_eq!(reply.headers["access-control-allow-origin"], "https://a.example");
    assert_eq!(reply.headers["set-cookie"], "a=b");
    assert!(!reply.headers.contains_key("clear-site-data"));
    stage.send(request("OPTIONS", HOST, "/", &[])).await.problem(401, "AUTHENTICATION_REQUIRED");
}

#[tokio::test]
async fn a_custom_domain_has_its_previews_and_a_fallback() {
    let stage = stage().await;
    let at = |host: &str| PreviewAddress::Host(host.into());
    stage.preview(PreviewRoute {
        at: at("app.corp.example"),
        opens: Opens::ToAll,
        ..private(3000)
    });
    let domain = |fallback| {
        stage.gateway.routes().apply(RouteChange::Domain(DomainRoute {
            id: ResourceId::known("domain"),
            workspace: WorkspaceId::known("acme"),
            name: "corp.example".into(),
            fallback,
        }));
    };
    let faked = [("x-blaxel-fallback", "true"), ("x-blaxel-fallback-domain", "evil")];
    let told =
        stage.send(request("GET", "App.Corp.Example:443", "/v0/sandboxes", &faked)).await.ok();
    assert_eq!((told["port"].as_u64(), told["uri"].as_str()), (Some(3000), Some("/v0/sandboxes")));
    assert!(
        told["headers"].get("x-blaxel-fallback").is_none()
            && told["headers"].get("x-blaxel-fallback-domain").is_none()
    );
    assert_eq!(stage.send(request("GET", "other.corp.example", "/", &[])).await.status, 418);
    domain(None);
    stage
        .send(request("GET", "other.corp.example", "/", &[]))
        .await
        .problem(404, "ROUTE_NOT_FOUND");
    domain(Some(Fallback::Preview(ResourceId::known("preview-3000"))));
    let told = stage.send(request("GET", "other.corp.example", "/", &faked)).await.ok();
    assert_eq!(told["headers"]["x-blaxel-fallback"], "true");
    assert_eq!(told["headers"]["x-blaxel-fallback-preview"], "p", "the name that its user gave it");
    assert_eq!(told["headers"]["x-blaxel-fallback-domain"], "corp.example");
}

#[tokio::test]
async fn an_address_that_was_taken_over_stays_with_who_has_it() {
    let stage = stage().await;
    stage.preview(PreviewRoute { opens: Opens::ToAll, ..private(3000) });
    let second = ResourceId::known("second");
    stage.preview(PreviewRoute {
        id: second.clone(),
        workspace: WorkspaceId::known("acme"),
        opens: Opens::ToAll,
        ..private(8080)
    });
    stage.gateway.routes().apply(RouteChange::Gone(ResourceId::known("preview-3000")));
    assert_eq!(stage.send(request("GET", HOST, "/", &[])).await.ok()["port"], 8080);
    stage.gateway.routes().apply(RouteChange::Gone(second));
    stage.send(request("GET", HOST, "/", &[])).await.problem(404, "ROUTE_NOT_FOUND");
}
