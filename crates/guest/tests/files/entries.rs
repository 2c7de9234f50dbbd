use crate::common::Guest;
use crate::form;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

const RAW: (&str, &str) = ("Accept", "application/octet-stream");

fn put(guest: &Guest, path: &str, body: &Value) -> crate::common::Response {
    guest.send("PUT", path, &[("Content-Type", "application/json")], body.to_string().as_bytes())
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

fn encoded(path: &Path) -> String {
    path.to_str().unwrap().replace('/', "%2F")
}

#[test]
fn a_file_is_read_as_it_was_written() {
    let guest = Guest::start();
    let written = put(&guest, "/filesystem/src/a.txt", &json!({"content": "héllo\n\u{1}"})).ok();
    assert_eq!(written["message"], "File created/updated successfully");
    let path = guest.path().join("src/a.txt");
    assert_eq!(written["path"], path.to_str().unwrap());
    let read = guest.get("/filesystem/src/a.txt").ok();
    assert_eq!(read["content"], "héllo\n\u{1}");
    assert_eq!(read["name"], "");
    assert_eq!(read["permissions"], "644");
    assert_eq!(read["size"], 8);
    assert_eq!(read["owner"], "root");
    assert!(read["lastModified"].as_str().unwrap().ends_with('Z'));
}

#[test]
fn three_spellings_reach_one_absolute_path() {
    let guest = Guest::start();
    std::fs::write(guest.path().join("x"), "here").unwrap();
    let absolute = guest.path().to_str().unwrap();
    for path in [
        format!("/filesystem/{}%2Fx", encoded(guest.path())),
        format!("/filesystem/{absolute}/x"),
        format!("/filesystem{}%2Fx", encoded(guest.path())),
        "/filesystem/./x".into(),
        "/filesystem/../../../../../..".to_owned() + absolute + "/x",
    ] {
        assert_eq!(guest.get(&path).ok()["content"], "here", "{path}");
    }
    for path in ["/filesystem", "/filesystem/", "/filesystem/."] {
        assert_eq!(guest.get(path).ok()["path"], absolute, "{path}");
    }
}

#[test]
fn home_is_where_the_environment_says() {
    let home = tempfile::tempdir().unwrap();
    let guest = Guest::start_with(&[("HOME", home.path().to_str().unwrap())]);
    put(&guest, "/filesystem/~/x", &json!({"content": "mine"})).ok();
    assert_eq!(std::fs::read_to_string(home.path().join("x")).unwrap(), "mine");
    assert_eq!(guest.get("/filesystem/~").ok()["path"], home.path().to_str().unwrap());
}

#[test]
fn a_listing_is_one_level_deep_and_sorted() {
    let guest = Guest::start();
    for path in ["b/inner", "a", "c"] {
        put(&guest, &format!("/filesystem/d/{path}"), &json!({"content": ""})).ok();
    }
    symlink("b", guest.path().join("d/link")).unwrap();
    let listed = guest.get("/filesystem/d").ok();
    let names = |key: &str| -> Vec<String> {
        let list = listed[key].as_array().unwrap();
        list.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        (names("files"), names("subdirectories")),
        (vec!["a".into(), "c".into(), "link".into()], vec!["b".into()])
    );
    assert_eq!(listed["files"][2]["permissions"], "120777");
    guest.get("/filesystem/missing").refused(404);
}

#[test]
fn raw_bytes_come_back_exactly_and_in_ranges() {
    let guest = Guest::start();
    let content: Vec<u8> = (0..=255).cycle().take(700_001).collect();
    std::fs::write(guest.path().join("pic.png"), &content).unwrap();
    let whole = guest.send("GET", "/filesystem/pic.png", &[RAW], b"");
    assert_eq!((whole.status, whole.body == content), (200, true));
    assert_eq!(whole.header("content-type"), Some("image/png"));
    assert_eq!(whole.header("content-length"), Some("700001"));
    assert!(
        whole
            .header("content-disposition")
            .unwrap()
            .starts_with("attachment; filename=\"pic.png\"")
    );
    let part = guest.send(
        "GET",
        "/filesystem/pic.png?download=True",
        &[("Range", "bytes=300000-300009")],
        b"",
    );
    assert_eq!((part.status, part.body.as_slice()), (206, &content[300_000..300_010]));
    assert_eq!(part.header("content-range"), Some("bytes 300000-300009/700001"));
    let outside = guest.send("GET", "/filesystem/pic.png", &[RAW, ("Range", "bytes=700001-")], b"");
    assert_eq!(outside.header("content-range"), Some("bytes */700001"));
    outside.refused(416);
}

#[test]
fn a_large_file_is_one_json_text() {
    let guest = Guest::start();
    let content = "é\n\"".repeat(400_000);
    std::fs::write(guest.path().join("large"), &content).unwrap();
    assert!(guest.get("/filesystem/large").ok()["content"].as_str() == Some(content.as_str()));
}

#[test]
fn files_of_the_kernel_are_read_to_their_end() {
    let guest = Guest::start();
    assert!(
        guest.get("/filesystem//proc/self/status").ok()["content"]
            .as_str()
            .unwrap()
            .contains("Name:")
    );
    assert!(
        guest.send("GET", "/filesystem//proc/self/status", &[RAW], b"").text().contains("Name:")
    );
}

#[test]
fn names_need_not_be_text() {
    let guest = Guest::start();
    put(&guest, "/filesystem/odd%FF%0Aname", &json!({"content": "odd"})).ok();
    assert!(guest.path().join(OsStr::from_bytes(b"odd\xff\nname")).exists());
    assert_eq!(guest.get("/filesystem/odd%FF%0Aname").ok()["content"], "odd");
    assert_eq!(guest.get("/filesystem/").ok()["files"][0]["name"], "odd\u{fffd}\nname");
    guest.delete("/filesystem/odd%FF%0Aname").ok();
}

#[test]
fn what_cannot_be_read_is_refused_and_does_not_hang() {
    let guest = Guest::start();
    let pipe = guest.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    guest.get("/filesystem/pipe").refused(422);
    put(&guest, "/filesystem/pipe", &json!({"content": "x"})).refused(422);
    guest.get("/filesystem//dev/zero").refused(422);
    guest.get("/filesystem/a%00b").refused(422);
    guest.get(&format!("/filesystem/{}", "x".repeat(300))).refused(422);
    std::fs::write(guest.path().join("file"), "").unwrap();
    put(&guest, "/filesystem/file/below", &json!({"content": "x"})).refused(422);
    put(&guest, "/filesystem/new", &json!({"content": "x", "permissions": "rw"})).refused(400);
    guest.send("PUT", "/filesystem/new", &[], b"{").refused(400);
}

#[test]
fn directories_are_made_with_their_permissions() {
    let guest = Guest::start();
    let made =
        put(&guest, "/filesystem/a/b", &json!({"isDirectory": true, "permissions": "0700"})).ok();
    assert_eq!(made["message"], "Directory created successfully");
    put(&guest, "/filesystem/a/b", &json!({"isDirectory": true})).ok();
    assert_eq!(mode(&guest.path().join("a/b")), 0o700);
}

#[test]
fn overwriting_keeps_permissions_and_links() {
    let guest = Guest::start();
    let script = guest.path().join("run.sh");
    std::fs::write(&script, "old").unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    symlink("run.sh", guest.path().join("link")).unwrap();
    put(&guest, "/filesystem/link", &json!({"content": "new"})).ok();
    assert_eq!((std::fs::read_to_string(&script).unwrap().as_str(), mode(&script)), ("new", 0o755));
    assert!(guest.path().join("link").is_symlink());
    put(&guest, "/filesystem/run.sh", &json!({"content": "new", "permissions": "600"})).ok();
    assert_eq!(mode(&script), 0o600);
}

#[test]
fn a_form_uploads_bytes_with_permissions_in_any_order() {
    let guest = Guest::start();
    let content: Vec<u8> = (0..=255).cycle().take(1_000_003).collect();
    for fields in [
        [("file", content.as_slice()), ("permissions", b"0640"), ("path", b"ignored")],
        [("permissions", b"0640"), ("path", b"ignored"), ("file", content.as_slice())],
    ] {
        let (body, kind) = form(&fields);
        let path = format!("/filesystem/{}/up/file", guest.path().to_str().unwrap());
        let done = guest.send("PUT", &path, &[("Content-Type", kind)], &body).ok();
        assert_eq!(done["message"], "Binary file uploaded successfully");
        let file = guest.path().join("up/file");
        assert!(std::fs::read(&file).unwrap() == content);
        assert_eq!(mode(&file), 0o640);
        std::fs::remove_dir_all(guest.path().join("up")).unwrap();
    }
}

#[test]
fn a_broken_form_leaves_nothing() {
    let guest = Guest::start();
    std::fs::write(guest.path().join("file"), "old").unwrap();
    let (body, kind) = form(&[("file", &[7; 400_000])]);
    for (kind, body) in [
        (kind, &body[..300_000]),
        (kind, b"--frontier--\r\n".as_slice()),
        (kind, b"--frontier\r\nX: y\r\n\r\n\r\n--frontier--".as_slice()),
        ("multipart/form-data", body.as_slice()),
    ] {
        guest.send("PUT", "/filesystem/file", &[("Content-Type", kind)], body).refused(400);
    }
    assert_eq!(std::fs::read_to_string(guest.path().join("file")).unwrap(), "old");
    assert_eq!(guest.path().read_dir().unwrap().count(), 1);
}

#[test]
fn trees_are_written_listed_and_deleted() {
    let guest = Guest::start();
    let tree = format!("/filesystem/tree{}/t", guest.path().to_str().unwrap());
    let files = json!({"files": {"a": "1", "sub/b": "2", "../../escape": "3"}});
    let listed = put(&guest, &tree, &files).ok();
    assert_eq!(listed["path"], guest.path().join("t").to_str().unwrap());
    assert_eq!(listed["subdirectories"][0]["name"], "sub");
    assert_eq!(std::fs::read_to_string(guest.path().join("t/escape")).unwrap(), "3");
    assert!(!guest.path().join("escape").exists());
    assert_eq!(guest.get(&tree).ok(), listed);
    guest.delete(&tree).refused(422);
    let deleted = guest.delete(&format!("{tree}?recursive=True")).ok();
    assert_eq!(deleted["path"], guest.path().join("t").to_str().unwrap());
    guest.delete(&tree).refused(404);
    put(&guest, &tree, &json!({"files": {"..": "x"}})).refused(400);
}

#[test]
fn a_whole_tree_is_read_in_one_answer_or_not_at_all() {
    let guest = Guest::start();
    let tree = format!("/filesystem/tree{}/t", guest.path().to_str().unwrap());
    put(&guest, &tree, &json!({"files": {"a.md": "1", "sub/deep/b.rs": "22", ".git/c": "3"}})).ok();
    let whole = guest.get(&format!("{tree}?recursive=true&content=true")).ok();
    assert_eq!(whole["recursive"], true);
    let pairs = |answer: &Value| -> Vec<(String, Value)> {
        let files = answer["files"].as_array().unwrap();
        files
            .iter()
            .map(|file| (file["path"].as_str().unwrap().to_owned(), file["content"].clone()))
            .collect()
    };
    let path = |name: &str| guest.path().join("t").join(name).to_str().unwrap().to_owned();
    let expect = [
        (path(".git/c"), json!("3")),
        (path("a.md"), json!("1")),
        (path("sub/deep/b.rs"), json!("22")),
    ];
    assert_eq!(pairs(&whole), expect);
    assert_eq!(whole["subdirectories"].as_array().unwrap().len(), 3);
    let some = guest.get(&format!("{tree}?recursive=true&excludeHidden=true&patterns=*.rs")).ok();
    assert_eq!(pairs(&some), [(path("sub/deep/b.rs"), Value::Null)]);
    guest.get(&format!("{tree}?recursive=true&maxFiles=2")).refused(422);
    guest.get(&format!("{tree}?recursive=true&content=true&maxBytes=3")).refused(422);
    guest.get(&format!("{tree}?recursive=true&maxFiles=x")).refused(400);
}

#[test]
fn the_tree_is_not_a_prefix_of_other_names() {
    let guest = Guest::start();
    put(&guest, "/filesystem/treehouse", &json!({"content": "up"})).ok();
    assert_eq!(std::fs::read_to_string(guest.path().join("treehouse")).unwrap(), "up");
}

#[test]
fn deleting_follows_no_links() {
    let guest = Guest::start();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("kept"), "x").unwrap();
    std::fs::create_dir_all(guest.path().join("d/e")).unwrap();
    symlink(outside.path(), guest.path().join("d/e/link")).unwrap();
    symlink(outside.path(), guest.path().join("link")).unwrap();
    guest.delete("/filesystem/d").refused(422);
    guest.delete("/filesystem/d?recursive=perhaps").refused(400);
    assert_eq!(
        guest.delete("/filesystem/d?recursive=TRUE").ok()["message"],
        "Directory deleted successfully"
    );
    assert_eq!(
        guest.delete("/filesystem/link?recursive=true").ok()["message"],
        "File deleted successfully"
    );
    assert!(outside.path().join("kept").exists());
    guest.delete("/filesystem/link").refused(404);
    guest.delete("/filesystem/%2F?recursive=true").refused(422);
}

#[test]
fn readers_never_see_half_a_file() {
    let guest = Guest::start();
    let contents = ["a".repeat(2 << 20), "b".repeat(1 << 20)];
    put(&guest, "/filesystem/file", &json!({"content": contents[0]})).ok();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for turn in 0..10 {
                put(&guest, "/filesystem/file", &json!({"content": contents[turn % 2]})).ok();
            }
        });
        while !writer.is_finished() {
            let read = guest.send("GET", "/filesystem/file", &[RAW], b"");
            assert!(
                contents.iter().any(|content| content.as_bytes() == read.body),
                "{}",
                read.body.len()
            );
        }
    });
}
