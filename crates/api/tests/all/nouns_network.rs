//! Custom domains, VPCs, egress gateways and their addresses.

use crate::common::Cloud;
use http::Method;
use serde_json::{Value, json};
use types::KindName;

const DOMAIN: &str = "/v0/customdomains/example.com";

fn domain(spec: Value) -> Value {
    json!({"metadata": {"name": "example.com"}, "spec": spec})
}

/// Sets up two workspaces, of which `main` has a domain.
async fn two_workspaces(cloud: &Cloud) {
    cloud.post("/v0/customdomains", domain(json!({"domainType": "previews"}))).await.ok();
    cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
}

async fn share(cloud: &Cloud, target: &str, status: u16) {
    let answer = cloud
        .post(&format!("{DOMAIN}/share?workspace=main"), json!({"targetWorkspace": target}))
        .await;
    assert_eq!(answer.status, status, "{}", answer.body);
}

#[tokio::test]
async fn a_domain_says_what_proves_it_and_waits_for_the_proof() {
    let cloud = Cloud::start().await;
    let made = cloud.post("/v0/customdomains", domain(json!({"type": "applications"}))).await.ok();
    let spec = &made["spec"];
    assert_eq!(
        (&spec["status"], &spec["domainType"]),
        (&json!("pending"), &json!("applications")),
        "{made}"
    );
    assert!(
        spec["txtRecords"]["_holm-challenge.example.com"].as_str().unwrap().len() > 32,
        "{made}"
    );
    assert!(spec["cnameRecords"].is_string());
    cloud.call(Method::POST, "/v0/customdomains/none.example/verify", None).await.refused(404);
    for bad in ["nodots", "UPPER.example", "-x.example", "a b.example", "x..example"] {
        cloud
            .post("/v0/customdomains", json!({"metadata": {"name": bad}, "spec": {}}))
            .await
            .refused(400);
    }
    let sent =
        json!({"status": "verified", "txtRecords": {"a": "b"}, "domainType": "applications"});
    let kept = cloud.put(DOMAIN, domain(sent)).await.ok();
    assert_eq!(kept["spec"]["status"], "pending", "what is read-only is ignored");
    assert_eq!(kept["spec"]["txtRecords"], spec["txtRecords"]);
}

#[tokio::test]
async fn a_domain_may_be_named_in_the_spec_only() {
    let cloud = Cloud::start().await;
    let wish = json!({"spec": {"type": "previews", "domain": "example.com"}});
    let made = cloud.post("/v0/customdomains", wish.clone()).await.ok();
    assert_eq!(made["metadata"]["name"], "example.com", "{made}");
    assert!(made["spec"].get("domain").is_none(), "{made}");
    cloud.put(DOMAIN, wish).await.ok();
    let message =
        cloud.put(DOMAIN, json!({"spec": {"domain": "other.example"}})).await.refused(400);
    assert!(message.contains("`metadata.name`"), "{message}");
    cloud.put(DOMAIN, domain(json!({"domain": "example.com"}))).await.ok();
    let message = cloud.put(DOMAIN, domain(json!({"domain": "a.example"}))).await.refused(400);
    assert!(message.contains("`spec.domain`"), "{message}");
    cloud.post("/v0/customdomains", json!({"spec": {"domain": ""}})).await.refused(400);
}

/// The edge reads these as the server's own, whoever has proven what.
#[tokio::test]
async fn nobody_registers_the_servers_own_names_or_gets_a_host_there() {
    let mut settings = crate::common::settings();
    settings.own_names = ["localhost", "holm.example.com"].map(str::to_owned).into();
    let cloud = Cloud::start_with(settings).await;
    for own in ["holm.example.com", "web.preview.holm.example.com", "app.localhost"] {
        let body = json!({"metadata": {"name": own}, "spec": {}});
        let message = cloud.post("/v0/customdomains", body).await.refused(400);
        assert!(message.contains("are this server's own"), "{message}");
    }
    for near in ["aholm.example.com", "holm.example.com.example"] {
        let body = json!({"metadata": {"name": near}, "spec": {}});
        cloud.post("/v0/customdomains", body).await.ok();
    }
    // The domain above the server's name belongs to whoever has proven it, except for that name.
    cloud.post("/v0/customdomains", domain(json!({}))).await.ok();
    prove(&cloud).await;
    cloud.post("/v0/sandboxes", json!({"metadata": {"name": "one"}, "spec": {}})).await.ok();
    let preview = |prefix: &str| json!({"metadata": {"name": prefix}, "spec": {"port": 3000, "customDomain": "example.com", "prefixUrl": prefix}});
    let previews = "/v0/sandboxes/one/previews";
    let message = cloud.post(previews, preview("holm")).await.refused(400);
    assert!(message.contains("`spec.prefixUrl` asks for `holm.example.com`"), "{message}");
    cloud.post(previews, preview("web")).await.ok();
    let urls = json!([{"domain": "example.com", "subdomain": "holm"}]);
    let application = json!({"metadata": {"name": "shop"}, "spec": {"urls": urls}});
    let message = cloud.post("/v0/applications", application).await.refused(400);
    assert!(message.contains("`spec.urls[0]` asks for `holm.example.com`"), "{message}");
}

