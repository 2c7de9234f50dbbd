//! Requests that are refused before anything comes of them that cannot work.

use crate::common::Cloud;
use serde_json::json;

#[tokio::test]
async fn an_image_that_has_no_place_is_refused_before_its_sources_are_asked_for() {
    let cloud = Cloud::start().await;
    for (name, kind, member) in [
        ("im1", "zzz", "`resourceType`"),
        ("im1", "volume-template", "`resourceType`"),
        ("a/b", "agent", "`name`"),
        ("a..b", "agent", "`name`"),
    ] {
        for query in ["?upload=true", ""] {
            let request = json!({"name": name, "resourceType": kind});
            let path = format!("/v0/images{query}");
            let message = cloud.post(&path, request).await.refused(400);
            assert!(message.contains(member), "{name} {kind}: {message}");
        }
    }
    // Published clients write `application`. This server has nothing that builds.
    let request = json!({"name": "im1", "resourceType": "application"});
    cloud.post("/v0/images?upload=true", request).await.refused(501);
}
