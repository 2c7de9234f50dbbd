//! Cost and usage, prices and budgets.

use crate::common::{Cloud, settings};
use http::Method;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

const WINDOW: &str = "startTime=2026-04-01T00:00:00Z&endTime=2026-04-08T00:00:00Z";
/// A full hour after the time of the test's clock.
const LATER: &str = "2026-05-01T00:00:00.000Z";

fn account(cloud: &Cloud) -> String {
    format!("/v0/accounts/{}", cloud.first.account)
}

async fn ask(cloud: &Cloud, query: &str) -> crate::common::Answer {
    cloud.get(&format!("{}/metrics?{query}", account(cloud))).await
}

#[tokio::test]
async fn questions_about_cost_are_checked() {
    let cloud = Cloud::start().await;
    for (query, rule) in [
        ("", "`startTime` is required"),
        ("startTime=2026-04-01T00:00:00Z", "`endTime` is required"),
        (
            "startTime=yesterday&endTime=2026-04-08T00:00:00Z",
            "`startTime` must be an RFC 3339 time in UTC",
        ),
        ("startTime=2026-04-01&endTime=2026-04-08T00:00:00Z", "RFC 3339"),
        ("startTime=2026-04-01T02:00:00%2B02:00&endTime=2026-04-08T00:00:00Z", "UTC"),
        ("startTime=2026-04-01T00:00:00&endTime=2026-04-08T00:00:00Z", "UTC"),
        ("startTime=2026-02-29T00:00:00Z&endTime=2026-04-08T00:00:00Z", "`startTime`"),
        ("startTime=2026-04-08T00:00:00Z&endTime=2026-04-08T00:00:00Z", "`endTime` must be after"),
        ("startTime=2026-04-09T00:00:00Z&endTime=2026-04-08T00:00:00Z", "`endTime` must be after"),
        ("startTime=2026-04-01T00:00:00Z&endTime=2026-04-08T00:00:01Z&resolution=hourly", "7 days"),
        (
            "startTime=2026-04-01T00:00:00Z&endTime=2026-04-08T00:00:00.001Z&resolution=hourly",
            "7 days",
        ),
        ("startTime=2026-01-01T00:00:00Z&endTime=2026-04-02T00:00:00Z&resolution=daily", "90 days"),
        (
            "startTime=2024-01-01T00:00:00Z&endTime=2026-04-02T00:00:00Z&resolution=weekly",
            "366 days",
        ),
        ("startTime=-009998-01-01T00:00:00Z&endTime=9998-01-01T00:00:00Z", "are answered at most"),
        (&format!("{WINDOW}&resolution=yearly"), "hourly, daily, weekly or monthly"),
        (&format!("{WINDOW}&resolution=Daily"), "hourly, daily, weekly or monthly"),
        (
            &format!("{WINDOW}&groupBy=workspace,resource_type,resource_name,resource_uuid"),
            "at most 3",
        ),
        (&format!("{WINDOW}&groupBy=workspace,workspace"), "twice"),
        (&format!("{WINDOW}&groupBy=color"), "`groupBy` knows workspace, resource_type"),
        (&format!("{WINDOW}&groupBy=resource_type,"), "`groupBy` knows"),
        (
            &format!("{WINDOW}&resourceType=boat"),
            "`resourceType` must be one of agent, custom_domain",
        ),
        (
            &format!("{WINDOW}&billingDimension=gold"),
            "`billingDimension` must be one of agent_async",
        ),
        (&format!("{WINDOW}&label=a"), "`label` and `unit` are not supported"),
        (&format!("{WINDOW}&unit=b"), "`label` and `unit` are not supported"),
        (&format!("{WINDOW}&limit=0"), "`limit` must be at least 1"),
        (&format!("{WINDOW}&limit=-1"), "`limit` must be at least 1"),
        (&format!("{WINDOW}&limit=many"), "`limit`"),
        (&format!("{WINDOW}&cursor=abc"), "`cursor`"),
        (&format!("{WINDOW}&startTime=2026-04-01T00:00:00Z"), "startTime"),
        (&format!("{WINDOW}&resourceName=%00"), "NUL"),
    ] {
        let message = ask(&cloud, query).await.refused(400);
        assert!(message.contains(rule), "{query}: {message}");
    }
    let metrics = format!("{}/metrics", account(&cloud));
    cloud.get(&format!("/v0/accounts/acc_none/metrics?{WINDOW}")).await.refused(404);
    cloud.get(&format!("{metrics}/enums/resource-types")).await.refused(400);
    let accounts = cloud.get("/v0/accounts").await.ok();
    assert_eq!(
        (&accounts[0]["id"], &accounts[0]["admin"]),
        (&json!(cloud.first.account.to_string()), &json!(true))
    );
}

