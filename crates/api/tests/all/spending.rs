//! What was used, what it cost, and how budgets react.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common::Cloud;
use meter::{Change, UsageFact};
use serde_json::{Value, json};
use store::Tx;
use store::deliveries::{self, Delivery};
use store::usage::Owner;
use types::Timestamp;
use types::ids::WorkspaceId;
use types::usage::Dimension;

const APRIL: &str = "startTime=2026-04-01T00:00:00Z&endTime=2026-04-16T00:00:00Z";
/// Cost of a sandbox with 4 GB for one hour, at the first price of the tests.
const HOUR: f64 = 0.1656;

fn account(cloud: &Cloud) -> String {
    format!("/v0/accounts/{}", cloud.first.account)
}

/// Records that a sandbox with 4 GB ran for some hours from a given time.
async fn ran(cloud: &Cloud, workspace: &str, name: &str, from: &str, hours: i64) {
    let (account, from) = (cloud.first.account.clone(), from.parse::<Timestamp>().unwrap());
    let (subject, owner) =
        (format!("{name}-{}", from.ms()), (workspace.to_owned(), name.to_owned()));
    let work = move |tx: &mut Tx<'_>| {
        let owner = Owner {
            account: account.clone(),
            workspace: owner.0.clone(),
            dimension: Dimension::SandboxRuntime,
            name: owner.1.clone(),
            uuid: format!("id-{}", owner.1),
            machine: None,
        };
        meter::register(tx, &subject, &owner)?;
        let fact = |number: u64, at: Timestamp, change| UsageFact {
            id: format!("{subject}/{number}"),
            subject: subject.clone(),
            number,
            at,
            stamp: None,
            change,
        };
        let started = fact(1, from, Change::Started { memory_mb: 4096 });
        let stopped = fact(2, from.plus_s(hours * 3600), Change::Ended);
        meter::take_in(tx, &[started, stopped]).map(drop)
    };
    cloud.store.write(work).await.unwrap();
}

async fn calls(cloud: &Cloud, budget: &'static str) -> Vec<Delivery> {
    let account = WorkspaceId::known(cloud.first.account.as_str());
    cloud
        .store
        .read(move |tx| deliveries::list(tx, &account, ("budget", budget), None, 100))
        .await
        .unwrap()
}

async fn ask(cloud: &Cloud, query: &str) -> Value {
    cloud.get(&format!("{}/metrics?{APRIL}&{query}", account(cloud))).await.ok()
}

#[tokio::test]
async fn an_answer_tells_what_ran_and_what_it_cost() {
    for cloud in Cloud::on_both().await {
        ran(&cloud, "main", "one", "2026-04-10T10:30:00Z", 2).await;
        ran(&cloud, "main", "two", "2026-04-11T23:30:00Z", 1).await;
        ran(&cloud, "other", "one", "2026-04-12T00:00:00Z", 1).await;
        let all = ask(&cloud, "").await;
        assert_eq!(
            (&all["summary"], &all["resolution"]),
            (&json!({"totalCost": 4.0 * HOUR}), &json!("daily"))
        );
        let entry = &all["data"][0];
        assert_eq!(
            (all["data"].as_array().unwrap().len(), entry["timeseries"].as_array().unwrap().len()),
            (1, 15)
        );
        assert!(
            entry.get("resourceType").is_none() && entry["summary"].get("usage").is_none(),
            "{entry}"
        );
        let point = |day: usize| {
            (
                entry["timeseries"][day]["timestamp"].clone(),
                entry["timeseries"][day]["cost"].clone(),
            )
        };
        assert_eq!(point(10), (json!("2026-04-11T00:00:00.000Z"), json!(HOUR / 2.0)));
        assert_eq!(point(2), (json!("2026-04-03T00:00:00.000Z"), json!(0.0)));

        let split = ask(&cloud, "groupBy=billing_dimension,resource_uuid&workspace=main").await;
        assert_eq!(
            split["summary"],
            json!({"totalCost": 3.0 * HOUR, "totalUsage": 3.0 * 14_400.0})
        );
        let entry = &split["data"][0];
        assert_eq!(entry["summary"], json!({"cost": 2.0 * HOUR, "usage": 28_800.0}));
        let names =
            ["workspace", "resourceType", "resourceName", "resourceUuid", "billingDimension"];
        let expect = ["main", "sandbox", "one", "id-one", "sandbox_compute_runtime_gbs"];
        assert_eq!(names.map(|name| &entry[name]), expect.map(|text| json!(text)).each_ref());

        assert_eq!(ask(&cloud, "resourceName=two").await["summary"]["totalCost"], HOUR);
        assert_eq!(ask(&cloud, "resourceType=job").await["summary"]["totalCost"], 0.0);
        let types = format!("{}/metrics/enums/resource-types?", account(&cloud));
        assert_eq!(
            cloud.get(&format!("{types}{APRIL}")).await.ok(),
            json!({"values": ["sandbox"]})
        );
        let march = "startTime=2026-03-01T00:00:00Z&endTime=2026-04-01T00:00:00Z";
        assert_eq!(cloud.get(&format!("{types}{march}")).await.ok(), json!({"values": []}));
    }
}

