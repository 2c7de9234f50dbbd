//! Applications: the hosts at which they answer, and those that stand for a port of a sandbox.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_answers_at_hosts_that_nobody_else_has() {
    let (cloud, machine) = cloud().await;
    cloud
        .post("/v0/customdomains", json!({"metadata": {"name": "apps.example"}, "spec": {}}))
        .await
        .ok();
    let urls = json!([{"domain": "apps.example", "subdomain": "shop"}]);
    let body = |name: &str| json!({"metadata": {"name": name}, "spec": {"image": IMAGE, "port": 9000, "urls": urls}});
    cloud.post("/v0/applications", body("one")).await.ok();
    let object = cloud.until("/v0/applications/one", is("DEPLOYED")).await;
    assert_eq!(object["metadata"]["url"], "http://localhost:8081/-/app-one-main");
    let route = cloud.routes.until("one", |route| replicas(route).len() == 1).await;
    assert_eq!(
        (route.label.as_deref(), route.public, route.port),
        (Some("one-main"), true, Some(9000))
    );
    assert!(route.hosts.is_empty(), "the domain is not verified");
    assert_eq!(variable(&machine.until_launched(1).await[0], "PORT").as_deref(), Some("9000"));

    cloud
        .tell(types::KindName::CustomDomain, "", "apps.example", json!({"status": "verified"}))
        .await;
    cloud.routes.until("one", |route| route.hosts == ["shop.apps.example"]).await;
    cloud.post("/v0/applications", body("two")).await.refused(409);
    cloud.delete("/v0/applications/one").await.ok();
    cloud.post("/v0/applications", body("two")).await.ok();
    cloud.routes.until("two", |route| route.hosts == ["shop.apps.example"]).await;
    let spoilt = json!({"metadata": {"name": "three"}, "spec": {"image": IMAGE, "port": 65080}});
    cloud.post("/v0/applications", spoilt).await.refused(400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_domain_of_one_application_leads_to_it() {
    let (cloud, _) = cloud().await;
    let shop = json!({"metadata": {"name": "shop"}, "spec": {"image": IMAGE}});
    cloud.post("/v0/applications", shop).await.ok();
    let domain = |spec: Value| json!({"metadata": {"name": "apps.example"}, "spec": spec});
    let path = "/v0/applications/shop/customdomains";
    let made = cloud.post(path, domain(json!({}))).await.ok();
    assert_eq!(made["spec"]["fallbackPreviewId"], "shop");
    let verified = json!({"status": "verified"});
    cloud.tell(types::KindName::CustomDomain, "", "apps.example", verified).await;
    let to_shop = Fallback::Application { workspace_name: "main".into(), name: "shop".into() };
    cloud
        .routes
        .until_domain("apps.example", |route| route.fallback.as_ref() == Some(&to_shop))
        .await;
    let path = "/v0/customdomains/apps.example";
    let message = cloud.put(path, domain(json!({"fallbackPreviewId": "none"}))).await.refused(400);
    assert!(message.contains("names no application"), "{message}");
    cloud.put(path, domain(json!({"fallbackPreviewId": ""}))).await.ok();
    cloud.routes.until_domain("apps.example", |route| route.fallback.is_none()).await;
}

fn bound(sandbox: &str, port: impl Into<Value>) -> Value {
    json!({"metadata": {"name": "shop"}, "spec": {"port": port.into(),
        "extensions": {"ai.blaxel.experimental/bind-to-sandbox": {"sandbox": sandbox}}}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_stands_for_a_port_of_a_sandbox() {
    let (cloud, machine) = cloud().await;
    let sandbox = json!({"metadata": {"name": "box"}, "spec": {"runtime": {"image": IMAGE}}});
    cloud.post("/v0/sandboxes", sandbox).await.ok();
    let mut made = bound("box", 3000);
    cloud.post("/v0/applications", made.clone()).await.ok();
    let object = cloud.until("/v0/applications/shop", is("DEPLOYED")).await;
    assert_eq!(last_message(&object), "port 3000 of the sandbox `box` answers");
    let stands = |route: &WorkloadRoute| route.serving == Serving::Sandbox("box".into());
    assert_eq!(cloud.routes.until("shop", stands).await.port, Some(3000));
    assert_eq!(machine.until_launched(1).await.len(), 1, "the sandbox alone");

    // Without it, its own program serves, as soon as that listens.
    let own = json!({"metadata": {"name": "shop"}, "spec": {"image": IMAGE, "port": 9000}});
    cloud.put("/v0/applications/shop", own).await.ok();
    let route = cloud.routes.until("shop", |route| replicas(route).len() == 1).await;
    assert_eq!(route.port, Some(9000));
    let replica = replicas(&route).remove(0);
    made["spec"]["image"] = json!(IMAGE);
    cloud.put("/v0/applications/shop", made.clone()).await.ok();
    cloud.routes.until("shop", stands).await;
    machine.until_retired(&replica).await;
    made["spec"]["enabled"] = json!(false);
    cloud.put("/v0/applications/shop", made).await.ok();
    let off = |route: &WorkloadRoute| matches!(route.serving, Serving::Off { .. });
    cloud.routes.until("shop", off).await;
}

#[tokio::test]
async fn what_an_application_cannot_stand_for_is_refused() {
    let cloud = Cloud::start().await;
    cloud.post("/v0/sandboxes", json!({"metadata": {"name": "box"}, "spec": {}})).await.ok();
    let spec = |spec: Value| json!({"metadata": {"name": "shop"}, "spec": spec});
    let bind = "ai.blaxel.experimental/bind-to-sandbox";
    let mut canary = bound("box", 3000);
    canary["spec"]["revision"] = json!({"canary": "r", "canaryPercent": 10});
    for (body, why) in [
        (bound("box", 8080), "the interface of the sandbox itself"),
        (bound("box", Value::Null), "the interface of the sandbox itself"),
        (bound("", 3000), "must name a sandbox"),
        (bound("none", 3000), "names the sandbox `none`, which does not exist"),
        (canary, "not with a sandbox"),
        (spec(json!({"proxy": true})), "does not say where to"),
        (spec(json!({"extensions": {"other": {}}})), bind),
    ] {
        let answer = cloud.post("/v0/applications", body.clone()).await;
        assert_eq!(answer.status, 400, "{body}");
        assert!(answer.text.contains(why), "{body}: {}", answer.text);
    }
    cloud.get("/v0/applications/shop").await.refused(404);
    // A sandbox of another workspace does not exist here.
    cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
    cloud.post("/v0/applications?workspace=team", bound("box", 3000)).await.refused(400);
}
