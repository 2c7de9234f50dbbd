//! `holm cp` out of a sandbox.

use crate::common::text;
use crate::pretend::{Answer, Pretend};
use serde_json::json;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::process::Command;

/// What is there already and is neither a file nor a folder is written into, and stays what it is.
#[test]
fn a_file_is_copied_into_a_fifo_or_a_device() {
    let pretend = Pretend::start(|url, asked| match asked.path.contains("/filesystem/") {
        false => Answer::json(&json!({"metadata": {"url": format!("{url}/main/sandboxes/box")}})),
        true => Answer { status: 200, headers: Vec::new(), body: "content".into() }
            .with("Content-Disposition", "attachment".into()),
    });
    let place = tempfile::tempdir().unwrap();
    let (fifo, link) = (place.path().join("fifo"), place.path().join("link"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    std::os::unix::fs::symlink("fifo", &link).unwrap();
    // Open for both, so that neither side waits for the other.
    let mut reader = File::options().read(true).write(true).open(&fifo).unwrap();
    let copy = |to: &str, exit: i32| {
        text(&pretend.cli(place.path(), &["cp", "box:/file", to]).output().unwrap(), exit)
    };
    for to in ["fifo", "link"] {
        copy(to, 0);
        assert!(
            fifo.symlink_metadata().unwrap().file_type().is_fifo() && link.is_symlink(),
            "{to}"
        );
        let mut read = [0; 7];
        reader.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"content", "{to}");
    }
    std::os::unix::fs::symlink("/dev/full", place.path().join("full")).unwrap();
    assert!(copy("full", 1).contains("cannot write full"));
    assert!(copy("/dev/stdout", 0).starts_with("content"));
    let to_file = File::create(place.path().join("out")).unwrap();
    let copied =
        pretend.cli(place.path(), &["cp", "box:/file", "/dev/stdout"]).stdout(to_file).status();
    assert!(copied.unwrap().success());
    assert_eq!(std::fs::read(place.path().join("out")).unwrap(), b"content");
}

/// A sandbox that tries in every way to write outside the destination of a copy.
#[test]
fn a_hostile_sandbox_writes_nothing_outside_the_destination() {
    const NAMES: [&str; 7] = ["..", ".", "", "../up", "/abs", "a/b", "link/in"];
    let pretend = Pretend::start(|url, asked| {
        let path = asked.path.as_str();
        let attachment = Answer { status: 200, headers: Vec::new(), body: "evil".into() }
            .with("Content-Disposition", "attachment".into());
        match path.strip_prefix("/main/sandboxes/box/filesystem/") {
            None => {
                Answer::json(&json!({"metadata": {"url": format!("{url}/main/sandboxes/box")}}))
            }
            Some("%2Fwork") => {
                let file = |name: &&str| json!({"name": name, "permissions": "777", "size": 4});
                let folder = |name: &&str| json!({"name": name, "path": "/work"});
                let mut files: Vec<_> = NAMES.iter().map(file).collect();
                files.push(file(&"good"));
                // A file and a folder with the same name, and a link that exists already.
                let mut folders: Vec<_> = NAMES.iter().map(folder).collect();
                folders.push(folder(&"link"));
                Answer::json(&json!({"files": files, "subdirectories": folders}))
            }
            Some("%2Fwork%2Flink") => {
                Answer::json(&json!({"files": [{"name": "x", "permissions": "644"}]}))
            }
            Some(_) => attachment,
        }
    });
    let place = tempfile::tempdir().unwrap();
    let at = |path: &str| place.path().join(path);
    std::fs::create_dir_all(at("outside")).unwrap();
    std::fs::create_dir_all(at("to")).unwrap();
    std::os::unix::fs::symlink("../outside", at("to/link")).unwrap();
    let copied = pretend.cli(place.path(), &["cp", "box:/work/.", "to"]).output().unwrap();
    assert!(text(&copied, 1).contains("links in the destination are not followed"));
    std::fs::remove_file(at("to/link")).unwrap();
    let told = text(&pretend.cli(place.path(), &["cp", "box:/work/.", "to"]).output().unwrap(), 0);
    assert!(told.contains("left out") && told.contains("copied 2 files"), "{told}");
    let names = |path: &str| {
        let mut names: Vec<_> =
            std::fs::read_dir(at(path)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(
        (names("."), names("to")),
        (vec!["outside".into(), "to".into()], vec!["good".into(), "link".into()])
    );
    assert!(names("outside").is_empty());
}
