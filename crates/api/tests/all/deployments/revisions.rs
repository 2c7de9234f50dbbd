//! What the lists of revisions say, and that what they say can be sent back.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_serves_has_the_requests_while_later_revisions_fail() {
    let (cloud, _) = cloud().await;
    let first = active(&deployed(&cloud, agent(&env("V", "1"))).await);
    let mut newest = first.clone();
    for value in ["one", "two"] {
        cloud.put("/v0/agents/a", agent(&env("SILENT", value))).await.ok();
        let failed = |object: &Value| object["status"] == "FAILED" && active(object) != newest;
        let object = cloud.until("/v0/agents/a", failed).await;
        newest = active(&object);
    }
    let revisions = cloud.get("/v0/agents/a/revisions").await.ok();
    let shown = |member: &str| -> Vec<Value> {
        revisions.as_array().unwrap().iter().map(|revision| revision[member].clone()).collect()
    };
    assert_eq!(revisions[2]["id"], first);
    assert_eq!(shown("active"), [true, false, false]);
    assert_eq!(shown("trafficPercent"), [0, 0, 100]);
    assert_eq!(shown("previousActive"), [false, false, true], "the way back leads to what serves");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_with_all_its_revisions_can_be_sent_back() {
    let (cloud, _) = cloud().await;
    let path = "/v0/applications/shop";
    let body = |value: &str| {
        let envs = env(if value == "first" { "V" } else { "SILENT" }, value);
        json!({"metadata": {"name": "shop"}, "spec": {"image": IMAGE, "envs": envs}})
    };
    cloud.post("/v0/applications", body("first")).await.ok();
    let mut newest = active(&cloud.until(path, is("DEPLOYED")).await);
    let first = newest.clone();
    for value in ["1", "2", "3", "4", "5"] {
        cloud.put(path, body(value)).await.ok();
        let failed = |object: &Value| object["status"] == "FAILED" && active(object) != newest;
        let object = cloud.until(path, failed).await;
        newest = active(&object);
    }
    let mut read = cloud.get(path).await.ok();
    let listed = read["spec"]["revisions"].as_array().unwrap().len();
    assert_eq!(listed, 6, "five, and the one that serves: {read}");
    read["metadata"]["displayName"] = json!("Shop");
    read["spec"]["revision"]["active"] = json!(first);
    cloud.put(path, read).await.ok();
    let back = cloud.until(path, is("DEPLOYED")).await;
    assert_eq!((&back["metadata"]["displayName"], active(&back)), (&json!("Shop"), first));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_read_can_be_made_anew_and_sent_back() {
    let (cloud, _) = cloud().await;
    let mut wish = agent(&env("V", "1"));
    wish["spec"]["revision"] = json!({"active": "old", "canary": "older", "canaryPercent": 50,
        "stickySessionTtl": 60});
    let made = cloud.post("/v0/agents", wish).await.ok();
    let revision = json!({"active": active(&made), "stickySessionTtl": 60});
    assert_eq!(made["spec"]["revision"], revision, "no revision of before is kept");
    let read = cloud.get("/v0/agents/a").await.ok();
    assert_eq!(cloud.put("/v0/agents/a", read).await.ok()["spec"]["revision"], revision);
}
