//! Requests that are refused before anything comes of them that cannot work.

use crate::common::machine::IMAGE;
use crate::common::{Answer, Cloud};
use http::Method;
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

async fn speak(cloud: &Cloud, headers: &[(&str, &str)], body: &str) -> Answer {
    let bearer = format!("Bearer {}", cloud.first.api_key);
    let mut all = vec![("authorization", bearer.as_str())];
    all.extend_from_slice(headers);
    cloud.raw(Method::POST, "/v0/mcp", &all, body.as_bytes().to_vec()).await
}

#[tokio::test]
async fn the_endpoint_of_tools_refuses_in_the_form_of_all_others() {
    let cloud = Cloud::start().await;
    let accept = ("accept", "application/json, text/event-stream");
    let json = ("content-type", "application/json; charset=utf-8");
    let list = r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}"#;
    speak(&cloud, &[accept, json], list).await.ok();
    let refused = async |headers: &[(&str, &str)], body: &str, status| {
        let answer = speak(&cloud, headers, body).await;
        assert_eq!(answer.headers["content-type"], "application/json", "{}", answer.text);
        answer.refused(status)
    };
    let message = refused(&[json, ("accept", "text/html")], list, 406).await;
    assert!(message.contains("`Accept`"), "{message}");
    for wrong in [("content-type", "text/plain"), ("content-type", "")] {
        let message = refused(&[accept, wrong], list, 415).await;
        assert!(message.contains("`Content-Type`"), "{message}");
    }
    let message = refused(&[accept, json], "{\"jsonrpc\": ", 400).await;
    assert!(message.contains("not valid JSON: line 1"), "{message}");
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    for body in ["{}", "7", "[]", r#"{"jsonrpc": "2.0"}"#, &deep] {
        let message = refused(&[accept, json], body, 400).await;
        assert!(message.contains("JSON-RPC"), "{message}");
    }
    let version = ("mcp-protocol-version", "1999-01-01");
    let message = refused(&[accept, json, version], list, 400).await;
    assert!(message.contains("1999-01-01"), "{message}");
}
