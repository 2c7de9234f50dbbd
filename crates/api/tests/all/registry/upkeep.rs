//! What happens to tags over time: which stay, and what they cost.

use super::{Town, header, settings};
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn the_newest_tags_stay_and_what_is_used() {
    let mut wanted = settings();
    wanted.registry.keep_tags = 2;
    wanted.registry.every = Duration::from_millis(20);
    let town = Town::start_with(wanted).await;
    let job = json!({"metadata": {"name": "j"}, "spec": {"runtime": {"image": "job/a:v1"}}});
    town.push("main/job/a", "v1", "1").await;
    town.cloud.post("/v0/jobs", job).await.ok();
    for number in 2..=4 {
        town.push("main/job/a", &format!("v{number}"), &number.to_string()).await;
    }
    let tags = |image: &Value| -> Vec<String> {
        let tags = image["spec"]["tags"].as_array().unwrap();
        tags.iter().map(|tag| tag["name"].as_str().unwrap().to_owned()).collect()
    };
    let image = town.cloud.until("/v0/images/job/a", |image| tags(image).len() == 3).await;
    assert_eq!(tags(&image), ["v1", "v3", "v4"]);
}

#[tokio::test]
async fn what_is_stored_is_metered() {
    let town = Town::start().await;
    town.push("main/job/a", "v1", &"x".repeat(300_000)).await;
    town.push("main/app/a", "v1", &"y".repeat(300_000)).await;
    town.cloud.clock.advance_s(3600);
    town.cloud.delete("/v0/images/job/a").await.ok();
    town.cloud.clock.advance_s(36_000);
    let metrics = format!(
        "/v0/accounts/{}/metrics?startTime=2026-04-15T00:00:00Z&endTime=2026-04-18T00:00:00Z&groupBy=billing_dimension",
        town.cloud.first.account
    );
    let answer = town.cloud.get(&metrics).await.ok().to_string();
    assert!(answer.contains("job_image_storage_gbs"), "{answer}");
    assert!(!answer.contains("sandbox_image_storage_gbs"), "{answer}");
}

/// Its content would take room from others for as long as an unfinished push may take.
#[tokio::test]
async fn the_images_of_a_deleted_workspace_go_with_it() {
    let town = Town::start().await;
    town.cloud.post("/v0/workspaces", json!({"name": "four"})).await.ok();
    town.push("main/job/a", "v1", "kept").await;
    town.push("four/job/a", "v1", "gone").await;
    let begun = town.call("POST", "four/job/b/blobs/uploads/", b"").await;
    let upload = header(&begun, "location").trim_start_matches("/v2/").to_owned();
    town.cloud.delete("/v0/workspaces/four").await.ok();
    let places = || async { town.registry().places().await.unwrap().len() };
    let gone = async {
        while places().await > 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("they go");
    town.cloud.post("/v0/workspaces", json!({"name": "four"})).await.ok();
    assert_eq!(town.call("GET", &upload, b"").await.status, 404);
    assert_eq!(town.call("GET", "main/job/a/manifests/v1", b"").await.status, 200);
}
