//! Whatever is sent, the answer is one that the interface defines: never a failure of the server,
//! and never its internals.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::common::samples::samples;
use crate::common::{Answer, Cloud, settings};
use control::Settings;
use http::Method;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

/// Texts that break careless code: quoting, patterns, logs, terminals, limits.
const HOSTILE: [&str; 14] = [
    "'; DROP TABLE resources; --",
    "\" OR \"1\"=\"1",
    "%' ESCAPE '",
    "a\r\nSet-Cookie: x=1",
    "a\n2026-04-16 ERROR forged line",
    "\u{1b}[2J\u{7}",
    "\u{0}",
    "nul\u{0}inside",
    "../../../etc/passwd",
    "${jndi:ldap://x}",
    "{{7*7}}",
    "<script>alert(1)</script>",
    "\u{202e}gnp.exe",
    "𝕏\u{fe0f}\u{200d}e\u{301}",
];

/// Checks that the answer is a success, a refusal in the usual form, or says that something is not
/// implemented.
#[track_caller]
fn sound(answer: &Answer, what: &str) {
    let status = answer.status.as_u16();
    assert!(status < 500 || status == 501, "{what}: {status} {}", answer.body);
    if status >= 400 {
        assert_eq!(answer.body["code"], status, "{what}: {}", answer.body);
        assert!(
            answer.body["error"].is_string() && answer.body["message"].is_string(),
            "{what}: {}",
            answer.body
        );
    }
    let text = answer.body.to_string();
    for inside in ["panicked", "stack backtrace", ".rs:", "SELECT ", "sqlite", "postgres"] {
        assert!(!text.contains(inside), "{what} shows `{inside}`: {text}");
    }
}

#[track_caller]
fn refused(answer: &Answer, what: &str) {
    sound(answer, what);
    assert!(answer.status.is_client_error(), "{what}: {} {}", answer.status, answer.body);
}

/// Returns every operation of the document with this method, with names filled into its path, and
/// whether it takes a body.
fn operations(method: &Method) -> Vec<(String, bool)> {
    let document = api::document();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let operation = &item[method.as_str().to_lowercase()];
        if operation.is_null() {
            continue;
        }
        let base = if item.get("servers").is_some() { "" } else { "/v0" };
        let parts = path.split('/').map(|part| match part {
            "{workspace}" | "{workspaceName}" => "main",
            "{domainName}" => "one.example.com",
            _ if part.starts_with('{') => "one",
            plain => plain,
        });
        found.push((
            format!("{base}{}", parts.collect::<Vec<_>>().join("/")),
            operation.get("requestBody").is_some(),
        ));
    }
    assert!(!found.is_empty());
    found
}

async fn furnished() -> Cloud {
    let cloud = Cloud::start().await;
    furnish(&cloud).await;
    cloud
}

async fn furnish(cloud: &Cloud) {
    for sample in samples() {
        cloud.post(sample.path, sample.body).await.ok();
    }
}

