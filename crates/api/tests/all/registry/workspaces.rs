//! Neighbouring workspaces: what one has and uses, and what the other sees of it.

use super::{BLOB_MAX, MANIFEST, Town, digest, header, link, refused};
use serde_json::json;

#[tokio::test]
async fn a_second_workspace_learns_nothing() {
    let town = Town::start().await;
    town.push("main/job/a", "v1", "secret").await;
    let (guest, account) = town.cloud.stranger("guest@example.com").await;
    let body = json!({"name": "theirs", "accountId": account});
    guest.post("/v0/workspaces", body).await.ok();
    let key = guest.key();
    let secret = digest(b"secret");
    let there =
        ["main/job/a/tags/list", "main/job/a/manifests/v1", &format!("main/job/a/blobs/{secret}")]
            .map(str::to_owned);
    for path in there {
        let theirs = town.send(key, "GET", &path, &[], b"").await;
        refused(&theirs, 403, "DENIED");
        let nothing = town.send(key, "GET", &path.replace("main", "nomn"), &[], b"").await;
        assert_eq!(theirs.text.replace("main", "nomn"), nothing.text);
    }
    // Knowing a digest gives no access: not to read, not to mount, and not in a manifest.
    let own = format!("theirs/job/a/blobs/{secret}");
    refused(&town.send(key, "GET", &own, &[], b"").await, 404, "BLOB_UNKNOWN");
    for from in ["main/job/a", "theirs/job/b", "main/a", "..", ""] {
        let path = format!("theirs/job/a/blobs/uploads/?mount={secret}&from={from}");
        let mounted = town.send(key, "POST", &path, &[], b"").await;
        assert_eq!(mounted.status, 202, "an upload like any other: {}", mounted.text);
        let place = header(&mounted, "location").trim_start_matches("/v2/").to_owned();
        let other = place.replace("theirs/job/a", "theirs/job/c");
        refused(&town.send(key, "PATCH", &other, &[], b"x").await, 404, "BLOB_UPLOAD_UNKNOWN");
        assert_eq!(town.send(key, "DELETE", &place, &[], b"").await.status, 204);
    }
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": link(MANIFEST, b"secret"), "layers": []});
    let path = "theirs/job/a/manifests/v1";
    let body = manifest.to_string().into_bytes();
    refused(&town.send(key, "PUT", path, &[], &body).await, 404, "MANIFEST_BLOB_UNKNOWN");
    assert_eq!(town.send(key, "GET", "_catalog", &[], b"").await.body, json!({"repositories": []}));
    // Between repositories that the caller may read, nothing is sent again.
    let path = format!("main/job/b/blobs/uploads/?mount={secret}&from=main/job/a");
    assert_eq!(town.call("POST", &path, b"").await.status, 201);
    assert_eq!(town.call("GET", &format!("main/job/b/blobs/{secret}"), b"").await.text, "secret");
}

#[tokio::test]
async fn one_workspace_leaves_room_for_others() {
    let town = Town::start().await;
    let mut open = Vec::new();
    for _ in 0..4 {
        let begun = town.call("POST", "main/job/a/blobs/uploads/", b"").await;
        open.push(header(&begun, "location").trim_start_matches("/v2/").to_owned());
    }
    let more = town.call("POST", "main/job/a/blobs/uploads/", b"").await;
    refused(&more, 429, "TOOMANYREQUESTS");
    assert_eq!(header(&more, "retry-after"), "1");
    // Nobody continues with them.
    town.registry().tidy().await.unwrap();
    assert_eq!(town.call("GET", &open[0], b"").await.status, 204);
    for path in &open {
        assert_eq!(town.call("DELETE", path, b"").await.status, 204);
    }
    // One workspace gets half of 16 MB, whatever it removes before the collection.
    let blob = |number: u8| vec![number; usize::try_from(BLOB_MAX).unwrap()];
    let mut kept = 0;
    let full = loop {
        let digest = digest(&blob(kept));
        let path = format!("main/job/a/blobs/uploads/?digest={digest}");
        let answer = town.call("POST", &path, &blob(kept)).await;
        if answer.status != 201 {
            break answer;
        }
        kept += 1;
    };
    refused(&full, 403, "DENIED");
    assert!((4..=8).contains(&kept), "{kept}");
    assert!(town.images.left_uploads().unwrap().is_empty());
    town.cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
    town.upload("team/job/a", b"room for a neighbour").await;
    let path = format!("main/job/a/blobs/{}", digest(&blob(0)));
    for number in 0..kept {
        let path = format!("main/job/a/blobs/{}", digest(&blob(number)));
        assert_eq!(town.call("DELETE", &path, b"").await.status, 202);
    }
    refused(&town.call("DELETE", &path, b"").await, 404, "BLOB_UNKNOWN");
    let again = format!("main/job/a/blobs/uploads/?digest={}", digest(&blob(0)));
    refused(&town.call("POST", &again, &blob(0)).await, 403, "DENIED");
    town.registry().tidy().await.unwrap();
    assert_eq!(town.call("POST", &again, &blob(0)).await.status, 201);
}

