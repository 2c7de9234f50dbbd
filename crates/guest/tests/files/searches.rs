use crate::common::Guest;
use serde_json::Value;

fn guest() -> Guest {
    let guest = Guest::start();
    for (path, content) in [
        ("src/main.rs", "fn main() {\n    println!(\"Needle\");\n}\n"),
        ("src/needle_finder.py", "# looks for a needle, NEEDLE\n"),
        ("docs/m-a-i-n.md", "é needle\n"),
        (".hidden/secret.rs", "needle\n"),
        ("node_modules/pkg/main.rs", "needle\n"),
        ("build/own/main.rs", "needle\n"),
    ] {
        let path = guest.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    std::fs::write(guest.path().join("src/binary"), b"needle\0needle").unwrap();
    std::os::unix::fs::symlink("..", guest.path().join("src/circle")).unwrap();
    guest
}

fn paths(answer: &Value) -> Vec<&str> {
    assert_eq!(
        answer["total"].as_u64().unwrap() as usize,
        answer["matches"].as_array().unwrap().len()
    );
    answer["matches"]
        .as_array()
        .unwrap()
        .iter()
        .map(|found| found["path"].as_str().unwrap())
        .collect()
}

#[test]
fn names_are_found_by_patterns() {
    let guest = guest();
    let found = guest.get("/filesystem-find/.?patterns=*.rs,*.py").ok();
    assert_eq!(paths(&found), ["src/main.rs", "src/needle_finder.py"]);
    assert_eq!(found["matches"][0]["type"], "file");
    let found =
        guest.get("/filesystem-find/?patterns=*.rs&excludeDirs=src&excludeHidden=False").ok();
    assert_eq!(
        paths(&found),
        [".hidden/secret.rs", "build/own/main.rs", "node_modules/pkg/main.rs"]
    );
    assert_eq!(paths(&guest.get("/filesystem-find/.?type=directory").ok()), ["docs", "src"]);
    assert_eq!(paths(&guest.get("/filesystem-find/.?maxResults=1").ok()).len(), 1);
    assert_eq!(paths(&guest.get("/filesystem-find/.?maxResults=0").ok()).len(), 5);
    assert_eq!(paths(&guest.get("/filesystem-find/build").ok()), ["own/main.rs"]);
}

#[test]
fn bad_questions_are_told_apart_from_missing_places() {
    let guest = guest();
    guest.get("/filesystem-find/.?patterns=%5B").refused(400);
    guest.get("/filesystem-find/.?type=socket").refused(400);
    guest.get("/filesystem-find/.?maxResults=many").refused(400);
    guest.get("/filesystem-find/missing").refused(404);
    guest.get("/filesystem-content-search/.").refused(400);
    guest.get("/filesystem-content-search/missing?query=x").refused(404);
    guest.get("/filesystem-content-search/.?query=x&filePattern=%5B").refused(400);
    guest.get("/filesystem-search/").refused(400);
}

#[test]
fn a_few_letters_find_the_best_path_under_the_working_directory() {
    let guest = guest();
    let found = guest.get("/filesystem-search/main").ok();
    assert_eq!(paths(&found), ["src/main.rs", "docs/m-a-i-n.md"]);
    assert!(found["matches"][0]["score"].as_i64() > found["matches"][1]["score"].as_i64());
    assert_eq!(
        paths(&guest.get("/filesystem-search/src%2Fmain?maxResults=1").ok()),
        ["src/main.rs"]
    );
    assert!(paths(&guest.get("/filesystem-search/zzzz").ok()).is_empty());
}

#[test]
fn lines_are_found_by_their_text() {
    let guest = guest();
    let found = guest.get("/filesystem-content-search/.?query=needle").ok();
    assert_eq!(
        paths(&found),
        [".hidden/secret.rs", "docs/m-a-i-n.md", "src/main.rs", "src/needle_finder.py"]
    );
    let line = &found["matches"][2];
    assert_eq!((line["line"].as_u64(), line["column"].as_u64()), (Some(2), Some(15)));
    assert_eq!(line["text"], "    println!(\"Needle\");");
    assert_eq!(found["matches"][1]["column"], 3);
    let exact = guest
        .get("/filesystem-content-search/.?query=NEEDLE&caseSensitive=True&filePattern=*.py")
        .ok();
    assert_eq!(exact["matches"][0]["column"], 23);
    assert_eq!(exact["query"], "NEEDLE");
    let none = guest.get("/filesystem-content-search/.?query=nothing-like-it").ok();
    assert_eq!((&none["matches"], none["total"].as_u64()), (&serde_json::json!([]), Some(0)));
    assert_eq!(
        paths(&guest.get("/filesystem-content-search/.?query=e&maxResults=2").ok()).len(),
        2
    );
}
