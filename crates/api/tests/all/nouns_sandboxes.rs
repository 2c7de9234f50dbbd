//! Sandboxes, and what lives below them.

use crate::common::machine::{IMAGE, PASSWORD, PRIVATE, Pretended};
use crate::common::{Cloud, settings};
use control::machine::LaunchFault;
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use types::KindName;
use types::edge::{Serving, WorkloadRoute};
use types::instance::{InstanceName, Outcome};

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {}})
}

async fn workspace(cloud: &Cloud, name: &str) {
    cloud.post("/v0/workspaces", json!({"name": name})).await.ok();
}

/// Returns the state of an object that has reached this status.
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
        assert!(
            listed["data"].as_array().unwrap().iter().all(|item| item.get("events").is_none()),
            "{listed}"
        );
    }
}

#[tokio::test]
async fn an_external_id_finds_the_newest_that_lives() {
    for cloud in Cloud::on_both().await {
        let with_id =
            |name: &str| json!({"metadata": {"name": name, "externalId": "ours-7"}, "spec": {}});
        cloud.get("/v0/sandboxes/by-external-id/ours-7").await.refused(404);
        cloud.post("/v0/sandboxes", with_id("one")).await.ok();
        cloud.post("/v0/sandboxes", with_id("two")).await.ok();
        assert_eq!(
            cloud.get("/v0/sandboxes/by-external-id/ours-7").await.ok()["metadata"]["name"],
            "two"
        );
        cloud.tell(KindName::Sandbox, "", "two", came_to("TERMINATED")).await;
        assert_eq!(
            cloud.get("/v0/sandboxes/by-external-id/ours-7").await.ok()["metadata"]["name"],
            "one"
        );
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
    assert!(
        cloud.put("/v0/sandboxes/one", body(short)).await.ok()["expiresIn"].as_i64().unwrap()
            <= 300
    );
    let cleared = cloud
        .put("/v0/sandboxes/one", body(json!({"lifecycle": null, "runtime": {"ttl": ""}})))
        .await
        .ok();
    assert!(cleared.get("expiresIn").is_none(), "{cleared}");
    assert_eq!(cleared["events"].as_array().unwrap().len(), 1, "no restart");
    for bad in [
        json!({"type": "ttl-idle"}),
        json!({"type": "date", "value": "soon"}),
        json!({"type": "x", "value": "1h"}),
    ] {
        let spec = json!({"lifecycle": {"expirationPolicies": [bad]}});
        cloud.put("/v0/sandboxes/one", body(spec)).await.refused(400);
    }
}

#[tokio::test]
async fn what_is_fixed_at_creation_cannot_be_changed() {
    let cloud = Cloud::start().await;
    let body = |spec: Value| json!({"metadata": {"name": "one"}, "spec": spec});
    cloud
        .post(
            "/v0/sandboxes",
            body(json!({"region": "local", "runtime": {"extraArgs": {"tun": "enabled"}}})),
        )
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
        (
            json!({"runtime": {"extraArgs": {"tun": "enabled", "kvm": "enabled"}}}),
            "`spec.runtime.extraArgs.kvm`",
        ),
        (
            json!({"runtime": {"extraArgs": {"tun": "on", "iptables": "enabled"}}}),
            "`spec.runtime.extraArgs.tun`",
        ),
        (
            json!({"runtime": {"extraArgs": {"nfs": "enabled", "iptables": "enabled"}}}),
            "together with `iptables`",
        ),
        (
            json!({"runtime": {"envs": [{"name": "PORT", "value": "1"}]}}),
            "`spec.runtime.envs[0].name`",
        ),
        (json!({"runtime": {"memory": 1}}), "`spec.runtime.memory`"),
    ] {
        let wish = json!({"metadata": {"name": "two"}, "spec": bad});
        let message = cloud.post("/v0/sandboxes", wish).await.refused(400);
        assert!(message.contains(why) && !message.contains("extraArgs.iptables"), "{message}");
    }
    let apart = json!({"nfs": "enabled", "iptables": "disabled"});
    cloud
        .post(
            "/v0/sandboxes",
            json!({"metadata": {"name": "three"}, "spec": {"runtime": {"extraArgs": apart}}}),
        )
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
        assert_eq!(
            cloud.put("/v0/sandboxes/one", body(changed)).await.ok()["spec"]["network"],
            network
        );
    }
}

