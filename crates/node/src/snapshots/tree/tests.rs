use super::*;
use rustix::fs::{CWD, XattrFlags, lsetxattr, makedev, mknodat};
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;

fn open(path: &Path) -> OwnedFd {
    openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

/// Copies a tree in two looks, with a change between them. Returns the folder with both.
fn copied(fill: impl Fn(&Path), change: impl Fn(&Path)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (from, into) = (folder.path().join("from"), folder.path().join("into"));
    std::fs::create_dir(&from).unwrap();
    std::fs::create_dir(&into).unwrap();
    fill(&from);
    let (source, target) = (open(&from), open(&into));
    let mut copy = Copy::new(&source, &target, Ids { root: 0 }, None, 0).unwrap();
    copy.look(true).unwrap();
    change(&from);
    copy.look(false).unwrap();
    copy.finish().unwrap();
    folder
}

/// Copies a tree of many folders, which the layers below have or have not.
fn copied_with_many_folders(are_below: bool) -> (Result<(), SnapshotError>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let [from, below, into] = ["from", "below", "into"].map(|name| folder.path().join(name));
    std::fs::create_dir(&below).unwrap();
    std::fs::create_dir(&into).unwrap();
    let many = BUDGET_BYTES / entry::BYTES_PER_FILE_MIN + 1;
    for number in 0..many {
        std::fs::create_dir_all(from.join(number.to_string())).unwrap();
        if are_below {
            std::fs::create_dir(below.join(number.to_string())).unwrap();
        }
    }
    std::fs::write(from.join("7/own"), "written").unwrap();
    let (source, target, below) = (open(&from), open(&into), open(&below));
    let mut copy = Copy::new(&source, &target, Ids { root: 0 }, Some(&below), 0).unwrap();
    let done = copy.look(true).and_then(|()| copy.look(false)).and_then(|()| copy.finish());
    (done.map(drop), folder)
}

#[test]
fn folders_of_the_layers_below_cost_nothing() {
    let (copied, folder) = copied_with_many_folders(true);
    copied.unwrap();
    let into = folder.path().join("into");
    let left: Vec<_> = std::fs::read_dir(&into).unwrap().map(|one| one.unwrap().path()).collect();
    assert_eq!(left, [into.join("7")]);
    assert_eq!(std::fs::read(into.join("7/own")).unwrap(), b"written");
}

#[test]
fn other_folders_count() {
    let (refused, _folder) = copied_with_many_folders(false);
    assert!(matches!(refused, Err(SnapshotError::Restless)), "{refused:?}");
}

#[test]
fn no_device_and_no_socket_is_copied_but_what_hides_is() {
    let node = |path: PathBuf, major, minor| {
        let mode = Mode::from_raw_mode(0o666);
        mknodat(CWD, path, FileType::CharacterDevice, mode, makedev(major, minor)).unwrap();
    };
    let fill = |from: &Path| {
        node(from.join("null"), 1, 3);
        node(from.join("removed"), 0, 0);
        drop(UnixListener::bind(from.join("socket")).unwrap());
        std::fs::create_dir(from.join("opaque")).unwrap();
        let none = XattrFlags::empty();
        lsetxattr(from.join("opaque"), "user.overlay.opaque", b"y", none).unwrap();
        lsetxattr(from.join("opaque"), "user.overlay.origin", b"x", none).unwrap();
    };
    let folder = copied(fill, |_| {});
    let into = folder.path().join("into");
    let mut found: Vec<_> = names(&open(&into)).unwrap();
    found.sort();
    assert_eq!(found, ["opaque", "removed"]);
    assert_eq!(std::fs::symlink_metadata(into.join("removed")).unwrap().rdev(), 0);
    let mut value = [0; 9];
    let opaque = open(&into.join("opaque"));
    let mut attribute = |name: &str| rustix::fs::fgetxattr(&opaque, name, &mut value[..]);
    assert_eq!(attribute("user.overlay.opaque"), Ok(1));
    assert_eq!(attribute("user.overlay.origin"), Err(Errno::NODATA));
}

#[test]
fn the_second_look_makes_it_what_is_there_then() {
    let fill = |from: &Path| {
        for folder in ["stays", "goes", "becomes"] {
            std::fs::create_dir(from.join(folder)).unwrap();
            std::fs::write(from.join(folder).join("in"), "in").unwrap();
        }
        std::fs::write(from.join("file"), "first").unwrap();
        std::fs::hard_link(from.join("file"), from.join("other")).unwrap();
    };
    let change = |from: &Path| {
        std::fs::remove_dir_all(from.join("goes")).unwrap();
        std::fs::rename(from.join("becomes"), from.join("was")).unwrap();
        symlink("/etc", from.join("becomes")).unwrap();
        std::fs::write(from.join("file"), "second").unwrap();
        std::fs::hard_link(from.join("file"), from.join("third")).unwrap();
        std::fs::remove_file(from.join("stays/in")).unwrap();
    };
    let folder = copied(fill, change);
    let into = folder.path().join("into");
    let mut found: Vec<_> = names(&open(&into)).unwrap();
    found.sort();
    assert_eq!(found, ["becomes", "file", "other", "stays", "third", "was"]);
    assert_eq!(std::fs::read_link(into.join("becomes")).unwrap(), Path::new("/etc"));
    assert_eq!(std::fs::read_to_string(into.join("was/in")).unwrap(), "in");
    assert_eq!(std::fs::read_dir(into.join("stays")).unwrap().count(), 0);
    for name in ["file", "other", "third"] {
        assert_eq!(std::fs::read_to_string(into.join(name)).unwrap(), "second");
        assert_eq!(std::fs::metadata(into.join(name)).unwrap().nlink(), 3);
    }
}

#[test]
fn a_file_that_is_mapped_is_copied_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "x").unwrap();
    let read = || std::fs::File::open(&path).unwrap();
    assert!(!sys::may_be_written(read().as_fd()));
    let writer = std::fs::File::options().append(true).open(&path).unwrap();
    assert!(sys::may_be_written(read().as_fd()));
    drop(writer);
    assert!(!sys::may_be_written(read().as_fd()));
}
