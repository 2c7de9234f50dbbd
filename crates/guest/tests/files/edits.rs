use crate::common::{Guest, Response};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

/// Answers one request like a provider; returns the key and the request.
fn stand_in(status: u16, answer: Value) -> (String, JoinHandle<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/ask", listener.local_addr().unwrap());
    let asked = std::thread::spawn(move || {
        let mut stream = BufReader::new(listener.accept().unwrap().0);
        let (mut key, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            match line.trim_end().split_once(": ") {
                Some(("authorization", value)) => key = value.to_owned(),
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(_) => {}
                None if line.trim_end().is_empty() => break,
                None => {}
            }
        }
        let mut question = vec![0; length];
        stream.read_exact(&mut question).unwrap();
        let answer = answer.to_string();
        let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", answer.len());
        stream.get_mut().write_all((head + &answer).as_bytes()).unwrap();
        (key, serde_json::from_slice(&question).unwrap())
    });
    (url, asked)
}

fn edit(guest: &Guest, path: &str) -> Response {
    let body = json!({"codeEdit": "// ... two"}).to_string();
    guest.send("PUT", &format!("/codegen/fastapply/{path}"), &[], body.as_bytes())
}

#[test]
fn without_a_provider_nothing_is_edited_or_ranked() {
    let guest = Guest::start();
    edit(&guest, "file").refused(400);
    guest.get("/codegen/reranking/.?query=x").refused(503);
    guest.get("/codegen/reranking/.").refused(400);
    assert!(!guest.path().join("file").exists());
}

#[test]
fn an_edit_is_merged_by_the_first_provider() {
    let (url, asked) = stand_in(200, json!({"mergedCode": "one two"}));
    let guest = Guest::start_with(&[
        ("RELACE_API_KEY", "k1"),
        ("RELACE_APPLY_URL", &url),
        ("MORPH_API_KEY", "k2"),
    ]);
    std::fs::write(guest.path().join("file"), "one").unwrap();
    let done = edit(&guest, "file").ok();
    assert_eq!(
        (done["originalContent"].as_str(), done["updatedContent"].as_str()),
        (Some("one"), Some("one two"))
    );
    assert_eq!(
        (done["success"].as_bool(), done["provider"].as_str()),
        (Some(true), Some("relace"))
    );
    assert_eq!(std::fs::read_to_string(guest.path().join("file")).unwrap(), "one two");
    let (key, question) = asked.join().unwrap();
    assert_eq!(key, "Bearer k1");
    assert_eq!(
        question,
        json!({"initial_code": "one", "edit_snippet": "// ... two", "stream": false})
    );
}

#[test]
fn the_second_provider_edits_but_does_not_rank() {
    let (url, asked) = stand_in(200, json!({"choices": [{"message": {"content": "new"}}]}));
    let guest =
        Guest::start_with(&[("MORPH_API_KEY", "k"), ("MORPH_URL", &url), ("MORPH_MODEL", "m")]);
    assert_eq!(edit(&guest, "made").ok()["provider"], "morph");
    assert_eq!(std::fs::read_to_string(guest.path().join("made")).unwrap(), "new");
    assert_eq!(asked.join().unwrap().1["model"], "m");
    guest.get("/codegen/reranking/.?query=x").refused(503);
}

#[test]
fn a_failing_provider_leaves_the_file_and_its_key_untold() {
    let (url, asked) = stand_in(401, json!({"error": "no"}));
    let guest = Guest::start_with(&[("RELACE_API_KEY", "secret-key"), ("RELACE_APPLY_URL", &url)]);
    std::fs::write(guest.path().join("file"), "one").unwrap();
    let error = edit(&guest, "file").refused(503);
    assert!(error.contains("401") && !error.contains("secret-key"), "{error}");
    assert_eq!(std::fs::read_to_string(guest.path().join("file")).unwrap(), "one");
    asked.join().unwrap();
    edit(&guest, "file").refused(503);
}

#[test]
fn files_are_ranked_by_the_provider_and_cut_at_the_threshold() {
    let scores = json!({"results": [
        {"filename": "b.rs", "score": 0.6}, {"filename": "a.rs", "score": 0.9},
        {"filename": "c.rs", "score": 0.1}, {"filename": "invented.rs", "score": 1.0},
    ]});
    let (url, asked) = stand_in(200, scores);
    let guest = Guest::start_with(&[("RELACE_API_KEY", "k"), ("RELACE_RANK_URL", &url)]);
    for name in ["a.rs", "b.rs", "c.rs", "d.txt"] {
        std::fs::write(guest.path().join(name), name).unwrap();
    }
    guest.get("/codegen/reranking/.?query=x&filePattern=%28").refused(400);
    let ranked = guest.get("/codegen/reranking/.?query=what&filePattern=%5C.rs%24").ok();
    let file = |name: &str, score: f64| json!({"path": name, "score": score, "content": name});
    assert_eq!(ranked["files"], json!([file("a.rs", 0.9), file("b.rs", 0.6)]));
    let question = asked.join().unwrap().1;
    assert_eq!(question["codebase"].as_array().unwrap().len(), 3);
    assert_eq!(
        (question["query"].as_str(), question["token_limit"].as_u64()),
        (Some("what"), Some(30_000))
    );
}
