//! COPY and ADD: the files that are copied, their owner, and their target.

use super::archive::Archive;
use super::budget::Budget;
use super::config::absolute;
use super::copy::{About, As, Copying, make_folders, too_much, write};
use super::instruction::{Source, Transfer};
use super::items::{Bounds, Contents, Item, Sizes, digest, file_digest, find};
use super::lines::Heredoc;
use super::making::Build;
use super::pattern::{Kind, Pattern, Steps};
use super::stage::State;
use super::supplies::{Download, From};
use super::{Fault, users, words};
use crate::digest::{Digest, Hasher};
use crate::error::Error;
use crate::unpack::{Tree, Unpacked};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

const TEXT_MODE: u32 = 0o644;
const DOWNLOAD_MODE: u32 = 0o600;
const STAND_IN_MODE: u32 = 0o755;
const ROOT: (u32, u32) = (0, 0);

/// Stands in for the vendor's program, whose API this machine serves itself. Like that program, it
/// keeps running.
const STAND_IN: &[u8] =
    b"#!/bin/sh\n# Stands in for the sandbox API, which the machine itself serves.\n\
trap 'exit 0' TERM INT\nwhile :; do sleep 3600 & wait $!; done\n";

/// One part of what a step copies.
enum Part {
    Items { items: Vec<Item>, path: PathBuf },
    Archive { archive: Archive, bytes: u64 },
    Text { name: String, bytes: Vec<u8>, mode: u32 },
    Download { name: String, file: PathBuf, digest: Digest, bytes: u64, modified: i64 },
}

/// The parts of a step that were found so far, and how much more it may have. Bytes count already
/// when they are found, because all of them are read for the digest of the step.
struct Parts {
    all: Vec<Part>,
    entries_left: usize,
    bytes_left: u64,
    sizes: Sizes,
}

impl Parts {
    fn push(&mut self, part: Part) -> Result<(), Fault> {
        let (entries, bytes) = match &part {
            Part::Items { items, .. } => (items.len(), self.sizes.of(items)),
            Part::Archive { bytes, .. } | Part::Download { bytes, .. } => (1, *bytes),
            Part::Text { bytes, .. } => (1, bytes.len() as u64),
        };
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or_else(too_much)?;
        self.entries_left = self.entries_left.checked_sub(entries).ok_or_else(too_much)?;
        self.all.push(part);
        Ok(())
    }
}

