use super::*;
use proptest::prelude::*;
use rustix::fs::CWD;
use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use tempfile::TempDir;

fn opened(path: &Path) -> OwnedFd {
    openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

fn packed(path: &Path) -> Vec<u8> {
    let mut stream = Vec::new();
    pack(&opened(path), &["about"], &mut stream).unwrap();
    stream
}

fn unpacked(mut stream: &[u8]) -> io::Result<TempDir> {
    let folder = tempfile::tempdir().unwrap();
    unpack(&mut stream, &opened(folder.path()))?;
    Ok(folder)
}

/// Makes a folder with everything that a snapshot's folder can hold.
fn full() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let layer = folder.path().join("layer");
    fs::create_dir_all(layer.join("a/b")).unwrap();
    fs::write(folder.path().join("about"), "left here").unwrap();
    fs::write(layer.join("a/text"), "text").unwrap();
    fs::write(layer.join("a/empty"), "").unwrap();
    fs::hard_link(layer.join("a/text"), layer.join("a/b/same")).unwrap();
    fs::hard_link(layer.join("a/text"), layer.join("zuletzt")).unwrap();
    symlink("/etc/passwd", layer.join("a/link")).unwrap();
    let top = opened(&layer);
    let mode = Mode::from_raw_mode(0o620);
    mknodat(&top, "pipe", FileType::Fifo, mode, 0).unwrap();
    mknodat(&top, "gone", FileType::CharacterDevice, Mode::empty(), makedev(0, 0)).unwrap();
    let odd = OsStr::from_bytes(b"\xff\n name");
    fs::write(layer.join(odd), "odd").unwrap();
    fs::set_permissions(layer.join("a/text"), fs::Permissions::from_mode(0o4751)).unwrap();
    chownat(&top, "a/text", Some(Uid::from_raw(1000)), Some(Gid::from_raw(7)), AtFlags::empty())
        .unwrap();
    fs::set_permissions(layer.join("a/text"), fs::Permissions::from_mode(0o4751)).unwrap();
    chownat(&top, "a/link", Some(Uid::from_raw(12)), None, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    let opaque = opened(&layer.join("a/b"));
    fsetxattr(&opaque, "user.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
    let sparse = fs::File::create(folder.path().join("disk")).unwrap();
    sparse.set_len(8 << 30).unwrap();
    sparse.write_at(b"deep", 5 << 30).unwrap();
    sparse.write_at(b"first", 0).unwrap();
    let time = Timespec { tv_sec: -5, tv_nsec: 123_456_789 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(&top, "a", &times, AtFlags::empty()).unwrap();
    utimensat(&top, "a/link", &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    folder
}

#[test]
fn a_tree_comes_back_as_it_was() {
    let folder = full();
    let stream = packed(folder.path());
    assert!(stream.len() < 1 << 20, "holes are not sent: {}", stream.len());
    let copy = unpacked(&stream).unwrap();
    // The stream has all that is known of files, so the same stream means the same files.
    assert_eq!(packed(copy.path()), stream);
    let (was, is) = (folder.path(), copy.path());
    assert!(!is.join("about").exists());
    let look = |path: PathBuf| fs::symlink_metadata(path).unwrap();
    for name in ["layer", "layer/a", "layer/a/text", "layer/a/link", "layer/pipe", "layer/gone"] {
        let (was, is) = (look(was.join(name)), look(is.join(name)));
        let all = |it: &fs::Metadata| (it.mode(), it.uid(), it.gid(), it.mtime(), it.mtime_nsec());
        assert_eq!(all(&is), all(&was), "{name}");
    }
    assert_eq!(look(is.join("layer/gone")).rdev(), 0);
    assert_eq!(look(is.join("layer/a/text")).ino(), look(is.join("layer/zuletzt")).ino());
    assert_eq!(look(is.join("layer/a/text")).nlink(), 3);
    assert_eq!(fs::read_link(is.join("layer/a/link")).unwrap(), Path::new("/etc/passwd"));
    let disk = look(is.join("disk"));
    assert!(disk.len() == 8 << 30 && disk.blocks() < 1000, "{disk:?}");
    let mut value = [0; 8];
    let opaque = opened(&is.join("layer/a/b"));
    assert_eq!(fgetxattr(&opaque, "user.overlay.opaque", &mut value[..]).unwrap(), 1);
}

#[test]
fn a_stream_that_is_cut_or_longer_is_refused() {
    let stream = packed(full().path());
    for length in [0, 4, MAGIC.len(), 60, stream.len() / 2, stream.len() - 1] {
        assert!(unpacked(&stream[..length]).is_err(), "{length}");
    }
    let longer = [stream.as_slice(), &[END]].concat();
    assert!(unpacked(&longer).is_err());
}

/// Makes a stream of one entry with this `kind` and `name`.
fn entry(kind: u8, name: &[u8], rest: &[u8]) -> Vec<u8> {
    let length = (name.len() as u64).to_le_bytes();
    [MAGIC.as_slice(), &[kind], &length, name, rest].concat()
}

/// Permissions, owners, times and attributes of nothing in particular.
const PLAIN: [u8; 64] = [0; 64];

#[test]
fn no_name_leads_out_of_the_folder() {
    let names: [&[u8]; 6] = [b"", b".", b"..", b"a/b", b"/etc", b"a\0b"];
    for name in names {
        for kind in [FILE, FOLDER, LINK, PIPE, ALIAS] {
            let error = unpacked(&entry(kind, name, &PLAIN)).unwrap_err();
            assert_eq!(error.to_string(), "a name that no file has", "{name:?}");
        }
    }
    assert!(unpacked(&entry(ALIAS, b"a", &[0; 8])).is_err());
}

#[test]
fn what_is_there_is_not_made_again() {
    let link = [&PLAIN[..], &4_u64.to_le_bytes(), b"/tmp"].concat();
    let first = entry(LINK, b"a", &link);
    let again = entry(FOLDER, b"a", &PLAIN);
    let both = [first.as_slice(), &again[MAGIC.len()..]].concat();
    let error = unpacked(&both).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{error}");
}

proptest! {
    #[test]
    fn no_stream_is_trouble(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = unpacked(&[MAGIC.as_slice(), &bytes].concat());
    }

    #[test]
    fn a_changed_stream_is_no_trouble(at in 8_usize..2_000, with: u8) {
        static STREAM: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let mut stream = STREAM.get_or_init(|| packed(full().path())).clone();
        let at = at.min(stream.len() - 1);
        stream[at] = with;
        let _ = unpacked(&stream);
    }

    #[test]
    fn files_come_back(
        content in prop::collection::vec(any::<u8>(), 0..5_000),
        mode in 0_u32..0o10000,
        name in "[a-zäöü ~%]{1,40}",
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(&name);
        fs::write(&path, &content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let copy = unpacked(&packed(folder.path())).unwrap();
        let copied = copy.path().join(&name);
        prop_assert_eq!(fs::read(&copied).unwrap(), content);
        prop_assert_eq!(fs::metadata(&copied).unwrap().mode() & 0o7777, mode);
    }
}
