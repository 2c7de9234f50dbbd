//! What one step may take, however many sources, archives and mounts it names.

use super::config::Document;
use super::instruction::{Command, Run, Source, Transfer};
use super::layers::Written;
use super::making::{Build, Limits, Order, Outcome};
use super::run::What;
use super::sources::SourceLimits;
use super::stage::State;
use super::supplies::{Download, From};
use super::transfer::Prepared;
use super::{Fault, RunOrder};
use crate::digest::Digest;
use crate::settings::Settings;
use crate::store::Store;
use crate::unpack::Tree;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

const STEP_BYTES: u64 = 100_000;
const STEP_ENTRIES: usize = 10;

struct Fixture {
    build: Build,
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("from")).unwrap();
        let store = Store::open(&folder.path().join("store"), Settings::default()).unwrap();
        let limits = Limits {
            sources: SourceLimits { bytes: 1 << 20, entries: 100, ratio: 100 },
            step_bytes: STEP_BYTES,
            step_entries: STEP_ENTRIES,
            layers: 10,
            cache_bytes: 1 << 20,
        };
        let order = Order { workspace: "w".into(), now: "2026-01-31T12:00:00Z".into(), limits };
        Self { build: Build::begin(&store, order).unwrap(), folder }
    }

    fn file(&self, name: &str, bytes: usize) {
        fs::write(self.folder.path().join("from").join(name), "x".repeat(bytes)).unwrap();
    }

    /// Packs empty and other files into an archive among the sources.
    fn archive(&self, name: &str, files: &[(&str, usize)]) {
        let inside = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            fs::write(inside.path().join(name), "x".repeat(*bytes)).unwrap();
        }
        let names = files.iter().map(|(name, _)| name);
        let mut tar = std::process::Command::new("tar");
        tar.arg("-czf").arg(self.folder.path().join("from").join(name)).arg("-C");
        assert!(tar.arg(inside.path()).args(names).status().unwrap().success());
    }

    fn from(&self) -> From {
        let tree = Tree::open(&self.folder.path().join("from")).unwrap();
        From { tree, has_owners: false, is_stand_in: false, folder: None }
    }

    fn find(&self, sources: &[&str]) -> Result<Prepared, Fault> {
        let sources = sources.iter().map(|source| Source::Path((*source).to_owned())).collect();
        let transfer = Transfer { sources, target: "/x/".into(), ..Transfer::default() };
        self.build.transfer(&state(), &transfer, &self.from(), &BTreeMap::new(), true)
    }

    fn add(&self, sources: &[&str]) -> Result<(), Fault> {
        let prepared = self.find(sources)?;
        let (state, from) = (state(), self.from());
        let target = tempfile::tempdir().unwrap();
        prepared.write(&state, &from, &Tree::open(target.path()).unwrap(), STEP_BYTES)
    }

    /// Prepares a RUN, and returns how often one of its mounts was looked at.
    fn run(&self, mounts: &[&str]) -> (Result<RunOrder, Fault>, usize) {
        let run = Run {
            command: Command::Exec(vec!["/x".into()]),
            mounts: mounts.iter().map(|mount| (*mount).to_owned()).collect(),
            has_network: false,
            heredocs: Vec::new(),
        };
        let looks = Cell::new(0);
        let sources = |_: &str| {
            looks.set(looks.get() + 1);
            Ok(self.from())
        };
        (self.build.order(&state(), &run, "RUN x", &sources), looks.get())
    }
}

fn state() -> State {
    State::new(Document::scratch(), Vec::new(), '\\')
}

#[test]
fn repositories_of_git_are_refused_and_other_addresses_are_downloaded() {
    let fixture = Fixture::new();
    let addresses = |address: &str| {
        let sources = vec![Source::Path(address.to_owned())];
        let transfer = Transfer { sources, target: "/x/".into(), ..Transfer::default() };
        fixture.build.addresses(&state(), &transfer)
    };
    for repository in [
        "git@example.org:a/b",
        "git://example.org/a/b",
        "https://example.org/a/b.git",
        "http://example.org/a/b.git#main:docs",
        "https://example.org/a/b.git?branch=main",
    ] {
        let refused = addresses(repository);
        assert!(matches!(refused, Err(Fault::Sources(_))), "{repository}: {refused:?}");
    }
    for file in ["https://example.org/a.git/b.zip", "https://example.org/a.zip#x.git"] {
        assert_eq!(addresses(file).unwrap(), [file]);
    }
    assert_eq!(addresses("a.git").unwrap(), [""; 0]);
}

