use images::{Error, Limits, Settings};
use proptest::prelude::*;

use crate::archive::{Archive, Header, gzip};
use crate::{Fixture, OWN, reference};

/// Checks that an archive is refused, and that nothing of it is left.
#[track_caller]
fn check(archive: Archive, refused: impl Fn(&Error) -> bool) {
    check_with(Limits::default(), &archive.bytes(), refused);
}

#[track_caller]
fn check_with(limits: Limits, archive: &[u8], refused: impl Fn(&Error) -> bool) {
    let fixture = Fixture::with(Settings { limits, ..Settings::default() });
    match fixture.import("hostile", archive) {
        Err(error) if refused(&error) => assert!(error.is_of_image(), "{error:?}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(fixture.parts(), Vec::<String>::new());
    assert_eq!(fixture.store.resolve(&reference("hostile")).unwrap(), None);
    fixture.store.collect().unwrap();
    assert_eq!(fixture.files("blobs/sha256"), Vec::<String>::new());
    assert_eq!(fixture.files("layers/trusted"), Vec::<String>::new());
}

fn hostile(error: &Error) -> bool {
    matches!(error, Error::Hostile { .. })
}

fn limit(error: &Error) -> bool {
    matches!(error, Error::Limit { .. })
}

fn malformed(error: &Error) -> bool {
    matches!(error, Error::Malformed { .. })
}

#[test]
fn paths_that_go_up_are_refused() {
    for path in ["../x", "a/../../x", "/../x", "a/.."] {
        check(Archive::new().folder("a").file(path, ""), hostile);
        check(Archive::new().file("file", "").hard_link("link", path), hostile);
    }
    check(Archive::new().pax(&[("path", b"../x")]).file("x", ""), hostile);
}

#[test]
fn hard_links_to_what_is_not_in_the_layer_are_refused() {
    check(Archive::new().hard_link("link", "/etc/passwd"), hostile);
    check(Archive::new().symlink("etc", "/etc").hard_link("link", "etc/passwd"), hostile);
    check(Archive::new().hard_link("self", "self"), hostile);
    check(Archive::new().folder("folder").hard_link("link", "folder"), hostile);
    check(Archive::new().file(".wh.gone", "").hard_link("link", "gone"), hostile);
    check(Archive::new().folder("a").file("a/b", "").hard_link("a", "a/b"), hostile);
}

#[test]
fn paths_through_files_and_loops_are_refused() {
    check(Archive::new().file("file", "").file("file/x", ""), hostile);
    check(Archive::new().symlink("a", "b").symlink("b", "a").file("a/x", ""), hostile);
    check(Archive::new().symlink("a", "nowhere").file("a/x", ""), hostile);
    check(Archive::new().symlink("proc", "/proc/self/root").file("proc/x", ""), hostile);
}

#[test]
fn whiteouts_of_no_file_are_refused() {
    for name in [".wh.", ".wh..", ".wh...", ".wh..wh.plnk"] {
        check(Archive::new().file(name, ""), hostile);
    }
}

#[test]
fn a_layer_cannot_steer_the_overlay() {
    let fixture = Fixture::new();
    let attributes: [(&str, &[u8]); 3] = [
        ("SCHILY.xattr.trusted.overlay.redirect", b"/etc"),
        ("SCHILY.xattr.user.overlay.redirect", b"/etc"),
        ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
    ];
    let image = fixture.import("a", &Archive::new().pax(&attributes).folder("a").bytes()).unwrap();
    let mut names = [0; 1024];
    let length = rustix::fs::llistxattr(image.layers[0].join("a"), &mut names).unwrap();
    assert!(!String::from_utf8_lossy(&names[..length]).contains("overlay"));
}

#[test]
fn every_limit_holds() {
    let with = |change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        limits
    };
    let plain = Archive::new().folder("a").folder("a/b").file("a/b/c", vec![7; 5000]).bytes();
    check_with(with(|limits| limits.entries_max = 2), &plain, limit);
    check_with(with(|limits| limits.depth_max = 2), &plain, limit);
    check_with(with(|limits| limits.path_bytes_max = 4), &plain, limit);
    check_with(with(|limits| limits.layer_bytes_max = 4999), &plain, limit);
    check_with(with(|limits| limits.image_bytes_max = 4999), &plain, |error| {
        matches!(error, Error::Limit { .. })
    });
    check_with(with(|limits| limits.blob_bytes_max = 10), &plain, limit);
    check_with(with(|limits| limits.document_bytes_max = 10), &plain, limit);
    check_with(
        with(|limits| limits.extension_bytes_max = 10),
        &Archive::new().pax(&[("path", b"some")]).bytes(),
        limit,
    );
    let deep = Archive::new().pax(&[("path", "a/".repeat(1000).as_bytes())]).folder("x").bytes();
    check_with(Limits::default(), &deep, limit);
    let long = Archive::new().pax(&[("path", "a".repeat(256).as_bytes())]).file("x", "").bytes();
    check_with(Limits::default(), &long, limit);
}

#[test]
fn folders_that_nobody_named_count() {
    let limits = Limits { entries_max: 10, ..Limits::default() };
    let archive = Archive::new().file("a/b/c/d/e/f/g/h/i/j/k", "").bytes();
    check_with(limits, &archive, limit);
}

#[test]
fn bombs_are_refused() {
    let limits = Limits { ratio_free_bytes: 1 << 16, ratio_max: 100, ..Limits::default() };
    let zeros = Archive::new().file("zeros", vec![0; 8 << 20]).bytes();
    check_with(limits.clone(), &gzip(&zeros), limit);
    check_with(limits, &zstd::encode_all(zeros.as_slice(), 3).unwrap(), limit);
    // A sparse file of one hole, larger than any disk: 0.5 KiB of archive.
    let map: [(&str, &[u8]); 3] = [
        ("GNU.sparse.major", b"1"),
        ("GNU.sparse.minor", b"0"),
        ("GNU.sparse.realsize", b"9000000000000000000"),
    ];
    let mut content = b"1\n9000000000000000000\n0\n".to_vec();
    content.resize(512, 0);
    check(Archive::new().pax(&map).file("huge", &content), limit);
}

#[test]
fn an_archive_that_is_none_is_refused() {
    check_with(Limits::default(), &[b'x'; 1024], malformed);
    check_with(Limits::default(), &gzip(&[b'x'; 1024]), malformed);
    let cut = gzip(&Archive::new().file("a", vec![1; 10_000]).bytes());
    check_with(Limits::default(), &cut[..cut.len() / 2], |error| matches!(error, Error::Read(_)));
    check(Archive::new().entry(&Header::new(b'Z', "unknown"), b""), malformed);
    check(Archive::new().entry(&Header::new(b'2', ""), b""), hostile);
}

#[test]
fn an_image_archive_cannot_point_at_files_of_this_machine() {
    let fixture = Fixture::new();
    let manifest = br#"[{"Config":"config.json","RepoTags":["a:b"],"Layers":["layer.tar"]}]"#;
    for (config, layer) in [("/etc/passwd", "x"), ("../../../../../../etc/passwd", "x")] {
        let archive = Archive::new()
            .file("manifest.json", manifest)
            .symlink("config.json", config)
            .symlink("layer.tar", layer);
        let error = fixture.store.import_archive(archive.bytes().as_slice(), &OWN).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error:?}");
    }
    let up = br#"[{"Config":"../../../../etc/passwd","Layers":[]}]"#;
    let error = fixture
        .store
        .import_archive(Archive::new().file("manifest.json", up).bytes().as_slice(), &OWN);
    assert!(error.is_err_and(|error| hostile(&error)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Whatever an archive does with links and names, the folder next to the store stays empty.
    #[test]
    fn nothing_is_ever_written_outside(
        entries in proptest::collection::vec((0..5u8, 0..4usize, 0..4usize), 1..12)
    ) {
        let outside = tempfile::tempdir().unwrap();
        let out = outside.path().to_str().unwrap().to_owned();
        let names = ["a".to_owned(), "a/b".into(), "b".into(), "b/c".into()];
        let targets = ["a".to_owned(), out.clone(), format!("../../../../../../../../{out}"), "..".into()];
        let archive = entries.iter().fold(Archive::new(), |archive, (kind, name, target)| {
            let (name, target) = (&names[*name], &targets[*target]);
            match kind {
                0 => archive.folder(name),
                1 => archive.file(name, "x"),
                2 => archive.hard_link(name, target),
                _ => archive.symlink(name, target),
            }
        });
        let fixture = Fixture::new();
        let _ = fixture.import("a", &archive.bytes());
        prop_assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
        prop_assert_eq!(fixture.parts().len(), 0);
    }
}
