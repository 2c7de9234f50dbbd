//! What one step may take, however many sources, archives and mounts it names.

use super::config::Document;
use super::instruction::{Command, Run, Source, Transfer};
use super::making::{Build, Limits, Order};
use super::run::What;
use super::sources::SourceLimits;
use super::stage::State;
use super::supplies::From;
use super::transfer::Prepared;
use super::{Fault, RunOrder};
use crate::settings::Settings;
use crate::store::Store;
use crate::unpack::Tree;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
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
    assert_eq!(fs::read(&path).unwrap().len(), 60_000);
    drop(order);
    assert!(!path.parent().is_some_and(Path::exists));
}
