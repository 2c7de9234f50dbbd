//! Sandboxes, and what lives below them.

mod common;

use common::Cloud;
use http::Method;
use serde_json::{Value, json};
use types::KindName;

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {}})
}

/// The state of something that came to this status.
fn came_to(status: &str) -> Value {
    json!({"events": [{"type": "deployment", "status": status, "time": "2026-04-16T00:00:00Z"}]})
}

#[tokio::test]
async fn asking_for_one_or_a_new_one_gets_the_one_that_lives() {
    for cloud in Cloud::on_both().await {
        let made = cloud.post("/v0/sandboxes?createIfNotExist=true", named("one")).await.ok();
        let again = cloud.post("/v0/sandboxes?createIfNotExist=true", named("one")).await.ok();
        assert_eq!(again, made);
        let refusal = cloud.post("/v0/sandboxes", named("one")).await;
        assert_eq!(refusal.body["error"], "SANDBOX_ALREADY_EXISTS");
        assert_eq!(refusal.body["status_code"], 409);
        refusal.refused(409);
        for gone in ["FAILED", "TERMINATED"] {
            cloud.tell(KindName::Sandbox, "", "one", came_to(gone)).await;
            let fresh = cloud.post("/v0/sandboxes?createIfNotExist=true", named("one")).await.ok();
            assert_eq!(fresh["status"], "DEPLOYING", "after {gone}");
        }
        cloud.tell(KindName::Sandbox, "", "one", came_to("TERMINATED")).await;
        cloud.post("/v0/sandboxes", named("one")).await.ok();
    }
}

#[tokio::test]
async fn terminated_sandboxes_are_listed_to_those_who_ask() {
    let cloud = Cloud::start().await;
    cloud.post("/v0/sandboxes", named("old")).await.ok();
    cloud.post("/v0/sandboxes", named("new")).await.ok();
    cloud.tell(KindName::Sandbox, "", "old", came_to("TERMINATED")).await;
    for (query, expected) in [
        ("", 1),
        ("?showTerminated=true", 2),
        ("?showTerminated=false", 1),
        ("?status=TERMINATED", 1),
        ("?status=TERMINATED,DEPLOYING&showTerminated=false", 2),
    ] {
        let listed = cloud.get(&format!("/v0/sandboxes{query}")).await.ok();
        assert_eq!(listed["meta"]["total"], expected, "{query}");
        assert!(listed["data"].as_array().unwrap().iter().all(|item| item.get("events").is_none()), "{listed}");
    }
}

#[tokio::test]
async fn an_external_id_finds_the_newest_that_lives() {
    for cloud in Cloud::on_both().await {
        let with_id = |name: &str| json!({"metadata": {"name": name, "externalId": "ours-7"}, "spec": {}});
        cloud.get("/v0/sandboxes/by-external-id/ours-7").await.refused(404);
        cloud.post("/v0/sandboxes", with_id("one")).await.ok();
        cloud.post("/v0/sandboxes", with_id("two")).await.ok();
        assert_eq!(cloud.get("/v0/sandboxes/by-external-id/ours-7").await.ok()["metadata"]["name"], "two");
        cloud.tell(KindName::Sandbox, "", "two", came_to("TERMINATED")).await;
        assert_eq!(cloud.get("/v0/sandboxes/by-external-id/ours-7").await.ok()["metadata"]["name"], "one");
        let kept = cloud.put("/v0/sandboxes/one", named("one")).await.ok();
        assert_eq!(kept["metadata"]["externalId"], "ours-7", "leaving it out keeps it");
    }
}

