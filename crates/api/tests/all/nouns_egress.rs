//! What workloads may reach: how rules get to the machine, gateways with addresses, and the log.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common::machine::{IMAGE, Pretended};
use crate::common::{Cloud, settings};
use control::machine::{Launch, Machine};
use http::Method;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use types::Timestamp;
use types::egress::{EgressDecision, EgressEvent, EgressRules};
use types::instance::Outcome;
use types::kinds::network::ProxyTarget;
use types::parts::Sensitive;
use types::wire::Region;

const ONE: &str = "/v0/sandboxes/one";
const GATEWAYS: &str = "/v0/vpcs/default/egressgateways";

async fn cloud() -> (Cloud, Arc<Pretended>) {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)));
    (Cloud::start_on_machine(machine.clone(), settings()).await, machine)
}

fn sandbox(name: &str, more: Value) -> Value {
    let mut spec = json!({"runtime": {"image": IMAGE}});
    for (member, value) in more.as_object().unwrap() {
        spec[member] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

fn with_network(network: Value) -> Value {
    sandbox("one", json!({"network": network}))
}

/// Returns rules that inject a secret.
fn routing(secret: Option<&str>) -> Value {
    let mut rule =
        json!({"destinations": ["api.example"], "headers": {"Authorization": "{{SECRET:key}}"}});
    if let Some(secret) = secret {
        rule["secrets"] = json!({"key": secret});
    }
    json!([rule])
}

fn target(secret: &str) -> ProxyTarget {
    let text = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
    ProxyTarget {
        destinations: Some(vec!["api.example".into()]),
        headers: Some(text("Authorization", "{{SECRET:key}}")),
        secrets: Some(Sensitive(text("key", secret))),
        body: None,
    }
}

fn network_events(object: &Value) -> Vec<&str> {
    let events = object["events"].as_array().unwrap().iter();
    let mine = events.filter(|event| event["type"] == "network");
    mine.map(|event| event["message"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_go_with_the_launch_and_change_while_it_runs() {
    let (cloud, machine) = cloud().await;
    let network = |forbidden: &str, secret: Option<&str>| {
        json!({"forbiddenDomains": [forbidden], "proxy": {
            "allowedDomains": ["*.example"], "bypass": ["b.example"], "routing": routing(secret)}})
    };
    cloud.post("/v0/sandboxes", with_network(network("x.example", Some("s3cret")))).await.ok();
    let [launch] = &machine.until_launched(1).await[..] else { panic!("one is enough") };
    let wanted = |forbidden: &str| EgressRules {
        allowed_domains: vec!["*.example".into()],
        forbidden_domains: vec![forbidden.into()],
        bypass: vec!["b.example".into()],
        routing: vec![target("s3cret")],
        ..EgressRules::default()
    };
    assert_eq!(launch.egress, wanted("x.example"));
    assert!(!format!("{launch:?} {:?}", launch.egress).contains("s3cret"));

    // The machine has been told by the time the change is answered, including the secrets that the
    // change left out, and no new instance was launched.
    let answered = cloud.put(ONE, with_network(network("y.example", None))).await;
    let version = answered.headers["etag"].to_str().unwrap().to_owned();
    let answered = answered.ok();
    let told = machine.told.borrow().clone();
    assert_eq!(told, [(launch.instance.clone(), wanted("y.example"))]);
    assert_eq!(network_events(&answered).len(), 1, "{answered}");
    assert!(answered.get("errors").is_none(), "{answered}");
    assert_eq!(cloud.get(ONE).await.headers["etag"].to_str().unwrap(), version);

    // A write that changes nothing tells the machine nothing; the version in the answer is the one
    // to change.
    let same = with_network(network("y.example", None));
    let held = [("if-match", version.as_str())];
    cloud.call_with(Method::PUT, ONE, &held, Some(same)).await.ok();
    assert_eq!(machine.told.borrow().len(), 1);

    let open = cloud.put(ONE, with_network(json!({}))).await.ok();
    assert_eq!(machine.told.borrow()[1].1, EgressRules::default());
    assert_eq!(network_events(&open).len(), 2);
    assert_eq!(machine.launched.borrow().len(), 1, "it is the same instance");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_cannot_is_no_success_and_is_told_again() {
    let (mut cloud, machine) = cloud().await;
    cloud.post("/v0/sandboxes", with_network(json!({}))).await.ok();
    machine.set_deaf(true);
    let closed = with_network(json!({"firewall": {"rulesets": ["proxy"]}}));
    let answer = cloud.put(ONE, closed).await;
    assert_eq!(answer.body["error"], "NETWORK_NOT_IN_EFFECT", "{}", answer.body);
    assert!(answer.refused(500).contains("its firewall is broken"));
    let known = cloud.get(ONE).await.ok();
    assert_eq!(known["spec"]["network"]["firewall"]["rulesets"], json!(["proxy"]));
    machine.set_deaf(false);
    let told = machine.until_told(1).await;
    assert!(told[0].1.proxy_only);
    cloud.until(ONE, |_| true).await;

    // The same holds if the program ends in between.
    machine.set_deaf(true);
    cloud.put(ONE, with_network(json!({}))).await.refused(500);
    let before = machine.told.borrow().len();
    cloud.restart_on(machine.clone()).await;
    machine.set_deaf(false);
    let told = machine.until_told(before + 1).await;
    assert_eq!(told.last().unwrap().1, EgressRules::default(), "it was opened, and is open");
}

/// The background reads the row while the caller still waits for the instance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_launched_with_its_rules_is_not_told_them_again() {
    let (cloud, machine) = cloud().await;
    machine.set_held(true);
    let made = cloud.post("/v0/sandboxes", with_network(json!({"allowedDomains": ["a.example"]})));
    let others = async {
        let [launch] = &machine.until_launched(1).await[..] else { panic!("one is enough") };
        let instance = launch.instance.clone();
        // A launch by the background shows that it has read the rows before.
        let runtime = json!({"image": IMAGE, "minScale": 1});
        let agent = json!({"metadata": {"name": "a"}, "spec": {"runtime": runtime}});
        cloud.post("/v0/agents", agent).await.ok();
        machine.until_launched(2).await;
        machine.set_held(false);
        instance
    };
    let (made, instance) = tokio::join!(made, others);
    made.ok();
    // This waits until nobody is working on the sandbox.
    cloud.put(ONE, with_network(json!({"allowedDomains": ["b.example"]}))).await.ok();
    let told = machine.told.borrow().clone();
    let lists = told.iter().map(|(who, rules)| (who, rules.allowed_domains.concat()));
    assert_eq!(lists.collect::<Vec<_>>(), [(&instance, "b.example".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_lives_on_is_told_again_by_the_next_run_of_the_program() {
    let (mut cloud, machine) = cloud().await;
    cloud.post("/v0/sandboxes", with_network(json!({"allowedDomains": ["a.example"]}))).await.ok();
    cloud.post("/v0/sandboxes", sandbox("two", json!({"network": {"proxy": {}}}))).await.ok();
    let agent = json!({"metadata": {"name": "a"}, "spec": {"runtime": {"image": IMAGE, "minScale": 1},
        "network": {"proxy": {"forbiddenDomains": ["x.example"]}}}});
    cloud.post("/v0/agents", agent).await.ok();
    cloud.until("/v0/agents/a", |agent| agent["status"] == "DEPLOYED").await;
    assert!(machine.told.borrow().is_empty(), "what was launched keeps to its rules already");
    cloud.restart_on(machine.clone()).await;
    let told = machine.until_told(2).await;
    let lists = told
        .iter()
        .map(|(_, rules)| (rules.allowed_domains.concat(), rules.forbidden_domains.concat()));
    let lists: std::collections::BTreeSet<_> = lists.collect();
    let wanted = [("a.example".to_owned(), String::new()), (String::new(), "x.example".to_owned())];
    assert_eq!(lists, wanted.into(), "and nobody else");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_that_runs_keeps_to_rules() {
    let (cloud, machine) = cloud().await;
    let network =
        json!({"proxy": {"allowedDomains": ["a.example"], "routing": routing(Some("s3cret"))}});
    let runtime = json!({"image": IMAGE, "minScale": 1});
    let bodies = [
        ("/v0/agents", json!({"runtime": runtime, "network": network})),
        ("/v0/functions", json!({"runtime": runtime, "network": network})),
        ("/v0/applications", json!({"image": IMAGE, "network": network})),
        ("/v0/jobs", json!({"runtime": {"image": IMAGE}, "network": network})),
    ];
    for (path, spec) in bodies {
        let body = |spec: &Value| json!({"metadata": {"name": "one"}, "spec": spec});
        let launches = |launched: &[Launch]| launched.iter().filter(|it| it.work.is_some()).count();
        let before = launches(&machine.launched.borrow());
        let made = cloud.post(path, body(&spec)).await.ok();
        let secrets = "/spec/network/proxy/routing/0/secrets/key";
        assert_eq!(made.pointer(secrets), Some(&json!("s3cret")), "{path}: shown when it is made");
        let item = format!("{path}/one");
        for query in ["", "?show_secrets=true"] {
            let read = cloud.get(&format!("{item}{query}")).await.ok();
            assert!(read.pointer(secrets).is_none() && !read.to_string().contains("s3cret"));
        }
        if path == "/v0/jobs" {
            let tasks = json!({"tasks": [{}]});
            cloud.post("/v0/jobs/one/executions", tasks).await.ok();
        }
        let launched = machine.until(|launched| launches(launched) > before).await;
        let launch = launched.iter().rev().find(|launch| launch.work.is_some()).unwrap();
        assert_eq!(launch.egress.allowed_domains, ["a.example"], "{path}");
        assert_eq!(launch.egress.routing, [target("s3cret")], "{path}");
        // Another network means another revision; the same network does not.
        let revision = |object: &Value| object["spec"]["revision"]["active"].clone();
        let same = cloud.put(&item, cloud.get(&item).await.ok()).await.ok();
        assert_eq!(revision(&same), revision(&made), "{path}");
        let mut other = spec.clone();
        other["network"] = json!({"proxy": {"forbiddenDomains": ["b.example"]}});
        let other = cloud.put(&item, body(&other)).await.ok();
        assert_ne!(revision(&other), revision(&made), "{path}");
        cloud.delete(&item).await.ok();
        let dedicated = json!({"network": {"egress": {"gateway": "out"}}});
        cloud.post(path, body(&dedicated)).await.refused(400);
    }
}

async fn gateway(cloud: &Cloud, name: &str) {
    let gateway = json!({"metadata": {"name": name}, "spec": {"region": "local"}});
    cloud.post(GATEWAYS, gateway).await.ok();
}

fn ip(name: &str, family: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"ipFamily": family}})
}

fn behind(gateway: &str) -> Value {
    with_network(json!({"egress": {"mode": "dedicated", "gateway": gateway}}))
}

fn source(rules: &EgressRules) -> Vec<String> {
    rules.source.iter().map(IpAddr::to_string).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_leaves_with_the_addresses_of_its_gateway() {
    let (cloud, machine) = cloud().await;
    gateway(&cloud, "out").await;
    let ips = format!("{GATEWAYS}/out/ips");
    let message = cloud.post("/v0/sandboxes", behind("out")).await.refused(400);
    assert!(message.contains("has no address"), "{message}");
    let first = cloud.post(&ips, ip("a", "IPv4")).await.ok();
    assert_eq!(first["spec"]["publicIp"], "192.0.2.16");
    cloud.post("/v0/sandboxes", behind("out")).await.ok();
    cloud.until(ONE, |one| one["status"] == "DEPLOYED").await;
    let launched = machine.until_launched(1).await;
    assert_eq!(source(&launched[0].egress), ["192.0.2.16"]);

    // A second address of a family changes nothing for running instances; the first of another
    // family is used.
    cloud.post(&ips, ip("b", "IPv4")).await.ok();
    cloud.post(&ips, ip("c", "IPv6")).await.ok();
    let told = machine.until_told(1).await;
    assert_eq!(source(&told[0].1), ["192.0.2.16", "2001:db8::10"]);
    let one = cloud.get(ONE).await.ok();
    assert_eq!(network_events(&one), ["the gateway `out` has the address 2001:db8::10"]);
    for (used, status) in [("a", 409), ("c", 409), ("b", 200)] {
        assert_eq!(cloud.delete(&format!("{ips}/{used}")).await.status.as_u16(), status, "{used}");
    }
    let out = cloud.get(&format!("{GATEWAYS}/out")).await.ok();
    let noted = out["events"].as_array().unwrap().iter().filter(|it| it["type"] == "address");
    assert_eq!(noted.count(), 4, "{out}");

    // The gateway is fixed: if omitted it stays, and another one is refused.
    let kept = cloud.put(ONE, with_network(json!({"allowedDomains": ["a.example"]}))).await.ok();
    assert_eq!(kept["spec"]["network"]["egress"]["gateway"], "out");
    let told = machine.until_told(2).await;
    assert_eq!(source(&told[1].1), ["192.0.2.16", "2001:db8::10"]);
    gateway(&cloud, "other").await;
    cloud.put(ONE, behind("other")).await.refused(400);
    cloud.delete(&format!("{GATEWAYS}/out")).await.refused(409);
    cloud.delete(ONE).await.ok();
    cloud.delete(&format!("{GATEWAYS}/out")).await.ok();
}

#[tokio::test]
async fn an_address_has_one_holder_and_rests_before_another_workspace_gets_it() {
    for cloud in Cloud::on_both().await {
        let (other, _) = cloud.stranger("other@example.com").await;
        other.post("/v0/workspaces", json!({"name": "theirs"})).await.ok();
        gateway(&cloud, "out").await;
        let gateway = json!({"metadata": {"name": "out"}, "spec": {"region": "local"}});
        other.post(GATEWAYS, gateway).await.ok();
        let ips = format!("{GATEWAYS}/out/ips");
        let shown = |made: Value| made["spec"]["publicIp"].as_str().unwrap().to_owned();
        assert_eq!(shown(cloud.post(&ips, ip("a", "IPv4")).await.ok()), "192.0.2.16");
        assert_eq!(shown(other.post(&ips, ip("a", "IPv4")).await.ok()), "192.0.2.17");
        // A taken name uses up no address.
        other.post(&ips, ip("a", "IPv4")).await.refused(409);
        cloud.delete(&format!("{ips}/a")).await.ok();
        assert_eq!(shown(other.post(&ips, ip("b", "IPv4")).await.ok()), "192.0.2.18");
        assert_eq!(shown(cloud.post(&ips, ip("b", "IPv4")).await.ok()), "192.0.2.16");
        cloud.delete(&format!("{ips}/b")).await.ok();
        cloud.clock.advance_s(61);
        assert_eq!(shown(other.post(&ips, ip("c", "IPv4")).await.ok()), "192.0.2.16");
        for name in ["d", "e", "f", "g", "h"] {
            cloud.post(&ips, ip(name, "IPv4")).await.ok();
        }
        let message = cloud.post(&ips, ip("i", "IPv4")).await.refused(409);
        assert!(message.contains("egress.addresses"), "{message}");
        // A gateway that is removed gives back all of its addresses, and so does a VPC.
        cloud.delete(&format!("{GATEWAYS}/out")).await.ok();
        cloud.clock.advance_s(61);
        assert_eq!(shown(other.post(&ips, ip("i", "IPv4")).await.ok()), "192.0.2.19");
        assert_eq!(cloud.get("/v0/egressips").await.ok(), json!([]));
    }
}

#[tokio::test]
async fn one_workspace_leaves_addresses_for_others() {
    let cloud = Cloud::start().await;
    gateway(&cloud, "out").await;
    let ips = format!("{GATEWAYS}/out/ips");
    for name in ["a", "b", "c", "d", "e", "f"] {
        let family = if name < "d" { "IPv4" } else { "IPv6" };
        cloud.post(&ips, ip(name, family)).await.ok();
    }
    let message = cloud.post(&ips, ip("g", "IPv4")).await.refused(409);
    assert!(message.contains("6 egress addresses"), "{message}");
    let (other, _) = cloud.stranger("other@example.com").await;
    other.post("/v0/workspaces", json!({"name": "theirs"})).await.ok();
    let body = json!({"metadata": {"name": "out"}, "spec": {"region": "local"}});
    other.post(GATEWAYS, body).await.ok();
    other.post(&ips, ip("a", "IPv4")).await.ok();
    cloud.delete(&format!("{ips}/f")).await.ok();
    cloud.post(&ips, ip("g", "IPv4")).await.ok();
}

#[tokio::test]
async fn gateways_that_cannot_be_meant_are_refused() {
    let mut both = settings();
    both.regions.push(Region { name: Some("far".into()), ..Region::default() });
    let cloud = Cloud::start_with(both).await;
    gateway(&cloud, "out").await;
    cloud.post(&format!("{GATEWAYS}/out/ips"), ip("a", "IPv4")).await.ok();
    let far = sandbox("one", json!({"region": "far", "network": {"egress": {"gateway": "out"}}}));
    let message = cloud.post("/v0/sandboxes", far).await.refused(400);
    assert!(message.contains("is in the region `local`"), "{message}");
    cloud.post("/v0/vpcs", json!({"metadata": {"name": "b"}, "spec": {}})).await.ok();
    let twin = json!({"metadata": {"name": "out"}, "spec": {"region": "local"}});
    let message = cloud.post("/v0/vpcs/b/egressgateways", twin).await.refused(409);
    assert!(message.contains("`default`"), "{message}");
    for network in [
        json!({"egress": {"mode": "shared", "gateway": "out"}}),
        json!({"egress": {"gateway": "out", "policies": [{"name": "p"}]}}),
        json!({"firewall": {"rulesets": ["dedicated-ip"]}}),
        json!({"egress": {"mode": "dedicated", "gateway": ""}}),
    ] {
        cloud.post("/v0/sandboxes", with_network(network.clone())).await.refused(400);
    }
    let ruled = json!({"firewall": {"rulesets": ["dedicated-ip"]}, "egress": {"gateway": "out"}});
    cloud.post("/v0/sandboxes", with_network(ruled)).await.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_a_vpc_are_told_where_they_are_if_it_says_so() {
    let (cloud, machine) = cloud().await;
    let vpc = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    let made = cloud.post("/v0/vpcs", vpc("net", json!({"reachable": true, "a": 1}))).await.ok();
    assert_eq!(made["spec"], json!({"reachable": true, "a": 1}));
    cloud.post("/v0/vpcs", vpc("apart", json!({}))).await.ok();
    cloud.post("/v0/vpcs", vpc("odd", json!({"reachable": "yes"}))).await.refused(400);
    let message = cloud.post("/v0/sandboxes", sandbox("x", json!({"vpc": "none"}))).await;
    assert!(message.refused(400).contains("spec.vpc"));
    for (name, vpc) in [("one", "net"), ("two", "net"), ("three", "apart"), ("four", "default")] {
        cloud.post("/v0/sandboxes", sandbox(name, json!({"vpc": vpc}))).await.ok();
    }
    let launched = machine.until_launched(4).await;
    let members: Vec<_> = launched.iter().filter_map(|launch| launch.egress.vpc.clone()).collect();
    let [one, two] = &members[..] else { panic!("{members:?}") };
    assert_eq!((one.vpc_name.as_str(), &one.vpc), ("net", &two.vpc));
    let mut hosts = [&one.host, &two.host];
    hosts.sort();
    assert_eq!(hosts, ["one", "two"]);
    cloud.delete("/v0/vpcs/net").await.refused(409);
    for name in ["one", "two"] {
        cloud.delete(&format!("/v0/sandboxes/{name}")).await.ok();
    }
    cloud.delete("/v0/vpcs/net").await.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_rules_did_is_a_log_of_the_workload() {
    let (cloud, machine) = cloud().await;
    cloud.post("/v0/sandboxes", with_network(json!({"allowedDomains": ["a.example"]}))).await.ok();
    let instance = machine.until_launched(1).await[0].instance.clone();
    let event = |decision, host: &str, rule: &str| EgressEvent {
        at: Timestamp::from_ms(1_776_300_000_000),
        instance: instance.clone(),
        decision,
        host: host.to_owned(),
        port: 443,
        method: Some("GET".to_owned()),
        path: Some("/a\nb".to_owned()),
        rule: rule.to_owned(),
        injected: vec!["header authorization".to_owned()],
        left_out: 0,
    };
    machine.happened(event(EgressDecision::Blocked, "evil.example", "allowedDomains"));
    machine.happened(event(EgressDecision::Injected, "api.example", "routing[0]"));
    machine.happened(event(EgressDecision::Failed, "down.example", "proxy"));
    let logs = |query: &str| {
        format!(
            "/v0/observability/logs?resourceType=sandboxes&workloadIds=one&start=2026-04-15T00:00:00&end=2026-04-17T00:00:00{query}"
        )
    };
    cloud.until(&logs(""), |answer| answer["one"]["totalCount"] == 3).await;
    // A second batch continues where the first has ended.
    machine.happened(event(EgressDecision::Blocked, "worse.example", "allowedDomains"));
    cloud.until(&logs(""), |answer| answer["one"]["totalCount"] == 4).await;
    for (query, host, severity) in [
        ("&severity=WARNING&search=EVIL", "evil.example", 13),
        ("&severity=INFO", "api.example", 9),
        ("&severity=ERROR", "down.example", 17),
        ("&search=worse", "worse.example", 13),
    ] {
        let found = cloud.get(&logs(query)).await.ok();
        assert_eq!(found["one"]["totalCount"], 1, "{query}: {found}");
        let line = &found["one"]["logs"][0];
        assert_eq!(line["severity"], severity, "{line}");
        let told: Value = serde_json::from_str(line["message"].as_str().unwrap()).unwrap();
        assert_eq!((&told["host"], &told["path"]), (&json!(host), &json!("/a\nb")));
    }
    let (other, _) = cloud.stranger("other@example.com").await;
    other.post("/v0/workspaces", json!({"name": "theirs"})).await.ok();
    assert_eq!(other.get(&logs("")).await.ok()["one"]["totalCount"], 0);
}

#[tokio::test]
async fn public_addresses_are_those_that_the_operator_has() {
    let cloud = Cloud::start().await;
    let pool = json!({"local": {"description": "addresses of egress gateways",
        "ipv4Cidrs": ["192.0.2.16/29"], "ipv6Cidrs": ["2001:db8::10/124"]}});
    assert_eq!(cloud.get("/v0/publicIps").await.ok(), pool);
    assert_eq!(cloud.get("/v0/publicIps?region=moon").await.ok(), json!({}));
    let mut told = settings();
    let shared = types::wire::PublicIp {
        ipv4_cidrs: Some(vec!["198.51.100.1/32".into()]),
        ..Default::default()
    };
    told.catalogue.public_ips = [("local".to_owned(), shared)].into();
    let cloud = Cloud::start_with(told).await;
    let answer = cloud.get("/v0/publicIps").await.ok();
    assert_eq!(answer, json!({"local": {"ipv4Cidrs": ["198.51.100.1/32"]}}));
    let none = control::Settings { egress: control::Egress::default(), ..settings() };
    let cloud = Cloud::start_with(none).await;
    assert_eq!(cloud.get("/v0/publicIps").await.ok(), json!({}));
    gateway(&cloud, "out").await;
    // If there are no addresses to give, the row says so.
    let made = cloud.post(&format!("{GATEWAYS}/out/ips"), ip("a", "IPv6")).await.ok();
    assert_eq!((&made["status"], &made["spec"]["publicIp"]), (&json!("FAILED"), &Value::Null));
    assert!(made["events"].to_string().contains("`egress.addresses`"), "{made}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_must_leave_with_its_own_addresses_is_forked_to_a_sandbox() {
    let snapshots = crate::common::snapshots::PretendedSnapshots::new(1000);
    let machine = Pretended::new(|_| Ok(Outcome::SUCCESS)).with_snapshots(&snapshots);
    let cloud = Cloud::start_on_machine(Arc::new(machine), settings()).await;
    gateway(&cloud, "out").await;
    cloud.post(&format!("{GATEWAYS}/out/ips"), ip("a", "IPv4")).await.ok();
    let ruled = json!({"firewall": {"rulesets": ["dedicated-ip"]}, "egress": {"gateway": "out"}});
    cloud.post("/v0/sandboxes", with_network(ruled)).await.ok();
    cloud.until(ONE, |one| one["status"] == "DEPLOYED").await;
    let fork = |kind: &str| json!({"targetType": kind, "targetName": "fork"});
    let message = cloud.post(&format!("{ONE}/fork"), fork("application")).await.refused(400);
    assert!(message.contains("`targetType` must be `sandbox`"), "{message}");
    cloud.post(&format!("{ONE}/fork"), fork("sandbox")).await.ok();
}

/// Whatever has the files of a sandbox may not reach more than the sandbox.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_takes_the_rules_along() {
    let snapshots = crate::common::snapshots::PretendedSnapshots::new(1000);
    let machine = Pretended::new(|_| Ok(Outcome::SUCCESS)).with_snapshots(&snapshots);
    let machine = Arc::new(machine);
    let cloud = Cloud::start_on_machine(machine.clone() as Arc<dyn Machine>, settings()).await;
    let network =
        json!({"proxy": {"allowedDomains": ["a.example"], "routing": routing(Some("s3cret"))}});
    cloud.post("/v0/sandboxes", with_network(network)).await.ok();
    for (kind, name) in [("sandbox", "twin"), ("application", "shop")] {
        let fork = json!({"targetType": kind, "targetName": name});
        cloud.post(&format!("{ONE}/fork"), fork).await.ok();
    }
    let of = |name: &'static str| move |launch: &&Launch| launch.hostname == name;
    let has = |name| move |launched: &[Launch]| launched.iter().any(|it| of(name)(&it));
    for name in ["twin", "shop"] {
        let launched = machine.until(has(name)).await;
        let fork = launched.iter().find(of(name)).unwrap();
        assert_eq!(fork.egress, launched[0].egress, "{name}");
        assert_eq!(fork.egress.routing, [target("s3cret")], "{name}");
    }
    let application = cloud.get("/v0/applications/shop").await.ok();
    let lists = "/spec/network/proxy/allowedDomains/0";
    assert_eq!(application.pointer(lists), Some(&json!("a.example")), "{application}");

    let taken = cloud.post(&format!("{ONE}/snapshots"), json!({"name": "s"})).await.ok();
    let restore = format!("{ONE}/snapshots/{}/restore", taken["id"].as_str().unwrap());
    cloud.post(&restore, json!({})).await.ok();
    let again = |launched: &[Launch]| launched.iter().filter(of("one")).count() == 2;
    let launched = machine.until(again).await;
    let again = launched.iter().rev().find(of("one")).unwrap();
    assert_eq!(again.egress, launched[0].egress);
}
