//! Where agents, MCP servers and applications answer, and to whom.

use crate::sockets::{echo_at, exchange, open};
use crate::stage::{AGENTS_KEY, APP_PORT, Stage, deployment, get, private, request, settings, to};
use gateway::Settings;
use http_body_util::BodyExt;
use std::time::Duration;
use types::KindName;
use types::edge::{
    DomainRoute, Fallback, Opens, PreviewRoute, RouteChange, Serving, WorkloadRoute,
};
use types::ids::ResourceId;

const KEY: (&str, &str) = ("authorization", "Bearer key-of-acme");

/// Starts a deployment with one replica of its own.
async fn served(stage: &Stage, kind: KindName, name: &str) -> WorkloadRoute {
    let instance = format!("replica-{name}-r1-1");
    stage.replica(&instance).await;
    let serving = Serving::To(vec![to("r1", 100, &[&instance])]);
    let route = WorkloadRoute { serving, ..deployment(kind, name) };
    stage.deploy(&route);
    route
}

#[tokio::test]
async fn a_deployment_gets_its_path_as_it_was_sent() {
    let stage = Stage::start(settings()).await;
    served(&stage, KindName::Agent, "bot").await;
    served(&stage, KindName::Function, "tools").await;
    for rest in ["/", "/mcp", "/port/80/x", "/a//b%2Fc?x=%20&&y", "/?debug=true", "/../x"] {
        for front in ["/acme/agents/bot", "/run/acme/agents/bot", "/acme/functions/tools"] {
            let told = stage.get(&format!("{front}{rest}")).await.ok();
            assert_eq!(told["port"], APP_PORT);
            assert_eq!(told["uri"], rest);
        }
    }
    assert_eq!(stage.get("/acme/agents/bot").await.ok()["uri"], "/");
    assert_eq!(stage.get("/acme/agents/bot?async=1").await.ok()["uri"], "/?async=1");
    let host = "agent-bot-acme.eu.holm.test";
    assert_eq!(stage.send(request("GET", host, "/x", &[KEY])).await.ok()["uri"], "/x");
    let host = "function-tools-acme.holm.test";
    assert_eq!(stage.send(request("PUT", host, "/x", &[KEY])).await.ok()["method"], "PUT");
    // A workload is not reachable as another kind.
    stage.get("/acme/functions/bot/").await.problem(404, "WORKLOAD_NOT_FOUND");
}

#[tokio::test]
async fn a_conversation_is_passed_on_and_no_credentials_are() {
    let stage = Stage::start(settings()).await;
    served(&stage, KindName::Agent, "bot").await;
    for (header, value) in
        [KEY, ("x-blaxel-authorization", "Bearer key-of-acme"), ("x-service-authorization", KEY.1)]
    {
        let sent = [
            (header, value),
            ("x-blaxel-thread-id", "t1"),
            ("x-service-thread-id", "t2"),
            ("x-blaxel-subject-id", "root"),
        ];
        let told = stage.send(request("POST", "h", "/acme/agents/bot", &sent)).await.ok();
        assert_eq!(told["headers"]["x-blaxel-thread-id"], "t1");
        assert_eq!(told["headers"]["x-service-thread-id"], "t2");
        assert_eq!(told["headers"]["x-blaxel-subject-id"], "usr_1");
        assert!(!told.to_string().contains("key-of-acme"), "{told}");
    }
}

#[tokio::test]
async fn a_private_deployment_wants_credentials_for_its_kind() {
    let stage = Stage::start(settings()).await;
    served(&stage, KindName::Agent, "bot").await;
    served(&stage, KindName::Function, "tools").await;
    let at = |path: &str, headers: &[(&str, &str)]| request("GET", "h", path, headers);
    let bearer = format!("Bearer {AGENTS_KEY}");
    let agents = [("authorization", bearer.as_str())];
    stage.send(at("/acme/agents/bot", &agents)).await.ok();
    stage.send(at("/acme/functions/tools", &agents)).await.problem(403, "FORBIDDEN");
    stage.send(at("/acme/agents/bot", &[])).await.problem(401, "AUTHENTICATION_REQUIRED");
    let wrong = [("authorization", "Bearer no")];
    stage.send(at("/acme/agents/bot", &wrong)).await.problem(401, "AUTHENTICATION_FAILED");
    // A stranger does not learn what is there.
    for path in ["/acme/agents/none", "/none/agents/bot"] {
        stage.send(at(path, &[])).await.problem(401, "AUTHENTICATION_REQUIRED");
    }
    stage.get("/acme/agents/none").await.problem(404, "WORKLOAD_NOT_FOUND");
}