#[tokio::test]
async fn only_admins_of_the_account_are_told_of_workspaces_that_they_are_not_in() {
    for cloud in Cloud::on_both().await {
        let guest = cloud.admin_of_main("guest@example.com").await;
        let metrics = format!("{}/metrics", account(&cloud));
        ran(&cloud, "secret", "plans", "2026-04-10T10:30:00Z", 5).await;
        let types = format!("{metrics}/enums/resource-types?{APRIL}");
        assert_eq!(guest.get(&types).await.ok(), json!({"values": []}));
        assert_eq!(cloud.get(&types).await.ok(), json!({"values": ["sandbox"]}));
        ran(&cloud, "main", "one", "2026-04-10T10:30:00Z", 2).await;
        let by = [
            "resource_name",
            "resource_uuid",
            "resource_type,resource_name",
            "billing_dimension",
            "resource_type",
        ];
        for query in by.map(|by| format!("groupBy={by}")).into_iter().chain([String::new()]) {
            let answer = guest.get(&format!("{metrics}?{APRIL}&{query}")).await.ok();
            assert_eq!(answer["summary"]["totalCost"], 2.0 * HOUR, "{query}");
            let text = answer.to_string();
            assert!(!text.contains("secret") && !text.contains("plans"), "{query}: {text}");
            let all = ask(&cloud, &query).await;
            assert_eq!(all["summary"]["totalCost"], 7.0 * HOUR, "{query}: an admin sees all");
        }
        for query in ["resourceName=plans", "resourceUuid=id-plans"] {
            let answer =
                guest.get(&format!("{metrics}?{APRIL}&{query}&groupBy=resource_name")).await.ok();
            assert_eq!(answer["data"], json!([]), "{query}");
        }
        // A cursor of somebody who sees more does not work for anybody else.
        let page = ask(&cloud, "groupBy=resource_name&limit=1").await;
        let cursor = page["meta"]["nextCursor"].as_str().unwrap();
        let stolen = format!("{metrics}?{APRIL}&groupBy=resource_name&limit=1&cursor={cursor}");
        assert!(guest.get(&stolen).await.refused(400).contains("cursor"));
    }
}

