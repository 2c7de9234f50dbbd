//! Management tools: every operation, with the caller's own rights.

use crate::common::{Answer, Cloud};
use http::Method;
use serde_json::{Value, json};

pub(crate) async fn speak(cloud: &Cloud, key: &str, message: Value) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
        ("mcp-protocol-version", "2025-06-18"),
    ];
    cloud.raw(Method::POST, "/v0/mcp", &headers, message.to_string().into_bytes()).await
}

pub(crate) fn call(tool: &str, arguments: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
}

#[tokio::test]
async fn every_operation_is_a_tool_that_can_be_called() {
    let cloud = Cloud::start().await;
    let key = cloud.first.api_key.clone();
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
        "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    assert_eq!(speak(&cloud, &key, hello).await.ok()["result"]["serverInfo"]["name"], "holm");
    let listed =
        speak(&cloud, &key, json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})).await.ok();
    let tools = listed["result"]["tools"].as_array().unwrap();
    let create = tools.iter().find(|tool| tool["name"] == "CreateAgent").unwrap();
    let upload = &create["inputSchema"]["properties"]["upload"];
    assert!(upload["description"].as_str().unwrap().contains("upload address"), "{upload}");
    let body = json!({"metadata": {"name": "one"}, "spec": {}});
    let made = speak(&cloud, &key, call("CreateAgent", json!({"workspace": "main", "body": body})))
        .await
        .ok();
    assert_eq!(made["result"]["structuredContent"]["metadata"]["name"], "one", "{made}");
    cloud.get("/v0/agents/one").await.ok();
    let missing =
        speak(&cloud, &key, call("GetAgent", json!({"agentName": "no/such?x"}))).await.ok();
    assert_eq!(
        (&missing["result"]["isError"], &missing["result"]["structuredContent"]["code"]),
        (&json!(true), &json!(404))
    );
    let page = speak(&cloud, &key, call("ListAgents", json!({"limit": 1}))).await.ok();
    assert_eq!(page["result"]["structuredContent"]["meta"]["total"], 1);
    let nulls = json!({"workspace": null, "limit": null, "cursor": null});
    let page = speak(&cloud, &key, call("ListAgents", nulls)).await.ok();
    assert_eq!(page["result"]["structuredContent"]["meta"]["total"], 1, "{page}");
    // Clients accept only objects.
    let bare = speak(&cloud, &key, call("ListWorkspaces", json!({}))).await.ok();
    assert_eq!(bare["result"]["structuredContent"]["data"][0]["name"], "main", "{bare}");
}

#[tokio::test]
async fn the_workspace_is_known_by_either_header() {
    let cloud = Cloud::start().await;
    let bearer = format!("Bearer {}", cloud.first.api_key);
    for name in ["x-blaxel-workspace", "x-service-workspace"] {
        let headers = [
            ("authorization", bearer.as_str()),
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            (name, "theirs"),
        ];
        let message = call("ListAgents", json!({})).to_string().into_bytes();
        let answer = cloud.raw(Method::POST, "/v0/mcp", &headers, message).await.ok();
        assert_eq!(answer["result"]["structuredContent"]["code"], 403, "{name}: {answer}");
    }
}

#[tokio::test]
async fn tools_have_only_the_rights_of_the_caller() {
    let cloud = Cloud::start().await;
    speak(&cloud, "hk_wrong", call("ListAgents", json!({}))).await.refused(401);
    let other =
        speak(&cloud, &cloud.first.api_key, call("ListAgents", json!({"workspace": "theirs"})))
            .await
            .ok();
    assert_eq!(other["result"]["structuredContent"]["code"], 403, "{other}");
}

#[tokio::test]
async fn arguments_that_no_tool_has_are_not_carried_along_without_end() {
    let cloud = Cloud::start().await;
    let many: serde_json::Map<_, _> =
        (0..10_000).map(|number| (format!("k{number}"), json!({}))).collect();
    let answer = speak(&cloud, &cloud.first.api_key, call("ListAgents", json!(many))).await.ok();
    assert!(answer.to_string().contains("have more than 16384 bytes"), "{answer}");
}

#[tokio::test]
async fn a_bad_call_is_told_what_is_wrong_with_it() {
    let cloud = Cloud::start().await;
    let request = |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let listed = json!({"name": "ListAgents", "arguments": [1]});
    for (message, code, why) in [
        (call("GetSandbox", json!({"sandboxName": 3})), -32602, "`sandboxName` must be a text"),
        (call("GetSandbox", json!({"sandboxName": null})), -32602, "`sandboxName` is required"),
        // It must not act in another workspace than was meant.
        (call("ListAgents", json!({"workspace": 3})), -32602, "`workspace` must be a text"),
        (request("tools/call", json!({})), -32602, "missing field `name`"),
        (request("tools/call", listed), -32602, "invalid type: sequence"),
        (request("initialize", json!({})), -32602, "missing field `protocolVersion`"),
        (request("tools/lift", json!({})), -32601, "tools/lift"),
    ] {
        let answer = speak(&cloud, &cloud.first.api_key, message).await.ok();
        let error = &answer["error"];
        assert_eq!(error["code"], code, "{why}: {error}");
        assert!(error["message"].as_str().unwrap().contains(why), "{error}");
    }
}
