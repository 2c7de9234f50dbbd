//! Egress gateways: the addresses with which sandboxes leave, and whose they are.

use crate::common::machine::Pretended;
use crate::common::{Cloud, settings};
use crate::nouns_egress::{ONE, cloud, network_events, sandbox, with_network};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use types::egress::EgressRules;
use types::instance::Outcome;
use types::wire::Region;

const GATEWAYS: &str = "/v0/vpcs/default/egressgateways";

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
