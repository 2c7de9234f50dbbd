//! Promises of every kind: whole objects in, whole objects out, and nothing lost.

use crate::common::machine::{IMAGE, Pretended};
use crate::common::{Cloud, settings};
use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use types::instance::Outcome;

fn agent(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"team": "a"}}, "spec": {"runtime": {"image": "agent/x:1", "memory": 2048,
        "envs": [{"name": "TOKEN", "value": "hunter2", "secret": true}, {"name": "MODE", "value": "fast"}]}}})
}

#[tokio::test]
async fn an_object_reads_back_as_it_was_made() {
    let cloud = Cloud::start().await;
    let made = cloud.post("/v0/agents", agent("one")).await.ok();
    assert_eq!(made["metadata"]["url"], "http://localhost:8080/main/agents/one");
    assert_eq!(made["metadata"]["workspace"], "main");
    assert_eq!(made["status"], "DEPLOYING");
    assert_eq!(made["spec"]["runtime"]["envs"][0]["value"], "***");
    assert_eq!(made["spec"]["runtime"]["envs"][1]["value"], "fast");
    assert_eq!(cloud.get("/v0/agents/one").await.ok(), made);
    let shown = cloud.get("/v0/agents/one?show_secrets=true").await.ok();
    assert_eq!(shown["spec"]["runtime"]["envs"][0]["value"], "hunter2");
    let message = cloud.post("/v0/agents", agent("one")).await.refused(409);
    assert!(message.contains("`one`"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_at_once_are_answered_as_if_they_came_one_after_another() {
    for cloud in Cloud::on_both().await {
        let statuses = async |path: &str, body: &Value| {
            let asked = join_all((0..8).map(|_| cloud.post(path, body.clone()))).await;
            let mut statuses: Vec<_> = asked.iter().map(|it| it.status.as_u16()).collect();
            statuses.sort_unstable();
            statuses
        };
        for round in 0..3 {
            let name = format!("one-{round}");
            let wish = json!({"metadata": {"name": name}, "spec": {"runtime": {"image": IMAGE}}});
            let path = "/v0/sandboxes?createIfNotExist=true&workspace=main";
            assert_eq!(statuses(path, &wish).await, [200; 8]);
            let made = statuses("/v0/workspaces", &json!({"name": name})).await;
            assert_eq!(made, [200, 409, 409, 409, 409, 409, 409, 409]);
            let guest = json!({"email": format!("{name}@example.com")});
            assert_eq!(statuses("/v0/users?workspace=main", &guest).await, [200; 8]);
        }
        let people = cloud.get("/v0/users?workspace=main").await.ok();
        assert_eq!(people.as_array().unwrap().len(), 1 + 3, "{people}");
    }
}

#[tokio::test]
async fn a_list_of_large_objects_comes_in_more_pages() {
    let mut settings = settings();
    settings.list_bytes_max = 100_000;
    let cloud = Cloud::start_with(settings).await;
    for name in ["a", "b", "c"] {
        let text = "x".repeat(40_000);
        let runtime = json!({"envs": [{"name": "TEXT", "value": text}]});
        let agent = json!({"metadata": {"name": name}, "spec": {"runtime": runtime}});
        cloud.post("/v0/agents", agent).await.ok();
    }
    let list = "/v0/agents?sort=name:asc";
    let names = |page: &Value| {
        let data = page["data"].as_array().unwrap().clone();
        data.iter().map(|agent| agent["metadata"]["name"].clone()).collect::<Vec<_>>()
    };
    let first = cloud.get(list).await.ok();
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!((&first["meta"]["hasMore"], &first["meta"]["total"]), (&json!(true), &json!(3)));
    let cursor = first["meta"]["nextCursor"].as_str().unwrap();
    let second = cloud.get(&format!("{list}&cursor={cursor}")).await.ok();
    assert_eq!(names(&second), ["c"]);
    assert_eq!(second["meta"]["hasMore"], false);
    let bare = [("blaxel-version", "")];
    let refused = cloud.call_with(Method::GET, "/v0/agents", &bare, None).await.refused(400);
    assert!(refused.contains("more than 100000 bytes"), "{refused}");
    cloud.delete("/v0/agents/b").await.ok();
    let all = cloud.call_with(Method::GET, "/v0/agents", &bare, None).await.ok();
    assert_eq!(all.as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn putting_back_what_was_read_changes_nothing() {
    let cloud = Cloud::start().await;
    cloud.post("/v0/agents", agent("one")).await.ok();
    let read = cloud.get("/v0/agents/one").await.ok();
    assert_eq!(cloud.put("/v0/agents/one", read.clone()).await.ok(), read);
    assert_eq!(cloud.get("/v0/agents/one").await.ok(), read);
    let shown = cloud.get("/v0/agents/one?show_secrets=true").await.ok();
    assert_eq!(
        shown["spec"]["runtime"]["envs"][0]["value"], "hunter2",
        "a mask keeps the stored value"
    );
}

#[tokio::test]
async fn an_absent_member_is_cleared_and_a_new_revision_kept() {
    let cloud = Cloud::start().await;
    let made = cloud.post("/v0/agents", agent("one")).await.ok();
    let first = made["spec"]["revision"]["active"].clone();
    let mut changed = cloud.get("/v0/agents/one").await.ok();
    changed["spec"]["runtime"]["memory"] = json!(4096);
    changed["metadata"]["labels"] = Value::Null;
    let changed = cloud.put("/v0/agents/one", changed).await.ok();
    assert!(changed["metadata"].get("labels").is_none());
    assert_ne!(changed["spec"]["revision"]["active"], first);
    let revisions = cloud.get("/v0/agents/one/revisions").await.ok();
    assert_eq!(revisions.as_array().unwrap().len(), 2);
    assert_eq!(
        (&revisions[0]["active"], &revisions[1]["previousActive"]),
        (&json!(true), &json!(true))
    );
    let mut back = changed.clone();
    back["spec"]["revision"]["active"] = first.clone();
    let back = cloud.put("/v0/agents/one", back).await.ok();
    assert_eq!(back["spec"]["runtime"]["memory"], 2048, "an earlier revision brings its wish back");
    assert_eq!(back["spec"]["revision"]["active"], first);
    let shown = cloud.get("/v0/agents/one?show_secrets=true").await.ok();
    assert_eq!(shown["spec"]["runtime"]["envs"][0]["value"], "hunter2");
}

#[tokio::test]
async fn a_revision_begins_with_another_spec_only() {
    let cloud = Cloud::start().await;
    let made = cloud.post("/v0/agents", agent("one")).await.ok();
    let mut other = made.clone();
    other["metadata"]["labels"] = json!({"team": "b"});
    other["metadata"]["displayName"] = json!("One");
    other["spec"]["enabled"] = json!(false);
    let other = cloud.put("/v0/agents/one", other).await.ok();
    assert_eq!(
        (&other["metadata"]["displayName"], &other["status"]),
        (&json!("One"), &json!("DEACTIVATED"))
    );
    assert_eq!(other["spec"]["revision"], made["spec"]["revision"]);
    assert_eq!(cloud.get("/v0/agents/one/revisions").await.ok().as_array().unwrap().len(), 1);
    let mut unknown = other.clone();
    unknown["spec"]["revision"]["active"] = json!("zzz");
    for memory in [2048, 4096] {
        unknown["metadata"]["labels"] = json!({"memory": memory.to_string()});
        unknown["spec"]["runtime"]["memory"] = json!(memory);
        let message = cloud.put("/v0/agents/one", unknown.clone()).await.refused(400);
        assert!(message.contains("`spec.revision.active` names the revision `zzz`"), "{message}");
    }
}

#[tokio::test]
async fn a_revision_that_comes_back_leaves_what_belongs_to_the_object() {
    let cloud = Cloud::start().await;
    let first = cloud.post("/v0/agents", agent("one")).await.ok();
    let mut second = first.clone();
    second["spec"]["enabled"] = json!(false);
    second["spec"]["runtime"]["memory"] = json!(4096);
    second["spec"]["runtime"]["envs"][0]["value"] = json!("correct horse");
    let mut now = cloud.put("/v0/agents/one", second).await.ok();

    now["metadata"]["labels"] = Value::Null;
    let ids = [&first, &now].map(|object| object["spec"]["revision"]["active"].clone());
    for (id, memory) in ids.iter().zip([2048, 4096]) {
        now["spec"]["revision"]["active"] = id.clone();
        now = cloud.put("/v0/agents/one", now).await.ok();
        assert_eq!(now["spec"]["revision"]["active"], *id);
        assert_eq!(now["spec"]["runtime"]["memory"], memory);
        assert_eq!(now["spec"]["runtime"]["envs"][0]["value"], "***", "its sender knows it");
        let state = (&now["status"], &now["spec"]["enabled"]);
        assert_eq!(state, (&json!("DEACTIVATED"), &json!(false)));
        assert!(now["metadata"].get("labels").is_none(), "{now}");
    }
    now["spec"]["revision"]["active"] = ids[0].clone();
    now["spec"]["enabled"] = json!(true);
    let on = cloud.put("/v0/agents/one", now).await.ok();
    assert_eq!((&on["status"], &on["spec"]["enabled"]), (&json!("DEPLOYING"), &json!(true)));
    assert_eq!(on["spec"]["runtime"]["memory"], 2048);
    assert_eq!(cloud.get("/v0/agents/one/revisions").await.ok().as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_revision_that_comes_back_is_judged_as_what_it_is() {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)));
    let cloud = Cloud::start_on_machine(machine, settings()).await;
    let policy = json!({"metadata": {"name": "p"}, "spec": {"type": "maxToken",
        "maxTokens": {"granularity": "hour", "requests": 9}}});
    cloud.post("/v0/policies", policy).await.ok();
    let wish = |spec: Value| json!({"metadata": {"name": "j"}, "spec": spec});
    let broken = cloud.post("/v0/jobs", wish(json!({"policies": ["p"]}))).await.ok();
    let runs = wish(json!({"runtime": {"image": IMAGE}}));
    let runs = cloud.put("/v0/jobs/j", runs).await.ok();
    assert_eq!((&broken["status"], &runs["status"]), (&json!("FAILED"), &json!("DEPLOYED")));
    let back_to = async |revision: &Value| {
        let mut back = cloud.get("/v0/jobs/j").await.ok();
        back["spec"]["revision"] = revision["spec"]["revision"].clone();
        cloud.put("/v0/jobs/j", back).await
    };
    assert_eq!(back_to(&broken).await.ok()["status"], "FAILED");
    assert_eq!(back_to(&runs).await.ok()["status"], "DEPLOYED");
    cloud.delete("/v0/policies/p").await.ok();
    let message = back_to(&broken).await.refused(400);
    assert!(message.contains("names the policy `p`, which does not exist"), "{message}");
}

#[tokio::test]
async fn pages_cover_everything_once_and_cursors_are_bound() {
    let cloud = Cloud::start().await;
    for index in 0..25 {
        cloud
            .post(
                "/v0/policies",
                json!({"metadata": {"name": format!("p-{index:02}")},
            "spec": {"type": "location", "locations": [{"name": "eu", "type": "continent"}]}}),
            )
            .await
            .ok();
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page =
            cloud.get(&format!("/v0/policies?limit=10&sort=name:asc&cursor={cursor}")).await.ok();
        assert_eq!(page["meta"]["total"], 25);
        seen.extend(
            page["data"]
                .as_array()
                .unwrap()
                .iter()
                .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()),
        );
        cursor = page["meta"]["nextCursor"].as_str().unwrap().to_owned();
        if page["meta"]["hasMore"] == false {
            break;
        }
    }
    assert_eq!(seen, (0..25).map(|index| format!("p-{index:02}")).collect::<Vec<_>>());
    assert_eq!(cursor, "");
    let page = cloud.get("/v0/policies?limit=10").await.ok();
    let cursor = page["meta"]["nextCursor"].as_str().unwrap();
    cloud.get(&format!("/v0/agents?cursor={cursor}")).await.refused(400);
    cloud.get(&format!("/v0/policies?q=p-1&cursor={cursor}")).await.refused(400);
    let last = cloud.get("/v0/policies?limit=10&sort=name:asc&anchor=end").await.ok();
    assert_eq!(last["data"][9]["metadata"]["name"], "p-24");
    let bare =
        cloud.call_with(Method::GET, "/v0/policies", &[("blaxel-version", "")], None).await.ok();
    assert_eq!(bare.as_array().unwrap().len(), 25, "the first version has bare arrays");
}

#[tokio::test]
async fn an_idempotency_key_acts_once() {
    let cloud = Cloud::start().await;
    let key = [("idempotency-key", "k-1")];
    let first = cloud.call_with(Method::POST, "/v0/agents", &key, Some(agent("one"))).await.ok();
    let again = cloud.call_with(Method::POST, "/v0/agents", &key, Some(agent("one"))).await;
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert_eq!(again.ok(), first);
    cloud.call_with(Method::POST, "/v0/agents", &key, Some(agent("two"))).await.refused(409);
}

#[tokio::test]
async fn answers_kept_in_a_day_are_limited_and_nothing_is_done_beyond() {
    let few = control::Settings { answers_day_bytes_max: 10_000, ..settings() };
    let cloud = Cloud::start_with(few).await;
    let make = async |name: &str| {
        let key = [("idempotency-key", name)];
        cloud.call_with(Method::POST, "/v0/agents", &key, Some(agent(name))).await
    };
    let first = make("a-0").await.ok();
    let mut refused = None;
    for number in 1..100 {
        let name = format!("a-{number}");
        let answer = make(&name).await;
        if answer.status == 429 {
            refused = Some((name, answer));
            break;
        }
        answer.ok();
    }
    let (name, answer) = refused.expect("there is a limit");
    assert!(answer.refused(429).contains("without `Idempotency-Key`"));
    cloud.get(&format!("/v0/agents/{name}")).await.refused(404);
    let again = make("a-0").await;
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert_eq!(again.ok(), first, "what is kept is still repeated");
    cloud.post("/v0/agents", agent(&name)).await.ok();
    cloud.clock.advance_s(86_400);
    make("next-day").await.ok();
}

#[tokio::test]
async fn objects_of_a_workspace_take_a_limited_part_of_the_database() {
    let few = control::Settings { objects_bytes_max: 100_000, ..settings() };
    let cloud = Cloud::start_with(few).await;
    let large = |name: &str, bytes: usize| {
        let mut body = agent(name);
        body["spec"]["runtime"]["envs"][1]["value"] = "x".repeat(bytes).into();
        body
    };
    for name in ["a", "b", "c"] {
        cloud.post("/v0/agents", large(name, 30_000)).await.ok();
    }
    let refused = cloud.post("/v0/agents", large("d", 30_000)).await;
    assert!(refused.refused(403).contains("may take 100000 bytes of the database"));
    cloud.get("/v0/agents/d").await.refused(404);
    cloud.put("/v0/agents/a", large("a", 60_000)).await.refused(403);
    // What is not made larger, and what is small, is still saved.
    cloud.put("/v0/agents/a", large("a", 10_000)).await.ok();
    cloud.post("/v0/agents", agent("small")).await.ok();
    cloud.post("/v0/agents", large("d", 15_000)).await.ok();
    cloud.post("/v0/agents", large("e", 30_000)).await.refused(403);
    cloud.delete("/v0/agents/b").await.ok();
    cloud.post("/v0/agents", large("e", 15_000)).await.ok();
}

#[tokio::test]
async fn unknown_versions_are_refused_by_name() {
    let cloud = Cloud::start().await;
    let answer = cloud
        .call_with(
            Method::GET,
            "/v0/agents",
            &[("service-version", "2020-01-01"), ("blaxel-version", "")],
            None,
        )
        .await;
    assert_eq!(answer.body["error"], "invalid_api_version");
    assert!(answer.refused(400).contains("2026-04-16"));
}

#[tokio::test]
async fn problems_name_their_fields() {
    let cloud = Cloud::start().await;
    let message = cloud
        .post(
            "/v0/agents",
            json!({"metadata": {"name": "Bad Name"}, "spec": {"runtime": {"memory": 1}}}),
        )
        .await
        .refused(400);
    assert!(
        message.contains("`metadata.name`") && message.contains("`spec.runtime.memory`"),
        "{message}"
    );
    let message = cloud
        .post("/v0/agents", json!({"metadata": {"name": "x"}, "spec": {"policies": ["nope"]}}))
        .await
        .refused(400);
    assert!(message.contains("`spec.policies[0]`") && message.contains("nope"), "{message}");
}

#[tokio::test]
async fn a_preview_and_its_tokens_go_with_their_sandbox() {
    let cloud = Cloud::start().await;
    let sandbox = cloud
        .post("/v0/sandboxes?createIfNotExist=true", json!({"metadata": {}, "spec": {}}))
        .await
        .ok();
    let name = sandbox["metadata"]["name"].as_str().unwrap().to_owned();
    let previews = format!("/v0/sandboxes/{name}/previews");
    let preview = cloud
        .post(
            &previews,
            json!({"metadata": {"name": "web"}, "spec": {"port": 3000, "public": false}}),
        )
        .await
        .ok();
    assert_eq!(preview["metadata"]["resourceName"], name.as_str());
    assert!(preview["spec"]["url"].as_str().unwrap().contains("/-/"), "{preview}");
    let token = cloud
        .post(
            &format!("{previews}/web/tokens"),
            json!({"metadata": {"name": ""}, "spec": {"expiresAt": "2030-01-01T00:00:00Z"}}),
        )
        .await
        .ok();
    assert_eq!(token["spec"]["token"].as_str().unwrap().len(), 48);
    let tokens = cloud.get(&format!("{previews}/web/tokens")).await.ok();
    assert_eq!(tokens[0], token);
    cloud.delete(&format!("/v0/sandboxes/{name}")).await.ok();
    cloud.get(&format!("{previews}/web")).await.refused(404);
}

#[tokio::test]
async fn a_write_that_names_the_version_it_saw_loses_to_a_faster_one() {
    let cloud = Cloud::start().await;
    cloud.post("/v0/agents", agent("one")).await.ok();
    let read = cloud.get("/v0/agents/one").await;
    let seen = read.headers["etag"].to_str().unwrap().to_owned();
    let mut mine = read.ok();
    mine["metadata"]["displayName"] = json!("theirs");
    cloud.put("/v0/agents/one", mine.clone()).await.ok();
    mine["metadata"]["displayName"] = json!("mine");
    let guard = [("if-match", seen.as_str())];
    cloud.call_with(Method::PUT, "/v0/agents/one", &guard, Some(mine.clone())).await.refused(412);
    cloud.call_with(Method::DELETE, "/v0/agents/one", &guard, None).await.refused(412);
    let now = cloud.get("/v0/agents/one").await;
    let seen = now.headers["etag"].to_str().unwrap().to_owned();
    cloud
        .call_with(Method::PUT, "/v0/agents/one", &[("if-match", seen.as_str())], Some(mine))
        .await
        .ok();
}

#[tokio::test]
async fn a_secret_of_the_workspace_is_written_and_never_read() {
    let cloud = Cloud::start().await;
    let made = cloud.post("/v0/secrets", json!({"name": "Api_Key", "value": "hunter2"})).await.ok();
    assert_eq!((&made["name"], made.get("value")), (&json!("Api_Key"), None));
    cloud.post("/v0/secrets", json!({"name": "Api_Key", "value": "hunter3"})).await.ok();
    let all = cloud.get("/v0/secrets").await.ok();
    assert!(all.as_array().unwrap().len() == 1 && !all.to_string().contains("hunter"), "{all}");
    cloud.post("/v0/secrets", json!({"name": "Api_Key"})).await.refused(400);
    cloud.delete("/v0/secrets?name=Api_Key").await.ok();
    cloud.delete("/v0/secrets/Api_Key").await.refused(404);
}