/// The domain belongs to whoever has proven it. Registration proves nothing, so it keeps nobody out
/// and is not revealed to anybody.
#[tokio::test]
async fn a_domain_is_of_the_workspace_that_proves_it() {
    for cloud in Cloud::on_both().await {
        two_workspaces(&cloud).await;
        let (other, _) = cloud.stranger("other@example.com").await;
        other.post("/v0/workspaces", json!({"name": "theirs"})).await.ok();
        other.post("/v0/customdomains", domain(json!({}))).await.ok();
        let team = "/v0/customdomains?workspace=team";
        cloud.post(team, domain(json!({}))).await.ok();
        let records =
            |made: Value| made["spec"]["txtRecords"]["_holm-challenge.example.com"].clone();
        let own = records(cloud.get(&format!("{DOMAIN}?workspace=main")).await.ok());
        assert_ne!(
            records(other.get(DOMAIN).await.ok()),
            own,
            "a record of its own for each workspace"
        );

        prove(&cloud).await;
        let theirs = other.call(Method::POST, &format!("{DOMAIN}/verify"), None).await.ok();
        assert_eq!(
            theirs["spec"]["status"], "failed",
            "the record of one workspace proves nothing for another"
        );
        // The first to be verified keeps it for as long as its record is there.
        let registered = records(cloud.get(&format!("{DOMAIN}?workspace=team")).await.ok());
        let verify_team = format!("{DOMAIN}/verify?workspace=team");
        let proof = "_holm-challenge.example.com";
        cloud.dns.add_text(proof, registered.as_str().unwrap_or_default());
        let message = cloud.call(Method::POST, &verify_team, None).await.refused(409);
        assert!(!message.contains("main") && message.contains("another workspace"), "{message}");
        assert_eq!(verify(&cloud).await["status"], "verified");
        cloud.dns.set_text(proof, registered.as_str().unwrap_or_default());
        assert_eq!(
            cloud.call(Method::POST, &verify_team, None).await.ok()["spec"]["status"],
            "verified"
        );
        let before = cloud.get(&format!("{DOMAIN}?workspace=main")).await.ok();
        assert_eq!(before["spec"]["status"], "failed", "its record is gone");
        assert_eq!(before["metadata"]["updatedBy"], "holm");
        other.delete(DOMAIN).await.ok();
        other.post("/v0/customdomains", domain(json!({}))).await.ok();
        other.delete(DOMAIN).await.ok();
        cloud.delete(&format!("{DOMAIN}?workspace=team")).await.ok();
        other.post("/v0/customdomains", domain(json!({}))).await.ok();
    }
}

#[tokio::test]
async fn what_is_only_registered_makes_room_for_what_is_shared() {
    let cloud = Cloud::start().await;
    two_workspaces(&cloud).await;
    cloud.post("/v0/customdomains?workspace=team", domain(json!({}))).await.ok();
    prove(&cloud).await;
    share(&cloud, "team", 200).await;
    let copy = cloud.get(&format!("{DOMAIN}?workspace=team")).await.ok();
    assert_eq!(
        (&copy["spec"]["status"], &copy["metadata"]["sharedFromWorkspace"]),
        (&json!("verified"), &json!("main"))
    );
}

