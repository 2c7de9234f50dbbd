use crate::common::{Guest, Response};
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

fn copy(guest: &Guest, source: &str, destination: &str) -> Response {
    guest.post("/filesystem-copy", &json!({"source": source, "destination": destination}))
}

fn copy_new(guest: &Guest, source: &str, destination: &str) -> Response {
    let body = json!({"source": source, "destination": destination, "noOverwrite": true});
    guest.post("/filesystem-copy", &body)
}

#[track_caller]
fn exists(answer: &Response, path: &Path) {
    assert_eq!(answer.status, 409, "{}", answer.text());
    let body = answer.json();
    assert_eq!(body["code"], "FILE_ALREADY_EXISTS");
    assert!(body["error"].as_str().unwrap().contains(path.to_str().unwrap()), "{body}");
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Returns how many entries a directory has, whatever their names.
fn count(path: &Path) -> usize {
    path.read_dir().unwrap().count()
}

#[test]
fn a_file_is_copied_with_its_permissions_and_its_directories_are_made() {
    let guest = Guest::start();
    fs::write(guest.path().join("run.sh"), "#!/bin/sh\n").unwrap();
    set_mode(&guest.path().join("run.sh"), 0o4755);
    let copied = copy(&guest, "run.sh", "deep/er/go.sh").ok();
    let target = guest.path().join("deep/er/go.sh");
    assert_eq!(copied["message"], "Files copied successfully");
    assert_eq!(copied["source"], guest.path().join("run.sh").to_str().unwrap());
    assert_eq!(copied["destination"], target.to_str().unwrap());
    assert_eq!(fs::read_to_string(&target).unwrap(), "#!/bin/sh\n");
    assert_eq!(mode(&target), 0o755, "whoever runs the copy runs it with their own rights");
    // Into a directory that exists, under its own name.
    let copied = copy(&guest, "./run.sh", "deep").ok();
    assert_eq!(copied["destination"], guest.path().join("deep/run.sh").to_str().unwrap());
    // A file that is replaced keeps its mode.
    set_mode(&target, 0o640);
    fs::write(guest.path().join("run.sh"), "new").unwrap();
    copy(&guest, "run.sh", "deep/er/go.sh").ok();
    assert_eq!((fs::read_to_string(&target).unwrap().as_str(), mode(&target)), ("new", 0o640));
}

#[test]
fn a_directory_is_copied_with_all_that_is_in_it() {
    let guest = Guest::start();
    let from = guest.path().join("from");
    fs::create_dir_all(from.join("a/b")).unwrap();
    fs::create_dir(from.join("empty")).unwrap();
    fs::write(from.join("a/b/file"), "x").unwrap();
    symlink("../nowhere", from.join("a/link")).unwrap();
    symlink("/etc", from.join("etc")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
    let (pipe, mode_of_pipe) = (from.join("pipe"), rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode_of_pipe, 0)
        .unwrap();
    set_mode(&from.join("a"), 0o700);
    set_mode(&from.join("empty"), 0o1777);
    copy_new(&guest, "from", "to").ok();
    let to = guest.path().join("to");
    assert_eq!(fs::read_to_string(to.join("a/b/file")).unwrap(), "x");
    assert_eq!(fs::read_link(to.join("a/link")).unwrap(), Path::new("../nowhere"));
    assert_eq!(fs::read_link(to.join("etc")).unwrap(), Path::new("/etc"));
    assert!(to.join("socket").symlink_metadata().unwrap().file_type().is_socket());
    assert!(to.join("pipe").symlink_metadata().unwrap().file_type().is_fifo());
    let modes = ["a", "a/b", "empty"].map(|name| mode(&to.join(name)));
    assert_eq!(modes, [0o700, 0o755, 0o777]);
    assert_eq!((count(&to), count(&to.join("a"))), (5, 2), "nothing unfinished is left");
    drop(socket);
}

#[test]
fn what_exists_stays_as_it_is_where_nothing_may_be_replaced() {
    let guest = Guest::start();
    let path = |name: &str| guest.path().join(name);
    fs::create_dir_all(path("tree/sub")).unwrap();
    fs::write(path("tree/sub/file"), "new").unwrap();
    fs::write(path("file"), "new").unwrap();
    fs::write(path("old"), "old").unwrap();
    symlink("nowhere", path("dangling")).unwrap();
    for target in ["old", "dangling"] {
        for source in ["file", "tree", "dangling"] {
            exists(&copy_new(&guest, source, target), &path(target));
        }
    }
    assert_eq!(fs::read_to_string(path("old")).unwrap(), "old");
    // A directory that exists is where the copy goes, unless there is one of that name in it.
    fs::create_dir(path("there")).unwrap();
    copy_new(&guest, "tree", "there").ok();
    fs::write(path("there/tree/sub/file"), "changed").unwrap();
    exists(&copy_new(&guest, "tree", "there"), &path("there/tree"));
    assert_eq!(fs::read_to_string(path("there/tree/sub/file")).unwrap(), "changed");
    assert_eq!(count(&path("there")), 1);
}

#[test]
fn two_copies_to_one_place_do_not_both_succeed() {
    let guest = Guest::start();
    fs::write(guest.path().join("file"), "x".repeat(1 << 20)).unwrap();
    for turn in 0..20 {
        let target = format!("copy-{turn}");
        let done: Vec<u16> = std::thread::scope(|scope| {
            let both = [(); 2].map(|()| scope.spawn(|| copy_new(&guest, "file", &target).status));
            both.map(|one| one.join().unwrap()).to_vec()
        });
        assert_eq!(done.iter().sum::<u16>(), 200 + 409, "{done:?}");
    }
}

#[test]
fn trees_are_merged_and_their_files_replaced() {
    let guest = Guest::start();
    let path = |name: &str| guest.path().join(name);
    fs::create_dir_all(path("from/sub")).unwrap();
    fs::write(path("from/sub/file"), "new").unwrap();
    symlink("new", path("from/link")).unwrap();
    fs::create_dir_all(path("to/from/sub")).unwrap();
    fs::write(path("to/from/sub/file"), "old, and longer").unwrap();
    fs::write(path("to/from/sub/kept"), "kept").unwrap();
    symlink("old", path("to/from/link")).unwrap();
    copy(&guest, "from", "to").ok();
    assert_eq!(fs::read_to_string(path("to/from/sub/file")).unwrap(), "new");
    assert_eq!(fs::read_to_string(path("to/from/sub/kept")).unwrap(), "kept");
    assert_eq!(fs::read_link(path("to/from/link")).unwrap(), Path::new("new"));
    assert_eq!(count(&path("to/from")), 2);
    // A directory and a file do not take each other's place, and a link is no directory.
    fs::create_dir_all(path("other/from/link")).unwrap();
    copy(&guest, "from", "other").refused(422);
    fs::create_dir_all(path("third/from")).unwrap();
    symlink("/etc", path("third/from/sub")).unwrap();
    copy(&guest, "from", "third").refused(422);
    assert!(!Path::new("/etc/file").exists());
    copy(&guest, "from", "to/from/sub/file").refused(422);
    fs::write(path("sub"), "a file").unwrap();
    copy(&guest, "sub", "to/from").refused(422);
}

#[test]
fn nothing_is_copied_into_itself() {
    let guest = Guest::start();
    let path = |name: &str| guest.path().join(name);
    fs::create_dir_all(path("tree/sub")).unwrap();
    fs::write(path("tree/file"), "x").unwrap();
    symlink("tree/sub", path("link")).unwrap();
    fs::hard_link(path("tree/file"), path("same")).unwrap();
    for target in ["tree", "tree/sub", "tree/new/er", "link", "link/new", "."] {
        let why = copy(&guest, "tree", target).refused(422);
        assert!(why.contains("into itself"), "{target}: {why}");
    }
    assert_eq!((count(&path("tree")), count(&path("tree/sub"))), (2, 0));
    for target in ["tree/file", "same", "tree"] {
        assert!(copy(&guest, "tree/file", target).refused(422).contains("same file"), "{target}");
    }
    assert_eq!(fs::read_to_string(path("same")).unwrap(), "x");
    copy(&guest, "/", "everything").refused(422);
    copy(&guest, "/", "tree").refused(422);
    // A directory whose name only begins like that of the other is another one.
    copy(&guest, "tree", "tree-2").ok();
}

#[test]
fn a_copy_is_refused_with_a_reason() {
    let guest = Guest::start();
    fs::write(guest.path().join("file"), "x").unwrap();
    copy(&guest, "missing", "x").refused(404);
    copy(&guest, "/dev/null", "x").refused(422);
    copy(&guest, "file", "file/below").refused(422);
    assert!(copy(&guest, "", "x").refused(400).contains("`source`"));
    assert!(copy(&guest, "file", "").refused(400).contains("`destination`"));
    for body in [json!({}), json!({"source": "file"}), json!({"source": 1, "destination": "x"})] {
        guest.post("/filesystem-copy", &body).refused(400);
    }
    assert_eq!(guest.get("/filesystem-copy").status, 405);
    assert!(!guest.path().join("x").exists());
}

#[test]
fn copies_belong_to_the_user_of_the_sandbox() {
    let directory = tempfile::tempdir().unwrap();
    let (work, settings) = (directory.path().join("work"), directory.path().join("settings"));
    fs::create_dir_all(work.join("from/sub")).unwrap();
    fs::write(work.join("from/sub/file"), "x").unwrap();
    symlink("file", work.join("from/sub/link")).unwrap();
    let given = json!({"workdir": work, "user": "4242:4343"});
    fs::write(&settings, given.to_string()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let guest = Guest::start_handed_over(&listener, &settings, directory);
    copy(&guest, "from", "new/to").ok();
    for name in ["new", "new/to", "new/to/sub", "new/to/sub/file", "new/to/sub/link"] {
        let metadata = work.join(name).symlink_metadata().unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (4242, 4343), "{name}");
    }
}

#[test]
fn holes_stay_holes_on_the_way() {
    let guest = Guest::start();
    let file = fs::File::create(guest.path().join("sparse")).unwrap();
    file.set_len(1 << 40).unwrap();
    let copied: Value = copy(&guest, "sparse", "copy").ok();
    let metadata = Path::new(copied["destination"].as_str().unwrap()).metadata().unwrap();
    assert_eq!(metadata.len(), 1 << 40);
    assert!(metadata.blocks() < 1 << 11, "{} blocks", metadata.blocks());
}
