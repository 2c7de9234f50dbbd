//! Requests that are refused before anything comes of them that cannot work.

use crate::common::Cloud;
use crate::common::machine::IMAGE;
use serde_json::{Value, json};

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

#[tokio::test]
async fn only_a_trigger_whose_callers_wait_may_be_where_an_mcp_server_answers() {
    let cloud = Cloud::start().await;
    let function = |trigger: Value| json!({"metadata": {"name": "tools"}, "spec": {"runtime": {"image": IMAGE}, "triggers": [trigger]}});
    let at = |kind: &str, path: &str| {
        function(json!({"id": "t", "type": kind, "configuration": {"path": path}}))
    };
    for wish in [
        at("http-async", "/functions/tools/mcp"),
        function(json!({"id": "mcp", "type": "http-async"})),
    ] {
        let message = cloud.post("/v0/functions", wish).await.refused(400);
        assert!(message.contains("the MCP server itself answers"), "{message}");
    }
    cloud.post("/v0/functions", at("http", "/functions/tools/mcp")).await.ok();
    cloud.put("/v0/functions/tools", at("http-async", "functions/tools/mcp/later")).await.ok();
    cloud.put("/v0/functions/tools", at("http-async", "functions/tools/later")).await.ok();
}
