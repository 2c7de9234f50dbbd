//! The files of an image as a list that can be compared.

use images::{Config, Naming, Privileges, Rules, Store};
use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Times before this come from the sources, and must have been kept.
const RECENT: i64 = 1_577_836_800;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    kind: &'static str,
    mode: u32,
    owner: (u32, u32),
    /// The length and digest of a file, or the target of a link.
    content: String,
    time: Option<i64>,
    /// The first name of a file that has several.
    same_as: Option<PathBuf>,
}

pub(crate) type Tree = BTreeMap<PathBuf, Entry>;

/// Unpacks an image from a layout or an archive, and applies its layers in order.
pub(crate) fn of_image(image: &Path, scratch: &Path) -> Tree {
    let rules = Rules { privileges: Privileges::Keep, ..Rules::default() };
    let settings = images::Settings { overlay: images::Overlay::User, rules, ..Default::default() };
    let store = Store::open(scratch, settings).unwrap();
    let name = "compared/image".parse().unwrap();
    store.import(image, &Naming::As(name), &Config::default()).unwrap();
    let image = store.resolve(&"compared/image".parse().unwrap()).unwrap().unwrap();
    let mut tree = Tree::new();
    let mut names = BTreeMap::new();
    for layer in &image.layers {
        add(layer, Path::new(""), &mut tree, &mut names);
    }
    link(&mut tree, &names);
    tree
}

fn add(layer: &Path, path: &Path, tree: &mut Tree, numbers: &mut BTreeMap<PathBuf, (u64, u64)>) {
    let mut listed: Vec<_> = std::fs::read_dir(layer.join(path))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    listed.sort();
    for name in listed {
        let path = path.join(name);
        let full = layer.join(&path);
        let about = std::fs::symlink_metadata(&full).unwrap();
        let kind = about.file_type();
        let below =
            |tree: &mut Tree| tree.retain(|known, _| known == &path || !known.starts_with(&path));
        if kind.is_char_device() {
            below(tree);
            tree.remove(&path);
            continue;
        }
        let mut value = [0; 1];
        if !kind.is_dir() || rustix::fs::lgetxattr(&full, "user.overlay.opaque", &mut value).is_ok()
        {
            below(tree);
        }
        let (name, content) = if kind.is_dir() {
            ("folder", String::new())
        } else if kind.is_symlink() {
            ("link", std::fs::read_link(&full).unwrap().display().to_string())
        } else if kind.is_fifo() {
            ("fifo", String::new())
        } else {
            let bytes = std::fs::read(&full).unwrap();
            ("file", format!("{} {}", bytes.len(), images::Digest::of(&bytes)))
        };
        let time = about.mtime();
        let entry = Entry {
            kind: name,
            // The mode of a link means nothing.
            mode: if kind.is_symlink() { 0 } else { about.mode() & 0o7777 },
            owner: (about.uid(), about.gid()),
            content,
            time: (time < RECENT && name == "file").then_some(time),
            same_as: None,
        };
        tree.insert(path.clone(), entry);
        match name == "file" && about.nlink() > 1 {
            true => drop(numbers.insert(path.clone(), (about.dev(), about.ino()))),
            false => drop(numbers.remove(&path)),
        }
        if kind.is_dir() {
            add(layer, &path, tree, numbers);
        }
    }
}

fn link(tree: &mut Tree, numbers: &BTreeMap<PathBuf, (u64, u64)>) {
    let mut first: BTreeMap<(u64, u64), PathBuf> = BTreeMap::new();
    for (path, number) in numbers {
        let Some(entry) = tree.get_mut(path) else { continue };
        match first.get(number) {
            Some(first) => entry.same_as = Some(first.clone()),
            None => drop(first.insert(*number, path.clone())),
        }
    }
}

/// Describes the differences, for people to read.
pub(crate) fn differences(ours: &Tree, theirs: &Tree) -> Vec<String> {
    let mut all = Vec::new();
    for (path, own) in ours {
        match theirs.get(path) {
            None => all.push(format!("only here: {} {own:?}", path.display())),
            Some(other) if own != other => {
                all.push(format!("{}: here {own:?}, there {other:?}", path.display()));
            }
            Some(_) => {}
        }
    }
    let missing = theirs.iter().filter(|(path, _)| !ours.contains_key(*path));
    all.extend(missing.map(|(path, entry)| format!("only there: {} {entry:?}", path.display())));
    all
}
