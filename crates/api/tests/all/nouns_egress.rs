//! What workloads may reach: how rules get to the machine, and the log.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common::machine::{IMAGE, Pretended};
use crate::common::{Cloud, settings};
use control::machine::{Launch, Machine};
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use types::Timestamp;
use types::egress::{EgressDecision, EgressEvent, EgressRules};
use types::instance::Outcome;
use types::kinds::network::ProxyTarget;
use types::parts::Sensitive;

pub(crate) const ONE: &str = "/v0/sandboxes/one";
pub(crate) async fn cloud() -> (Cloud, Arc<Pretended>) {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)));
    (Cloud::start_on_machine(machine.clone(), settings()).await, machine)
}

pub(crate) fn sandbox(name: &str, more: Value) -> Value {
    let mut spec = json!({"runtime": {"image": IMAGE}});
    for (member, value) in more.as_object().unwrap() {
        spec[member] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

pub(crate) fn with_network(network: Value) -> Value {
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

pub(crate) fn network_events(object: &Value) -> Vec<&str> {
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