/// A domain that moves to other people takes its hosts along.
#[tokio::test]
async fn a_host_goes_with_its_domain() {
    let cloud = Cloud::start().await;
    two_workspaces(&cloud).await;
    let preview = json!({"metadata": {"name": "web"}, "spec": {"port": 3000, "customDomain": "example.com", "prefixUrl": "web"}});
    for workspace in ["main", "team"] {
        let sandbox = json!({"metadata": {"name": "one"}, "spec": {}});
        cloud.post(&format!("/v0/sandboxes?workspace={workspace}"), sandbox).await.ok();
    }
    prove(&cloud).await;
    cloud.post("/v0/sandboxes/one/previews?workspace=main", preview.clone()).await.ok();
    cloud.dns.forget();
    verify(&cloud).await;
    let made = cloud.post("/v0/customdomains?workspace=team", domain(json!({}))).await.ok();
    let record = made["spec"]["txtRecords"]["_holm-challenge.example.com"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    cloud.dns.set_text("_holm-challenge.example.com", &record);
    cloud.call(Method::POST, &format!("{DOMAIN}/verify?workspace=team"), None).await.ok();
    cloud.post("/v0/sandboxes/one/previews?workspace=team", preview.clone()).await.ok();
    // The earlier preview stays without its host, and cannot take it back.
    cloud.put("/v0/sandboxes/one/previews/web?workspace=main", preview).await.refused(409);
}

/// Sets the record that proves the domain, and requests verification.
async fn prove(cloud: &Cloud) -> Value {
    let made = cloud.get(&format!("{DOMAIN}?workspace=main")).await.ok();
    for (name, text) in made["spec"]["txtRecords"].as_object().into_iter().flatten() {
        cloud.dns.set_text(name, text.as_str().unwrap_or_default());
    }
    verify(cloud).await
}

async fn verify(cloud: &Cloud) -> Value {
    cloud.call(Method::POST, &format!("{DOMAIN}/verify?workspace=main"), None).await.ok()["spec"]
        .clone()
}

#[tokio::test]
async fn a_domain_is_what_its_records_say() {
    for cloud in Cloud::on_both().await {
        two_workspaces(&cloud).await;
        let unproven = verify(&cloud).await;
        assert_eq!((&unproven["status"], unproven.get("lastVerifiedAt")), (&json!("failed"), None));
        assert!(
            unproven["verificationError"].as_str().unwrap().contains("has no TXT record"),
            "{unproven}"
        );
        let proven = prove(&cloud).await;
        assert_eq!(
            (&proven["status"], proven.get("verificationError")),
            (&json!("verified"), None),
            "{proven}"
        );
        assert!(proven["lastVerifiedAt"].is_string());
        share(&cloud, "team", 200).await;
        cloud
            .call(Method::POST, &format!("{DOMAIN}/verify?workspace=team"), None)
            .await
            .refused(403);
        cloud.dns.set_alias("*.example.com", "elsewhere.example");
        assert_eq!(verify(&cloud).await["status"], "failed");
        let copy = cloud.get(&format!("{DOMAIN}?workspace=team")).await.ok();
        assert_eq!(copy["spec"]["status"], "failed");
        let expected = "`*.example.com` leads to `elsewhere.example`; it should be a CNAME record for `domains.localhost`";
        assert_eq!(copy["spec"]["verificationError"], expected);
        cloud.dns.set_alias("*.example.com", "domains.localhost");
        assert_eq!(verify(&cloud).await["status"], "verified");
        assert_eq!(
            cloud.get(&format!("{DOMAIN}?workspace=team")).await.ok()["spec"]["status"],
            "verified"
        );
    }
}

#[tokio::test]
async fn silence_of_name_servers_takes_no_verified_domain_away() {
    let cloud = Cloud::start().await;
    two_workspaces(&cloud).await;
    prove(&cloud).await;
    cloud.dns.fall_silent();
    let kept = verify(&cloud).await;
    assert_eq!(kept["status"], "verified");
    assert!(kept["verificationError"].as_str().unwrap().contains("do not answer"), "{kept}");
    cloud.dns.forget();
    assert_eq!(verify(&cloud).await["status"], "failed");
    cloud.dns.fall_silent();
    assert_eq!(verify(&cloud).await["status"], "failed", "nor does it give one");
}

#[tokio::test]
async fn previews_answer_below_verified_domains_only_and_each_host_has_one() {
    let cloud = Cloud::start().await;
    two_workspaces(&cloud).await;
    let preview = |name: &str, prefix: &str| json!({"metadata": {"name": name}, "spec": {"port": 3000, "customDomain": "example.com", "prefixUrl": prefix}});
    for workspace in ["main", "team"] {
        let sandbox = json!({"metadata": {"name": "one"}, "spec": {}});
        cloud.post(&format!("/v0/sandboxes?workspace={workspace}"), sandbox).await.ok();
    }
    let (main, team) =
        ("/v0/sandboxes/one/previews?workspace=main", "/v0/sandboxes/one/previews?workspace=team");
    let message = cloud.post(main, preview("web", "web")).await.refused(400);
    assert!(message.contains("is not verified"), "{message}");
    prove(&cloud).await;
    let made = cloud.post(main, preview("web", "web")).await.ok();
    assert_eq!(made["spec"]["url"], "http://web.example.com:8080");
    cloud.post(team, preview("web", "web")).await.refused(400);
    share(&cloud, "team", 200).await;
    let message = cloud.post(team, preview("web", "web")).await.refused(409);
    assert_eq!(message, "the address `web.example.com` is taken; choose another prefix");
    cloud.post(&format!("{team}&force=true"), preview("web", "web")).await.refused(409);
    cloud.post(team, preview("other", "other")).await.ok();
    cloud.dns.forget();
    assert_eq!(verify(&cloud).await["status"], "failed");
    let kept = "/v0/sandboxes/one/previews/web?workspace=main";
    cloud.put(kept, preview("web", "web")).await.ok();
}

#[tokio::test]
async fn a_verified_domain_is_shared_and_taken_back() {
    for cloud in Cloud::on_both().await {
        two_workspaces(&cloud).await;
        share(&cloud, "team", 400).await;
        cloud.tell(KindName::CustomDomain, "", "example.com", json!({"status": "verified"})).await;
        share(&cloud, "nobody", 404).await;
        share(&cloud, "team", 200).await;
        share(&cloud, "team", 409).await;
        let targets = cloud.get(&format!("{DOMAIN}/share?workspace=main")).await.ok();
        assert_eq!(
            (&targets[0]["workspace"], &targets[0]["status"]),
            (&json!("team"), &json!("active"))
        );
        let there = format!("{DOMAIN}?workspace=team");
        let copy = cloud.get(&there).await.ok();
        assert_eq!(copy["metadata"]["sharedFromWorkspace"], "main");
        assert_eq!(copy["spec"]["status"], "verified");
        cloud.put(&there, domain(json!({}))).await.refused(403);
        cloud.delete(&there).await.refused(403);
        cloud.delete(&format!("{DOMAIN}/share/team?workspace=main")).await.ok();
        cloud.delete(&format!("{DOMAIN}/share/team?workspace=main")).await.refused(404);
        cloud.get(&there).await.refused(404);
        share(&cloud, "account", 200).await;
        cloud.get(&there).await.ok();
        cloud.delete(&format!("{DOMAIN}?workspace=main")).await.ok();
        cloud.get(&there).await.refused(404);
    }
}

#[tokio::test]
async fn unmatched_hosts_go_to_a_preview_of_the_same_workspace() {
    let cloud = Cloud::start().await;
    cloud.post("/v0/sandboxes", json!({"metadata": {"name": "one"}, "spec": {}})).await.ok();
    cloud
        .post(
            "/v0/sandboxes/one/previews",
            json!({"metadata": {"name": "web"}, "spec": {"port": 3000}}),
        )
        .await
        .ok();
    cloud
        .post("/v0/customdomains", domain(json!({"fallbackPreviewId": "none"})))
        .await
        .refused(400);
    let made =
        cloud.post("/v0/customdomains", domain(json!({"fallbackPreviewId": "web"}))).await.ok();
    assert_eq!(made["spec"]["fallbackPreviewId"], "web");
    let without = cloud.put(DOMAIN, domain(json!({"fallbackPreviewId": ""}))).await.ok();
    assert!(without["spec"].get("fallbackPreviewId").is_none(), "{without}");
}

#[tokio::test]
async fn an_application_registers_a_domain_of_its_kind() {
    let cloud = Cloud::start().await;
    let path = "/v0/applications/shop/customdomains";
    cloud.post(path, domain(json!({}))).await.refused(404);
    cloud.post("/v0/applications", json!({"metadata": {"name": "shop"}, "spec": {}})).await.ok();
    let made = cloud.post(path, domain(json!({"domainType": "previews"}))).await.ok();
    assert_eq!(made["spec"]["domainType"], "applications");
    assert_eq!(made["spec"]["fallbackPreviewId"], "shop");
    cloud.tell(KindName::CustomDomain, "", "example.com", json!({"status": "verified"})).await;
    cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
    share(&cloud, "team", 400).await;
}

#[tokio::test]
async fn the_default_vpc_stays() {
    let cloud = Cloud::start().await;
    let vpcs = cloud.get("/v0/vpcs").await.ok();
    assert_eq!(
        (vpcs.as_array().unwrap().len(), &vpcs[0]["metadata"]["name"]),
        (1, &json!("default"))
    );
    cloud.delete("/v0/vpcs/default").await.refused(400);
    cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
    cloud.get("/v0/vpcs/default?workspace=team").await.ok();
}

#[tokio::test]
async fn a_gateway_in_use_stays_and_takes_its_addresses_along() {
    for cloud in Cloud::on_both().await {
        let gateways = "/v0/vpcs/default/egressgateways";
        let gateway = json!({"metadata": {"name": "out"}, "spec": {"region": "local"}});
        cloud.post("/v0/vpcs/none/egressgateways", gateway.clone()).await.refused(404);
        let made = cloud.post(gateways, gateway).await.ok();
        assert_eq!(made["metadata"]["vpcName"], "default");
        cloud
            .post(gateways, json!({"metadata": {"name": "far"}, "spec": {"region": "moon"}}))
            .await
            .refused(400);
        cloud
            .post(gateways, json!({"metadata": {"name": "nowhere"}, "spec": {}}))
            .await
            .refused(400);
        let ip = json!({"metadata": {"name": "a"}, "spec": {"ipFamily": "IPv4"}});
        let ip = cloud.post(&format!("{gateways}/out/ips"), ip).await.ok();
        assert_eq!(
            (&ip["metadata"]["gatewayName"], &ip["metadata"]["vpcName"]),
            (&json!("out"), &json!("default"))
        );
        assert_eq!(cloud.get("/v0/egressips").await.ok(), json!([ip]));
        let leaves_by = |gateway: &str| {
            json!({"metadata": {"name": "one"},
            "spec": {"network": {"egress": {"mode": "dedicated", "gateway": gateway}}}})
        };
        cloud.post("/v0/sandboxes", leaves_by("none")).await.refused(400);
        assert_eq!(cloud.get("/v0/egressgateways/usage").await.ok(), json!({"out": []}));
        cloud.post("/v0/sandboxes", leaves_by("out")).await.ok();
        assert_eq!(cloud.get("/v0/egressgateways/usage").await.ok(), json!({"out": ["one"]}));
        cloud.delete(&format!("{gateways}/out")).await.refused(409);
        cloud.delete("/v0/sandboxes/one").await.ok();
        cloud.delete(&format!("{gateways}/out")).await.ok();
        assert_eq!(cloud.get("/v0/egressips").await.ok(), json!([]));
        assert_eq!(cloud.get("/v0/egressgateways").await.ok(), json!([]));
    }
}

/// Lists refuse to show a part. Rules ask precisely, so they also know what no list shows.
#[tokio::test]
async fn the_oldest_of_many_is_still_there_for_rules() {
    let mut settings = crate::common::settings();
    settings.bare_list_max = 1;
    let cloud = Cloud::start_with(settings).await;
    let named = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    let gateways = "/v0/vpcs/default/egressgateways";
    for gateway in ["oldest", "newest"] {
        cloud.post(gateways, named(gateway, json!({"region": "local"}))).await.ok();
        let ip = named("a", json!({"ipFamily": "IPv4"}));
        cloud.post(&format!("{gateways}/{gateway}/ips"), ip).await.ok();
    }
    cloud.get("/v0/egressgateways").await.refused(400);
    let egress = json!({"egress": {"mode": "dedicated", "gateway": "oldest"}});
    cloud.post("/v0/sandboxes", named("one", json!({"network": egress}))).await.ok();
    for preview in ["oldest", "newest"] {
        let preview = named(preview, json!({"port": 3000}));
        cloud.post("/v0/sandboxes/one/previews", preview).await.ok();
    }
    cloud.post("/v0/customdomains", domain(json!({"fallbackPreviewId": "oldest"}))).await.ok();
}