#[tokio::test]
async fn a_window_has_the_resolution_that_fits_it() {
    let cloud = Cloud::start().await;
    for (query, resolution) in [
        ("startTime=2026-04-01T00:00:00Z&endTime=2026-04-07T23:59:59Z", "hourly"),
        (WINDOW, "daily"),
        (&format!("{WINDOW}&resolution=hourly"), "hourly"),
        ("startTime=2026-01-01T00:00:00Z&endTime=2026-04-01T00:00:00Z", "weekly"),
        ("startTime=2026-01-01T00:00:00Z&endTime=2026-04-01T00:00:00Z&resolution=daily", "daily"),
        ("startTime=2024-02-29T00:00:00Z&endTime=2025-03-01T00:00:00Z&resolution=weekly", "weekly"),
        ("startTime=2024-01-01T00:00:00Z&endTime=2025-01-01T00:00:00Z", "monthly"),
        ("startTime=1026-01-01T00:00:00Z&endTime=2026-01-01T00:00:00Z", "monthly"),
        ("startTime=0000-01-01T00:00:00Z&endTime=7000-01-01T00:00:00Z&limit=5000", "monthly"),
        (&format!("{WINDOW}&groupBy=&label=&limit=5000"), "daily"),
    ] {
        let answer = ask(&cloud, query).await.ok();
        assert_eq!(answer["resolution"], resolution, "{query}");
        assert_eq!(
            (&answer["summary"]["totalCost"], &answer["meta"]["hasMore"]),
            (&json!(0.0), &json!(false))
        );
    }
    let dimensions = cloud.get(&format!("{}/metrics/enums/group-by", account(&cloud))).await.ok();
    let known =
        ["workspace", "resource_type", "resource_name", "resource_uuid", "billing_dimension"];
    assert_eq!(dimensions, json!({"values": known}));
}

#[tokio::test]
async fn only_admins_of_the_account_see_its_workspaces_apart() {
    let cloud = Cloud::start().await;
    let outsider = cloud.guest("outsider@example.com").await;
    let metrics = format!("{}/metrics?{WINDOW}", account(&cloud));
    outsider.get(&metrics).await.refused(404);
    let guest = cloud.admin_of_main("guest@example.com").await;
    guest.get(&metrics).await.ok();
    guest.get(&format!("{metrics}&groupBy=resource_type")).await.ok();
    for split in ["workspace=main", "groupBy=workspace", "groupBy=resource_type,workspace"] {
        guest.get(&format!("{metrics}&{split}")).await.refused(403);
        ask(&cloud, &format!("{WINDOW}&{split}")).await.ok();
    }
}

