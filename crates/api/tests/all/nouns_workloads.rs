//! Agents, functions, jobs, models and applications, and what all kinds have in common.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common::Cloud;
use crate::common::samples::samples;
use http::Method;
use serde_json::{Value, json};

const OLDEST_VERSION: [(&str, &str); 1] = [("blaxel-version", "2026-04-16")];

fn names(list: &Value) -> Vec<&str> {
    let items = list.get("data").unwrap_or(list).as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn every_kind_is_made_read_listed_changed_and_removed() {
    for cloud in Cloud::on_both().await {
        let samples = samples();
        for sample in &samples {
            let made = cloud.post(sample.path, sample.body.clone()).await.ok();
            assert_eq!(cloud.get(&sample.item).await.ok(), made, "{}", sample.path);
            assert!(!made.to_string().contains("hunter2"), "{made}");
            let listed = cloud.get(sample.path).await.ok();
            let items = listed.get("data").unwrap_or(&listed).as_array().unwrap();
            let mine = items.iter().filter(|item| {
                item["id"] == "one" || item["metadata"]["name"] == made["metadata"]["name"]
            });
            assert_eq!(mine.count(), 1, "{}: {listed}", sample.path);
            cloud.post(sample.path, sample.body.clone()).await.refused(409);
        }
        for sample in &samples {
            let Some(text) = sample.text else { continue };
            let mut changed = cloud.get(&sample.item).await.ok();
            *changed.pointer_mut(text).unwrap() = json!("changed");
            let answered = cloud.put(&sample.item, changed).await.ok();
            assert_eq!(answered.pointer(text).unwrap(), "changed", "{}", sample.path);
            assert_eq!(cloud.get(&sample.item).await.ok(), answered, "{}", sample.path);
        }
        for sample in samples.iter().rev() {
            cloud.delete(&sample.item).await.ok();
            cloud.get(&sample.item).await.refused(404);
            cloud.delete(&sample.item).await.refused(404);
        }
    }
}

#[tokio::test]
async fn the_oldest_version_answers_every_list_as_a_bare_array() {
    let cloud = Cloud::start().await;
    for sample in samples() {
        cloud.post(sample.path, sample.body).await.ok();
        let listed = cloud.call_with(Method::GET, sample.path, &OLDEST_VERSION, None).await.ok();
        assert!(listed.is_array(), "{}: {listed}", sample.path);
    }
    let executions = cloud
        .call_with(Method::GET, "/v0/jobs/one/executions?offset=3", &OLDEST_VERSION, None)
        .await
        .ok();
    assert_eq!(executions, json!([]));
}

#[tokio::test]
async fn secrets_are_masked_and_shown_to_admins_who_ask() {
    let cloud = Cloud::start().await;
    for sample in samples() {
        cloud.post(sample.path, sample.body).await.ok();
    }
    for (item, secret) in [
        ("/v0/agents/one", "/spec/runtime/envs/0/value"),
        ("/v0/functions/one", "/spec/runtime/envs/0/value"),
        ("/v0/jobs/one", "/spec/runtime/envs/0/value"),
        ("/v0/sandboxes/one", "/spec/runtime/envs/0/value"),
        ("/v0/sandboxes/one/schedules/one", "/input/env/KEY"),
    ] {
        let masked = cloud.get(item).await.ok();
        assert_eq!(masked.pointer(secret).unwrap(), "***", "{item}");
        let shown = cloud.get(&format!("{item}?show_secrets=true")).await.ok();
        assert_eq!(shown.pointer(secret).unwrap(), "hunter2", "{item}");
    }
    let connection = cloud.get("/v0/integrations/connections/one").await.ok();
    assert_eq!(connection["spec"]["secret"]["apiKey"], "***");
    assert_eq!(connection["spec"]["config"]["base"], "x");
}

#[tokio::test]
async fn a_mask_that_comes_back_without_its_mark_keeps_the_secret() {
    let cloud = Cloud::start().await;
    for sample in samples() {
        cloud.post(sample.path, sample.body).await.ok();
    }
    for item in ["/v0/agents/one", "/v0/functions/one", "/v0/jobs/one", "/v0/sandboxes/one"] {
        for mark in [None, Some(json!(null)), Some(json!(false))] {
            let mut read = cloud.get(item).await.ok();
            let envs = read["spec"]["runtime"]["envs"].as_array_mut().unwrap();
            let secret = envs[0].as_object_mut().unwrap();
            secret.remove("secret");
            secret.extend(mark.map(|mark| ("secret".to_owned(), mark)));
            // Without a stored secret of its name, it is a value like any other.
            envs.retain(|env| env["name"] != "STARS");
            envs.push(json!({"name": "STARS", "value": "***"}));
            let changed = cloud.put(item, read).await.ok();
            assert_eq!(changed["spec"]["runtime"]["envs"][0]["value"], "***", "{item}");
            let shown = cloud.get(&format!("{item}?show_secrets=true")).await.ok();
            let envs = shown["spec"]["runtime"]["envs"].as_array().unwrap();
            assert_eq!((&envs[0]["value"], &envs[0]["secret"]), (&json!("hunter2"), &json!(true)));
            let stars = envs.last().unwrap();
            assert_eq!((&stars["value"], &stars["secret"]), (&json!("***"), &json!(null)));
        }
    }
}

#[tokio::test]
async fn a_callback_secret_is_shown_once_and_stays_the_same() {
    let cloud = Cloud::start().await;
    let calls_back = json!({"type": "http-async", "configuration": {"path": "/x", "callbackUrl": "https://x.example/"}});
    let body =
        json!({"metadata": {"name": "one"}, "spec": {"triggers": [calls_back, {"type": "http"}]}});
    let made = cloud.post("/v0/agents", body).await.ok();
    let secret =
        made["spec"]["triggers"][0]["configuration"]["callbackSecret"].as_str().unwrap().to_owned();
    assert_eq!(secret.len(), 40);
    let (first, second) = (&made["spec"]["triggers"][0]["id"], &made["spec"]["triggers"][1]["id"]);
    assert!(first.is_string() && second.is_string() && first != second, "{made}");
    let read = cloud.get("/v0/agents/one").await.ok();
    assert_eq!(read["spec"]["triggers"][0]["configuration"]["callbackSecret"], "***");
    let mut changed = read.clone();
    changed["spec"]["triggers"][0]["configuration"]["retry"] = json!(2);
    let changed = cloud.put("/v0/agents/one", changed).await.ok();
    assert_eq!(changed["spec"]["triggers"][0]["configuration"]["callbackSecret"], "***");
    let shown = cloud.get("/v0/agents/one?show_secrets=true").await.ok();
    assert_eq!(shown["spec"]["triggers"][0]["configuration"]["callbackSecret"], secret.as_str());
    assert_eq!(shown["spec"]["triggers"][0]["id"], *first);
}

#[tokio::test]
async fn another_receiver_of_callbacks_gets_a_secret_of_its_own() {
    for cloud in Cloud::on_both().await {
        let wish = |url: &str| {
            let trigger =
                json!({"id": "t", "type": "http-async", "configuration": {"callbackUrl": url}});
            json!({"metadata": {"name": "one"}, "spec": {"triggers": [trigger]}})
        };
        let secret = |agent: &Value| {
            let set = &agent["spec"]["triggers"][0]["configuration"];
            set["callbackSecret"].as_str().unwrap().to_owned()
        };
        let first = secret(&cloud.post("/v0/agents", wish("https://x.example/")).await.ok());
        let moved = cloud.put("/v0/agents/one", wish("https://X.example/v2?key=1")).await.ok();
        assert_eq!(secret(&moved), "***", "the same receiver");
        let shown = async || cloud.get("/v0/agents/one?show_secrets=true").await.ok();
        assert_eq!(secret(&shown().await), first);
        let other = cloud.put("/v0/agents/one", wish("https://y.example/")).await.ok();
        let second = secret(&other);
        assert!(second.len() == 40 && second != first, "{other}");
        assert_eq!(secret(&shown().await), second);
    }
}

#[tokio::test]
async fn what_is_disabled_is_deactivated_and_comes_back() {
    let cloud = Cloud::start().await;
    for path in [
        "/v0/agents",
        "/v0/functions",
        "/v0/jobs",
        "/v0/models",
        "/v0/applications",
        "/v0/sandboxes",
    ] {
        let body =
            |enabled: bool| json!({"metadata": {"name": "one"}, "spec": {"enabled": enabled}});
        let made = cloud.post(path, body(false)).await.ok();
        assert_eq!(made["status"], "DEACTIVATED", "{path}");
        let on = cloud.put(&format!("{path}/one"), body(true)).await.ok();
        assert!(["DEPLOYING", "DEPLOYED"].contains(&on["status"].as_str().unwrap()), "{on}");
        let off = cloud.put(&format!("{path}/one"), body(false)).await.ok();
        assert_eq!(off["status"], "DEACTIVATED", "{path}");
        let events = off["events"].as_array().unwrap();
        assert_eq!(events.len(), 3, "{off}");
        assert!(
            events.iter().all(|event| event["type"] == "deployment" && event["time"].is_string())
        );
    }
}

#[tokio::test]
async fn lists_are_filtered_and_sorted() {
    for cloud in Cloud::on_both().await {
        for (name, title, team) in
            [("a-1", "Red", "x"), ("b-2", "Green", "y"), ("c-3", "reddish", "x")]
        {
            let metadata = json!({"name": name, "displayName": title, "labels": {"team": team}, "externalId": format!("ext-{team}")});
            let enabled = name != "b-2";
            cloud
                .post("/v0/sandboxes", json!({"metadata": metadata, "spec": {"enabled": enabled}}))
                .await
                .ok();
        }
        for (query, expected) in [
            ("", vec!["c-3", "b-2", "a-1"]),
            ("sort=createdAt:asc", vec!["a-1", "b-2", "c-3"]),
            ("sort=name:asc", vec!["a-1", "b-2", "c-3"]),
            ("sort=name:desc", vec!["c-3", "b-2", "a-1"]),
            ("q=b-2", vec!["b-2"]),
            ("q=RED&sort=name:asc", vec!["a-1", "c-3"]),
            ("q=team%3Dx&sort=name:asc", vec!["a-1", "c-3"]),
            ("q=%25%5F", vec![]),
            ("status=DEACTIVATED", vec!["b-2"]),
            ("status=deploying,deactivated&sort=name:asc", vec!["a-1", "b-2", "c-3"]),
            ("status=TERMINATING", vec![]),
            ("externalId=ext-y", vec!["b-2"]),
            ("externalId=ext-x&q=reddish", vec!["c-3"]),
            ("sort=name:asc&limit=2&anchor=end", vec!["b-2", "c-3"]),
        ] {
            let listed = cloud.get(&format!("/v0/sandboxes?{query}")).await.ok();
            assert_eq!(names(&listed), expected, "{query}");
            if !query.contains("limit") {
                assert_eq!(
                    listed["meta"],
                    json!({"hasMore": false, "nextCursor": "", "total": expected.len()}),
                    "{query}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_connection_in_use_cannot_be_removed() {
    for cloud in Cloud::on_both().await {
        cloud
            .post(
                "/v0/integrations/connections",
                json!({"metadata": {"name": "key"}, "spec": {"integration": "openai"}}),
            )
            .await
            .ok();
        let body = |connections: Value| json!({"metadata": {"name": "m"}, "spec": {"integrationConnections": connections}});
        cloud.post("/v0/models", body(json!(["key"]))).await.ok();
        let message = cloud.delete("/v0/integrations/connections/key").await.refused(409);
        assert!(message.contains("`m`"), "{message}");
        cloud.put("/v0/models/m", body(json!([]))).await.ok();
        cloud.delete("/v0/integrations/connections/key").await.ok();
        cloud
            .post(
                "/v0/models",
                json!({"metadata": {"name": "n"}, "spec": {"integrationConnections": ["key"]}}),
            )
            .await
            .refused(400);
    }
}

#[tokio::test]
async fn a_policy_tells_what_stands_under_it() {
    let cloud = Cloud::start().await;
    for sample in samples() {
        cloud.post(sample.path, sample.body).await.ok();
    }
    let policy = cloud.get("/v0/policies/one").await.ok();
    assert_eq!((&policy["usage"]["agents"], &policy["usage"]["jobs"]), (&json!(1), &json!(0)));
    let usages = cloud.get("/v0/policies/one/usages").await.ok();
    assert_eq!(
        (&usages["agents"], &usages["models"]),
        (&json!([{"name": "one"}]), &json!([{"name": "one"}]))
    );
    assert_eq!(usages["jobs"], json!([]));
    cloud.get("/v0/policies/none/usages").await.refused(404);
    cloud.delete("/v0/policies/one").await.ok();
    let agent = cloud.get("/v0/agents/one").await.ok();
    cloud.put("/v0/agents/one", agent).await.ok();
}

#[tokio::test]
async fn an_application_keeps_its_last_five_revisions() {
    let cloud = Cloud::start().await;
    for number in 1..=7 {
        let body = json!({"metadata": {"name": "shop"}, "spec": {"image": format!("app/shop:{number}"), "port": 3000}});
        match number {
            1 => cloud.post("/v0/applications", body).await.ok(),
            _ => cloud.put("/v0/applications/shop", body).await.ok(),
        };
    }
    let revisions = cloud.get("/v0/applications/shop/revisions").await.ok();
    let images: Vec<_> =
        revisions.as_array().unwrap().iter().map(|kept| kept["image"].as_str().unwrap()).collect();
    assert_eq!(images, ["app/shop:7", "app/shop:6", "app/shop:5", "app/shop:4", "app/shop:3"]);
    let shown = cloud.get("/v0/applications/shop").await.ok();
    assert_eq!(shown["metadata"]["url"], "http://localhost:8081/-/app-shop-main");
}

#[tokio::test]
async fn a_job_without_executions_has_none() {
    let cloud = Cloud::start().await;
    cloud.post("/v0/jobs", json!({"metadata": {"name": "one"}, "spec": {}})).await.ok();
    let executions = cloud.get("/v0/jobs/one/executions").await.ok();
    assert_eq!(
        executions,
        json!({"data": [], "meta": {"hasMore": false, "nextCursor": "", "total": 0}})
    );
    cloud.post("/v0/jobs/none/executions", json!({})).await.refused(404);
    for method in [Method::GET, Method::DELETE] {
        cloud.call(method, "/v0/jobs/one/executions/x", None).await.refused(404);
    }
    cloud.get("/v0/jobs/one/executions/x/tasks").await.refused(404);
}

const REGIONAL: [&str; 7] = [
    "/v0/agents",
    "/v0/functions",
    "/v0/jobs",
    "/v0/applications",
    "/v0/sandboxes",
    "/v0/volumes",
    "/v0/drives",
];

#[tokio::test]
async fn an_object_stays_in_its_region_when_the_operator_renames_it() {
    let body =
        |name: &str, region: &str| json!({"metadata": {"name": name}, "spec": {"region": region}});
    for mut cloud in Cloud::on_both().await {
        for path in REGIONAL {
            cloud.post(path, body("one", "local")).await.ok();
        }
        cloud.settings.regions[0].name = Some("berlin".into());
        cloud.restart().await;
        for path in REGIONAL {
            let one = format!("{path}/one");
            let mut found = cloud.get(&one).await.ok();
            assert_eq!(cloud.put(&one, found.clone()).await.ok()["spec"]["region"], "local");
            found["spec"].as_object_mut().unwrap().remove("region");
            found["metadata"]["displayName"] = json!("One");
            assert_eq!(cloud.put(&one, found.clone()).await.ok()["spec"]["region"], "local");
            for other in ["berlin", "moon"] {
                found["spec"]["region"] = json!(other);
                cloud.put(&one, found.clone()).await.refused(400);
            }
            cloud.post(path, body("two", "local")).await.refused(400);
            let two = cloud.post(path, body("two", "auto")).await.ok();
            assert_eq!(two["spec"]["region"], "berlin", "{path}");
        }
    }
}

#[tokio::test]
async fn a_region_that_is_not_ours_is_refused() {
    let cloud = Cloud::start().await;
    for path in REGIONAL {
        let body = |region: &str| json!({"metadata": {"name": "one"}, "spec": {"region": region}});
        let message = cloud.post(path, body("moon")).await.refused(400);
        assert!(
            message.contains("`spec.region`") && message.contains("local"),
            "{path}: {message}"
        );
        cloud.post(path, body("auto")).await.ok();
    }
}

#[tokio::test]
async fn an_object_that_names_no_region_is_shown_in_the_first() {
    for cloud in Cloud::on_both().await {
        let mut kinds = Vec::new();
        for sample in samples() {
            let mut body = sample.body.clone();
            let named =
                body["spec"].as_object_mut().and_then(|spec| spec.remove("region")).is_some();
            let made = cloud.post(sample.path, body.clone()).await;
            let made = if made.status == 400 {
                cloud.post(sample.path, sample.body).await.ok()
            } else {
                made.ok()
            };
            if named || !made["spec"]["region"].is_null() {
                assert_eq!(made["spec"]["region"], "local", "{}", sample.path);
                kinds.push(sample.path);
            }
        }
        for kind in [
            "agents",
            "applications",
            "drives",
            "functions",
            "jobs",
            "sandboxes",
            "volumes",
            "customdomains",
        ] {
            assert!(kinds.iter().any(|path| path.ends_with(kind)), "{kind} of {kinds:?}");
        }
        // `auto` means the first region, and what is shown may be sent back.
        let volume = |region: &str| json!({"metadata": {"name": "two"}, "spec": {"size": 1024, "region": region}});
        for region in ["auto", "", "local"] {
            cloud.delete("/v0/volumes/two").await;
            let made = cloud.post("/v0/volumes", volume(region)).await.ok();
            assert_eq!(made["spec"]["region"], "local");
            assert_eq!(cloud.put("/v0/volumes/two", made.clone()).await.ok(), made);
        }
        cloud.delete("/v0/volumes/two").await.ok();
        cloud.post("/v0/volumes", volume("moon")).await.refused(400);
    }
}

#[tokio::test]
async fn the_port_to_serve_may_stand_in_the_environment() {
    let cloud = Cloud::start().await;
    let envs = json!([{"name": "PORT", "value": "3000"}]);
    for (path, spec) in [
        ("/v0/agents", json!({"runtime": {"image": "a", "envs": envs}})),
        ("/v0/functions", json!({"runtime": {"image": "a", "envs": envs}})),
        ("/v0/jobs", json!({"runtime": {"image": "a", "envs": envs}})),
        ("/v0/applications", json!({"image": "a", "envs": envs})),
    ] {
        let made =
            cloud.post(path, json!({"metadata": {"name": "ported"}, "spec": spec})).await.ok();
        assert!(made["spec"].to_string().contains("3000"), "{made}");
    }
    let host = json!({"runtime": {"envs": [{"name": "HOST", "value": "a"}]}});
    cloud
        .post("/v0/agents", json!({"metadata": {"name": "hosted"}, "spec": host}))
        .await
        .refused(400);
}

#[tokio::test]
async fn nothing_in_the_place_of_an_object_is_refused() {
    let cloud = Cloud::start().await;
    for sample in samples() {
        for (member, _) in
            sample.body.as_object().into_iter().flatten().filter(|(_, value)| value.is_object())
        {
            let mut body = sample.body.clone();
            body[member] = Value::Null;
            let message = cloud.post(sample.path, body.clone()).await.refused(400);
            assert!(message.contains(member), "{}: {message}", sample.path);
        }
        cloud.post(sample.path, Value::Null).await.refused(400);
        cloud.post(sample.path, sample.body).await.ok();
    }
}