/// Returns what a copy of a source brings, sorted.
fn copied(fixture: &Fixture, source: &str, excludes: &[&str], parents: bool) -> Vec<String> {
    let transfer = Transfer {
        sources: vec![Source::Path(source.to_owned())],
        excludes: excludes.iter().map(|text| (*text).to_owned()).collect(),
        target: "/x/".into(),
        parents,
        ..Transfer::default()
    };
    let (state, from, none) = (state(), fixture.from(), BTreeMap::new());
    let prepared = fixture.build.transfer(&state, &transfer, &from, &none, false).unwrap();
    let target = tempfile::tempdir().unwrap();
    prepared.write(&state, &from, &Tree::open(target.path()).unwrap(), STEP_BYTES).unwrap();
    files_in(&target.path().join("x"), "")
}

fn files_in(folder: &Path, path: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder.join(path)) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.map(Result::unwrap) {
        let inside = format!("{path}{}", entry.file_name().display());
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files_in(folder, &format!("{inside}/"))),
            false => found.push(inside),
        }
    }
    found.sort();
    found
}

#[test]
fn what_a_copy_leaves_out_is_named_from_the_source_that_is_copied() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.folder.path().join("from/app/lib")).unwrap();
    for name in ["a.md", "app/a.md", "app/b", "app/lib/a.md"] {
        fixture.file(name, 1);
    }
    let all = ["a.md", "b", "lib/a.md"];
    for (excludes, left) in [
        (&["a.md"][..], &["b", "lib/a.md"][..]),
        (&["*.md"], &["b", "lib/a.md"]),
        (&["**/*.md"], &["b"]),
        (&["lib/*.md", "/b"], &["a.md"]),
        (&["lib/"], &["a.md", "b"]),
        (&["app/b", "app/lib", "app"], &all),
    ] {
        assert_eq!(copied(&fixture, "app", excludes, false), left, "{excludes:?}");
    }
    // With the folders above, patterns begin at the root.
    let from_root: &[&str] = &["app/a.md", "app/lib/a.md"];
    assert_eq!(copied(&fixture, "app", &["app/b", "a.md"], true), from_root);
    assert_eq!(copied(&fixture, "app/lib", &["app"], true), [""; 0]);
    // Of the files that a pattern means, but not of one that is named.
    assert_eq!(copied(&fixture, "app/*", &["*.md"], false), ["b"]);
    assert_eq!(copied(&fixture, "a.md", &["*.md"], false), ["a.md"]);
}

#[test]
fn wildcards_leave_out_no_name_and_no_link() {
    let fixture = Fixture::new();
    let from = fixture.folder.path().join("from/d");
    let odd = OsStr::from_bytes(b"odd-\xff");
    fs::create_dir(&from).unwrap();
    fs::write(from.join(odd), "x").unwrap();
    for (target, name) in [("nowhere", "dangling"), ("loop", "loop")] {
        std::os::unix::fs::symlink(target, from.join(name)).unwrap();
    }
    for is_add in [false, true] {
        let sources = vec![Source::Path("d/*".to_owned())];
        let transfer = Transfer { sources, target: "/x/".into(), ..Transfer::default() };
        let (state, from, none) = (state(), fixture.from(), BTreeMap::new());
        let prepared = fixture.build.transfer(&state, &transfer, &from, &none, is_add).unwrap();
        prepared.digest(&from).unwrap();
        let target = tempfile::tempdir().unwrap();
        prepared.write(&state, &from, &Tree::open(target.path()).unwrap(), STEP_BYTES).unwrap();
        let copied = target.path().join("x");
        assert_eq!(fs::read(copied.join(odd)).unwrap(), b"x");
        assert_eq!(fs::read_link(copied.join("dangling")).unwrap(), Path::new("nowhere"));
        assert_eq!(fs::read_link(copied.join("loop")).unwrap(), Path::new("loop"));
    }
    // A name without wildcards means what its link leads to, and so does a mount.
    assert!(matches!(fixture.find(&["d/dangling"]), Err(Fault::Sources(_))));
    let (bound, _) = fixture.run(&["source=d/dang*,target=/x"]);
    assert!(matches!(bound, Err(Fault::Sources(why)) if why.contains("there is no")));
}

/// As under the server, whose umask makes files for itself only.
#[test]
fn what_a_step_makes_can_be_read_by_every_user() {
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let fixture = Fixture::new();
    fixture.file("a", 1);
    let target = fixture.folder.path().join("target");
    fs::create_dir(&target).unwrap();
    let prepared = fixture.find(&["."]).unwrap();
    let written = prepared.write(&state(), &fixture.from(), &Tree::open(&target).unwrap(), 1 << 20);
    rustix::process::umask(before);
    written.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&target.join("x")), 0o755);
    // What a RUN may bind.
    assert_eq!(mode(&fixture.build.context()), 0o755);
}