#[tokio::test]
async fn a_share_gives_the_image_and_takes_it_away() {
    let town = Town::start().await;
    town.push("main/job/a", "v1", "one").await;
    town.cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
    let path = "/v0/images/job/a/share?workspace=main";
    town.cloud.post(path, json!({"targetWorkspace": "team"})).await.ok();
    let manifest = town.push("main/job/a", "v2", "two").await;
    let copy = town.cloud.get("/v0/images/job/a?workspace=team").await.ok();
    assert_eq!(copy["spec"]["tags"].as_array().unwrap().len(), 2, "new tags come along");
    assert_eq!(copy["metadata"]["sourceWorkspace"], "main");
    assert_eq!(town.call("GET", "team/job/a/manifests/v2", b"").await.body, manifest);
    assert_eq!(
        town.call("GET", &format!("team/job/a/blobs/{}", digest(b"two")), b"").await.text,
        "two"
    );
    refused(&town.call("POST", "team/job/a/blobs/uploads/", b"").await, 403, "DENIED");
    refused(&town.call("DELETE", "team/job/a/manifests/v2", b"").await, 403, "DENIED");
    let job = |name: &str| json!({"metadata": {"name": name}, "spec": {"runtime": {"image": "job/a:v2"}}});
    let made = town.cloud.post("/v0/jobs?workspace=team", job("one")).await.ok();
    assert_eq!(made["status"], "DEPLOYED", "{made}");
    refused(&town.call("DELETE", "main/job/a/manifests/v2", b"").await, 400, "DENIED");
    town.cloud.delete("/v0/images/job/a/share/team?workspace=main").await.ok();
    refused(&town.call("GET", "team/job/a/manifests/v2", b"").await, 404, "NAME_UNKNOWN");
    let late = town.cloud.post("/v0/jobs?workspace=team", job("two")).await.ok();
    assert_eq!(late["status"], "FAILED", "{late}");
    assert!(late["events"].to_string().contains("there is no image `job/a:v2`"), "{late}");
}

#[tokio::test]
async fn a_workspace_that_goes_takes_its_images_along() {
    let town = Town::start().await;
    town.cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
    town.push("team/job/a", "v1", "one").await;
    let path = "/v0/images/job/a/share?workspace=team";
    town.cloud.post(path, json!({"targetWorkspace": "main"})).await.ok();
    assert_eq!(town.call("GET", "main/job/a/manifests/v1", b"").await.status, 200);
    town.cloud.delete("/v0/workspaces/team").await.ok();
    refused(&town.call("GET", "main/job/a/manifests/v1", b"").await, 404, "NAME_UNKNOWN");
    assert_eq!(town.cloud.get("/v0/images?workspace=main").await.ok(), json!([]));
    let job = json!({"metadata": {"name": "j"}, "spec": {"runtime": {"image": "job/a:v1"}}});
    let job = town.cloud.post("/v0/jobs?workspace=main", job).await.ok();
    assert_eq!(job["status"], "FAILED", "{job}");
}