fn is_web_address(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

/// Checks whether Docker takes an address for a repository of git.
fn is_repository(text: &str) -> bool {
    let path = text.split(['#', '?']).next().unwrap_or_default();
    let named = path.ends_with(".git");
    text.starts_with("git@") || text.starts_with("git://") || (is_web_address(text) && named)
}

impl Build {
    /// Returns the addresses that a step downloads from.
    pub(super) fn addresses(
        &self,
        state: &State,
        transfer: &Transfer,
    ) -> Result<Vec<String>, Fault> {
        let (mut all, budget) = (Vec::new(), Budget::default());
        for source in &transfer.sources {
            if let Source::Path(text) = source {
                let text = words::value(text, state.escape, &state.scope(), &budget)
                    .map_err(Fault::Sources)?;
                if is_repository(&text) {
                    return Err(Fault::Sources(format!(
                        "repositories of git are not fetched: {text}"
                    )));
                }
                if is_web_address(&text) {
                    all.push(text);
                }
            }
        }
        Ok(all)
    }

    /// Finds everything that a step copies.
    pub(super) fn transfer(
        &self,
        state: &State,
        transfer: &Transfer,
        from: &From,
        downloads: &BTreeMap<String, Download>,
        is_add: bool,
    ) -> Result<Prepared, Fault> {
        let budget = Budget::default();
        let value = |text: &str| {
            words::value(text, state.escape, &state.scope(), &budget).map_err(Fault::Sources)
        };
        let target = value(&transfer.target)?;
        let excludes = transfer.excludes.iter().map(|text| {
            Pattern::new(value(text)?.trim_matches('/'), Kind::Tree).map_err(Fault::Sources)
        });
        let excludes = excludes.collect::<Result<Vec<_>, Fault>>()?;
        let steps = Steps::default();
        let unpacks = is_add && transfer.unpack != Some(false);
        let mut parts = Parts {
            all: Vec::new(),
            entries_left: self.limits.step_entries,
            bytes_left: self.limits.step_bytes,
            sizes: Sizes::default(),
        };
        for source in &transfer.sources {
            match source {
                Source::Text(heredoc) => parts.push(text_of(heredoc, state, &budget)?)?,
                Source::Path(text) => {
                    let address = value(text)?;
                    match downloads.get(&address).filter(|_| is_add) {
                        Some(download) => {
                            let checksum = transfer.checksum.as_deref().map(value).transpose()?;
                            let options = (checksum.as_deref(), transfer.unpack);
                            parts.push(downloaded(&address, download, options)?)?;
                        }
                        None if from.is_stand_in => parts.push(stand_in(&address))?,
                        None => {
                            let found = Found { from, excludes: &excludes, unpacks, steps: &steps };
                            self.gather(&address, &found, transfer.parents, &mut parts)?;
                        }
                    }
                }
            }
        }
        if transfer.checksum.is_some() && downloads.is_empty() {
            return Err(Fault::Sources("--checksum is for what is fetched from an address".into()));
        }
        let mode = transfer.chmod.as_deref().map(|text| mode(&value(text)?)).transpose()?;
        let owner = transfer.chown.as_deref().map(value).transpose()?;
        let Parts { all: parts, entries_left, .. } = parts;
        Ok(Prepared { parts, entries_left, target, mode, owner, parents: transfer.parents })
    }

    /// Gathers the files that one source names, each with everything below it.
    fn gather(
        &self,
        source: &str,
        Found { from, excludes, unpacks, steps }: &Found<'_>,
        keeps_parents: bool,
        parts: &mut Parts,
    ) -> Result<(), Fault> {
        let is_pattern = source.contains(['*', '?', '[']);
        for path in find(&from.tree, source, parts.entries_left, steps)? {
            let (entries, bytes) = (parts.entries_left, self.limits.step_bytes);
            let bounds = Bounds { excludes, entries, bytes, steps };
            if is_left_out(&bounds, &from.tree, &path, (keeps_parents, is_pattern))? {
                continue;
            }
            if *unpacks && let Some((archive, bytes)) = Archive::in_tree(&from.tree, &path)? {
                parts.push(Part::Archive { archive, bytes })?;
                continue;
            }
            let to = if keeps_parents { path.clone() } else { PathBuf::new() };
            let mut items = Vec::new();
            bounds.gather(&from.tree, &path, &to, &mut items)?;
            parts.push(Part::Items { items, path })?;
        }
        Ok(())
    }
}

/// Returns what was fetched from an address. An archive is unpacked only if that is said.
fn downloaded(
    address: &str,
    download: &Download,
    (checksum, unpack): (Option<&str>, Option<bool>),
) -> Result<Part, Fault> {
    let file = File::open(&download.file).map_err(Error::io("open", &download.file))?;
    let digest = file_digest(&file)?;
    if let Some(wanted) = checksum.filter(|text| *text != digest.to_string()) {
        return Err(Fault::Sources(format!(
            "what {address} answers has the digest {digest}, and not {wanted}"
        )));
    }
    let bytes = file.metadata().map_err(Error::io("open", &download.file))?.len();
    if unpack == Some(true)
        && let Some(archive) = Archive::downloaded(address, &download.file, digest)?
    {
        return Ok(Part::Archive { archive, bytes });
    }
    Ok(Part::Download {
        bytes,
        name: download.name.clone(),
        file: download.file.clone(),
        digest,
        modified: download.modified,
    })
}

/// Returns whether a source is left out as a whole. A source that is named is not, unless it is
/// copied with the folders above it: patterns begin below it.
fn is_left_out(
    bounds: &Bounds<'_>,
    tree: &Tree,
    path: &Path,
    (keeps_parents, is_pattern): (bool, bool),
) -> Result<bool, Fault> {
    if keeps_parents {
        for above in path.ancestors().filter(|above| !above.as_os_str().is_empty()) {
            if bounds.is_excluded(above)? {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    match path.file_name() {
        Some(name) if is_pattern && !is_there(tree, path) => bounds.is_excluded(Path::new(name)),
        _ => Ok(false),
    }
}

/// The tree in which sources are looked up, and the options for that.
struct Found<'f> {
    from: &'f From,
    excludes: &'f [Pattern],
    unpacks: bool,
    steps: &'f Steps,
}

fn text_of(heredoc: &Heredoc, state: &State, budget: &Budget) -> Result<Part, Fault> {
    let text = match heredoc.expands {
        true => words::text(&heredoc.content, state.escape, &state.scope(), budget)
            .map_err(Fault::Sources)?,
        false => heredoc.content.clone(),
    };
    Ok(Part::Text { name: heredoc.name.clone(), bytes: text.into_bytes(), mode: TEXT_MODE })
}

/// Returns the stand-in for the program of the vendor's sandbox image.
fn stand_in(source: &str) -> Part {
    let name = source.rsplit('/').find(|part| !part.is_empty()).unwrap_or("sandbox-api");
    Part::Text { name: name.to_owned(), bytes: STAND_IN.to_vec(), mode: STAND_IN_MODE }
}

/// Everything that a step copies, found before anything is written.
pub(super) struct Prepared {
    parts: Vec<Part>,
    /// How many entries the archives among them may have.
    entries_left: usize,
    target: String,
    mode: Option<u32>,
    owner: Option<String>,
    parents: bool,
}

impl Prepared {
    /// Hashes everything that the result depends on, except the files that are written over.
    pub(super) fn digest(&self, from: &From) -> Result<Digest, Fault> {
        let (mut hasher, mut contents) = (Hasher::default(), Contents::default());
        for part in &self.parts {
            match part {
                Part::Items { items, path } => {
                    let with_owners = from.has_owners && self.owner.is_none();
                    let found = digest(&from.tree, items, with_owners, &mut contents)?;
                    hasher.update(format!("items {found} ").as_bytes());
                    hasher.update(path.as_os_str().as_bytes());
                    hasher.update(b"\0");
                }
                Part::Archive { archive, .. } => {
                    let found = archive.digest(&from.tree, &mut contents)?;
                    hasher.update(format!("archive {found}\0").as_bytes());
                }
                Part::Text { name, bytes, mode } => {
                    let found = Digest::of(bytes);
                    hasher.update(format!("text {found} {mode} {name}\0").as_bytes());
                }
                Part::Download { name, digest, modified, .. } => {
                    hasher.update(format!("download {digest} {modified} {name}\0").as_bytes());
                }
            }
        }
        let rest = format!("{}\0{:?}\0{:?}\0{}", self.target, self.mode, self.owner, self.parents);
        hasher.update(rest.as_bytes());
        Ok(hasher.finish())
    }

    /// Writes everything into the tree of the image.
    pub(super) fn write(
        &self,
        state: &State,
        from: &From,
        tree: &Tree,
        bytes_max: u64,
    ) -> Result<(), Fault> {
        let owner = self.owner.as_deref().map(|text| users::owner(tree, text)).transpose()?;
        let owner = owner.map(|owner| (owner.uid, owner.gid));
        let how = As {
            owner: owner.or((!from.has_owners).then_some(ROOT)),
            mode: self.mode,
            folders: owner.unwrap_or(ROOT),
        };
        let place = absolute(state.workdir(), &self.target);
        let place = Path::new(place.trim_start_matches('/'));
        self.require_folder(tree, place)?;
        let mut copying = Copying::new(&from.tree, tree, how, bytes_max);
        let mut entries_left = self.entries_left as u64;
        for part in &self.parts {
            match part {
                Part::Items { items, path } => {
                    self.write_items((items, path), place, tree, &mut copying)?;
                }
                Part::Archive { archive, .. } => {
                    make_folders(tree, place, how.folders)?;
                    let left = Unpacked { bytes: copying.bytes_left, entries: entries_left };
                    let into = tree.folder(place)?;
                    let unpacked = archive.extract(&from.tree, &into, owner, left)?;
                    copying.spend(unpacked.bytes)?;
                    entries_left -= unpacked.entries;
                }
                Part::Text { name, bytes, mode } => {
                    let about = About { mode: self.mode.unwrap_or(*mode), owner, modified: 0 };
                    let at = self.inside(tree, place, name);
                    copying.spend(put(tree, &at, &about, how.folders, &mut bytes.as_slice())?)?;
                }
                Part::Download { name, file, modified, .. } => {
                    let mode = self.mode.unwrap_or(DOWNLOAD_MODE);
                    let about = About { mode, owner, modified: *modified };
                    let mut from = File::open(file).map_err(Error::io("open", file))?;
                    if name.is_empty() && self.is_into_folder(tree, place) {
                        return Err(unnamed());
                    }
                    let at = self.inside(tree, place, name);
                    copying.spend(put(tree, &at, &about, how.folders, &mut from)?)?;
                }
            }
        }
        Ok(())
    }

    fn write_items(
        &self,
        (items, path): (&[Item], &Path),
        place: &Path,
        tree: &Tree,
        copying: &mut Copying<'_>,
    ) -> Result<(), Fault> {
        if self.parents {
            let above = path.parent().unwrap_or(Path::new(""));
            make_folders(tree, &place.join(above), copying.how.folders)?;
            return copying.all(items, place);
        }
        let is_folder =
            items.first().is_some_and(|item| item.kind() == rustix::fs::FileType::Directory);
        if is_folder {
            return copying.all(items, place);
        }
        let name = path.file_name().unwrap_or_default();
        copying.all(items, &self.inside(tree, place, name))
    }

    /// Returns the target path of a file with this name.
    fn inside(&self, tree: &Tree, place: &Path, name: impl AsRef<Path>) -> PathBuf {
        match self.is_into_folder(tree, place) {
            true => place.join(name),
            false => place.to_owned(),
        }
    }

    /// Returns whether files are copied into the target, each under its own name.
    fn is_into_folder(&self, tree: &Tree, place: &Path) -> bool {
        self.parts.len() > 1 || self.names_folder() || is_there(tree, place)
    }

    /// Returns whether the target is written as a folder.
    fn names_folder(&self) -> bool {
        let target = self.target.as_str();
        target.ends_with('/') || target.ends_with("/.") || matches!(target, "." | ".." | "")
    }

    /// Fails if several files are copied to a target that may be meant as one file.
    fn require_folder(&self, tree: &Tree, place: &Path) -> Result<(), Fault> {
        let is_folder = self.names_folder() || self.target.ends_with("/..");
        if self.parts.len() <= 1 || is_folder || is_there(tree, place) {
            return Ok(());
        }
        Err(Fault::Sources(format!(
            "several files are copied, so `{}` must be a folder: end it with a `/`",
            self.target
        )))
    }
}

fn unnamed() -> Fault {
    Fault::Sources(
        "the address that ADD fetches has no name for the file: name it in the target".to_owned(),
    )
}

fn put(
    tree: &Tree,
    path: &Path,
    about: &About,
    folders: (u32, u32),
    content: &mut impl std::io::Read,
) -> Result<u64, Fault> {
    make_folders(tree, path.parent().unwrap_or(Path::new("")), folders)?;
    write(tree, path, about, content)
}

fn is_there(tree: &Tree, path: &Path) -> bool {
    tree.folder(path).is_ok()
}

/// Parses an octal mode, the only kind that is supported.
fn mode(text: &str) -> Result<u32, Fault> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777)
        .ok_or_else(|| Fault::Sources(format!("`--chmod={text}` is not a mode such as 755")))
}