#[tokio::test]
async fn a_limited_token_learns_no_cost_and_no_names() {
    let cloud = Cloud::start().await;
    let metrics = format!("{}/metrics", account(&cloud));
    let ask = async |scope: &str, path: &str| {
        let bearer = format!("Bearer {}", cloud.limited_token(scope).await);
        cloud.call_with(Method::GET, path, &[("authorization", bearer.as_str())], None).await
    };
    for question in ["", "&groupBy=workspace", "&groupBy=resource_name", "&workspace=main"] {
        let path = format!("{metrics}?{WINDOW}{question}");
        let message = ask("templates:list", &path).await.refused(403);
        assert!(message.contains("`admin`"), "{question}: {message}");
        ask("admin", &path).await.ok();
    }
    let types = format!("{metrics}/enums/resource-types?{WINDOW}");
    ask("templates:list", &types).await.refused(403);
    ask("admin", &types).await.ok();
    ask("templates:list", &format!("{metrics}/enums/group-by")).await.ok();
}

#[tokio::test]
async fn prices_are_for_what_is_to_come() {
    for cloud in Cloud::on_both().await {
        let path = format!("{}/prices", account(&cloud));
        let first = cloud.get(&path).await.ok();
        let seeded = json!({"validFrom": "1970-01-01T00:00:00.000Z", "prices": {"sandbox_compute_runtime_gbs": "0.0000115"}});
        assert_eq!(first, json!({"versions": [seeded]}));
        let coming =
            json!({"validFrom": LATER, "prices": {"sandbox_compute_runtime_gbs": "0.00002"}});
        let both = json!({"versions": [seeded, coming]});
        assert_eq!(cloud.put(&path, both.clone()).await.ok(), both);
        assert_eq!(cloud.get(&path).await.ok(), both, "what was read can be written back");
        // Of the versions left out, those that have begun stay and the others are removed.
        let soon = cloud
            .put(&path, json!({"versions": [{"prices": {"volume_storage_gbs": "1"}}]}))
            .await
            .ok();
        let soon = soon["versions"].as_array().unwrap().clone();
        assert_eq!((soon.len(), &soon[1]["validFrom"]), (2, &json!("2026-04-16T01:00:00.000Z")));
        cloud.clock.advance_s(3600);
        let message = cloud.put(
            &path,
            json!({"versions": [{"validFrom": "2026-04-16T01:00:00Z", "prices": {"volume_storage_gbs": "2"}}]}),
        );
        assert!(message.await.refused(400).contains("has passed"));
        assert_eq!(
            cloud.put(&path, json!({"versions": []})).await.ok()["versions"]
                .as_array()
                .unwrap()
                .len(),
            2
        );
    }
}

#[tokio::test]
async fn prices_that_cannot_be_are_refused() {
    let cloud = Cloud::start().await;
    let path = format!("{}/prices", account(&cloud));
    for (prices, rule) in [
        (json!({"gold": "1"}), "billing dimension"),
        (json!({"volume_storage_gbs": 1}), "string"),
        (json!({"volume_storage_gbs": "1e3"}), "must be a decimal"),
        (json!({"volume_storage_gbs": "-1"}), "must be a decimal"),
        (json!({"volume_storage_gbs": "0.0000000000001"}), "must be a decimal"),
        (json!({"volume_storage_gbs": "1000000"}), "must be a decimal"),
        (json!({}), "does not have the form"),
    ] {
        let body = json!({"versions": [{"validFrom": LATER, "prices": prices}]});
        let message = cloud.put(&path, body).await.refused(400);
        assert!(message.contains(rule), "{prices}: {message}");
    }
    let guest = cloud.admin_of_main("guest@example.com").await;
    guest.get(&path).await.refused(403);
    guest.call(Method::PUT, &path, Some(json!({"versions": []}))).await.refused(403);
    let (stranger, _) = cloud.stranger("stranger@example.com").await;
    stranger.get(&path).await.refused(404);
}

