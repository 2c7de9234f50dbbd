use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use images::{Devices, Error, Overlay, Privileges, Rules, Settings};

use crate::Fixture;
use crate::archive::{Archive, Header};

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 4096];
    let length = rustix::fs::lgetxattr(path, name, &mut value).ok()?;
    value.truncate(length);
    Some(value)
}

fn is_whiteout(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|data| data.file_type().is_char_device() && data.rdev() == 0)
}

#[test]
fn files_are_as_the_archive_says() {
    let fixture = Fixture::new();
    let archive = Archive::new()
        .folder("etc/")
        .entry(&Header { mode: 0o750, owner: 1234, ..Header::new(b'0', "etc/file") }, b"content")
        .symlink("etc/link", "/outside/of/it")
        .hard_link("etc/other", "etc/file")
        .pax(&[("SCHILY.xattr.user.note", b"a\0b"), ("path", b"etc/attributes")])
        .file("x", "")
        .entry(&Header { mode: 0o600, ..Header::new(b'6', "etc/fifo") }, b"");
    let root = &fixture.import("a", &archive.bytes()).unwrap().layers[0];

    let file = fs::metadata(root.join("etc/file")).unwrap();
    assert_eq!(
        (file.uid(), file.gid(), file.mode() & 0o7777, file.mtime()),
        (1234, 1234, 0o750, 1_700_000_000)
    );
    assert_eq!(file.ino(), fs::metadata(root.join("etc/other")).unwrap().ino());
    assert_eq!(fs::read(root.join("etc/file")).unwrap(), b"content");
    assert_eq!(fs::read_link(root.join("etc/link")).unwrap(), Path::new("/outside/of/it"));
    assert_eq!(attribute(&root.join("etc/attributes"), "user.note").unwrap(), b"a\0b");
    assert!(fs::symlink_metadata(root.join("etc/fifo")).unwrap().file_type().is_fifo());
    assert_eq!(fs::metadata(root.join("etc")).unwrap().mtime(), 1_700_000_000);
}

#[test]
fn zeros_in_an_archive_take_no_room() {
    let fixture = Fixture::new();
    // A part that is no zeros, and an end that fills no block.
    let mut content = vec![0; (1 << 20) + 100];
    content[300_000..300_003].copy_from_slice(b"abc");
    let archive = Archive::new().file("holes", &content).file("end", vec![0; 10]);
    let root = &fixture.import("a", &archive.bytes()).unwrap().layers[0];
    assert!(fs::read(root.join("holes")).unwrap() == content);
    assert_eq!(fs::read(root.join("end")).unwrap(), [0; 10]);
    let blocks = fs::metadata(root.join("holes")).unwrap().blocks();
    assert!(blocks * 512 <= 128 << 10, "{blocks} blocks");
}

/// As under the program, whose umask makes files for itself only.
#[test]
fn modes_do_not_depend_on_the_mask_of_the_program() {
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let fixture = Fixture::new();
    let archive = Archive::new().file("not/listed/file", "content");
    let image = fixture.import("a", &archive.bytes()).unwrap();
    rustix::process::umask(before);
    let mode = |path: &str| fs::metadata(image.layers[0].join(path)).unwrap().mode() & 0o7777;
    assert_eq!([mode(""), mode("not"), mode("not/listed")], [0o755; 3]);
    assert_eq!(mode("not/listed/file"), 0o644);
}

#[test]
fn removed_files_are_hidden_in_the_way_of_overlayfs() {
    for (overlay, attribute_name) in
        [(Overlay::Trusted, "trusted.overlay.opaque"), (Overlay::User, "user.overlay.opaque")]
    {
        let fixture = Fixture::with(Settings { overlay, ..Settings::default() });
        let archive = Archive::new()
            .folder("a")
            .file("a/.wh..wh..opq", "")
            .folder("b")
            .file("b/.wh.gone", "");
        let root = &fixture.import("a", &archive.bytes()).unwrap().layers[0];
        assert_eq!(attribute(&root.join("a"), attribute_name).unwrap(), b"y");
        assert!(!root.join("a/.wh..wh..opq").exists());
        assert!(is_whiteout(&root.join("b/gone")));
        assert_eq!(attribute(&root.join("b"), attribute_name), None);
    }
}

#[test]
fn what_a_layer_has_is_not_hidden_by_its_own_whiteouts() {
    let fixture = Fixture::new();
    let archive = Archive::new()
        .file("before", "1")
        .file(".wh.before", "")
        .file(".wh.after", "")
        .file("after", "2")
        .folder("folder-before")
        .file(".wh.folder-before", "")
        .file(".wh.folder-after", "")
        .folder("folder-after");
    let root = &fixture.import("a", &archive.bytes()).unwrap().layers[0];
    assert_eq!(fs::read(root.join("before")).unwrap(), b"1");
    assert_eq!(fs::read(root.join("after")).unwrap(), b"2");
    for folder in ["folder-before", "folder-after"] {
        assert_eq!(
            attribute(&root.join(folder), "trusted.overlay.opaque").unwrap(),
            b"y",
            "{folder}"
        );
    }
}