#[tokio::test]
async fn a_public_deployment_wants_none_and_keeps_its_own() {
    let stage = Stage::start(settings()).await;
    let route = served(&stage, KindName::Agent, "bot").await;
    stage.deploy(&WorkloadRoute { public: true, ..route.clone() });
    for (host, path) in [("h", "/acme/agents/bot/x"), ("agent-bot-acme.holm.test", "/x")] {
        stage.send(request("GET", host, path, &[])).await.ok();
        let sent = [
            ("authorization", "Bearer of-the-app"),
            ("x-blaxel-authorization", "Bearer key-of-acme"),
            ("cookie", "holm_session=s; a=b"),
        ];
        let told = stage.send(request("GET", host, path, &sent)).await.ok();
        assert_eq!(told["headers"]["authorization"], "Bearer of-the-app");
        assert_eq!(told["headers"]["cookie"], "a=b");
        assert!(!told.to_string().contains("key-of-acme"), "{told}");
    }
    stage.deploy(&route);
    stage
        .send(request("GET", "h", "/acme/agents/bot/x", &[]))
        .await
        .problem(401, "AUTHENTICATION_REQUIRED");
}

#[tokio::test]
async fn an_application_answers_at_its_host_to_everybody() {
    let stage = Stage::start(settings()).await;
    let route = served(&stage, KindName::Application, "shop").await;
    let host = "app-shop-acme.holm.test";
    let sent = [("authorization", "Bearer of-the-app")];
    let told = stage.send(request("GET", host, "/cart?x=1", &sent)).await.ok();
    assert_eq!(
        (&told["uri"], &told["headers"]["authorization"]),
        (&"/cart?x=1".into(), &sent[0].1.into())
    );
    // It has no path below its workspace, and no credentials are needed to learn that one does not
    // exist.
    assert_eq!(stage.get("/acme/applications/shop/").await.status, 418);
    let none = request("GET", "app-none-acme.holm.test", "/", &[]);
    stage.send(none).await.problem(404, "WORKLOAD_NOT_FOUND");
    let off = Serving::Off { why: "is disabled".into() };
    stage.deploy(&WorkloadRoute { serving: off, ..route.clone() });
    let error =
        stage.send(request("GET", host, "/", &[])).await.problem(404, "WORKLOAD_UNAVAILABLE");
    assert_eq!(error["message"], "the application is disabled");
    stage.gateway.routes().apply(RouteChange::Gone(route.id));
    stage.send(request("GET", host, "/", &[])).await.problem(404, "WORKLOAD_NOT_FOUND");
}

#[tokio::test]
async fn an_application_by_path_is_content_and_confined() {
    let stage = Stage::start(settings()).await;
    served(&stage, KindName::Application, "shop").await;
    let at = "/-/app-shop-acme/cart?x=1";
    let reply = stage.send_content(request("GET", "10.0.0.7:8701", at, &[])).await;
    assert_eq!(reply.ok()["uri"], "/cart?x=1");
    assert!(reply.headers["content-security-policy"].to_str().unwrap().contains("sandbox"));
    let worker = [("service-worker", "script")];
    let reply = stage.send_content(request("GET", "10.0.0.7:8701", at, &worker)).await;
    reply.problem(400, "BAD_REQUEST");
    // It does not answer beside the server's own pages.
    let reply = stage.send(request("GET", "10.0.0.7:8700", at, &[])).await;
    assert_eq!(reply.status, 307);
    assert_eq!(reply.headers["location"], format!("http://10.0.0.7:8701{at}"));
    // A browser on this machine finds the host, where the page needs no confining.
    let page = [("sec-fetch-mode", "navigate")];
    let reply = stage.send_content(request("GET", "127.0.0.1:8701", at, &page)).await;
    assert_eq!(reply.headers["location"], "http://app-shop-acme.localhost:8701/cart?x=1");
    let reply = stage.send_content(request("GET", "app-shop-acme.holm.test", "/", &[])).await;
    assert!(!reply.headers.contains_key("content-security-policy"));
    reply.ok();
}