#[test]
fn a_download_without_a_name_needs_a_target_that_names_it() {
    let fixture = Fixture::new();
    fixture.file("fetched", 1);
    let add = |target: &str, name: &str| {
        let address = "https://host/";
        let sources = vec![Source::Path(address.to_owned())];
        let transfer = Transfer { sources, target: target.into(), ..Transfer::default() };
        let file = fixture.folder.path().join("from/fetched");
        let download = Download { file, name: name.to_owned(), modified: 0 };
        let downloads = BTreeMap::from([(address.to_owned(), download)]);
        let (state, from) = (state(), fixture.from());
        let prepared = fixture.build.transfer(&state, &transfer, &from, &downloads, true)?;
        let folder = tempfile::tempdir().unwrap();
        prepared.write(&state, &from, &Tree::open(folder.path()).unwrap(), STEP_BYTES)?;
        Ok::<_, Fault>(files_in(folder.path(), ""))
    };
    assert_eq!(add("/x/index.html", "").unwrap(), ["x/index.html"]);
    assert_eq!(add("/x/", "name").unwrap(), ["x/name"]);
    assert!(matches!(add("/x/", ""), Err(Fault::Sources(why)) if why.contains("in the target")));
}

#[test]
fn the_digest_of_a_download_may_be_an_argument() {
    let fixture = Fixture::new();
    fixture.file("fetched", 1);
    let file = fixture.folder.path().join("from/fetched");
    let add = |sum: &str| {
        let address = "https://host/a";
        let sources = vec![Source::Path(address.to_owned())];
        let checksum = Some("$SUM".to_owned());
        let transfer = Transfer { sources, checksum, target: "/x/".into(), ..Transfer::default() };
        let download = Download { file: file.clone(), name: "a".to_owned(), modified: 0 };
        let downloads = BTreeMap::from([(address.to_owned(), download)]);
        let mut state = state();
        state.arguments.insert("SUM".to_owned(), sum.to_owned());
        fixture.build.transfer(&state, &transfer, &fixture.from(), &downloads, true).map(drop)
    };
    add(&Digest::of(b"x").to_string()).unwrap();
    assert!(matches!(add(&Digest::of(b"y").to_string()), Err(Fault::Sources(_))));
}

#[test]
fn archives_are_unpacked_unless_they_are_fetched_or_it_is_said() {
    let fixture = Fixture::new();
    fixture.archive("a.tar", &[("inside", 1)]);
    let address = "https://host/a.tar";
    let add = |source: &str, unpack: Option<bool>| {
        let sources = vec![Source::Path(source.to_owned())];
        let transfer = Transfer { sources, unpack, target: "/x/".into(), ..Transfer::default() };
        let file = fixture.folder.path().join("from/a.tar");
        let download = Download { file, name: "a.tar".to_owned(), modified: 0 };
        let downloads = BTreeMap::from([(address.to_owned(), download)]);
        let (state, from) = (state(), fixture.from());
        let prepared = fixture.build.transfer(&state, &transfer, &from, &downloads, true).unwrap();
        let folder = tempfile::tempdir().unwrap();
        prepared.write(&state, &from, &Tree::open(folder.path()).unwrap(), STEP_BYTES).unwrap();
        (files_in(folder.path(), ""), prepared.digest(&from).unwrap())
    };
    for source in ["a.tar", address] {
        let [(whole, one), (unpacked, other)] = [false, true].map(|how| add(source, Some(how)));
        assert_eq!((whole, unpacked), (vec!["x/a.tar".into()], vec!["x/inside".into()]));
        assert_ne!(one, other, "each has its own cached step");
    }
    assert_eq!(add("a.tar", None).0, ["x/inside"]);
    assert_eq!(add(address, None).0, ["x/a.tar"]);
}

#[test]
fn the_sources_of_a_copy_share_its_limit_on_entries() {
    let fixture = Fixture::new();
    for name in ["a", "b", "c", "d"] {
        fixture.file(name, 1);
    }
    fixture.add(&[".", "."]).unwrap();
    assert!(matches!(fixture.add(&[".", ".", "a"]), Err(Fault::Sources(_))));
    assert!(matches!(fixture.add(&["a"; STEP_ENTRIES + 1]), Err(Fault::Sources(_))));
}

#[test]
fn what_a_step_reads_for_its_digest_is_limited() {
    let fixture = Fixture::new();
    fixture.file("a", 60_000);
    let from = fixture.folder.path().join("from");
    fs::hard_link(from.join("a"), from.join("b")).unwrap();
    let prepared = fixture.find(&["a", "b"]).unwrap();
    prepared.digest(&fixture.from()).unwrap();
    fixture.add(&["."]).unwrap();
    fixture.file("c", 60_000);
    fs::remove_file(from.join("b")).unwrap();
    for several in [["a", "c"], ["c", "c"]] {
        assert!(matches!(fixture.find(&several), Err(Fault::Sources(_))), "{several:?}");
    }
}