#[tokio::test]
async fn secrets_of_the_proxy_are_shown_when_they_are_made_and_never_again() {
    for cloud in Cloud::on_both().await {
        let rule =
            |host: &str| json!({"destinations": [host], "headers": {"X-Key": "{{SECRET:key}}"}});
        let mut secret = rule("api.example.com");
        secret["secrets"] = json!({"key": "sk-12345"});
        let body = |label: &str, routing: Value| {
            let network = json!({"proxy": {"routing": routing}});
            json!({"metadata": {"name": "one", "labels": {"a": label}}, "spec": {"network": network}})
        };
        let made = cloud
            .post("/v0/sandboxes", body("1", json!([rule("b.example.com"), secret])))
            .await
            .ok();
        assert_eq!(made["spec"]["network"]["proxy"]["routing"][1], secret);
        // A caller that changes something else sends back what it has read.
        let mut read = cloud.get("/v0/sandboxes/one?show_secrets=true").await.ok();
        read["metadata"]["labels"]["a"] = json!("2");
        let put = cloud.put("/v0/sandboxes/one", read.clone()).await.ok();
        let list = cloud.get("/v0/sandboxes").await.ok();
        for shown in [&read, &put, &list["data"][0], &cloud.get("/v0/sandboxes/one").await.ok()] {
            let routing = &shown["spec"]["network"]["proxy"]["routing"];
            assert_eq!(
                *routing,
                json!([rule("b.example.com"), rule("api.example.com")]),
                "{shown}"
            );
        }
        // Nobody reads it by having it sent to a host of their own.
        let elsewhere = json!({"destinations": ["elsewhere.example"], "secrets": {"key": "***"}});
        let stolen = body("3", json!([rule("b.example.com"), elsewhere]));
        let message = cloud.put("/v0/sandboxes/one", stolen).await.refused(400);
        assert!(message.contains("routing[1].secrets.key` has to be sent again"), "{message}");
        let workspace = cloud.workspace("main").await;
        let find = move |tx: &mut store::Tx<'_>| {
            store::resources::find(tx, &workspace, KindName::Sandbox, "", "one")
        };
        let row = cloud.store.read(find).await.unwrap().unwrap();
        assert!(
            row.wish.contains(r#""secrets":{"key":"#) && !row.wish.contains("sk-12345"),
            "kept, and sealed"
        );
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
    assert_eq!(
        (&first["input"]["keepAlive"], &first["input"]["timeout"]),
        (&json!(true), &json!(600))
    );
    for _ in 1..100 {
        cloud.post(schedules, nightly.clone()).await.ok();
    }
    let message = cloud.post(schedules, nightly).await.refused(400);
    assert!(message.contains("100"), "{message}");
    let page = cloud.get(schedules).await.ok();
    assert_eq!((page["data"].as_array().unwrap().len(), &page["meta"]["total"]), (20, &json!(100)));
    assert!(cloud.get(&format!("{schedules}?limit=0")).await.refused(400).contains("at least 1"));
    for limit in [100, 101, 100_000] {
        let most = cloud.get(&format!("{schedules}?limit={limit}")).await.ok();
        assert_eq!(most["data"].as_array().unwrap().len(), 100);
    }
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
    for (kind, value) in [
        ("cron", "* * *"),
        ("cron", "0 0 0 * * *"),
        ("at", "tomorrow"),
        ("sleep", "soon"),
        ("never", "x"),
    ] {
        cloud.post("/v0/sandboxes/one/schedules", schedule(kind, value)).await.refused(400);
    }
    cloud
        .post(
            "/v0/sandboxes/one/schedules",
            json!({"type": "cron", "value": "* * * * *", "input": {}}),
        )
        .await
        .refused(400);
}

/// Names and workspaces are chosen freely: `a-b` in `c` and `a` in `b-c` want the same label.
#[tokio::test]
async fn the_label_of_a_sandbox_is_nobody_elses() {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::Exited(0))));
    let cloud = Cloud::start_on_machine(machine, settings()).await;
    for name in ["c", "b-c"] {
        workspace(&cloud, name).await;
    }
    let sandbox =
        |name: &str| json!({"metadata": {"name": name}, "spec": {"runtime": {"image": IMAGE}}});
    let (first, second) = ("/v0/sandboxes?workspace=c", "/v0/sandboxes?workspace=b-c");
    let label = |workspace: &str, name: &str| cloud.routes.sandbox(workspace, name).label;
    cloud.post(first, sandbox("a-b")).await.ok();
    let made = cloud.post(second, sandbox("a")).await.ok();
    assert_eq!(
        made["metadata"]["url"], "http://localhost:8080/b-c/sandboxes/a",
        "nobody is kept from a name"
    );
    assert_eq!((label("c", "a-b").as_deref(), label("b-c", "a")), (Some("a-b-c"), None));
    // A label that becomes free is not given to a sandbox that went without one: callers of the
    // first would reach it.
    cloud.delete("/v0/sandboxes/a-b?workspace=c").await.ok();
    cloud.put("/v0/sandboxes/a?workspace=b-c", sandbox("a")).await.ok();
    assert_eq!(label("b-c", "a"), None);
    cloud.post(first, sandbox("a-b")).await.ok();
    assert_eq!(label("c", "a-b").as_deref(), Some("a-b-c"));
    cloud.delete("/v0/sandboxes/a?workspace=b-c").await.ok();
    assert_eq!(label("c", "a-b").as_deref(), Some("a-b-c"));
}

