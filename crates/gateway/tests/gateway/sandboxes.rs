//! Which sandbox a request reaches, and who may send it.

use crate::stage::{Stage, by, get, private, request, settings};
use types::edge::{RouteChange, Serving};
use types::ids::ResourceId;

const KEY: (&str, &str) = ("authorization", "Bearer key-of-acme");

#[tokio::test]
async fn the_path_reaches_the_guest_as_it_was_sent() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    for rest in [
        "/filesystem//etc/hosts",
        "/filesystem/%2Fetc%2Fhosts",
        "/filesystem%2Ftmp/x",
        "/a/../b?x=%20&&y",
        "/",
    ] {
        for front in ["/acme/sandboxes/box", "/run/acme/sandboxes/box"] {
            let told = stage.get(&format!("{front}{rest}")).await.ok();
            assert_eq!((told["port"].as_u64(), told["uri"].as_str()), (Some(8080), Some(rest)));
        }
    }
    assert_eq!(stage.get("/acme/sandboxes/box").await.ok()["uri"], "/");
    assert_eq!(stage.get("/acme/sandboxes/box?a=b").await.ok()["uri"], "/?a=b");
}

#[tokio::test]
async fn a_port_is_reached_by_its_plain_number_only() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080, 3000]).await;
    for (rest, uri) in
        [("/port/3000/a//b?c", "/a//b?c"), ("/port/3000", "/"), ("/port/3000?q", "/?q")]
    {
        let told = stage.get(&format!("/acme/sandboxes/box{rest}")).await.ok();
        assert_eq!((told["port"].as_u64(), told["uri"].as_str()), (Some(3000), Some(uri)));
    }
    for odd in ["02280", "0", "65536", "", "+3000", "3000x", "%33000", "-1", "99999999999999999999"]
    {
        stage.get(&format!("/acme/sandboxes/box/port/{odd}/x")).await.problem(400, "BAD_REQUEST");
    }
    assert_eq!(stage.get("/acme/sandboxes/box/ports").await.ok()["port"], 8080);
}

#[tokio::test]
async fn a_host_reaches_its_sandbox_also_with_hyphens() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("my-box", &[8080]).await;
    for host in [
        "sbx-my-box-acme.local.holm.test",
        "SBX-My-Box-Acme.holm.test:8700",
        "sbx-my-box-acme.eu.holm.test.",
    ] {
        assert_eq!(
            stage.send(request("GET", host, "/x", &[KEY])).await.ok()["instance"],
            "my-box",
            "{host}"
        );
    }
    // `my` of `box-acme` has the same address: now neither can be meant.
    stage.route("box-acme", "my", by("other"));
    let reply = stage.send(request("GET", "sbx-my-box-acme.local.holm.test", "/", &[KEY])).await;
    reply.problem(404, "WORKLOAD_NOT_FOUND");
}

/// Browsers ask without credentials whether a page may call; whether the sandbox exists is not for
/// them to know.
#[tokio::test]
async fn browsers_are_told_that_pages_of_other_origins_may_call() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    for (host, path) in [
        ("h", "/acme/sandboxes/box/process"),
        ("h", "/acme/sandboxes/none/process"),
        ("sbx-box-acme.local.holm.test", "/process"),
    ] {
        let reply = stage.send(request("OPTIONS", host, path, &[])).await;
        assert_eq!(reply.status, 204, "{host}{path}");
        assert_eq!(reply.headers["access-control-allow-origin"], "*");
        assert!(!reply.headers.contains_key("access-control-allow-credentials"));
        stage.send(request("GET", host, path, &[])).await.problem(401, "AUTHENTICATION_REQUIRED");
    }
    let told = stage.send(request("OPTIONS", "h", "/acme/sandboxes/box/x", &[KEY])).await.ok();
    assert_eq!(told["uri"], "/x");
    let agent = request("OPTIONS", "h", "/acme/agents/box/", &[]);
    stage.send(agent).await.problem(401, "AUTHENTICATION_REQUIRED");

    // A session of a browser is a preview of the sandbox's own interface.
    stage.preview(private(443));
    let host = "p.preview.holm.test";
    for path in ["/process", "/port/3000/"] {
        let reply = stage.send(request("OPTIONS", host, path, &[])).await;
        assert_eq!(reply.status, 204, "{path}");
        assert_eq!(reply.headers["access-control-allow-origin"], "*");
        stage.send(request("GET", host, path, &[])).await.problem(401, "AUTHENTICATION_REQUIRED");
    }
    let key = ("x-blaxel-preview-token", "secret");
    let told = stage.send(request("OPTIONS", host, "/process", &[key])).await.ok();
    assert_eq!(told["uri"], "/process");
    let wrong = ("x-blaxel-preview-token", "no");
    let reply = stage.send(request("OPTIONS", host, "/process", &[wrong])).await;
    reply.problem(401, "AUTHENTICATION_FAILED");
}

#[tokio::test]
async fn a_terminal_is_opened_by_its_address_alone() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    let at = "/acme/sandboxes/box/terminal?token=key-of-acme&a=b";
    let told = stage.send(request("GET", "h", at, &[])).await.ok();
    // The token is not passed to the sandbox.
    assert_eq!(told["uri"], "/terminal?a=b");
    for other in [
        "/terminal?token=wrong",
        "/terminal",
        "/process?token=key-of-acme",
        "/port/8080/terminal?token=key-of-acme",
        "/filesystem/terminal?token=key-of-acme",
    ] {
        let reply = stage.send(request("GET", "h", &format!("/acme/sandboxes/box{other}"), &[]));
        assert_eq!(reply.await.status, 401, "{other}");
    }
}