#[tokio::test]
async fn a_budget_is_made_read_changed_and_removed() {
    for cloud in Cloud::on_both().await {
        let (all, path) =
            (format!("{}/budgets", account(&cloud)), format!("{}/budgets/team", account(&cloud)));
        cloud.get(&path).await.refused(404);
        let made = cloud.put(&path, json!({"amount": "100"})).await.ok();
        assert_eq!(
            (&made["name"], &made["thresholds"], &made["hardLimit"]),
            (&json!("team"), &json!([80, 100]), &json!(false))
        );
        assert_eq!(
            (&made["spent"], &made["exhausted"], &made["alerts"]),
            (&json!("0"), &json!(false), &json!([]))
        );
        assert_eq!(
            (&made["periodStart"], &made["periodEnd"]),
            (&json!("2026-04-01T00:00:00.000Z"), &json!(LATER))
        );
        assert!(made.get("webhookSecret").is_none(), "{made}");
        let wish = json!({"amount": "99.5", "workspace": "main", "thresholds": [100, 50, 50], "hardLimit": true});
        let changed = cloud.put(&path, wish).await.ok();
        assert_eq!(
            (&changed["thresholds"], &changed["createdAt"]),
            (&json!([50, 100]), &made["createdAt"])
        );
        assert_eq!(cloud.get(&path).await.ok(), changed);
        assert_eq!(cloud.get(&all).await.ok(), json!([changed]));
        assert_eq!(
            cloud.put(&path, changed.clone()).await.ok()["amount"],
            "99.5",
            "what was read can be written back"
        );
        cloud.delete(&path).await.ok();
        cloud.delete(&path).await.refused(404);
        assert_eq!(cloud.get(&all).await.ok(), json!([]));
    }
}

#[tokio::test]
async fn the_secret_of_a_webhook_is_shown_once() {
    let cloud = Cloud::start().await;
    let path = format!("{}/budgets/team", account(&cloud));
    let wish = json!({"amount": "100", "webhookUrl": "https://example.com/hook"});
    let secret =
        cloud.put(&path, wish.clone()).await.ok()["webhookSecret"].as_str().unwrap().to_owned();
    assert_eq!(secret.len(), 40);
    for again in [cloud.get(&path).await.ok(), cloud.put(&path, wish.clone()).await.ok()] {
        assert_eq!(again["webhookSecret"], "***");
    }
    let own = json!({"amount": "100", "webhookUrl": "https://example.com/hook", "webhookSecret": "an-own-secret-of-some-length"});
    assert_eq!(cloud.put(&path, own).await.ok()["webhookSecret"], "***");
    assert!(cloud.put(&path, json!({"amount": "100"})).await.ok().get("webhookSecret").is_none());
    let masked =
        json!({"amount": "100", "webhookUrl": "https://example.com/hook", "webhookSecret": "***"});
    assert!(cloud.put(&path, masked).await.refused(400).contains("masked"));
    let once = [("idempotency-key", "k1")];
    let first = cloud.call_with(Method::PUT, &path, &once, Some(wish.clone())).await.ok();
    assert_eq!(
        cloud.call_with(Method::PUT, &path, &once, Some(wish)).await.ok(),
        first,
        "a repeated request sees it again"
    );
}

#[tokio::test]
async fn another_receiver_of_a_budget_gets_a_secret_of_its_own() {
    for cloud in Cloud::on_both().await {
        let path = format!("{}/budgets/team", account(&cloud));
        let write = async |url: &str, secret: Option<&str>| {
            let wish = json!({"amount": "100", "webhookUrl": url, "webhookSecret": secret});
            cloud.put(&path, wish).await
        };
        let shown = |budget: &Value| budget["webhookSecret"].as_str().unwrap().to_owned();
        let first = shown(&write("https://x.example/", None).await.ok());
        for secret in [None, Some("***")] {
            let moved = write("https://X.example/v2?key=1", secret).await.ok();
            assert_eq!(shown(&moved), "***", "the same receiver");
        }
        let masked = write("https://y.example/", Some("***")).await.refused(400);
        assert!(masked.contains("no value is stored"), "{masked}");
        let second = shown(&write("https://y.example/", None).await.ok());
        assert!(second.len() == 40 && second != first, "{second}");
    }
}