#[tokio::test]
async fn whole_hosts_lead_to_the_workload_that_has_them_last() {
    let stage = Stage::start(settings()).await;
    let shop = served(&stage, KindName::Application, "shop").await;
    let blog = served(&stage, KindName::Application, "blog").await;
    let hosts = |hosts: &[&str]| hosts.iter().map(|host| (*host).to_owned()).collect();
    stage.deploy(&WorkloadRoute {
        hosts: hosts(&["shop.example", "Www.Shop.Example"]),
        ..shop.clone()
    });
    let ask = async |host: &str| stage.send(request("GET", host, "/x", &[])).await;
    for host in ["shop.example", "WWW.shop.example:443"] {
        assert_eq!(ask(host).await.ok()["instance"], "replica-shop-r1-1", "{host}");
    }
    assert_eq!(ask("other.example").await.status, 418);
    // A host moves: a change of the workload that had it before does not take it away.
    stage.deploy(&WorkloadRoute { hosts: hosts(&["shop.example"]), ..blog });
    stage.deploy(&WorkloadRoute { hosts: Vec::new(), ..shop });
    assert_eq!(ask("shop.example").await.ok()["instance"], "replica-blog-r1-1");
    assert_eq!(ask("www.shop.example").await.status, 418);
    // An agent at a custom host still wants credentials.
    let agent = served(&stage, KindName::Agent, "bot").await;
    stage.deploy(&WorkloadRoute { hosts: hosts(&["bot.example"]), ..agent });
    ask("bot.example").await.problem(401, "AUTHENTICATION_REQUIRED");
    stage.send(request("GET", "bot.example", "/", &[KEY])).await.ok();
}

#[tokio::test]
async fn a_preview_of_a_deployment_leads_to_its_port_alone() {
    let stage = Stage::start(settings()).await;
    let route = served(&stage, KindName::Agent, "bot").await;
    let preview = PreviewRoute { workload: route.id, opens: Opens::ToAll, ..private(443) };
    stage.preview(preview);
    let told = stage.send(request("GET", "p.preview.holm.test", "/port/22/x", &[])).await.ok();
    assert_eq!((&told["port"], &told["uri"]), (&APP_PORT.into(), &"/port/22/x".into()));
}

#[tokio::test]
async fn an_exchange_with_an_agent_is_limited_without_bytes_and_in_all() {
    let short = Duration::from_millis(60);
    let idle = Stage::start(Settings { agent_idle: short, ..settings() }).await;
    served(&idle, KindName::Agent, "bot").await;
    served(&idle, KindName::Application, "shop").await;
    let error = idle.get("/acme/agents/bot/gate").await.problem(504, "WORKLOAD_TIMEOUT");
    assert_eq!(error["message"], format!("port {APP_PORT} of the agent was silent for too long"));

    // An answer has to begin within this time.
    let agent_time = Duration::from_secs(2);
    let timed = Stage::start(Settings { agent_time, ..settings() }).await;
    served(&timed, KindName::Function, "tools").await;
    let error = timed.get("/acme/functions/tools/gate").await.problem(504, "WORKLOAD_TIMEOUT");
    assert!(error["message"].as_str().unwrap().starts_with("the function took longer than"));
    // An exchange that has begun is cut off so that the caller notices.
    let mut body = timed.begin(get("/acme/functions/tools/endless")).await.into_body();
    while body.frame().await.expect("it is cut, not ended").is_ok() {}
    let requests = timed.gateway.requests_of(&ResourceId::known("res_tools"), None).unwrap().all;
    assert_eq!((requests.count, requests.errors), (2, 1));
}

#[tokio::test]
async fn a_workload_narrows_the_time_of_its_requests_and_never_widens_it() {
    let timed = |seconds| WorkloadRoute {
        timeout_s: Some(seconds),
        serving: Serving::To(vec![to("r1", 100, &["replica-bot-r1-1"])]),
        ..deployment(KindName::Agent, "bot")
    };
    let stage = Stage::start(settings()).await;
    stage.replica("replica-bot-r1-1").await;
    stage.deploy(&timed(1));
    let error = stage.get("/acme/agents/bot/gate").await.problem(504, "WORKLOAD_TIMEOUT");
    assert_eq!(error["message"], "the agent took longer than the 1 seconds that it may");
    // Waiting for a replica counts.
    stage.deploy(&WorkloadRoute { serving: Serving::Starting, ..timed(1) });
    stage.get("/acme/agents/bot/").await.problem(504, "WORKLOAD_TIMEOUT");

    let short = Duration::from_millis(60);
    let stage = Stage::start(Settings { agent_time: short, ..settings() }).await;
    stage.replica("replica-bot-r1-1").await;
    stage.deploy(&timed(600));
    stage.get("/acme/agents/bot/gate").await.problem(504, "WORKLOAD_TIMEOUT");
}

