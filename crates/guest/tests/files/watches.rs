use crate::common::{Answer, Guest};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;

struct Watch(BufReader<Answer>);

impl Watch {
    fn start(guest: &Guest, path: &str) -> Self {
        let answer = guest.open("GET", &format!("/watch/filesystem/{path}"), &[], b"");
        assert_eq!(answer.status, 200);
        Self(BufReader::new(answer))
    }

    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
    }

    /// Returns the events before the first one on an `end…`, as `OP directory/name` below the root.
    /// A test creates that file once and empty, to mark the end.
    fn until_end(&mut self, root: &Path) -> Vec<String> {
        let mut events = Vec::new();
        loop {
            let event = self.next().unwrap();
            assert_eq!(event["error"], Value::Null, "{event}");
            let path =
                Path::new(event["path"].as_str().unwrap()).join(event["name"].as_str().unwrap());
            if event["name"].as_str().unwrap().starts_with("end") {
                return events;
            }
            let below = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            events.push(format!("{} {below}", event["op"].as_str().unwrap()));
        }
    }
}

fn put(guest: &Guest, path: &str) {
    let body = json!({"content": "x"}).to_string();
    guest
        .send(
            "PUT",
            &format!("/filesystem/{path}"),
            &[("Content-Type", "application/json")],
            body.as_bytes(),
        )
        .ok();
}

#[test]
fn changes_are_told_as_they_happen() {
    let guest = Guest::start();
    let root = guest.path();
    std::fs::create_dir(root.join("below")).unwrap();
    let mut watch = Watch::start(&guest, ".");
    std::fs::write(root.join("a"), "x").unwrap();
    std::fs::rename(root.join("a"), root.join("b")).unwrap();
    std::fs::set_permissions(root.join("b"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .unwrap();
    std::fs::remove_file(root.join("b")).unwrap();
    std::fs::write(root.join("below/unseen"), "x").unwrap();
    std::fs::write(root.join("end"), "").unwrap();
    assert_eq!(
        watch.until_end(root),
        ["CREATE a", "WRITE a", "RENAME a", "CREATE b", "CHMOD b", "REMOVE b"]
    );
}

#[test]
fn writing_through_the_api_looks_like_writing() {
    let guest = Guest::start();
    let mut watch = Watch::start(&guest, ".");
    put(&guest, "file");
    put(&guest, "file");
    put(&guest, "end");
    assert_eq!(watch.until_end(guest.path()), ["CREATE file", "WRITE file", "WRITE file"]);
}

#[test]
fn a_tree_is_followed_into_new_and_moved_directories() {
    let guest = Guest::start();
    let root = guest.path();
    let outside = tempfile::tempdir_in(root.parent().unwrap()).unwrap();
    std::fs::create_dir_all(outside.path().join("moved/in")).unwrap();
    std::fs::write(outside.path().join("moved/in/file"), "x").unwrap();
    std::fs::create_dir(root.join("old")).unwrap();
    let mut watch = Watch::start(&guest, "**");
    std::fs::write(root.join("old/a"), "").unwrap();
    std::fs::rename(outside.path().join("moved"), root.join("new")).unwrap();
    std::fs::write(root.join("end"), "").unwrap();
    assert_eq!(
        watch.until_end(root),
        ["CREATE old/a", "CREATE new", "CREATE new/in", "CREATE new/in/file"]
    );
    std::fs::rename(root.join("new/in"), root.join("old/out")).unwrap();
    std::fs::write(root.join("end1"), "").unwrap();
    let events = watch.until_end(root);
    assert_eq!(events, ["RENAME new/in", "CREATE old/out", "CREATE old/out/file"]);
    std::fs::write(root.join("old/out/file"), "more").unwrap();
    std::fs::write(root.join("end2"), "").unwrap();
    let events = watch.until_end(root);
    assert!(events.contains(&"WRITE old/out/file".into()), "{events:?}");
}

#[test]
fn no_file_of_a_fast_growing_tree_is_missed() {
    let guest = Guest::start();
    let root = guest.path().to_path_buf();
    let mut watch = Watch::start(&guest, "**");
    for number in 0..300 {
        let directory = root.join(format!("{}/{}", number % 7, number));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("file"), "x").unwrap();
    }
    std::fs::write(root.join("end"), "").unwrap();
    let events = watch.until_end(&root);
    for number in 0..300 {
        let wanted = format!("CREATE {}/{number}/file", number % 7);
        assert_eq!(events.iter().filter(|event| **event == wanted).count(), 1, "{wanted}");
    }
}

#[test]
fn lost_events_are_told() {
    let guest = Guest::start();
    let root = guest.path();
    let mut watch = Watch::start(&guest, "**");
    // Nobody reads, so the connection fills up, then the kernel's queue.
    let limit: usize = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let directory = root.join("d".repeat(200));
    std::fs::create_dir(&directory).unwrap();
    for turn in 0..limit * 4 {
        let path = directory.join(format!("{}{}", "n".repeat(200), turn % 2));
        std::fs::File::create(&path).unwrap();
        std::fs::remove_file(path).unwrap();
    }
    let overflow =
        std::iter::from_fn(|| watch.next()).find(|event| event["op"] == "OVERFLOW").unwrap();
    assert_eq!(overflow["path"], root.to_str().unwrap());
    assert!(overflow["error"].is_string());
    std::fs::write(directory.join("after"), "x").unwrap();
    assert!(std::iter::from_fn(|| watch.next()).any(|event| event["name"] == "after"));
}

#[test]
fn ignored_paths_are_not_told() {
    let guest = Guest::start();
    let mut watch = Watch::start(&guest, ".?ignore=.log,%20skipped");
    for name in ["a.log", "skipped1", "b", "end"] {
        std::fs::File::create(guest.path().join(name)).unwrap();
    }
    assert_eq!(watch.until_end(guest.path()), ["CREATE b"]);
}

#[test]
fn the_stream_ends_with_the_directory() {
    let guest = Guest::start();
    std::fs::create_dir(guest.path().join("d")).unwrap();
    let mut watch = Watch::start(&guest, "d");
    std::fs::remove_dir(guest.path().join("d")).unwrap();
    assert_eq!(watch.next().unwrap()["op"], "REMOVE");
    assert_eq!(watch.next(), None);
}

#[test]
fn only_directories_are_watched() {
    let guest = Guest::start();
    std::fs::write(guest.path().join("file"), "").unwrap();
    guest.get("/watch/filesystem/file").refused(400);
    guest.get("/watch/filesystem/missing").refused(400);
}