/// Releases that did not put the kind into names named the instance after the sandbox alone.
#[tokio::test]
async fn an_instance_that_an_earlier_release_launched_is_kept() {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)));
    let cloud = Cloud::start_on_machine(machine.clone(), settings()).await;
    let sandbox = json!({"metadata": {"name": "box"}, "spec": {"runtime": {"image": IMAGE}}});
    cloud.post("/v0/sandboxes", sandbox).await.ok();
    let name = machine.launched.borrow()[0].instance.clone();
    let old = InstanceName::new(name.as_str().strip_prefix("sandbox-").unwrap()).unwrap();
    let row = json!({"placed": {"machine": "pretended", "launch": 1}});
    let serves = |instance: &InstanceName| {
        cloud.routes.sandbox("main", "box").serving == Serving::by("pretended", instance.as_str())
    };
    // Both exist for a moment, so that nothing is missing whenever the server looks.
    machine.add(&old);
    cloud.tell(KindName::Sandbox, "", "box", row.clone()).await;
    eventually(|| serves(&old)).await;
    machine.lose(&name);
    let told = cloud.routes.count();
    cloud.tell(KindName::Sandbox, "", "box", row).await;
    eventually(|| cloud.routes.count() > told).await;
    assert!(serves(&old));
    cloud.delete("/v0/sandboxes/box").await.ok();
    eventually(|| machine.retired.borrow().contains(&old.to_string())).await;
    assert_eq!(machine.launched.borrow().len(), 1, "nothing was launched in its place");
}

async fn eventually(done: impl Fn() -> bool) {
    let waiting = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    assert!(waited.is_ok(), "it does not come to pass");
}