#[tokio::test]
async fn a_socket_of_an_agent_ends_without_traffic_and_that_of_an_application_does_not() {
    // One exchange has to happen within this time.
    let agent_idle = Duration::from_secs(2);
    let stage = Stage::start(Settings { agent_idle, ..settings() }).await;
    served(&stage, KindName::Agent, "bot").await;
    served(&stage, KindName::Application, "shop").await;
    echo_at(&stage, "replica-bot-r1-1", APP_PORT).await;
    echo_at(&stage, "replica-shop-r1-1", APP_PORT).await;
    let mut lasting = open(&stage, "app-shop-acme.holm.test", "/", None).await.unwrap();
    let mut socket = open(&stage, "h", "/acme/agents/bot/ws", Some("key-of-acme")).await.unwrap();
    exchange(&mut socket, "a").await;
    let end = futures_util::StreamExt::next(&mut socket).await;
    assert!(end.is_none_or(|message| message.is_err()));
    exchange(&mut lasting, "still here").await;
}

#[tokio::test]
async fn a_domain_leads_to_an_application_where_nothing_else_has_the_host() {
    let stage = Stage::start(settings()).await;
    let shop = served(&stage, KindName::Application, "shop").await;
    let hosts = vec!["own.corp.example".to_owned()];
    stage.deploy(&WorkloadRoute { hosts, ..shop.clone() });
    let application = Fallback::Application { workspace_name: "acme".into(), name: "shop".into() };
    stage.gateway.routes().apply(RouteChange::Domain(DomainRoute {
        id: ResourceId::known("domain"),
        workspace: shop.workspace.clone(),
        name: "corp.example".into(),
        fallback: Some(application),
    }));
    let faked = [("x-blaxel-fallback-domain", "evil")];
    let own = stage.send(request("GET", "own.corp.example", "/a", &faked)).await.ok();
    assert!(own["headers"].get("x-blaxel-fallback").is_none());
    assert!(own["headers"].get("x-blaxel-fallback-domain").is_none());
    // The domain itself is one of its hosts.
    for host in ["corp.example", "any.corp.example", "a.b.Corp.example:443"] {
        let told = stage.send(request("GET", host, "/a?b", &faked)).await.ok();
        assert_eq!((&told["port"], &told["uri"]), (&APP_PORT.into(), &"/a?b".into()), "{host}");
        assert_eq!(told["headers"]["x-blaxel-fallback-preview"], "shop");
        assert_eq!(told["headers"]["x-blaxel-fallback-domain"], "corp.example");
    }
    assert_eq!(stage.send(request("GET", "corp.example.evil", "/", &[])).await.status, 418);
    // One that is created again under the name takes its place.
    stage.gateway.routes().apply(RouteChange::Gone(shop.id.clone()));
    let gone = stage.send(request("GET", "any.corp.example", "/", &[])).await;
    gone.problem(404, "ROUTE_NOT_FOUND");
    stage.deploy(&WorkloadRoute { id: ResourceId::known("res_again"), ..shop });
    stage.send(request("GET", "any.corp.example", "/", &[])).await.ok();
}

#[tokio::test]
async fn an_application_that_stands_for_a_sandbox_leads_to_one_port_of_it() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080, 3000]).await;
    let stands = WorkloadRoute {
        port: Some(3000),
        serving: Serving::Sandbox("box".into()),
        ..deployment(KindName::Application, "shop")
    };
    stage.deploy(&stands);
    // No spelling of a path leads to another port, least of all to the guest.
    for path in ["/", "/port/8080/process", "/process", "//port/8080/", "/%2e%2e/port/8080"] {
        let told = stage.send(request("GET", "app-shop-acme.holm.test", path, &[])).await.ok();
        assert_eq!((&told["port"], &told["uri"]), (&3000.into(), &path.into()));
    }
    // A request that is just ending may keep it busy for a moment.
    while stage.gateway.standby().pause("box").await.is_err() {
        tokio::task::yield_now().await;
    }
    stage.send(request("GET", "app-shop-acme.holm.test", "/", &[])).await.ok();
    // The sandbox of another workspace is a different one.
    let theirs = WorkloadRoute { workspace_name: "other".into(), ..stands };
    stage.deploy(&theirs);
    let error = stage.send(request("GET", "app-shop-acme.holm.test", "/", &[])).await;
    let error = error.problem(404, "WORKLOAD_UNAVAILABLE");
    let wanted = "the application stands for the sandbox `box`, which is not there";
    assert_eq!(error["message"], wanted);
}