#[tokio::test]
async fn every_way_to_show_credentials_is_taken_and_none_passed_on() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    for name in ["authorization", "x-blaxel-authorization", "X-Service-Authorization"] {
        let sent =
            [(name, "bearer key-of-acme"), ("x-blaxel-subject-id", "root"), ("x-request-id", "r1")];
        let told = stage.send(request("GET", "h", "/acme/sandboxes/box/", &sent)).await.ok();
        let headers = &told["headers"];
        assert_eq!(headers["x-blaxel-subject-id"], "usr_1");
        assert_eq!(headers["x-blaxel-subject-type"], "user");
        assert_eq!(headers["x-blaxel-auth-method"], "api_key");
        assert_eq!(headers["x-request-id"], "r1");
        assert_eq!(
            (headers["x-forwarded-for"].as_str(), headers["x-forwarded-host"].as_str()),
            (Some("127.0.0.1"), Some("h"))
        );
        assert!(!told.to_string().contains("key-of-acme"), "{told}");
    }
    // What was not ours stays: the app of a port may have keys of its own.
    let sent =
        [("x-blaxel-authorization", "Bearer key-of-acme"), ("authorization", "Bearer of-the-app")];
    let told = stage.send(request("GET", "h", "/acme/sandboxes/box/", &sent)).await.ok();
    assert_eq!(told["headers"]["authorization"], "Bearer of-the-app");
}

#[tokio::test]
async fn a_stranger_learns_nothing() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    stage.route("other", "real", by("real"));
    let pairs = [
        ("/acme/sandboxes/box/x", "/acme/sandboxes/none/x"),
        ("/other/sandboxes/real/", "/nowhere/sandboxes/real/"),
    ];
    let hosts = [
        ("sbx-real-other.holm.test", "sbx-fake-other.holm.test"),
        ("sbx-box-acme.holm.test", "sbx-no-acme.holm.test"),
    ];
    for token in ["wrong", "old", "key-of-acme", ""] {
        let bearer = format!("Bearer {token}");
        let sent = if token.is_empty() { vec![] } else { vec![("authorization", bearer.as_str())] };
        for (index, (real, fake)) in pairs.into_iter().enumerate() {
            if token == "key-of-acme" && index == 0 {
                continue;
            }
            let real = stage.send(request("GET", "h", real, &sent)).await;
            let fake = stage.send(request("GET", "h", fake, &sent)).await;
            assert_eq!((real.status, &real.body), (fake.status, &fake.body));
        }
        for (index, (real, fake)) in hosts.into_iter().enumerate() {
            if token == "key-of-acme" && index == 1 {
                continue;
            }
            let real = stage.send(request("GET", real, "/", &sent)).await;
            let fake = stage.send(request("GET", fake, "/", &sent)).await;
            assert_eq!((real.status, &real.body), (fake.status, &fake.body));
        }
    }
}

#[tokio::test]
async fn what_is_not_for_the_data_plane_is_left_alone() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    for path in [
        "/v0/sandboxes/box",
        "/api/sandboxes/box",
        "/",
        "/acme/jobs/box",
        "/acme/sandboxes",
        "/acme/sandboxes/",
        "/-/x/y",
    ] {
        assert_eq!(stage.get(path).await.status, 418, "{path}");
    }
    for host in ["holm.test", "other.holm.test", "example.com", "xholm.test", "[::1]:8700"] {
        assert_eq!(stage.send(request("GET", host, "/", &[])).await.status, 418, "{host}");
    }
}

#[tokio::test]
async fn a_host_that_could_be_read_twice_is_refused() {
    let stage = Stage::start(settings()).await;
    for host in ["a@holm.test", "holm.test:80:80", "holm.test:x", "a b", "a/b"] {
        let reply = stage.send(request("GET", host, "/", &[])).await;
        reply.problem(400, "BAD_REQUEST");
    }
    let two = request("GET", "holm.test", "/", &[("host", "sbx-box-acme.holm.test")]);
    stage.send(two).await.problem(400, "BAD_REQUEST");
    let differs = request("GET", "sbx-a-acme.holm.test", "http://sbx-b-acme.holm.test/", &[]);
    stage.send(differs).await.problem(400, "BAD_REQUEST");
}

#[tokio::test]
async fn a_route_that_is_gone_leads_nowhere() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    stage.route("acme", "off", Serving::Off { why: "is disabled".into() });
    let error = stage.get("/acme/sandboxes/off/").await.problem(404, "WORKLOAD_UNAVAILABLE");
    assert_eq!(error["message"], "the sandbox is disabled");
    stage.gateway.routes().apply(RouteChange::Gone(ResourceId::known("acme/box")));
    stage.send(get("/acme/sandboxes/box/")).await.problem(404, "WORKLOAD_NOT_FOUND");
}

#[tokio::test]
async fn a_guest_that_wants_a_newer_program_gets_it_and_nobody_else_does() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080, 3000]).await;
    let given = || stage.machine.given.lock().clone();
    let ask =
        async |method: &str, path: &str| stage.send(request(method, "holm", path, &[KEY])).await;
    let answer = ask("POST", "/acme/sandboxes/box/upgrade").await;
    assert_eq!(given().len(), 1, "before the caller hears of it");
    assert!(answer.headers.get(types::guest::WANTS_HEADER).is_none());
    // Neither for a program of the tenant on another port, nor for another request to the guest.
    ask("POST", "/acme/sandboxes/box/port/3000/upgrade").await;
    ask("GET", "/acme/sandboxes/box/upgrade").await;
    assert_eq!(given().len(), 1);
}