#[tokio::test]
async fn budgets_that_cannot_be_are_refused() {
    let cloud = Cloud::start().await;
    let all = format!("{}/budgets", account(&cloud));
    for (wish, rule) in [
        (json!({}), "`amount` is required"),
        (json!({"amount": 100}), "string"),
        (json!({"amount": "0"}), "more than 0"),
        (json!({"amount": "-5"}), "must be a decimal"),
        (json!({"amount": "1000000000"}), "must be a decimal"),
        (json!({"amount": "1.23456"}), "must be a decimal"),
        (json!({"amount": "1", "thresholds": [0]}), "at least 1"),
        (json!({"amount": "1", "thresholds": [1001]}), "at most 1000"),
        (
            json!({"amount": "1", "thresholds": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}),
            "at most 10 items",
        ),
        (json!({"amount": "1", "workspace": "nobodys"}), "no workspace"),
        (json!({"amount": "1", "webhookUrl": "ftp://example.com"}), "http or https"),
        (json!({"amount": "1", "webhookUrl": "http://169.254.169.254/latest"}), "webhookUrl"),
        (json!({"amount": "1", "webhookUrl": "https://me:secret@example.com"}), "webhookUrl"),
        (
            json!({"amount": "1", "webhookSecret": "an-own-secret-of-some-length"}),
            "needs `webhookUrl`",
        ),
        (
            json!({"amount": "1", "webhookUrl": "https://example.com", "webhookSecret": "short"}),
            "at least 16",
        ),
    ] {
        let message = cloud.put(&format!("{all}/team"), wish.clone()).await.refused(400);
        assert!(message.contains(rule), "{wish}: {message}");
    }
    for name in ["Team", "-a", "a_b", "a.b", &"a".repeat(50)] {
        cloud.put(&format!("{all}/{name}"), json!({"amount": "1"})).await.refused(400);
    }
    let guest = cloud.admin_of_main("guest@example.com").await;
    guest.get(&all).await.refused(403);
    guest
        .call(Method::PUT, &format!("{all}/team"), Some(json!({"amount": "1"})))
        .await
        .refused(403);
    let (stranger, own) = cloud.stranger("stranger@example.com").await;
    stranger
        .call(Method::PUT, &format!("{all}/team"), Some(json!({"amount": "1"})))
        .await
        .refused(404);
    let own = format!("/v0/accounts/{own}/budgets/team");
    // A workspace of another account does not exist for this one.
    stranger
        .call(Method::PUT, &own, Some(json!({"amount": "1", "workspace": "main"})))
        .await
        .refused(400);
    stranger.call(Method::PUT, &own, Some(json!({"amount": "1"}))).await.ok();
    let max = settings().bill.budgets_max;
    for number in 0..max {
        cloud.put(&format!("{all}/n{number}"), json!({"amount": "1"})).await.ok();
    }
    assert!(
        cloud
            .put(&format!("{all}/more"), json!({"amount": "1"}))
            .await
            .refused(403)
            .contains("10 budgets")
    );
    cloud.put(&format!("{all}/n0"), json!({"amount": "2"})).await.ok();
}

#[tokio::test]
async fn any_question_is_answered_or_refused() {
    let (cloud, mut runner) = (Cloud::start().await, TestRunner::deterministic());
    let name =
        "endTime|resolution|groupBy|limit|cursor|resourceType|resourceName|workspace|[a-z]{1,8}";
    let value = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:00:00Z|hourly|monthly|[a-z_,]{0,20}|-?[0-9]{1,20}|\\PC{0,12}";
    let strategy = proptest::collection::vec((name, value), 0..5);
    for _ in 0..500 {
        let pairs = strategy.new_tree(&mut runner).unwrap().current();
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("startTime", "2026-04-01T00:00:00Z");
        if pairs.iter().all(|(name, _)| name != "endTime") {
            query.append_pair("endTime", "2026-04-08T00:00:00Z");
        }
        let query = query.extend_pairs(&pairs).finish();
        let status = ask(&cloud, &query).await.status;
        assert!(status == 200 || status == 400, "{status}: {query}");
    }
}
