//! Revisions, requests, conversations and images, against a fake server.

use crate::common::{text, write};
use crate::pretend::{Answer, Asked, Pretend};
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

fn agent(url: &str, active: &str, status: &str) -> Value {
    json!({"metadata": {"name": "helper", "workspace": "main", "url": format!("{url}/main/agents/helper")},
        "spec": {"revision": {"active": active, "stickySessionTtl": 0}}, "status": status})
}

fn of<'a>(asked: &'a [Asked], method: &str, path: &str) -> Vec<&'a Asked> {
    asked.iter().filter(|it| it.method == method && it.path == path).collect()
}

#[test]
fn a_rollback_waits_until_the_revision_serves() {
    let (mut wished, mut looks) = ("new".to_owned(), 0);
    let pretend = Pretend::start(move |url, asked| {
        match (asked.method.as_str(), asked.path.as_str()) {
            ("PUT", "/v0/agents/helper") => {
                wished = asked.json()["spec"]["revision"]["active"].as_str().unwrap().to_owned();
                Answer::json(&agent(url, &wished, "DEPLOYING"))
            }
            ("GET", "/v0/agents/helper") => {
                looks += 1;
                Answer::json(&agent(
                    url,
                    &wished,
                    if looks == 2 { "DEPLOYING" } else { "DEPLOYED" },
                ))
            }
            ("GET", path) if path.starts_with("/v0/agents/helper/revisions") => {
                let serves = if looks < 3 { "new" } else { &wished };
                let revision = |id: &str, before: bool| json!({"id": id, "active": id == serves, "previousActive": before, "status": "DEPLOYED"});
                Answer::json(&json!([revision("new", false), revision("old", true)]))
            }
            _ => Answer::refuse(404),
        }
    });
    let place = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str], exit| {
        text(&pretend.cli(place.path(), arguments).output().unwrap(), exit)
    };
    let listed = run(&["revisions", "agent", "helper", "-o", "json"], 0);
    assert_eq!(serde_json::from_str::<Value>(&listed).unwrap()[1]["id"], "old");
    assert!(run(&["rollback", "agent", "helper", "other"], 6).contains("new, old"));
    assert!(run(&["rollback", "agent", "helper"], 0).contains("revision old serves"));
    let asked = pretend.asked();
    let sent = of(&asked, "PUT", "/v0/agents/helper")[0].json();
    assert_eq!(sent["spec"]["revision"], json!({"active": "old", "stickySessionTtl": 0}));
}

#[test]
fn a_rollback_of_what_is_disabled_waits_for_nothing() {
    let pretend = Pretend::start(|url, asked| match asked.path.split('?').next().unwrap() {
        "/v0/agents/helper" => {
            let mut agent = agent(url, "old", "DEACTIVATED");
            agent["spec"]["enabled"] = json!(false);
            Answer::json(&agent)
        }
        "/v0/agents/helper/revisions" => {
            Answer::json(&json!([{"id": "new"}, {"id": "old", "active": true}]))
        }
        _ => Answer::refuse(404),
    });
    let place = tempfile::tempdir().unwrap();
    let rollback = ["rollback", "agent", "helper", "old"];
    let told = text(&pretend.cli(place.path(), &rollback).output().unwrap(), 0);
    assert!(told.contains("revision old is active, and serves once `spec.enabled`"), "{told}");
}

fn talking() -> Pretend {
    Pretend::start(|url, asked| match (asked.method.as_str(), asked.path.as_str()) {
        ("GET", "/v0/agents/helper") => Answer::json(&agent(url, "a", "DEPLOYED")),
        ("POST", "/main/agents/helper?stream=true") => {
            let said = asked.json()["inputs"].as_str().unwrap().to_owned();
            let events = format!(
                "data: {{\"content\": \"you \"}}\n\ndata: {{\"content\": \"{said}\\u001b[2J\"}}\n\n"
            );
            Answer {
                status: 200,
                headers: vec![("Content-Type", "text/event-stream".into())],
                body: events,
            }
        }
        ("PATCH", "/main/agents/helper/deep?a=b%20c&d=%26") => {
            Answer::json(&json!({"got": asked.json()}))
        }
        _ => Answer::refuse(418),
    })
}