#[tokio::test]
async fn an_image_that_one_workspace_was_let_have_is_no_other_ones() {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::Exited(0))));
    let cloud = Cloud::start_on_machine(machine, settings()).await;
    workspace(&cloud, "team").await;
    let box_of = |name: &str, image: &str, config: Option<&str>| json!({"metadata": {"name": name}, "spec": {"runtime": {"image": image, "dockerConfig": config}}});
    let came = async |workspace: &str, name: &str, config: Option<&str>| {
        let made = cloud
            .post(&format!("/v0/sandboxes?workspace={workspace}"), box_of(name, PRIVATE, config))
            .await
            .ok();
        let path = format!(
            "/v0/sandboxes/{}?workspace={workspace}",
            made["metadata"]["name"].as_str().unwrap()
        );
        cloud.until(&path, |now| now["status"] != "DEPLOYING").await["status"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(came("main", "without", None).await, "FAILED");
    assert_eq!(came("main", "with", Some(PASSWORD)).await, "DEPLOYED");
    assert_eq!(
        came("main", "again", None).await,
        "DEPLOYED",
        "what a workspace was let have is its own"
    );
    // The machine has the image by now, but the neighbour gets nothing of it.
    assert_eq!(came("team", "thief", None).await, "FAILED");
    assert_eq!(came("team", "guesser", Some("wrong")).await, "FAILED");
    let refused = async |workspace: &str| {
        let path = format!("/v0/sandboxes?workspace={workspace}");
        cloud.post(&path, box_of("none", "nothing", None)).await
    };
    let (own, other) = (refused("main").await, refused("team").await);
    assert_eq!((own.status.as_u16(), other.status.as_u16()), (400, 400));
    assert_eq!(own.body["details"]["supported_images"], json!([IMAGE, PRIVATE]));
    assert_eq!(other.body["details"]["supported_images"], json!([IMAGE]));
    assert!(!other.body.to_string().contains(PRIVATE), "{}", other.body);
    assert_eq!(came("team", "member", Some(PASSWORD)).await, "DEPLOYED");
    assert_eq!(came("team", "later", None).await, "DEPLOYED");
    // A new workspace with the name of a deleted one inherits nothing.
    cloud.delete("/v0/workspaces/team").await.ok();
    workspace(&cloud, "team").await;
    assert_eq!(came("team", "heir", None).await, "FAILED");
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
    cloud
        .post("/v0/sandboxes/none/fork", json!({"targetName": "n", "targetType": "sandbox"}))
        .await
        .refused(404);
    cloud.post("/v0/sandboxes?upload=true", named("two")).await.refused(501);
    cloud.get("/v0/sandboxes/two").await.refused(404);
}

#[tokio::test]
async fn a_start_lists_what_runs_once_however_many_there_are() {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::Exited(0))));
    let mut cloud = Cloud::start_on_machine(machine.clone(), settings()).await;
    for number in 0..30 {
        let name = format!("box-{number}");
        let wish = json!({"metadata": {"name": name}, "spec": {"runtime": {"image": IMAGE}}});
        cloud.post("/v0/sandboxes", wish).await.ok();
    }
    let before = machine.listed();
    cloud.restart_on(machine.clone()).await;
    control::workloads::ready(&cloud.control).await;
    let listed = machine.listed() - before;
    // Once for the rows, once for tasks, and once with the first heartbeat.
    assert!(listed <= 3, "listed {listed} times");
    assert_eq!(machine.launched.borrow().len(), 30, "nothing is started again");
}

/// The reconciliation of each change also sends the route, and may have read the row before the
/// next change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_route_of_before_a_change_is_told_after_it() {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)));
    let cloud = Cloud::start_on_machine(machine, settings()).await;
    let wish = json!({"metadata": {"name": "box"}, "spec": {"runtime": {"image": IMAGE}}});
    let wish = cloud.post("/v0/sandboxes", wish).await.ok();
    let enabled = |enabled: bool| {
        let mut wish = wish.clone();
        wish["spec"]["enabled"] = json!(enabled);
        cloud.put("/v0/sandboxes/box", wish)
    };
    let off = |route: &WorkloadRoute| matches!(route.serving, Serving::Off { .. });
    for round in 0..200 {
        enabled(false).await.ok();
        assert!(off(&cloud.routes.sandbox("main", "box")), "when it is answered, in round {round}");
        enabled(true).await.ok();
        let from = cloud.routes.count();
        assert!(
            !off(&cloud.routes.sandbox("main", "box")),
            "when it is answered, in round {round}"
        );
        cloud.routes.until("box", |route| matches!(route.serving, Serving::To(_))).await;
        assert!(!cloud.routes.since(from).iter().any(off), "later, in round {round}");
    }
}

#[tokio::test]
async fn an_image_that_cannot_run_is_the_callers_fault() {
    let why = "a/b cannot run here: the archive is refused: a path with `..`";
    let machine = Arc::new(Pretended::new(|_| Err(LaunchFault::Pull(why.into()))));
    let cloud = Cloud::start_on_machine(machine, settings()).await;
    let body = json!({"metadata": {"name": "box"}, "spec": {"runtime": {"image": IMAGE}}});
    let message = cloud.post("/v0/sandboxes", body).await.refused(400);
    assert_eq!(message, format!("the image cannot be had: {why}"));
    cloud.get("/v0/sandboxes/box").await.refused(404);
}