#[test]
fn the_last_entry_of_a_name_wins() {
    let fixture = Fixture::new();
    let archive = Archive::new()
        .file("a", "first, and longer")
        .hard_link("b", "a")
        .file("a", "second")
        .folder("c")
        .file("c/inside", "")
        .file("c", "now a file")
        .symlink("d", "c")
        .folder("d")
        .folder("e")
        .file("e/kept", "kept")
        .folder("e");
    let root = &fixture.import("a", &archive.bytes()).unwrap().layers[0];
    assert_eq!(fs::read(root.join("a")).unwrap(), b"second");
    assert_eq!(fs::read(root.join("b")).unwrap(), b"first, and longer");
    assert_eq!(fs::read(root.join("c")).unwrap(), b"now a file");
    assert!(fs::symlink_metadata(root.join("d")).unwrap().is_dir());
    assert_eq!(fs::read(root.join("e/kept")).unwrap(), b"kept");
}

#[test]
fn links_in_the_way_lead_only_inside() {
    let outside = tempfile::tempdir().unwrap();
    let fixture = Fixture::new();
    let target = outside.path().as_os_str().as_bytes();
    let inside = outside.path().strip_prefix("/").unwrap().as_os_str().as_bytes();
    let archive = Archive::new()
        .folder(inside)
        .symlink("absolute", target)
        .file("absolute/one", "")
        .symlink("up", [b"../../../../../../../..", target].concat())
        .file("up/two", "");
    let root = fixture.import("a", &archive.bytes()).unwrap().layers[0].clone();
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    for name in ["one", "two"] {
        assert!(root.join(outside.path().strip_prefix("/").unwrap()).join(name).exists(), "{name}");
    }
}

#[test]
fn odd_names_are_kept_byte_by_byte() {
    let fixture = Fixture::new();
    let odd: [&[u8]; 5] = [b"\xff\xfe", b"new\nline", b" ", b"-rf", b"\x1b[31m"];
    let archive = odd.iter().fold(Archive::new(), |archive, name| archive.file(name, name));
    let root = &fixture.import("a", &archive.bytes()).unwrap().layers[0];
    for name in odd {
        assert_eq!(fs::read(root.join(std::ffi::OsStr::from_bytes(name))).unwrap(), name);
    }
}

#[test]
fn privileges_of_files_are_dropped_unless_the_rule_keeps_them() {
    // Capabilities as the kernel stores them: version 2, effective, CAP_NET_RAW.
    let capability = b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let archive = Archive::new()
        .pax(&[("SCHILY.xattr.security.capability", capability)])
        .entry(&Header { mode: 0o6755, ..Header::new(b'0', "program") }, b"")
        .bytes();
    for (privileges, mode, capable) in
        [(Privileges::Drop, 0o755, false), (Privileges::Keep, 0o6755, true)]
    {
        let rules = Rules { privileges, ..Rules::default() };
        let fixture = Fixture::with(Settings { rules, ..Settings::default() });
        let program = fixture.import("a", &archive).unwrap().layers[0].join("program");
        assert_eq!(fs::metadata(&program).unwrap().mode() & 0o7777, mode);
        assert_eq!(attribute(&program, "security.capability").is_some(), capable);
    }
}

#[test]
fn device_nodes_are_never_made() {
    let archive = Archive::new()
        .entry(&Header::new(b'3', "dev/null"), b"")
        .entry(&Header::new(b'4', "dev/disk"), b"")
        .bytes();
    let root = Fixture::new();
    let skipped = root.import("a", &archive).unwrap().layers[0].clone();
    assert_eq!(fs::read_dir(skipped.join("dev")).unwrap().count(), 0);

    let rules = Rules { devices: Devices::Refuse, ..Rules::default() };
    let fixture = Fixture::with(Settings { rules, ..Settings::default() });
    assert!(matches!(fixture.import("a", &archive), Err(Error::Hostile { .. })));
}

#[test]
fn holes_stay_holes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse");
    let file = fs::File::create(&path).unwrap();
    file.set_len(1 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", (1 << 30) - 3).unwrap();
    for format in ["gnu", "pax"] {
        let packed = std::process::Command::new("tar")
            .args(["--sparse", "--format", format, "-C"])
            .arg(folder.path())
            .args(["-cf", "-", "sparse"])
            .output()
            .unwrap();
        let fixture = Fixture::new();
        let root = &fixture.import("a", &packed.stdout).unwrap().layers[0];
        let data = fs::metadata(root.join("sparse")).unwrap();
        assert_eq!(data.len(), 1 << 30, "{format}");
        assert!(data.blocks() < 100, "{format}");
    }
}

#[test]
fn the_overlay_sees_layers_as_they_were_meant() {
    let fixture = Fixture::new();
    let lower = Archive::new().folder("a").file("a/old", "").file("gone", "").file("kept", "");
    let upper = Archive::new()
        .folder("a")
        .file("a/.wh..wh..opq", "")
        .file("a/new", "")
        .file(".wh.gone", "");
    let lower = fixture.import("lower", &lower.bytes()).unwrap().layers[0].clone();
    let upper = fixture.import("upper", &upper.bytes()).unwrap().layers[0].clone();
    let output = std::process::Command::new("unshare")
        .args([
            "--mount",
            "sh",
            "-euc",
            "mount -t overlay -o ro,lowerdir=\"$2:$1\" none \"$3\" && cd \"$3\" && echo * a/*",
            "-",
        ])
        .args([&lower, &upper, &fixture.folder.path().join("scratch")])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "a kept a/new\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