#[test]
fn archives_and_files_of_a_step_share_its_limits() {
    let fixture = Fixture::new();
    fixture.archive("a.tar", &[("a", 60_000)]);
    fixture.archive("b.tar", &[("b", 60_000)]);
    fixture.archive("many.tar", &[("c", 0), ("d", 0), ("e", 0), ("f", 0), ("g", 0)]);
    fixture.file("file", 60_000);
    fixture.add(&["a.tar"]).unwrap();
    fixture.add(&["many.tar"]).unwrap();
    for several in [["a.tar", "b.tar"], ["a.tar", "file"], ["many.tar", "many.tar"]] {
        assert!(matches!(fixture.add(&several), Err(Fault::Sources(_))), "{several:?}");
    }
}

#[test]
fn too_many_mounts_are_refused_before_any_is_looked_at() {
    let (order, looks) = Fixture::new().run(&["target=/x"; 33]);
    assert!(matches!(order, Err(Fault::Sources(_))));
    assert_eq!(looks, 0);
}

#[test]
fn a_mount_below_another_one_needs_a_place_there() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.folder.path().join("from/folder")).unwrap();
    fixture.file("file", 1);
    let bound = "target=/m";
    for (mounts, fits) in [
        (&["type=cache,target=/m/new", bound][..], false),
        (&["type=cache,target=/m/folder", bound], true),
        (&["type=cache,target=/m/file", bound], false),
        (&["source=file,target=/m/file", bound], true),
        (&["source=file,target=/m/folder", bound], false),
        (&["type=tmpfs,target=/m/folder", bound], false),
        (&["type=cache,target=/t/new", "type=tmpfs,target=/t"], true),
        (&["type=cache,target=/c/new", "type=cache,target=/c,ro"], false),
        (&["type=cache,target=/m2/x", bound], true),
    ] {
        let order = fixture.run(mounts).0.unwrap();
        assert_eq!(order.mounts.last().unwrap().target, mounts[0].split_once("target=").unwrap().1);
        match order.copy() {
            Err(Fault::Sources(why)) if !fits => assert!(why.contains("no place"), "{why}"),
            copied => assert_eq!(copied.is_ok(), fits, "{mounts:?}: {copied:?}"),
        }
    }
}

#[test]
fn initial_content_of_a_kept_folder_is_refused() {
    for mount in ["type=cache,target=/c,from=x", "type=cache,target=/c,source=/etc"] {
        let (order, _) = Fixture::new().run(&[mount]);
        assert!(matches!(order, Err(Fault::Sources(why)) if why.contains("begins empty")));
    }
}

#[test]
fn what_mounts_bind_is_limited_together_and_goes_with_the_step() {
    let fixture = Fixture::new();
    fixture.file("a", 60_000);
    fixture.file("b", 60_000);
    let (both, _) = fixture.run(&["source=a,target=/a", "source=b,target=/b"]);
    assert!(matches!(both, Err(Fault::Sources(_))));
    let (order, _) = fixture.run(&["source=a,target=/a"]);
    let order = order.unwrap();
    let What::Bind(path) = &order.mounts[0].what else { panic!("not a bind") };
    let path = path.clone();
    // A step that is cached copies nothing.
    assert!(!path.exists());
    order.copy().unwrap();
    assert_eq!(fs::read(&path).unwrap().len(), 60_000);
    drop(order);
    assert!(!path.parent().is_some_and(Path::exists));
}

/// The disk of a step bounds what it writes, but not the holes in it.
#[test]
fn the_files_of_a_step_are_no_larger_than_its_disk_with_their_holes() {
    let fixture = Fixture::new();
    let upper = fixture.folder.path().join("from");
    let file = fs::File::create(upper.join("holes")).unwrap();
    let keep = |key: &str| {
        let written = Written { upper: &upper, root: 0 };
        fixture.build.keep(&mut state(), &Digest::of(key.as_bytes()), "RUN x", &written)
    };
    file.set_len(STEP_BYTES).unwrap();
    let Ok(Outcome::Layer { bytes, .. }) = keep("a") else { panic!("it is no layer") };
    assert_eq!(bytes, STEP_BYTES);
    file.set_len(STEP_BYTES + 1).unwrap();
    let Err(Fault::Sources(why)) = keep("b") else { panic!("it is not refused") };
    assert!(why.contains("a step's disk"), "{why}");
}