#[tokio::test]
async fn pages_follow_their_own_question_only() {
    let cloud = Cloud::start().await;
    for number in 0..5 {
        ran(&cloud, "main", &format!("box-{number}"), "2026-04-10T10:00:00Z", 1).await;
    }
    let (mut names, mut cursor, mut sum) = (Vec::new(), String::new(), 0.0);
    loop {
        let page = ask(&cloud, &format!("groupBy=resource_name&limit=2&cursor={cursor}")).await;
        assert_eq!(page["summary"]["totalCost"], 5.0 * HOUR, "of all pages");
        for entry in page["data"].as_array().unwrap() {
            names.push(entry["resourceName"].as_str().unwrap().to_owned());
            sum += entry["summary"]["cost"].as_f64().unwrap();
        }
        page["meta"]["nextCursor"].as_str().unwrap().clone_into(&mut cursor);
        assert_eq!(page["meta"]["hasMore"], !cursor.is_empty());
        if cursor.is_empty() {
            break;
        }
        let metrics = format!("{}/metrics?{APRIL}", account(&cloud));
        for other in [
            "groupBy=resource_uuid".to_owned(),
            "groupBy=resource_name&resourceType=sandbox".to_owned(),
            "groupBy=resource_name&resolution=hourly".to_owned(),
        ] {
            cloud.get(&format!("{metrics}&{other}&cursor={cursor}")).await.refused(400);
        }
        let window =
            "startTime=2026-04-02T00:00:00Z&endTime=2026-04-16T00:00:00Z&groupBy=resource_name";
        cloud
            .get(&format!("{}/metrics?{window}&cursor={cursor}", account(&cloud)))
            .await
            .refused(400);
    }
    assert_eq!(names, ["box-0", "box-1", "box-2", "box-3", "box-4"]);
    assert!((sum - 5.0 * HOUR).abs() < 1e-9);
    // The same dimensions in another order are the same query.
    let first = ask(&cloud, "groupBy=resource_name,workspace&limit=2").await;
    let cursor = first["meta"]["nextCursor"].as_str().unwrap();
    ask(&cloud, &format!("groupBy=workspace,resource_name&limit=2&cursor={cursor}")).await;
}

#[tokio::test]
async fn past_usage_keeps_the_price_of_its_time() {
    let cloud = Cloud::start().await;
    ran(&cloud, "main", "one", "2026-04-15T10:00:00Z", 1).await;
    let version = json!({"validFrom": "2026-04-17T00:00:00Z", "prices": {"sandbox_compute_runtime_gbs": "0.000023"}});
    cloud.put(&format!("{}/prices", account(&cloud)), json!({"versions": [version]})).await.ok();
    cloud.clock.advance_s(3 * 86_400);
    ran(&cloud, "main", "two", "2026-04-17T10:00:00Z", 1).await;
    let window =
        "startTime=2026-04-01T00:00:00Z&endTime=2026-04-30T00:00:00Z&groupBy=resource_name";
    let answer = cloud.get(&format!("{}/metrics?{window}", account(&cloud))).await.ok();
    let cost = |entry: usize| answer["data"][entry]["summary"]["cost"].as_f64().unwrap();
    assert_eq!([cost(0), cost(1)], [HOUR, 2.0 * HOUR]);
}

