//! The MCP tools.

use crate::common::{Guest, Response};
use serde_json::{Value, json};

fn send(guest: &Guest, headers: &[(&str, &str)], message: &Value) -> Response {
    let usual =
        [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
    guest.send("POST", "/mcp", &[&usual, headers].concat(), message.to_string().as_bytes())
}

fn request(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

/// Calls a tool; returns its result and whether it failed.
#[track_caller]
fn call(guest: &Guest, name: &str, arguments: Value) -> (Value, bool) {
    let message = request("tools/call", &json!({"name": name, "arguments": arguments}));
    let answer = send(guest, &[("MCP-Protocol-Version", "2025-06-18")], &message).ok();
    let result = &answer["result"];
    let structured = result["structuredContent"].clone();
    let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text, structured, "the text says the same as the structure: {answer}");
    (structured, result["isError"] == true)
}

#[track_caller]
fn done(guest: &Guest, name: &str, arguments: Value) -> Value {
    let (value, failed) = call(guest, name, arguments);
    assert!(!failed, "{value}");
    value
}

#[track_caller]
fn failed(guest: &Guest, name: &str, arguments: Value) -> String {
    let (value, failed) = call(guest, name, arguments);
    assert!(failed, "{value}");
    value["error"].as_str().unwrap().to_owned()
}

fn names(guest: &Guest) -> Vec<String> {
    let tools =
        send(guest, &[], &request("tools/list", &json!({}))).ok()["result"]["tools"].clone();
    tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn old_and_new_callers_are_greeted() {
    let guest = Guest::start();
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let hello = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let answer = send(&guest, &[], &request("initialize", &hello));
        assert!(answer.header("content-type").unwrap().starts_with("application/json"));
        let result = &answer.ok()["result"];
        assert_eq!(result["protocolVersion"], version);
        assert_eq!(result["serverInfo"]["name"], "Sandbox API Server");
        assert_eq!(result["serverInfo"]["version"], "1.0.0");
    }
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(send(&guest, &[], &note).status, 202);
    guest.get("/mcp").refused(405);
    guest.delete("/mcp").refused(405);
}

#[test]
fn every_tool_has_a_schema_and_is_served() {
    let guest =
        Guest::start_with(&[("RELACE_API_KEY", "k"), ("RELACE_APPLY_URL", "http://127.0.0.1:1/")]);
    let tools =
        send(&guest, &[], &request("tools/list", &json!({}))).ok()["result"]["tools"].clone();
    let tools = tools.as_array().unwrap();
    assert_eq!(tools.len(), 21);
    for tool in tools {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        let required = tool["inputSchema"]["required"].as_array().map_or(0, Vec::len);
        // Without arguments, a tool works if it needs none, and otherwise says what is missing; it
        // is never unknown.
        let (value, failed) = call(&guest, tool["name"].as_str().unwrap(), json!({}));
        assert_eq!(failed, required > 0, "{tool} {value}");
    }
    let unknown = send(&guest, &[], &request("tools/call", &json!({"name": "dance"}))).json();
    assert_eq!(unknown["error"]["code"], -32602);
}

#[test]
fn edits_by_a_provider_are_listed_only_with_its_key() {
    let without = names(&Guest::start());
    assert!(
        !without.iter().any(|name| name == "codegenEditFile" || name == "codegenRerank"),
        "{without:?}"
    );
    let morph = names(&Guest::start_with(&[("MORPH_API_KEY", "k")]));
    assert!(
        morph.iter().any(|name| name == "codegenEditFile")
            && !morph.iter().any(|name| name == "codegenRerank")
    );
}

#[test]
fn processes_are_run_found_and_ended() {
    let guest = Guest::start();
    let ran = done(
        &guest,
        "processExecute",
        json!({"command": "pwd; exit 3", "waitForCompletion": true}),
    );
    assert_eq!(
        (&ran["exitCode"], &ran["logs"], &ran["pollRequired"]),
        (&json!(3), &json!("/\n"), &json!(false))
    );
    let slow = json!({"command": "echo begun; sleep 100", "name": "slow", "waitForCompletion": true, "timeout": 1});
    let slow = done(&guest, "processExecute", slow);
    assert_eq!((&slow["status"], &slow["pollRequired"]), (&json!("running"), &json!(true)));
    assert_eq!(done(&guest, "processGetLogs", json!({"identifier": "slow"}))["logs"], "begun\n");
    assert_eq!(done(&guest, "processGet", json!({"identifier": slow["pid"]}))["name"], "slow");
    assert_eq!(done(&guest, "processStop", json!({"identifier": "slow"}))["status"], "stopped");
    done(&guest, "processExecute", json!({"command": "sleep 100", "name": "killed"}));
    assert_eq!(done(&guest, "processKill", json!({"identifier": "killed"}))["status"], "killed");
    assert_eq!(done(&guest, "processesList", json!({}))["processes"].as_array().unwrap().len(), 3);
    failed(&guest, "processGet", json!({"identifier": "nobody"}));
    failed(&guest, "processExecute", json!({"command": "true", "workingDir": "/missing"}));
}

#[test]
fn files_are_written_edited_read_and_deleted() {
    let guest = Guest::start();
    let root =
        done(&guest, "fsGetWorkingDirectory", json!({}))["path"].as_str().unwrap().to_owned();
    assert_eq!(std::path::Path::new(&root), guest.path());
    done(
        &guest,
        "fsWriteFile",
        json!({"path": "a/b.txt", "content": "one two one", "permissions": "600"}),
    );
    let read = done(&guest, "fsReadFile", json!({"path": format!("{root}/a/b.txt")}));
    assert_eq!((&read["content"], &read["permissions"]), (&json!("one two one"), &json!("600")));
    let edit = |old: &str, new: &str, all: bool| json!({"path": "a/b.txt", "oldString": old, "newString": new, "replaceAll": all});
    assert_eq!(done(&guest, "fsEditFile", edit("two", "2", false))["occurrencesReplaced"], 1);
    failed(&guest, "fsEditFile", edit("one", "1", false));
    failed(&guest, "fsEditFile", edit("three", "3", false));
    assert_eq!(done(&guest, "fsEditFile", edit("one", "1", true))["occurrencesReplaced"], 2);
    assert_eq!(std::fs::read_to_string(guest.path().join("a/b.txt")).unwrap(), "1 2 1");
    done(&guest, "fsWriteFile", json!({"path": "empty", "isDirectory": true}));
    let listed = done(&guest, "fsListDirectory", json!({"path": "."}));
    assert_eq!(listed["directory"]["subdirectories"].as_array().unwrap().len(), 2);
    failed(&guest, "fsListDirectory", json!({"path": "a/b.txt"}));
    failed(&guest, "fsReadFile", json!({"path": "a"}));
    failed(&guest, "fsDeleteFileOrDirectory", json!({"path": "a/b.txt", "isDirectory": true}));
    failed(&guest, "fsDeleteFileOrDirectory", json!({"path": "a"}));
    done(&guest, "fsDeleteFileOrDirectory", json!({"path": "a", "recursive": true}));
    assert!(!guest.path().join("a").exists());
}

#[test]
fn code_is_found_and_read_in_parts() {
    let guest = Guest::start();
    let text: String = (1..=400).map(|i| format!("line {i}\n")).collect();
    done(&guest, "fsWriteFile", json!({"path": "src/main.rs", "content": text}));
    done(&guest, "fsWriteFile", json!({"path": "src/other.txt", "content": "LINE 7 (x)\n"}));
    let found = done(&guest, "codegenFileSearch", json!({"query": "main", "directory": "src"}));
    assert_eq!(found["matches"][0]["path"], "main.rs");
    let found = done(
        &guest,
        "codegenCodebaseSearch",
        json!({"query": "line 7 (", "targetDirectories": ["src"]}),
    );
    assert_eq!(found["results"][0]["path"], "src/other.txt");
    let found = done(
        &guest,
        "codegenGrepSearch",
        json!({"query": "^line 3\\d$", "includePattern": "*.rs"}),
    );
    let lines = found["results"].as_str().unwrap();
    assert_eq!(lines.lines().count(), 10);
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(first["data"]["submatches"][0]["match"]["text"], "line 30");
    let none = json!({"query": "line 7", "caseSensitive": true, "excludePattern": "*.rs"});
    assert_eq!(done(&guest, "codegenGrepSearch", none)["results"], "");
    failed(&guest, "codegenGrepSearch", json!({"query": "("}));
    let range = |first: usize, last: usize| json!({"targetFile": "src/main.rs", "startLineOneIndexed": first, "endLineOneIndexedInclusive": last});
    assert_eq!(done(&guest, "codegenReadFileRange", range(2, 3))["content"], "line 2\nline 3\n");
    let long = done(&guest, "codegenReadFileRange", range(1, 400));
    assert_eq!(long["content"].as_str().unwrap().lines().count(), 250);
    failed(&guest, "codegenReadFileRange", range(0, 1));
    let listed = done(&guest, "codegenListDir", json!({"relativeWorkspacePath": "src"}));
    assert_eq!(listed["directory"]["files"].as_array().unwrap().len(), 2);
}