#[test]
fn a_conversation_is_one_thread() {
    let pretend = talking();
    let place = tempfile::tempdir().unwrap();
    let mut command = pretend.cli(place.path(), &["chat", "helper"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    running.stdin.take().unwrap().write_all(b"one\n\ntwo\n").unwrap();
    let told = text(&running.wait_with_output().unwrap(), 0);
    assert_eq!(told, "you one[2J\nyou two[2J\n");
    let asked = pretend.asked();
    let said = of(&asked, "POST", "/main/agents/helper?stream=true");
    let threads: Vec<_> = said.iter().map(|it| it.header("x-blaxel-thread-id").unwrap()).collect();
    assert!(threads.len() == 2 && threads[0] == threads[1] && threads[0].len() > 15, "{threads:?}");
    assert!(said.iter().all(|it| it.header("x-blaxel-authorization") == Some("Bearer hk_s3cret")));

    let mine = ["chat", "helper", "--message", "hi", "--thread", "mine"];
    assert_eq!(text(&pretend.cli(place.path(), &mine).output().unwrap(), 0), "you hi[2J\n");
    assert_eq!(pretend.asked().last().unwrap().header("x-blaxel-thread-id"), Some("mine"));
}

#[test]
fn a_model_is_told_all_that_was_said_before() {
    let pretend = Pretend::start(|url, asked| match (asked.method.as_str(), asked.path.as_str()) {
        ("GET", "/v0/models/gpt") => {
            let url = format!("{url}/main/models/gpt");
            Answer::json(&json!({"metadata": {"name": "gpt", "workspace": "main", "url": url}}))
        }
        ("POST", "/main/models/gpt/v1/chat/completions") => {
            let body = asked.json();
            let messages = body["messages"].as_array().unwrap();
            let said = messages.last().unwrap()["content"].as_str().unwrap().to_owned();
            if said == "refuse" {
                return Answer::refuse(429);
            }
            let delta = |text: &str| json!({"choices": [{"delta": {"content": text}}]});
            let (first, rest) = (delta("you "), delta(&format!("{said}\u{1b}[2J")));
            let headers = vec![("Content-Type", "text/event-stream".into())];
            let events = format!("data: {first}\n\ndata: {rest}\n\ndata: [DONE]\n\n");
            Answer { status: 200, headers, body: events }
        }
        _ => Answer::refuse(404),
    });
    let place = tempfile::tempdir().unwrap();
    let mut command = pretend.cli(place.path(), &["chat", "gpt"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    running.stdin.take().unwrap().write_all(b"one\ntwo\n").unwrap();
    let told = text(&running.wait_with_output().unwrap(), 0);
    assert_eq!(told, "you one[2J\nyou two[2J\n");
    let asked = pretend.asked();
    let said = of(&asked, "POST", "/main/models/gpt/v1/chat/completions");
    let message = |role: &str, text: &str| json!({"role": role, "content": text});
    let before = [message("user", "one"), message("assistant", "you one\u{1b}[2J")];
    let all = json!([before[0], before[1], message("user", "two")]);
    assert_eq!(said[1].json(), json!({"messages": all, "stream": true}));
    let threads: Vec<_> = said.iter().map(|it| it.header("x-blaxel-thread-id").unwrap()).collect();
    assert!(threads.len() == 2 && threads[0] == threads[1], "{threads:?}");

    let run = |arguments: &[&str], exit| {
        text(&pretend.cli(place.path(), arguments).output().unwrap(), exit)
    };
    run(&["chat", "gpt", "--model", "--system", "Be short.", "--message", "hi"], 0);
    let last = pretend.asked().last().unwrap().json();
    assert_eq!(last["messages"], json!([message("system", "Be short."), message("user", "hi")]));
    assert!(run(&["chat", "gpt", "--message", "refuse"], 12).contains("refused with 429"));
    assert!(run(&["chat", "none"], 6).contains("no agent or model `none`"));
}

#[test]
fn a_request_goes_as_it_was_written() {
    let pretend = talking();
    let place = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str], exit| {
        text(&pretend.cli(place.path(), arguments).output().unwrap(), exit)
    };
    let whole = [
        "run",
        "agent",
        "helper",
        "--path",
        "/deep",
        "--method",
        "patch",
        "--params",
        "a=b c",
        "--params",
        "d=&",
        "--header",
        "X-Mine: 1",
        "--data",
        r#"{"x": 1}"#,
    ];
    assert_eq!(run(&whole, 0), r#"{"got":{"x":1}}"#);
    let asked = pretend.asked();
    let sent = asked.iter().find(|it| it.method == "PATCH").unwrap();
    assert_eq!(
        (sent.header("x-mine"), sent.header("content-type")),
        (Some("1"), Some("application/json"))
    );
    assert!(run(&["run", "agent", "helper", "--path", "/gone"], 11).contains("refused with 418"));
    assert!(run(&["run", "agent", "helper", "--path", "/../../x"], 2).contains("cannot be part"));
    assert!(run(&["run", "agent", "helper", "--wait"], 2).contains("for jobs"));
    assert!(run(&["run", "volume", "helper"], 2).contains("cannot be run"));
}

#[test]
fn an_answer_that_leads_elsewhere_is_told_and_not_followed() {
    let pretend = Pretend::start(|url, asked| match asked.path.as_str() {
        "/v0/agents/helper" => Answer::json(&agent(url, "a", "DEPLOYED")),
        "/main/agents/helper" => Answer { status: 302, headers: vec![], body: String::new() }
            .with("Location", "http://other.example/x".into()),
        "/main/agents/helper/same" => Answer { status: 304, headers: vec![], body: String::new() },
        _ => Answer::refuse(404),
    });
    let place = tempfile::tempdir().unwrap();
    let run = |more: &[&str]| {
        let words = [&["run", "agent", "helper"], more].concat();
        text(&pretend.cli(place.path(), &words).output().unwrap(), 0)
    };
    assert_eq!(run(&[]), "the answer is 302 Found, to http://other.example/x\n");
    assert_eq!(run(&["--path", "/same"]), "the answer is 304 Not Modified\n");
}

/// A volume that a sandbox mounts, which has no files.
#[test]
fn a_path_that_a_volume_does_not_have_is_told_as_it_was_written() {
    let pretend = Pretend::start(|url, asked| match asked.path.as_str() {
        "/v0/volumes/disk" => Answer::json(&json!({"state": {"attachedTo": "sandbox:box"}})),
        "/v0/sandboxes/box" => {
            let volumes = json!([{"name": "disk", "mountPath": "/data"}]);
            let url = format!("{url}/main/sandboxes/box");
            Answer::json(&json!({"metadata": {"url": url}, "spec": {"volumes": volumes}}))
        }
        _ => Answer::refuse(404),
    });
    let place = tempfile::tempdir().unwrap();
    let copy = pretend.cli(place.path(), &["volume", "cp", "disk:/nope", "."]).output().unwrap();
    let told = text(&copy, 6);
    assert!(told.contains("`disk` has no file or folder `/nope`"), "{told}");
}

/// A sandbox that is archived, as the edge tells of it, and an agent and a model that fail.
fn failing() -> Pretend {
    Pretend::start(|url, asked| match asked.path.as_str() {
        "/v0/sandboxes/box" | "/v0/sandboxes/live" | "/v0/agents/helper" | "/v0/models/gpt" => {
            let at = asked.path.trim_start_matches("/v0");
            Answer::json(&json!({"metadata": {"url": format!("{url}/main{at}")}}))
        }
        path if path.starts_with("/main/sandboxes/box") => {
            let error = json!({"code": "WORKLOAD_UNAVAILABLE", "status": 404,
                "message": "the sandbox is archived", "action": "Unarchive it first."});
            let answer = Answer::json(&json!({"error": error}));
            Answer { status: 404, ..answer.with("X-Blaxel-Source", "platform".into()) }
        }
        path if path.starts_with("/main/sandboxes/live") => {
            Answer { status: 404, ..Answer::json(&json!({"error": "no such file"})) }
        }
        "/main/agents/helper" => Answer { status: 404, headers: vec![], body: "own\nwords".into() },
        "/main/models/gpt/v1/chat/completions"
            if asked.json()["messages"][0]["content"] == "cut" =>
        {
            let headers = vec![("Content-Type", "text/event-stream".into())];
            let body = "data: {\"error\": {\"message\": \"over\"}}\n\n".to_owned();
            Answer { status: 200, headers, body }
        }
        "/main/models/gpt/v1/chat/completions" => {
            let error =
                json!({"code": "MODEL_LIMIT_REACHED", "message": "0 of 5 dollars are left"});
            let answer = Answer::json(&json!({"error": error})).with("Retry-After", "90".into());
            Answer { status: 429, ..answer.with("X-Blaxel-Source", "platform".into()) }
        }
        _ => Answer::refuse(404),
    })
}

#[test]
fn what_the_edge_says_is_told() {
    let pretend = failing();
    let place = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str], exit| {
        text(&pretend.cli(place.path(), arguments).output().unwrap(), exit)
    };
    let archived: [&[&str]; 3] =
        [&["exec", "box", "ls"], &["cp", "box:/notes", "."], &["run", "sandbox", "box"]];
    for words in archived {
        let told = run(words, 6);
        let wanted = "error: the sandbox is archived\n  next: Unarchive it first.\n";
        assert_eq!(told, wanted, "{words:?}");
    }
    assert!(run(&["cp", "live:/notes", "."], 6).contains("`live` has no file or folder `/notes`"));
    let limited = run(&["chat", "gpt", "--message", "hi"], 12);
    let wanted = "error: 0 of 5 dollars are left\n  next: repeat the command in 90 s\n";
    assert_eq!(limited, wanted);
    let cut = run(&["chat", "gpt", "--message", "cut"], 9);
    assert_eq!(cut, "error: the answer of `gpt` broke off\n  because: over\n");
}

#[test]
fn an_answer_of_the_workload_is_printed_whatever_its_status() {
    let place = tempfile::tempdir().unwrap();
    let told = failing().cli(place.path(), &["run", "agent", "helper"]).output().unwrap();
    assert_eq!(text(&told, 6), "own\nwords");
}

#[test]
fn an_image_is_pushed_and_its_newest_tag_printed() {
    let (mut uploaded, mut looks) = (false, 0);
    let pretend =
        Pretend::start(move |url, asked| match (asked.method.as_str(), asked.path.as_str()) {
            ("POST", "/v0/images?upload=true") => {
                Answer::json(&json!({})).with("X-Blaxel-Upload-Url", format!("{url}/up"))
            }
            ("POST", "/v0/images?skip-build=true") => {
                Answer::json(&json!({"message": "m", "image": asked.json()["image"]}))
            }
            ("PUT", "/up") => {
                uploaded = true;
                Answer::json(&json!({}))
            }
            ("GET", "/v0/images/agent/helper") if uploaded => {
                looks += 1;
                let tags =
                    json!([{"name": "1", "createdAt": "1"}, {"name": "2", "createdAt": "2"}]);
                let status = ["BUILDING", "BUILT"][(looks - 2_usize.min(looks)).min(1)];
                if looks == 1 {
                    return Answer::refuse(404);
                }
                Answer::json(&json!({"metadata": {"status": status}, "spec": {"tags": tags}}))
            }
            ("GET", path) if path.starts_with("/v0/observability/logs") => {
                Answer::json(&json!({"helper": {"logs": [], "totalCount": 0}}))
            }
            _ => Answer::refuse(404),
        });
    let place = tempfile::tempdir().unwrap();
    write(place.path(), "blaxel.toml", "name = \"helper\"\ntype = \"agent\"");
    write(place.path(), "build.env", "TOKEN=t0ken");
    let push = ["push", "--build-env-file", "build.env"];
    let told = text(&pretend.cli(place.path(), &push).output().unwrap(), 0);
    assert!(told.starts_with("agent/helper:2\n") && told.contains("BUILDING"), "{told}");
    let asked = pretend.asked();
    let archive = &asked.iter().find(|asked| asked.path == "/up").unwrap().body;
    assert!(archive.windows(10).any(|name| name == b".env.build"), "the build's environment");
    let image = ["push", "--image", "ghcr.io/a/b:1", "--registry-cred", "ghcr.io=me"];
    let mut command = pretend.cli(place.path(), &image);
    let told = text(&command.env("HOLM_REGISTRY_PASSWORD", "s3cret").output().unwrap(), 0);
    assert_eq!(told, "ghcr.io/a/b:1\n");
    let sent = pretend.asked().last().unwrap().json();
    assert!(sent["dockerConfig"].as_str().unwrap().contains("ghcr.io"), "{sent}");
}

#[test]
fn requests_are_a_table_of_all_that_answers() {
    let counts = |count: u64| json!({"count": count, "errors": 1, "p50Ms": 1.5, "p90Ms": 4915.200000000001, "p99Ms": 12_000.0});
    let pretend = Pretend::start(move |url, asked| {
        let path = asked.path.as_str();
        if path.starts_with("/v0/agents?") {
            return Answer::json(&json!({"data": [agent(url, "a", "DEPLOYED")], "meta": {}}));
        }
        if path == "/v0/agents/helper" {
            return Answer::json(&agent(url, "a", "DEPLOYED"));
        }
        if path == "/v0/agents/nobody" {
            return Answer::refuse(404);
        }
        if path.starts_with("/v0/observability/requests?resourceType=agents") {
            let mut helper = counts(7);
            helper["replicas"] = json!(2);
            helper["revisions"] = json!({"new": counts(5), "old": counts(2)});
            return Answer::json(&json!({"helper": helper}));
        }
        Answer::json(&json!([]))
    });
    let place = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str], exit| {
        text(&pretend.cli(place.path(), arguments).output().unwrap(), exit)
    };
    let table = run(&["requests"], 0);
    let line = |start: &str| {
        let line = table.lines().find(|line| line.contains(start));
        line.unwrap_or_else(|| panic!("{start}: {table}")).split_whitespace().collect::<Vec<_>>()
    };
    let whole = ["agents", "helper", "-", "2", "7", "1", "1.5", "ms", "4915", "ms", "12.0", "s"];
    assert_eq!(line("helper  -"), whole);
    assert_eq!(line("old")[2..5], ["old", "-", "2"]);
    let shown = run(&["requests", "agent", "helper", "--since", "10m", "-o", "json"], 0);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown[0]["name"], &shown[0]["count"]), (&json!("helper"), &json!(7)));
    let asked = pretend.asked();
    assert!(asked.last().unwrap().path.contains("&start=20"), "{:?}", asked.last());
    run(&["requests", "agent", "helper", "nobody"], 6);
    assert!(run(&["requests", "job"], 2).contains("agents, applications, functions"));
    assert!(run(&["requests", "agent", "helper", "--until", "soon"], 2).contains("how long ago"));
}

#[test]
fn an_object_is_described_with_its_events_and_revisions() {
    let pretend = Pretend::start(|url, asked| match asked.path.as_str() {
        "/v0/agents/helper" => {
            let mut agent = agent(url, "new", "FAILED");
            agent["events"] = json!([{"type": "deployment", "status": "FAILED", "revision": "new",
                "message": "it exited \u{1b}[2J with 1", "time": "2026-04-16T09:30:00Z"}]);
            Answer::json(&agent)
        }
        path if path.starts_with("/v0/agents/helper/revisions") => {
            Answer::json(&json!([{"id": "new", "status": "FAILED"}, {"id": "old", "active": true}]))
        }
        _ => Answer::refuse(404),
    });
    let place = tempfile::tempdir().unwrap();
    let told =
        text(&pretend.cli(place.path(), &["describe", "agent", "helper"]).output().unwrap(), 0);
    for part in ["main/agents/helper", "Spec", "Revisions", "Events", "it exited", "old"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains('\u{1b}'), "{told:?}");
    let unnamed = pretend.cli(place.path(), &["describe", "agents"]).output().unwrap();
    assert!(text(&unnamed, 2).contains("holm get agents"));
}
