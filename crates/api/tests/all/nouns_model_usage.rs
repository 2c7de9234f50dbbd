//! Usage of models: queries, their rules, and who may see which answers.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common::Cloud;
use models::ledger::{Ledger, Settings};
use serde_json::{Value, json};
use types::Timestamp;
use types::ids::ResourceId;
use types::kinds::model::{ModelFailure, ModelType};
use types::models::{ModelCall, ModelOutcome, TokenUsage};
use types::time::HOUR_MS;

/// Time of the test's clock: 2026-04-16T00:40:00Z.
const NOW: i64 = 1_776_300_000_000;

fn call(workspace: &types::ids::WorkspaceId, model: &str, at: i64) -> ModelCall {
    ModelCall {
        at: Timestamp::from_ms(at),
        workspace: workspace.clone(),
        model: model.into(),
        model_id: ResourceId::known("res_m"),
        provider: ModelType::Anthropic,
        provider_model: "claude".into(),
        key: "key".into(),
        end_user: None,
        tag: Some("night".into()),
        usage: TokenUsage {
            input: 10,
            output: 5,
            cached: 4,
            reasoning: 2,
            ..TokenUsage::default()
        },
        cost: 1_500_000_000,
        prices: "1".into(),
        outcome: ModelOutcome::Answered,
    }
}

/// Meters calls like the gateway does.
async fn meter(cloud: &Cloud, calls: Vec<ModelCall>) {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::new(folder.path().join("journal"), "boot".into());
    let books = control::models::ledger::books(&cloud.store);
    let ledger = Ledger::open(settings, books, cloud.store.world().clone()).await.unwrap();
    for call in calls {
        ledger.reserve(Vec::new(), call.clone()).await.unwrap().settle(&call);
    }
    ledger.close().await;
}

async fn cloud() -> Cloud {
    let cloud = Cloud::start().await;
    let workspace = cloud.workspace("main").await;
    let spec = json!({"runtime": {"type": "anthropic", "model": "claude"}});
    cloud.post("/v0/models", json!({"metadata": {"name": "m"}, "spec": spec})).await.ok();
    let failed = ModelCall {
        outcome: ModelOutcome::Failed(ModelFailure::Timeout),
        usage: TokenUsage { estimated: true, ..TokenUsage::default() },
        cost: 0,
        end_user: Some("ada".into()),
        ..call(&workspace, "m", NOW)
    };
    let calls = vec![
        call(&workspace, "m", NOW),
        call(&workspace, "m", NOW - HOUR_MS),
        call(&workspace, "gone", NOW),
        call(&types::ids::WorkspaceId::known("wsp_other"), "m", NOW),
        failed,
    ];
    meter(&cloud, calls).await;
    cloud
}

fn members(answer: &Value, names: &[&str]) -> Vec<Value> {
    let entries = answer["data"].as_array().unwrap().iter();
    entries.map(|entry| names.iter().map(|name| entry[*name].clone()).collect()).collect()
}

#[tokio::test]
async fn usage_is_answered_by_model_time_and_group() {
    let cloud = cloud().await;
    let all = cloud.get("/v0/usage/models?groupBy=model").await.ok();
    assert_eq!(members(&all, &["model", "calls"]), [json!(["gone", 1]), json!(["m", 3])]);
    assert_eq!(all["total"]["calls"], 4);
    assert_eq!(all["start"], "2026-04-01T00:00:00.000Z");
    assert_eq!(all["end"], "2026-04-16T01:00:00.000Z");

    let one = cloud.get("/v0/models/m/usage").await.ok();
    let total = &one["total"];
    assert_eq!((&total["inputTokens"], &total["totalTokens"]), (&json!(20), &json!(30)));
    assert_eq!((&total["cachedTokens"], &total["reasoningTokens"]), (&json!(8), &json!(4)));
    assert_eq!((&total["failedCalls"], &total["estimatedCalls"]), (&json!(1), &json!(1)));
    assert_eq!(
        (&total["costNanodollars"], &total["cost"]),
        (&json!(3_000_000_000i64), &json!(3.0))
    );
    assert_eq!(one["data"].as_array().unwrap().len(), 1);

    let path = "/v0/models/m/usage?resolution=hourly&groupBy=endUser,provider,tag\
                &start=2026-04-15T23:59:00Z&end=2026-04-16T00:30:00Z";
    let hourly = cloud.get(path).await.ok();
    let names = ["timestamp", "endUser", "provider", "tag", "calls"];
    let hour = |text: &str| format!("2026-04-{text}:00:00.000Z");
    assert_eq!(
        members(&hourly, &names),
        [
            json!([hour("15T23"), "", "anthropic", "night", 1]),
            json!([hour("16T00"), "", "anthropic", "night", 1]),
            json!([hour("16T00"), "ada", "anthropic", "night", 1]),
        ]
    );
    let daily = cloud.get("/v0/models/m/usage?resolution=daily").await.ok();
    assert_eq!(
        members(&daily, &["timestamp", "calls"]),
        [json!([hour("15T00"), 1]), json!([hour("16T00"), 2])]
    );
    let before = cloud.get("/v0/usage/models?end=2026-04-10T00:00:00Z").await.ok();
    assert_eq!((&before["data"], &before["total"]["calls"]), (&json!([]), &json!(0)));
}

#[tokio::test]
async fn questions_keep_to_rules() {
    let cloud = cloud().await;
    for (query, word) in [
        ("start=yesterday", "start"),
        ("end=2026-04-16T00:00:00%2B02:00", "end"),
        ("start=2026-04-16T00:00:00Z&end=2026-04-16T00:00:00Z", "after"),
        ("resolution=weekly", "hourly"),
        ("groupBy=model,key,model", "twice"),
        ("groupBy=workspace", "providerModel"),
        ("resolution=hourly&start=2026-03-01T00:00:00Z", "31 days"),
        ("start=2020-03-01T00:00:00Z", "401 days"),
    ] {
        for path in ["/v0/usage/models", "/v0/models/m/usage"] {
            let message = cloud.get(&format!("{path}?{query}")).await.refused(400);
            assert!(message.contains(word), "{query}: {message}");
        }
    }
    cloud.get("/v0/models/unknown/usage").await.refused(404);
}

#[tokio::test]
async fn an_answer_is_bounded() {
    let cloud = cloud().await;
    let workspace = cloud.workspace("main").await;
    let user = |number: i64| ModelCall {
        end_user: Some(format!("user-{number}")),
        ..call(&workspace, "m", NOW)
    };
    meter(&cloud, (0..10_001).map(user).collect()).await;
    let message = cloud.get("/v0/usage/models?groupBy=endUser").await.refused(400);
    assert!(message.contains("10000"), "{message}");
    assert_eq!(cloud.get("/v0/usage/models").await.ok()["total"]["calls"], 10_005);
}