#[tokio::test]
async fn what_decides_about_its_end_can_be_set_and_cleared() {
    let cloud = Cloud::start().await;
    let body = |spec: Value| json!({"metadata": {"name": "one"}, "spec": spec});
    let idle = json!({"lifecycle": {"expirationPolicies": [{"type": "ttl-idle", "value": "30m", "action": "delete"}]}});
    let made = cloud.post("/v0/sandboxes", body(idle)).await.ok();
    let left_s = made["expiresIn"].as_i64().unwrap();
    assert!((1700..=1800).contains(&left_s), "{left_s}");
    let short = json!({"lifecycle": made["spec"]["lifecycle"], "runtime": {"ttl": "5m"}});
    assert!(cloud.put("/v0/sandboxes/one", body(short)).await.ok()["expiresIn"].as_i64().unwrap() <= 300);
    let cleared = cloud.put("/v0/sandboxes/one", body(json!({"lifecycle": null, "runtime": {"ttl": ""}}))).await.ok();
    assert!(cleared.get("expiresIn").is_none(), "{cleared}");
    assert_eq!(cleared["events"].as_array().unwrap().len(), 1, "no restart");
    for bad in
        [json!({"type": "ttl-idle"}), json!({"type": "date", "value": "soon"}), json!({"type": "x", "value": "1h"})]
    {
        let spec = json!({"lifecycle": {"expirationPolicies": [bad]}});
        cloud.put("/v0/sandboxes/one", body(spec)).await.refused(400);
    }
}

#[tokio::test]
async fn what_is_fixed_at_creation_cannot_be_changed() {
    let cloud = Cloud::start().await;
    let body = |spec: Value| json!({"metadata": {"name": "one"}, "spec": spec});
    cloud
        .post("/v0/sandboxes", body(json!({"region": "local", "runtime": {"extraArgs": {"tun": "enabled"}}})))
        .await
        .ok();
    for changed in [
        json!({"region": "moon"}),
        json!({"runtime": {"extraArgs": {"tun": "disabled"}}}),
        json!({"volumes": [{"name": "v", "mountPath": "/v"}]}),
    ] {
        cloud.put("/v0/sandboxes/one", body(changed)).await.refused(400);
    }
    for (bad, why) in [
        (json!({"runtime": {"extraArgs": {"tun": "enabled", "kvm": "enabled"}}}), "`spec.runtime.extraArgs.kvm`"),
        (json!({"runtime": {"extraArgs": {"tun": "on", "iptables": "enabled"}}}), "`spec.runtime.extraArgs.tun`"),
        (json!({"runtime": {"extraArgs": {"nfs": "enabled", "iptables": "enabled"}}}), "together with `iptables`"),
        (json!({"runtime": {"envs": [{"name": "PORT", "value": "1"}]}}), "`spec.runtime.envs[0].name`"),
        (json!({"runtime": {"memory": 1}}), "`spec.runtime.memory`"),
    ] {
        let wish = json!({"metadata": {"name": "two"}, "spec": bad});
        let message = cloud.post("/v0/sandboxes", wish).await.refused(400);
        assert!(message.contains(why) && !message.contains("extraArgs.iptables"), "{message}");
    }
    let apart = json!({"nfs": "enabled", "iptables": "disabled"});
    cloud
        .post("/v0/sandboxes", json!({"metadata": {"name": "three"}, "spec": {"runtime": {"extraArgs": apart}}}))
        .await
        .ok();
}

#[tokio::test]
async fn ports_that_mean_something_may_be_declared_and_the_proxy_comes_and_goes() {
    let cloud = Cloud::start().await;
    let ports = json!([{"target": 80}, {"target": 443}, {"target": 8080}]);
    let body = |spec: Value| json!({"metadata": {"name": "one"}, "spec": spec});
    let made = cloud.post("/v0/sandboxes", body(json!({"runtime": {"ports": ports}}))).await.ok();
    assert_eq!(made["spec"]["runtime"]["ports"], ports);
    for network in [json!({"proxy": {}}), json!({})] {
        let changed = json!({"runtime": {"ports": ports}, "network": network});
        assert_eq!(cloud.put("/v0/sandboxes/one", body(changed)).await.ok()["spec"]["network"], network);
    }
}

