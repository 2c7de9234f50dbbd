//! Small file systems of their own inside the instance, some of them full.

use crate::common::Guest;
use crate::form;
use serde_json::{Value, json};
use std::process::Command;

/// Starts it with these file systems in its folder, each with the options of its mount, after a
/// script there. `None` without the right to mount.
fn start(disks: &[(&str, &str)], script: &str) -> Option<Guest> {
    let may = Command::new("unshare").args(["--mount", "true"]).status();
    if may.is_ok_and(|status| !status.success()) {
        eprintln!("this needs the right to make a space of mounts");
        return None;
    }
    let mount = |(name, options): &(&str, &str)| {
        format!("mkdir {name} && mount -t tmpfs -o {options} tmpfs {name} && ")
    };
    let mounts: String = disks.iter().map(mount).collect();
    let script = format!("cd \"$WORKDIR\" && {mounts} {script} exec \"$0\" \"$@\"");
    Some(Guest::start_by(&["unshare", "--mount", "sh", "-c", &script], &[]))
}

fn put(guest: &Guest, path: &str, content: &str) -> crate::common::Response {
    let body = json!({"content": content}).to_string();
    let kind = ("Content-Type", "application/json");
    guest.send("PUT", &format!("/filesystem/{path}"), &[kind], body.as_bytes())
}

#[test]
fn a_refused_write_to_a_full_disk_leaves_the_file_that_was_there() {
    let disks = [("names", "nr_inodes=2"), ("bytes", "size=64k"), ("bound", "size=64k")];
    // A file that is a mount of its own cannot be replaced.
    let script = "echo old > bound/from && : > over && mount --bind bound/from over &&";
    let Some(guest) = start(&disks, script) else { return };
    let old = "o".repeat(40 << 10);
    for path in ["names/file", "bytes/file"] {
        put(&guest, path, &old).ok();
    }
    // There is no room for a draft, for all of a draft, and for all of the file.
    put(&guest, "names/file", "new").refused(422);
    put(&guest, "bytes/file", &"n".repeat(40 << 10)).refused(422);
    put(&guest, "over", &"n".repeat(80 << 10)).refused(422);
    for path in ["names/file", "bytes/file"] {
        assert_eq!(guest.get(&format!("/filesystem/{path}")).ok()["content"], old, "{path}");
    }
    assert_eq!(guest.get("/filesystem/over").ok()["content"], "old\n");
    put(&guest, "over", "x").ok();
    assert_eq!(guest.get("/filesystem/over").ok()["content"], "x");
    put(&guest, "over", &"n".repeat(40 << 10)).ok();
    assert_eq!(guest.run("cat bound/from | wc -c")["stdout"], "40960\n");
}

#[test]
fn the_parts_of_an_upload_are_where_the_file_will_be() {
    let disks = [("tiny", "size=64k"), ("a\\ volume", "size=8m")];
    let Some(guest) = start(&disks, "export TMPDIR=\"$WORKDIR/tiny\" &&") else { return };
    let begin = |path: &str| {
        let begun = guest.post(&format!("/filesystem-multipart/initiate/{path}"), &json!({})).ok();
        begun["uploadId"].as_str().unwrap().to_owned()
    };
    let send = |id: &str, number: u32| {
        let (body, kind) = form(&[("file", &[b'x'; 1 << 20])]);
        let path = format!("/filesystem-multipart/{id}/part?partNumber={number}");
        guest.send("PUT", &path, &[("Content-Type", kind)], &body)
    };
    let (id, other) = (begin("a%20volume/deep/file"), begin("a%20volume/other"));
    let parts = [1, 2].map(|number| send(&id, number).ok());
    let listed = guest.get("/filesystem-multipart").ok();
    let ids = listed["uploads"].as_array().unwrap().iter().map(|it| it["uploadId"].clone());
    let mut ids: Vec<Value> = ids.collect();
    ids.sort_unstable_by_key(Value::to_string);
    let mut wanted = [json!(id), json!(other)];
    wanted.sort_unstable_by_key(Value::to_string);
    assert_eq!(ids, wanted);
    // Whoever lists the folder sees only what was asked for.
    assert_eq!(guest.get("/filesystem/a%20volume").ok()["subdirectories"], json!([]));
    guest.post(&format!("/filesystem-multipart/{id}/complete"), &json!({"parts": parts})).ok();
    guest.delete(&format!("/filesystem-multipart/{other}/abort")).ok();
    assert_eq!(guest.run("stat -c %s 'a volume/deep/file'")["stdout"], "2097152\n");
    assert_eq!(guest.run("ls -A 'a volume' tiny")["stdout"], "a volume:\ndeep\n\ntiny:\n");

    // The error names the folder that is full.
    let full = begin("tiny/file");
    assert!(send(&full, 1).refused(422).contains("tiny/.holm-uploads"));
}

#[test]
fn what_a_program_says_on_a_full_disk_can_be_read() {
    let script = "export TMPDIR=\"$WORKDIR/tiny\" &&";
    let Some(guest) = start(&[("tiny", "size=64k")], script) else { return };
    let program = "seq 1 2000; cat /dev/zero > tiny/fill 2> fault; cat fault; \
                   seq 2001 9000; echo 'FATAL: no space left' >&2; exit 7";
    let ended = guest.run(program);
    let stdout = ended["stdout"].as_str().unwrap();
    assert!(stdout.contains("No space left"), "the disk is not full");
    let numbers = stdout.lines().filter_map(|line| line.parse::<u32>().ok());
    assert!(numbers.eq(1..=9000), "{} bytes are here", stdout.len());
    assert_eq!(
        (&ended["stderr"], &ended["exitCode"]),
        (&json!("FATAL: no space left\n"), &json!(7))
    );
}