async fn send(
    cloud: &Cloud,
    method: &Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let bearer = format!("Bearer {}", cloud.first.api_key);
    let mut all = vec![("authorization", bearer.as_str()), ("blaxel-version", "2026-04-28")];
    all.extend_from_slice(headers);
    cloud.raw(method.clone(), path, &all, body.to_vec()).await
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_refused_by_every_operation_that_takes_one() {
    let cloud = furnished().await;
    let deep = [b"[".repeat(10_000), b"]".repeat(10_000)].concat();
    let members = [br#"{"spec":"#.repeat(10_000), b"}".repeat(10_000)].concat();
    let bodies: [(&str, &[u8]); 14] = [
        ("nothing", b""),
        ("half of an object", br#"{"metadata": {"name": "#),
        ("a lonely quote", b"\""),
        ("two values", b"{} {}"),
        ("a number", b"7"),
        ("a text", b"\"one\""),
        ("a list", b"[]"),
        ("nothing as JSON", b"null"),
        ("invalid UTF-8", b"{\"name\": \"\xff\xfe\"}"),
        ("half a surrogate", br#"{"name": "\ud800"}"#),
        ("a NUL", br#"{"name": "a\u0000b"}"#),
        ("deep lists", &deep),
        ("deep objects", &members),
        ("a form", b"name=one&spec=two"),
    ];
    for method in [Method::POST, Method::PUT] {
        for (path, _) in operations(&method).into_iter().filter(|(_, takes)| *takes) {
            for (what, body) in bodies {
                refused(
                    &send(&cloud, &method, &path, &[], body).await,
                    &format!("{method} {path} with {what}"),
                );
            }
        }
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_by_every_operation() {
    let cloud = Cloud::start_with(Settings { body_max: 64, ..settings() }).await;
    for method in [Method::POST, Method::PUT] {
        for (path, _) in operations(&method) {
            send(&cloud, &method, &path, &[], &b" ".repeat(65)).await.refused(413);
        }
    }
}

#[tokio::test]
async fn an_object_as_text_is_read_whatever_the_content_type_says() {
    let cloud = Cloud::start().await;
    for (index, kind) in
        ["text/plain", "application/x-www-form-urlencoded", "nonsense", ""].iter().enumerate()
    {
        let body = json!({"metadata": {"name": format!("a-{index}")}, "spec": {}}).to_string();
        let answer =
            send(&cloud, &Method::POST, "/v0/agents", &[("content-type", kind)], body.as_bytes())
                .await;
        sound(&answer, kind);
    }
}

/// Collects the paths of all places in a value.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| places(value, &format!("{at}/{name}"), found))
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(index, value)| places(value, &format!("{at}/{index}"), found)),
        _ => {}
    }
}

#[tokio::test]
async fn a_value_of_another_type_is_refused_or_ignored_wherever_it_stands() {
    let cloud = furnished().await;
    for sample in samples() {
        let mut found = Vec::new();
        places(&sample.body, "", &mut found);
        for place in found {
            for wrong in [
                json!(7),
                json!(-1.5e300),
                json!(true),
                json!([[]]),
                json!({"a": {"b": []}}),
                json!("no such word"),
                Value::Null,
            ] {
                let mut body = sample.body.clone();
                *body.pointer_mut(&place).unwrap() = wrong.clone();
                let what = format!("{}: {wrong} at {place}", sample.path);
                sound(&cloud.post(sample.path, body.clone()).await, &what);
                if sample.text.is_some() {
                    sound(&cloud.put(&sample.item, body).await, &what);
                }
            }
        }
    }
}

#[tokio::test]
async fn hostile_texts_are_refused_or_kept_as_they_are() {
    for cloud in Cloud::on_both().await {
        furnish(&cloud).await;
        let long = "x".repeat(10_000);
        for sample in samples().into_iter().filter(|sample| sample.text.is_some()) {
            let mut found = Vec::new();
            places(&sample.body, "", &mut found);
            found.retain(|place| sample.body.pointer(place).is_some_and(Value::is_string));
            for place in found {
                for text in HOSTILE.iter().copied().chain([long.as_str()]) {
                    let mut body = sample.body.clone();
                    *body.pointer_mut(&place).unwrap() = json!(text);
                    let what = format!("{}: {text:.40?} at {place}", sample.path);
                    let answer = cloud.put(&sample.item, body).await;
                    sound(&answer, &what);
                    if answer.status == 200 {
                        let read = cloud.get(&sample.item).await.ok();
                        let kept = read.pointer(&place).unwrap();
                        assert!(kept == text || kept == "***", "{what} became {kept}");
                    }
                }
            }
            assert_eq!(cloud.get(&sample.item).await.status, 200, "{}", sample.path);
        }
    }
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn hostile_paths_name_nothing() {
    let cloud = furnished().await;
    let long = "x".repeat(10_000);
    let names: Vec<String> = HOSTILE.iter().copied().chain(["%", "_", "."]).map(escaped).collect();
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        for (path, _) in operations(&method) {
            for name in names.iter().map(String::as_str).chain([long.as_str(), "%FF%FE"]) {
                let path =
                    path.replace("one.example.com", "one").replace("/one", &format!("/{name}"));
                if path.contains(name) {
                    sound(
                        &send(&cloud, &method, &path, &[], b"{}").await,
                        &format!("{method} {path:.120}"),
                    );
                }
            }
        }
    }
    for path in ["/v0/nothing", "/v0", "/v0/agents/one/more", "/v0//agents", "/v9/agents"] {
        send(&cloud, &Method::GET, path, &[], b"").await.refused(404);
    }
    send(&cloud, &Method::PATCH, "/v0/agents/one", &[], b"{}").await.refused(405);
}

#[tokio::test]
async fn every_list_refuses_wrong_questions_and_survives_odd_ones() {
    for cloud in Cloud::on_both().await {
        furnish(&cloud).await;
        let paged = [
            "agents",
            "applications",
            "functions",
            "models",
            "jobs",
            "sandboxes",
            "volumes",
            "drives",
            "policies",
        ];
        for list in paged {
            for bad in [
                "limit=0",
                "limit=-1",
                "limit=abc",
                "limit=1.5",
                "limit=99999999999999999999",
                "sort=size",
                "sort=name:up",
                "anchor=start",
                "status=HAPPY",
                "status=DEPLOYED,,",
                "q=a",
                "cursor=abc",
                "cursor=%FF",
                "showTerminated=maybe",
                "limit=1&limit=2",
                "q=%00%00",
                "externalId=%00",
                "cursor=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            ] {
                let path = format!("/v0/{list}?{bad}");
                refused(&send(&cloud, &Method::GET, &path, &[], b"").await, &path);
            }
            for text in HOSTILE {
                for parameter in
                    ["q", "externalId", "status", "cursor", "sort", "limit", "workspace", "other"]
                {
                    let path = format!("/v0/{list}?{parameter}={}", escaped(text));
                    sound(&send(&cloud, &Method::GET, &path, &[], b"").await, &path);
                }
            }
            let path = format!("/v0/{list}?q={}", "x".repeat(201));
            refused(&send(&cloud, &Method::GET, &path, &[], b"").await, &path);
            let path = format!("/v0/{list}?limit=9223372036854775807&=&&&%");
            sound(&send(&cloud, &Method::GET, &path, &[], b"").await, &path);
        }
    }
}

#[tokio::test]
async fn a_refused_question_names_what_is_wrong_and_what_would_be_right() {
    let cloud = Cloud::start().await;
    let metrics = format!("/v0/accounts/{}/metrics", cloud.first.account);
    let (logs, whole) = ("/v0/observability/logs", "must be a whole number");
    for (path, query, parameter, why) in [
        ("/v0/sandboxes", "limit=1&limit=2", "`limit`", "is given more than once"),
        ("/v0/sandboxes", "limit=x", "`limit`", whole),
        (logs, "limit=x", "`limit`", whole),
        (logs, "offset=99999999999999999999", "`offset`", whole),
        (&metrics, "endTime=2026-04-16T00:00:00Z", "`startTime`", "is required"),
        (&metrics, "startTime=x", "`startTime`", "must be an RFC 3339 time in UTC"),
        (&metrics, "startTime=2026-04-16T00:00:00%2B02:00", "`startTime`", "must be an RFC 3339"),
    ] {
        let path = format!("{path}?{query}");
        let message = cloud.get(&path).await.refused(400);
        assert!(message.contains(parameter) && message.contains(why), "{path}: {message}");
    }
}

#[tokio::test]
async fn a_whole_number_may_be_written_with_a_point() {
    let cloud = Cloud::start().await;
    let sandbox = |memory: &str| {
        let wish = format!(r#"{{"spec": {{"runtime": {{"memory": {memory}}}}}}}"#);
        serde_json::from_str::<Value>(&wish).unwrap()
    };
    let made = cloud.post("/v0/sandboxes", sandbox("512.0")).await.ok();
    assert_eq!(made["spec"]["runtime"]["memory"].as_i64(), Some(512), "{made}");
    for wrong in ["512.5", "1e300"] {
        let message = cloud.post("/v0/sandboxes", sandbox(wrong)).await.refused(400);
        assert!(message.contains("`spec.runtime.memory`"), "{message}");
    }
}

#[tokio::test]
async fn only_a_refused_sandbox_has_its_problems_in_an_object() {
    let cloud = Cloud::start().await;
    let wrong = json!({"metadata": {"name": "Not One"}, "spec": {}});
    let sandbox = cloud.post("/v0/sandboxes", wrong.clone()).await;
    let problem = &sandbox.body["details"]["problems"][0];
    assert_eq!(problem["field"], "metadata.name", "{}", sandbox.body);
    assert!(problem["message"].is_string(), "{}", sandbox.body);
    sandbox.refused(400);
    let agent = cloud.post("/v0/agents", wrong).await;
    assert_eq!(agent.body["details"][0]["field"], "metadata.name", "{}", agent.body);
}

#[tokio::test]
async fn a_changed_cursor_opens_nothing() {
    let cloud = Cloud::start().await;
    for name in ["a", "b", "c"] {
        cloud.post("/v0/agents", json!({"metadata": {"name": name}, "spec": {}})).await.ok();
    }
    let page = cloud.get("/v0/agents?limit=1").await.ok();
    let cursor = page["meta"]["nextCursor"].as_str().unwrap();
    for index in 0..cursor.len() {
        let other = if &cursor[index..=index] == "A" { "B" } else { "A" };
        let changed = format!("{}{other}{}", &cursor[..index], &cursor[index + 1..]);
        cloud.get(&format!("/v0/agents?limit=1&cursor={changed}")).await.refused(400);
    }
    cloud.get(&format!("/v0/agents?limit=1&sort=name:asc&cursor={cursor}")).await.refused(400);
    cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
    cloud.get(&format!("/v0/agents?workspace=team&limit=1&cursor={cursor}")).await.refused(400);
    cloud.get(&format!("/v0/agents?workspace=main&limit=1&cursor={cursor}")).await.ok();
    cloud.clock.advance_s(24 * 3600 + 1);
    cloud.get(&format!("/v0/agents?workspace=main&limit=1&cursor={cursor}")).await.refused(400);
}

#[tokio::test]
async fn odd_headers_are_refused_or_ignored() {
    let cloud = furnished().await;
    let long = "x".repeat(10_000);
    for header in [
        "blaxel-version",
        "service-version",
        "idempotency-key",
        "if-match",
        "x-blaxel-workspace",
        "last-event-id",
    ] {
        for value in ["\"", "*", "-1", "99999999999999999999", "'; --", long.as_str()] {
            let body = json!({"metadata": {"name": "one"}, "spec": {}}).to_string();
            let bearer = format!("Bearer {}", cloud.first.api_key);
            let headers = [("authorization", bearer.as_str()), (header, value)];
            let answer =
                cloud.raw(Method::PUT, "/v0/agents/one", &headers, body.into_bytes()).await;
            sound(&answer, &format!("{header}: {value:.40}"));
        }
    }
}

/// Any JSON value that is not too large.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(
            |number| serde_json::Number::from_f64(number).map_or(Value::Null, Value::Number)
        ),
        ".{0,40}".prop_map(Value::from),
        prop::sample::select(&HOSTILE[..]).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((".{0,12}", inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Random values at random places of every kind's sample; the fixed seed of the runner makes
/// failures reproducible.
#[tokio::test]
async fn any_value_anywhere_gets_a_sound_answer() {
    const TRIES: usize = 60;
    let cloud = furnished().await;
    let mut runner = TestRunner::deterministic();
    for sample in samples() {
        let mut found = Vec::new();
        places(&sample.body, "", &mut found);
        let strategy = (prop::sample::select(found), any_json());
        for _ in 0..TRIES {
            let (place, value) = strategy.new_tree(&mut runner).unwrap().current();
            let mut body = sample.body.clone();
            *body.pointer_mut(&place).unwrap() = value;
            let what = format!("{} with {body}", sample.path);
            sound(&cloud.post(sample.path, body.clone()).await, &what);
            if sample.text.is_some() {
                sound(&cloud.put(&sample.item, body).await, &what);
            }
        }
        let read = cloud.get(sample.path).await;
        assert_eq!(read.status, 200, "{}: {}", sample.path, read.body);
    }
}