#[tokio::test]
async fn secrets_of_the_proxy_are_shown_when_they_are_made_and_never_again() {
    for cloud in Cloud::on_both().await {
        let rule = |host: &str| json!({"destinations": [host], "headers": {"X-Key": "{{SECRET:key}}"}});
        let mut secret = rule("api.example.com");
        secret["secrets"] = json!({"key": "sk-12345"});
        let body = |label: &str, routing: Value| {
            let network = json!({"proxy": {"routing": routing}});
            json!({"metadata": {"name": "one", "labels": {"a": label}}, "spec": {"network": network}})
        };
        let made = cloud.post("/v0/sandboxes", body("1", json!([rule("b.example.com"), secret]))).await.ok();
        assert_eq!(made["spec"]["network"]["proxy"]["routing"][1], secret);
        // A caller that changes something else sends back what it read.
        let mut read = cloud.get("/v0/sandboxes/one?show_secrets=true").await.ok();
        read["metadata"]["labels"]["a"] = json!("2");
        let put = cloud.put("/v0/sandboxes/one", read.clone()).await.ok();
        let list = cloud.get("/v0/sandboxes").await.ok();
        for shown in [&read, &put, &list["data"][0], &cloud.get("/v0/sandboxes/one").await.ok()] {
            let routing = &shown["spec"]["network"]["proxy"]["routing"];
            assert_eq!(*routing, json!([rule("b.example.com"), rule("api.example.com")]), "{shown}");
        }
        let workspace = cloud.workspace("main").await;
        let find = move |tx: &mut store::Tx<'_>| store::resources::find(tx, &workspace, KindName::Sandbox, "", "one");
        let row = cloud.store.read(find).await.unwrap().unwrap();
        assert!(row.wish.contains(r#""secrets":{"key":"#) && !row.wish.contains("sk-12345"), "kept, and sealed");
    }
}

#[tokio::test]
async fn a_sandbox_has_at_most_a_hundred_schedules() {
    let cloud = Cloud::start().await;
    cloud.post("/v0/sandboxes", named("one")).await.ok();
    let schedules = "/v0/sandboxes/one/schedules";
    let nightly = json!({"type": "cron", "value": "0 0 * * *", "input": {"command": "date"}});
    let first = cloud.post(schedules, nightly.clone()).await.ok();
    assert!(first["id"].as_str().unwrap().starts_with("schedule-"), "{first}");
    assert_eq!((&first["input"]["keepAlive"], &first["input"]["timeout"]), (&json!(true), &json!(600)));
    for _ in 1..100 {
        cloud.post(schedules, nightly.clone()).await.ok();
    }
    let message = cloud.post(schedules, nightly).await.refused(400);
    assert!(message.contains("100"), "{message}");
    let page = cloud.get(schedules).await.ok();
    assert_eq!((page["data"].as_array().unwrap().len(), &page["meta"]["total"]), (20, &json!(100)));
    assert!(cloud.get(&format!("{schedules}?limit=101")).await.refused(400).contains("1 to 100"));
    let most = cloud.get(&format!("{schedules}?limit=100")).await.ok();
    assert_eq!(most["data"].as_array().unwrap().len(), 100);
    let bare = cloud.call_with(Method::GET, schedules, &[("blaxel-version", "")], None).await.ok();
    assert_eq!(bare.as_array().unwrap().len(), 100);
    let history = cloud.get("/v0/sandboxes/one/schedule-executions").await.ok();
    assert_eq!(history["data"], json!([]));
    cloud.get("/v0/sandboxes/none/schedules").await.refused(404);
}

#[tokio::test]
async fn schedules_say_when_in_three_ways() {
    let cloud = Cloud::start().await;
    cloud.post("/v0/sandboxes", named("one")).await.ok();
    let schedule = |kind: &str, value: &str| json!({"type": kind, "value": value, "input": {"command": "date"}});
    let sleep = cloud.post("/v0/sandboxes/one/schedules", schedule("sleep", "1h")).await.ok();
    assert_eq!(sleep["type"], "at", "a length of time is stored as the time when it ends");
    assert!(sleep["value"].as_str().unwrap().ends_with('Z'), "{sleep}");
    cloud.post("/v0/sandboxes/one/schedules", schedule("at", "2030-01-01T00:00:00Z")).await.ok();
    cloud.post("/v0/sandboxes/one/schedules", schedule("cron", "*/5 * * * *")).await.ok();
    for (query, expected) in [("", 3), ("?type=cron", 1), ("?type=at", 2), ("?type=other", 3)] {
        let listed = cloud.get(&format!("/v0/sandboxes/one/schedules{query}")).await.ok();
        assert_eq!(listed["data"].as_array().unwrap().len(), expected, "{query}");
    }
    for (kind, value) in
        [("cron", "* * *"), ("cron", "0 0 0 * * *"), ("at", "tomorrow"), ("sleep", "soon"), ("never", "x")]
    {
        cloud.post("/v0/sandboxes/one/schedules", schedule(kind, value)).await.refused(400);
    }
    cloud
        .post("/v0/sandboxes/one/schedules", json!({"type": "cron", "value": "* * * * *", "input": {}}))
        .await
        .refused(400);
}

#[tokio::test]
async fn an_address_belongs_to_one_preview_unless_it_is_taken_over() {
    let cloud = Cloud::start().await;
    cloud.post("/v0/sandboxes", named("one")).await.ok();
    cloud.post("/v0/sandboxes", named("two")).await.ok();
    let preview = |name: &str| json!({"metadata": {"name": name}, "spec": {"port": 3000, "prefixUrl": "shop"}});
    let made = cloud.post("/v0/sandboxes/one/previews", preview("a")).await.ok();
    assert_eq!(made["spec"]["url"], "http://localhost:8081/-/shop-main.preview");
    let message = cloud.post("/v0/sandboxes/two/previews", preview("b")).await.refused(409);
    assert!(message.contains("`a`") && message.contains("`one`"), "{message}");
    cloud.post("/v0/sandboxes/two/previews?force=true", preview("b")).await.ok();
    cloud.get("/v0/sandboxes/one/previews/a").await.refused(404);
    cloud
        .post("/v0/sandboxes/one/previews", json!({"metadata": {"name": "p"}, "spec": {"port": 80}}))
        .await
        .refused(400);
}

#[tokio::test]
async fn a_token_of_a_preview_expires_and_can_be_revoked() {
    let cloud = Cloud::start().await;
    cloud.post("/v0/sandboxes", named("one")).await.ok();
    cloud.post("/v0/sandboxes/one/previews", json!({"metadata": {"name": "web"}, "spec": {"port": 3000}})).await.ok();
    let tokens = "/v0/sandboxes/one/previews/web/tokens";
    let token = json!({"metadata": {"name": "t"}, "spec": {"expiresAt": "2026-04-17T00:00:00Z"}});
    let made = cloud.post(tokens, token).await.ok();
    assert_eq!((&made["spec"]["expired"], &made["metadata"]["previewName"]), (&json!(false), &json!("web")));
    cloud.clock.advance_s(2 * 24 * 3600);
    let listed = cloud.get(tokens).await.ok();
    assert_eq!((&listed[0]["spec"]["expired"], &listed[0]["spec"]["token"]), (&json!(true), &made["spec"]["token"]));
    cloud.delete(&format!("{tokens}/t")).await.ok();
    assert_eq!(cloud.get(tokens).await.ok(), json!([]));
    cloud.delete(&format!("{tokens}/t")).await.refused(404);
}

#[tokio::test]
async fn snapshots_and_forks_refuse_what_is_wrong_before_they_say_what_is_missing() {
    let cloud = Cloud::start().await;
    cloud.post("/v0/sandboxes", named("one")).await.ok();
    cloud.post("/v0/sandboxes/one/snapshots", json!({"name": "s"})).await.refused(501);
    cloud.post("/v0/sandboxes/none/snapshots", json!({})).await.refused(404);
    cloud.delete("/v0/sandboxes/one/snapshots/snap_x").await.refused(404);
    cloud.get("/v0/sandboxes/one/snapshots").await.ok();
    for (target, status) in [
        (json!({"targetName": "new", "targetType": "sandbox"}), 501),
        (json!({"target_name": "new", "type": "application"}), 501),
        (json!({"targetName": "one", "targetType": "sandbox"}), 409),
        (json!({"targetName": "new", "targetType": "planet"}), 400),
        (json!({}), 400),
    ] {
        cloud.post("/v0/sandboxes/one/fork", target).await.refused(status);
    }
    cloud.post("/v0/sandboxes/none/fork", json!({"targetName": "n", "targetType": "sandbox"})).await.refused(404);
    cloud.post("/v0/sandboxes?upload=true", named("two")).await.refused(501);
    cloud.get("/v0/sandboxes/two").await.refused(404);
}
