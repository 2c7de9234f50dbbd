//! Models: what the edge is told about them, which ones are valid, and keys for models only.

mod providers;

use crate::common::machine::Pretended;
use crate::common::{Cloud, settings};
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use types::instance::Outcome;
use types::kinds::model::ModelType;
use types::kinds::policy::{Granularity, LimitPer};
use types::models::{
    LimitMeasure, ModelCall, ModelLogEntry, ModelOutcome, ModelRoute, OutsideRequest, TokenUsage,
};

const CONNECTIONS: &str = "/v0/integrations/connections";

async fn cloud() -> Cloud {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)));
    Cloud::start_on_machine(machine, settings()).await
}

fn object(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

fn connection(name: &str, key: &str) -> Value {
    object(name, json!({"integration": "openai", "secret": {"apiKey": key}}))
}

fn model(connection: &str) -> Value {
    let runtime = json!({"type": "openai", "model": "gpt-x"});
    object("m", json!({"runtime": runtime, "integrationConnections": [connection]}))
}

fn policy(name: &str, tokens: Value) -> Value {
    object(name, json!({"type": "maxToken", "maxTokens": tokens}))
}

fn key_of(route: &ModelRoute) -> Option<&str> {
    Some(route.provider.as_ref()?.secrets.0.get("apiKey")?.as_str())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_edge_is_told_of_what_serves_with_secrets_open() {
    let cloud = cloud().await;
    cloud.post(CONNECTIONS, connection("k", "sk-1")).await.ok();
    let made = cloud.post("/v0/models", model("k")).await.ok();
    assert_eq!(made["status"], "DEPLOYED");
    let url = made["metadata"]["url"].as_str().unwrap();
    assert!(url.ends_with("/main/models/m"), "{url}");
    let route = cloud.routes.until_model("m", |route| route.off.is_none()).await;
    let provider = route.provider.as_ref().unwrap();
    assert_eq!((provider.kind, provider.model.as_deref()), (ModelType::Openai, Some("gpt-x")));
    assert_eq!((key_of(&route), route.workspace_name.as_str()), (Some("sk-1"), "main"));
    assert_eq!(made["spec"]["revision"]["active"], route.revision);
    assert!(!format!("{route:?}").contains("sk-1"), "no secret is in what is logged");

    // Another key applies at once, without a new revision of the model.
    cloud.put(&format!("{CONNECTIONS}/k"), connection("k", "sk-2")).await.ok();
    let next = cloud.routes.until_model("m", |route| key_of(route) == Some("sk-2")).await;
    assert_eq!(next.revision, route.revision);

    let mut off = made.clone();
    off["spec"]["enabled"] = json!(false);
    cloud.put("/v0/models/m", off).await.ok();
    cloud.routes.until_model("m", |route| route.off.as_deref() == Some("is disabled")).await;
    let mut other = made.clone();
    other["spec"]["runtime"]["model"] = json!("gpt-y");
    let mut back = cloud.put("/v0/models/m", other).await.ok();
    cloud.routes.until_model("m", |now| now.revision != route.revision).await;
    back["spec"]["revision"] = json!({"active": route.revision});
    cloud.put("/v0/models/m", back).await.ok();
    let back = cloud.routes.until_model("m", |now| now.revision == route.revision).await;
    assert_eq!(back.off, None, "the earlier revision serves again");

    // A connection can only be deleted after the model no longer names it; the model then says what
    // it lacks.
    cloud.delete(&format!("{CONNECTIONS}/k")).await.refused(409);
    let mut bare = made.clone();
    bare["spec"]["integrationConnections"] = json!([]);
    let mut bare = cloud.put("/v0/models/m", bare).await.ok();
    cloud.delete(&format!("{CONNECTIONS}/k")).await.refused(409);
    let newest = cloud.get("/v0/models/m/revisions").await.ok()[0]["id"].clone();
    bare["spec"]["revision"]["active"] = newest;
    cloud.put("/v0/models/m", bare).await.ok();
    cloud.delete(&format!("{CONNECTIONS}/k")).await.ok();
    let lacks = |route: &ModelRoute| {
        route.off.as_deref().is_some_and(|off| off.contains("spec.integrationConnections"))
    };
    let route = cloud.routes.until_model("m", lacks).await;
    assert_eq!(route.provider, None);
    cloud.delete("/v0/models/m").await.ok();
    assert!(cloud.routes.is_gone(&route.id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_are_those_of_the_policies_as_they_are_now() {
    let cloud = cloud().await;
    cloud.post(CONNECTIONS, connection("k", "sk-1")).await.ok();
    let tokens = json!({"granularity": "day", "step": 2, "total": 500, "requests": 3, "cost": "12.50", "input": 0});
    cloud.post("/v0/policies", policy("p", tokens)).await.ok();
    let mut wish = model("k");
    wish["spec"]["policies"] = json!(["p"]);
    cloud.post("/v0/models", wish).await.ok();
    let route = cloud.routes.until_model("m", |route| route.off.is_none()).await;
    let amounts: Vec<_> = route.limits.iter().map(|limit| (limit.measure, limit.amount)).collect();
    let wanted = [
        (LimitMeasure::Cost, 12_500_000_000),
        (LimitMeasure::Requests, 3),
        (LimitMeasure::TotalTokens, 500),
    ];
    assert_eq!(amounts, wanted);
    let limit = &route.limits[0];
    assert_eq!((limit.granularity, limit.step, limit.per), (Granularity::Day, 2, LimitPer::Model));
    assert_eq!(limit.name, "policy `p`");

    let per = json!({"granularity": "hour", "requests": 9, "per": "endUser"});
    cloud.put("/v0/policies/p", policy("p", per)).await.ok();
    let changed = cloud.routes.until_model("m", |route| route.limits.len() == 1).await;
    assert_eq!((changed.limits[0].amount, changed.limits[0].per), (9, LimitPer::EndUser));
    assert_eq!(changed.limits[0].id, limit.id, "it counts on under the same name");

    let other = object(
        "p",
        json!({"type": "maxToken", "resourceTypes": ["agent"], "maxTokens": {"granularity": "hour", "requests": 9}}),
    );
    cloud.put("/v0/policies/p", other).await.ok();
    cloud.routes.until_model("m", |route| route.limits.is_empty()).await;
    cloud.put("/v0/policies/p", policy("p", json!({"granularity": "day", "total": 1}))).await.ok();
    cloud.routes.until_model("m", |route| !route.limits.is_empty()).await;
    cloud.delete("/v0/policies/p").await.ok();
    cloud.routes.until_model("m", |route| route.limits.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_with_test_credentials_uses_the_connection_that_has_them() {
    let cloud = cloud().await;
    cloud.post(CONNECTIONS, connection("real", "sk-real")).await.ok();
    let mut wish = model("real");
    wish["spec"]["sandbox"] = json!(true);
    let why = cloud.post("/v0/models", wish.clone()).await.refused(400);
    assert!(why.contains("spec.sandbox"), "{why}");
    let mut test = connection("test", "sk-test");
    test["spec"]["sandbox"] = json!(true);
    cloud.post(CONNECTIONS, test).await.ok();
    wish["spec"]["integrationConnections"] = json!(["real", "test"]);
    cloud.post("/v0/models", wish.clone()).await.ok();
    let route = cloud.routes.until_model("m", |route| route.off.is_none()).await;
    assert_eq!(key_of(&route), Some("sk-test"));
    wish["spec"]["sandbox"] = json!(false);
    cloud.put("/v0/models/m", wish).await.ok();
    cloud.routes.until_model("m", |route| key_of(route) == Some("sk-real")).await;
}

#[tokio::test]
async fn models_that_could_not_answer_are_refused_with_the_reason() {
    for cloud in Cloud::on_both().await {
        cloud.post(CONNECTIONS, connection("k", "sk-1")).await.ok();
        cloud.post(CONNECTIONS, object("gh", json!({"integration": "github"}))).await.ok();
        cloud.post("/v0/models", model("k")).await.ok();
        let virtual_of = |targets: Value| object("v", json!({"routing": {"targets": targets}}));
        let hook = |hook: Value| object("v", json!({"hooks": [hook]}));
        for (wish, reason) in [
            (virtual_of(json!([{"model": "none"}])), "spec.routing.targets[0].model"),
            (virtual_of(json!([{"model": "v"}])), "must not be the model itself"),
            (virtual_of(json!([{"model": "m"}, {"model": "m"}])), "is there already"),
            (virtual_of(json!([{"model": "m", "weight": 0}])), "a weight above 0"),
            (
                object("v", json!({"routing": {"fallbacks": [{"model": "none"}]}})),
                "spec.routing.fallbacks[0].model",
            ),
            (
                object(
                    "v",
                    json!({"routing": {"targets": [{"model": "m"}]}, "integrationConnections": ["k"]}),
                ),
                "spec.integrationConnections",
            ),
            (
                hook(json!({"when": "before", "pattern": "(", "action": "mask"})),
                "no regular expression",
            ),
            (hook(json!({"when": "before", "pattern": "\\w{1000}{1000}"})), "too large"),
            (hook(json!({"when": "before"})), "either a `pattern` or a `webhook`"),
            (hook(json!({"when": "after", "webhook": "ftp://x"})), "http or https"),
            (object("v", json!({"requestLog": {"redact": ["["]}})), "spec.requestLog.redact[0]"),
            (
                object(
                    "v",
                    json!({"runtime": {"type": "anthropic"}, "integrationConnections": ["k"]}),
                ),
                "does not answer for `spec.runtime.type`",
            ),
            (object("v", json!({"integrationConnections": ["gh"]})), "which has no models"),
            (object("v", json!({"revision": {"canaryPercent": 5}})), "no canaries"),
        ] {
            let why = cloud.post("/v0/models", wish.clone()).await.refused(400);
            assert!(why.contains(reason), "{wish}: {why}");
        }
        cloud.post("/v0/models", virtual_of(json!([{"model": "m", "weight": 3}]))).await.ok();
        let why = cloud.delete("/v0/models/m").await.refused(409);
        assert!(why.contains("`v`"), "{why}");
        cloud.delete("/v0/models/v").await.ok();
        cloud.delete("/v0/models/m").await.ok();
    }
}

#[tokio::test]
async fn limits_that_mean_nothing_are_refused() {
    let cloud = Cloud::start().await;
    for (tokens, field) in [
        (json!({"granularity": "day", "total": 0, "cost": "0"}), "spec.maxTokens.cost"),
        (json!({"total": 5}), "spec.maxTokens.granularity"),
        (json!({"granularity": "day", "cost": "-1"}), "spec.maxTokens.cost"),
        (json!({"granularity": "day", "cost": "1e3"}), "spec.maxTokens.cost"),
        (json!({"granularity": "day", "cost": "0.0000000001"}), "spec.maxTokens.cost"),
        (json!({"granularity": "day", "requests": 1, "per": "planet"}), "spec.maxTokens.per"),
    ] {
        let why = cloud.post("/v0/policies", policy("p", tokens.clone())).await.refused(400);
        assert!(why.contains(field), "{tokens}: {why}");
    }
    let ignored = json!({"granularity": "day", "input": 0, "output": 0, "total": 0});
    cloud.post("/v0/policies", policy("p", ignored)).await.ok();
}

#[tokio::test]
async fn policies_of_places_and_flavors_decide_what_is_deployed() {
    for cloud in Cloud::on_both().await {
        let location = |name: &str, place: &str, spec: Value| {
            let mut spec = spec;
            spec["type"] = json!("location");
            spec["locations"] = json!([{"type": "continent", "name": place}]);
            object(name, spec)
        };
        cloud.post("/v0/policies", location("eu", "eu", json!({}))).await.ok();
        cloud.post("/v0/policies", location("na", "na", json!({}))).await.ok();
        let of_agents = location("na-agents", "na", json!({"resourceTypes": ["agent"]}));
        cloud.post("/v0/policies", of_agents).await.ok();
        let gpu = json!({"type": "flavor", "flavors": [{"name": "t4", "type": "gpu"}]});
        cloud.post("/v0/policies", object("gpu", gpu)).await.ok();
        let x86 = json!({"type": "flavor", "flavors": [{"name": "x86", "type": "cpu"}]});
        cloud.post("/v0/policies", object("x86", x86)).await.ok();
        for (kind, policies, allowed) in [
            ("agents", json!(["eu"]), true),
            ("agents", json!(["na"]), false),
            ("agents", json!(["na", "eu"]), true),
            ("agents", json!(["eu", "x86"]), true),
            ("agents", json!(["eu", "gpu"]), false),
            ("agents", json!(["gpu", "x86"]), true),
            ("agents", json!(["na-agents"]), false),
            ("functions", json!(["na-agents"]), true),
            ("functions", json!(["na"]), false),
            ("jobs", json!(["na"]), false),
            ("jobs", json!(["na-agents"]), true),
            ("models", json!(["na"]), false),
            ("models", json!(["eu", "x86"]), true),
        ] {
            let path = &format!("/v0/{kind}");
            let answer = cloud.post(path, object("o", json!({"policies": policies}))).await;
            if allowed {
                answer.ok();
                cloud.delete(&format!("{path}/o")).await.ok();
            } else {
                let why = answer.refused(400);
                assert!(why.contains("spec.policies"), "{kind} {policies}: {why}");
            }
        }
        // What is deployed stays; the next deployment is checked against the policy as it is then.
        let agent = cloud.post("/v0/agents", object("a", json!({"policies": ["eu"]}))).await.ok();
        cloud.put("/v0/policies/eu", location("eu", "as", json!({}))).await.ok();
        cloud.get("/v0/agents/a").await.ok();
        let mut again = agent.clone();
        again["spec"]["runtime"]["memory"] = json!(2048);
        cloud.put("/v0/agents/a", again).await.refused(400);
        let mut off = agent;
        off["spec"]["enabled"] = json!(false);
        cloud.put("/v0/agents/a", off).await.ok();
    }
}

#[tokio::test]
async fn a_key_for_models_alone_opens_nothing_else() {
    for cloud in Cloud::on_both().await {
        let budget = json!({"cost": "5", "requests": 10, "granularity": "month"});
        let wish = json!({"name": "ci", "models": ["m", "n"], "budget": budget});
        let made = cloud.post("/v0/api_keys", wish).await.ok();
        assert_eq!((&made["models"], &made["budget"]), (&json!(["m", "n"]), &budget));
        let value = made["apiKey"].as_str().unwrap().to_owned();
        let bearer = format!("Bearer {value}");
        for (method, path) in [
            (Method::GET, "/v0/models"),
            (Method::GET, "/v0/models/m"),
            (Method::GET, "/v0/accounts"),
            (Method::GET, "/v0/api_keys"),
            (Method::POST, "/v0/api_keys"),
            (Method::GET, "/v0/workspaces"),
            (Method::GET, "/v2/"),
            (Method::GET, "/v0/changes"),
        ] {
            let answer =
                cloud.call_with(method, path, &[("authorization", &bearer)], Some(json!({}))).await;
            assert!([403, 401].contains(&answer.status.as_u16()), "{path}: {}", answer.text);
            assert!(answer.text.contains("for models alone"), "{path}: {}", answer.text);
        }
        assert!(cloud.auth.identify(&value).await.is_err());
        let who = cloud.auth.identify_for_models(&value).await.unwrap();
        let right = who.models.as_deref().unwrap();
        assert_eq!(right.models, ["m", "n"]);
        let limits: Vec<_> =
            right.limits.iter().map(|limit| (limit.measure, limit.amount, limit.per)).collect();
        let wanted = [
            (LimitMeasure::Cost, 5_000_000_000, LimitPer::Key),
            (LimitMeasure::Requests, 10, LimitPer::Key),
        ];
        assert_eq!(limits, wanted);
        assert_eq!(right.limits[0].name, "key `ci`");
        assert_eq!(right.limits[0].id, made["id"].as_str().unwrap());

        let listed = cloud.get("/v0/api_keys").await.ok();
        let listed = listed.as_array().unwrap();
        let shown = listed.iter().find(|key| key["id"] == made["id"]).unwrap();
        assert_eq!((&shown["models"], &shown["budget"]), (&made["models"], &budget));
        let other = listed.iter().find(|key| key["id"] != made["id"]).unwrap();
        assert!(other.get("models").is_none() && other.get("budget").is_none(), "{other}");
        cloud.delete(&format!("/v0/api_keys/{}", made["id"].as_str().unwrap())).await.ok();
        assert!(cloud.auth.identify_for_models(&value).await.is_err());

        for wrong in [
            json!({"models": ["No Name"]}),
            json!({"budget": {"granularity": "day"}}),
            json!({"budget": {"cost": "5"}}),
            json!({"budget": {"cost": "five", "granularity": "day"}}),
            json!({"budget": {"cost": "5", "granularity": "year"}}),
        ] {
            cloud.post("/v0/api_keys", wrong).await.refused(400);
        }
        let account = json!({"name": "robot", "description": ""});
        let account = cloud.post("/v0/service_accounts", account).await.ok();
        let path =
            format!("/v0/service_accounts/{}/api_keys", account["client_id"].as_str().unwrap());
        let key = cloud.post(&path, json!({"models": []})).await.ok();
        let who = cloud.auth.identify_for_models(key["apiKey"].as_str().unwrap()).await.unwrap();
        assert_eq!(who.models.as_deref().map(|right| right.models.len()), Some(0));
        assert_eq!(cloud.get(&path).await.ok()[0]["models"], json!([]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_found_among_the_logs_of_their_model() {
    let cloud = cloud().await;
    cloud.post(CONNECTIONS, connection("k", "sk-1")).await.ok();
    let mut wish = model("k");
    wish["spec"]["requestLog"] = json!({"enabled": true, "bodies": true});
    cloud.post("/v0/models", wish).await.ok();
    let route = cloud.routes.until_model("m", |route| route.request_log.is_some()).await;
    let usage = TokenUsage { input: 7, output: 9, ..TokenUsage::default() };
    let entry = |status, id: &types::ids::ResourceId| ModelLogEntry {
        call: ModelCall {
            at: cloud.control.world.now(),
            workspace: route.workspace.clone(),
            model: "m".into(),
            model_id: id.clone(),
            provider: ModelType::Openai,
            provider_model: "gpt-x".into(),
            key: "key_1".into(),
            end_user: Some("ada".into()),
            tag: None,
            usage,
            cost: 1,
            prices: "v1".into(),
            outcome: ModelOutcome::Answered,
        },
        method: "POST".into(),
        path: "/v1/chat/completions".into(),
        status,
        error: None,
        first_byte_ms: 1,
        took_ms: 2,
        tried: Vec::new(),
        request: Some("{\"messages\":\"hel\nlo\"}".into()),
        answer: None,
        left_out: 0,
    };
    cloud.routes.requested(entry(200, &types::ids::ResourceId::known("res_gone")));
    cloud.routes.requested(entry(429, &route.id));
    let logs = "/v0/observability/logs?resourceType=models&workloadIds=m";
    let answer = cloud.until(logs, |answer| answer["m"]["totalCount"] == 1).await;
    let line = &answer["m"]["logs"][0];
    let message: Value = serde_json::from_str(line["message"].as_str().unwrap()).unwrap();
    assert_eq!((&message["status"], &message["usage"]["input"]), (&json!(429), &json!(7)));
    assert_eq!(message["request"], "{\"messages\":\"hel\nlo\"}");
    let warned = cloud.get(&format!("{logs}&severity=WARNING&search=gpt-x")).await.ok();
    assert_eq!(warned["m"]["totalCount"], 1);
    let errors = cloud.get(&format!("{logs}&severity=ERROR")).await.ok();
    assert_eq!(errors["m"]["totalCount"], 0);
}