#[tokio::test]
async fn a_threshold_is_told_of_once_by_all_servers_together() {
    for cloud in Cloud::on_both().await {
        let path = format!("{}/budgets/team", account(&cloud));
        let wish = |amount: &str| json!({"amount": amount, "thresholds": [50, 100], "webhookUrl": "https://example.com/"});
        cloud.put(&path, wish("0.3")).await.ok();
        assert!(calls(&cloud, "team").await.is_empty());
        ran(&cloud, "main", "one", "2026-04-15T10:00:00Z", 1).await;
        let look = || control::billing::look_at_budgets(&cloud.control);
        for looked in <[_; 4]>::from(tokio::join!(look(), look(), look(), look())) {
            looked.unwrap();
        }
        assert_eq!(calls(&cloud, "team").await.len(), 1);
        let budget = cloud.get(&path).await.ok();
        assert_eq!((&budget["spent"], &budget["exhausted"]), (&json!("0.1656"), &json!(false)));
        let alert = &budget["alerts"][0];
        assert_eq!(
            (&alert["threshold"], &alert["amount"], &alert["spent"]),
            (&json!(50), &json!("0.3"), &json!("0.1656"))
        );
        assert_eq!(
            budget["spent"].as_str().unwrap().parse::<f64>().unwrap(),
            ask(&cloud, "").await["summary"]["totalCost"]
        );

        ran(&cloud, "main", "two", "2026-04-15T12:00:00Z", 1).await;
        look().await.unwrap();
        look().await.unwrap();
        assert_eq!(calls(&cloud, "team").await.len(), 2);
        // With a larger amount, alerts that were sent for the smaller one are sent again when usage
        // reaches it.
        cloud.put(&path, wish("0.8")).await.ok();
        assert_eq!(cloud.get(&path).await.ok()["alerts"], json!([]));
        ran(&cloud, "main", "three", "2026-04-15T14:00:00Z", 1).await;
        look().await.unwrap();
        assert_eq!(calls(&cloud, "team").await.len(), 3);
        // A new month begins with nothing spent.
        cloud.clock.advance_s(16 * 86_400);
        look().await.unwrap();
        let budget = cloud.get(&path).await.ok();
        assert_eq!(
            (&budget["spent"], &budget["periodStart"]),
            (&json!("0"), &json!("2026-05-01T00:00:00.000Z"))
        );
        assert_eq!((&budget["alerts"], calls(&cloud, "team").await.len()), (&json!([]), 3));
    }
}

#[tokio::test]
async fn a_hard_limit_refuses_new_work_while_the_money_is_spent() {
    let cloud = Cloud::start().await;
    let path = format!("{}/budgets/team", account(&cloud));
    let put = |amount: &str| {
        cloud.put(&path, json!({"amount": amount, "workspace": "main", "hardLimit": true}))
    };
    let make =
        |name: &str| cloud.post("/v0/sandboxes", json!({"metadata": {"name": name}, "spec": {}}));
    ran(&cloud, "other", "elsewhere", "2026-04-15T10:00:00Z", 1).await;
    put("0.1").await.ok();
    make("a").await.ok();
    ran(&cloud, "main", "one", "2026-04-15T10:00:00Z", 1).await;
    control::billing::look_at_budgets(&cloud.control).await.unwrap();
    assert_eq!(cloud.get(&path).await.ok()["exhausted"], true);
    let refused = make("b").await;
    assert_eq!(refused.body["error"], "USAGE_LIMIT_EXCEEDED");
    assert!(refused.refused(403).contains("`team`"));
    // What exists continues.
    cloud.get("/v0/sandboxes/a").await.ok();
    cloud
        .post("/v0/sandboxes?createIfNotExist=true", json!({"metadata": {"name": "a"}, "spec": {}}))
        .await
        .ok();

    put("0.2").await.ok();
    make("b").await.ok();
    assert_eq!(put("0.1656").await.ok()["exhausted"], true, "it is judged at once");
    make("c").await.refused(403);
    // No server has checked since, but the next month is not limited.
    cloud.clock.advance_s(16 * 86_400);
    make("c").await.ok();
}

#[tokio::test]
async fn a_budget_without_a_hard_limit_refuses_nothing() {
    let cloud = Cloud::start().await;
    ran(&cloud, "main", "one", "2026-04-15T10:00:00Z", 1).await;
    let path = format!("{}/budgets/team", account(&cloud));
    assert_eq!(cloud.put(&path, json!({"amount": "0.1"})).await.ok()["exhausted"], false);
    control::billing::look_at_budgets(&cloud.control).await.unwrap();
    cloud.post("/v0/sandboxes", json!({"metadata": {"name": "a"}, "spec": {}})).await.ok();
    let hard = json!({"amount": "0.1", "hardLimit": true});
    cloud.put(&path, hard).await.ok();
    cloud.delete(&path).await.ok();
    cloud.post("/v0/sandboxes", json!({"metadata": {"name": "b"}, "spec": {}})).await.ok();
}
