//! Finds dependencies that a crate's manifest names but its sources never use, and workspace
//! dependencies that no crate uses.
//!
//! The search is textual, so a crate that only a comment mentions counts as used. That misses
//! something now and then, but compiling each crate without each dependency would take hours.

use anyhow::{Context as _, Result, bail};
use cargo_metadata::{Dependency, DependencyKind, MetadataCommand, Package};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Dependencies that only turn on a feature for another dependency, so no source names them.
const FOR_THEIR_FEATURES: [(&str, &str); 1] = [("holm", "opentelemetry-http")];
/// Packages whose library has a different name.
const LIBRARIES: [(&str, &str); 1] = [("md-5", "md5")];

pub(crate) fn check(root: &Path) -> Result<()> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .other_options(["--locked".to_owned(), "--offline".to_owned()])
        .exec()?;
    let mut faults = Vec::new();
    let mut asked: BTreeSet<String> = BTreeSet::new();
    for package in &metadata.packages {
        asked.extend(package.dependencies.iter().map(|dependency| dependency.name.clone()));
        faults.extend(unused(package)?);
    }
    faults.extend(unasked(root, &asked)?);
    if !faults.is_empty() {
        bail!("dependencies without use:\n  {}", faults.join("\n  "));
    }
    println!("all dependencies of {} crates are used", metadata.packages.len());
    Ok(())
}

/// Returns the dependencies of a crate that its sources do not name.
fn unused(package: &Package) -> Result<Vec<String>> {
    let folder = package.manifest_path.parent().context("a manifest lies in a folder")?;
    let (program, build) = sources(folder.as_std_path())?;
    let is_used = |dependency: &Dependency| {
        let name = dependency.rename.as_ref().unwrap_or(&dependency.name);
        let text = if dependency.kind == DependencyKind::Build { &build } else { &program };
        mentions(text, library(name)) || FOR_THEIR_FEATURES.contains(&(package.name.as_str(), name))
    };
    let unused = package.dependencies.iter().filter(|dependency| !is_used(dependency));
    Ok(unused.map(|dependency| format!("{} names {}", package.name, dependency.name)).collect())
}

/// Returns the name by which sources use a package, apart from hyphens.
fn library(package: &str) -> &str {
    LIBRARIES.iter().find(|(name, _)| *name == package).map_or(package, |(_, library)| library)
}

/// Returns workspace dependencies that no crate uses.
fn unasked(root: &Path, asked: &BTreeSet<String>) -> Result<Vec<String>> {
    let manifest: toml::Table = fs::read_to_string(root.join("Cargo.toml"))?.parse()?;
    let dependencies = manifest.get("workspace").and_then(|table| table.get("dependencies"));
    let dependencies = dependencies.and_then(|table| table.as_table());
    let dependencies = dependencies.context("Cargo.toml has no [workspace.dependencies]")?;
    let unasked = dependencies.keys().filter(|name| !asked.contains(*name));
    Ok(unasked.map(|name| format!("the workspace names {name}")).collect())
}

/// Returns the text of all sources of a crate, and that of its build script.
fn sources(folder: &Path) -> Result<(String, String)> {
    let mut program = String::new();
    for part in ["src", "tests", "benches", "examples"] {
        collect(&folder.join(part), &mut program)?;
    }
    let script = folder.join("build.rs");
    let build = if script.exists() { fs::read_to_string(script)? } else { String::new() };
    Ok((program, build))
}

fn collect(folder: &Path, text: &mut String) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, text)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            text.push_str(&fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// True if the text uses the crate's name as a word in a path or import: `serde::`, `use
/// postgres;`, `serde_with(`, but not a field with that name.
fn mentions(text: &str, name: &str) -> bool {
    let name = name.replace('-', "_");
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.match_indices(&name).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        let apart = !before.ends_with(is_word) && !after.starts_with(is_word);
        apart && (after.starts_with("::") || before.ends_with("use ") || before.ends_with("crate "))
    })
}

#[cfg(test)]
mod tests {
    use super::mentions;

    #[test]
    fn a_crate_is_used_where_a_path_begins_with_its_name() {
        assert!(mentions("let at = jiff::now();", "jiff"));
        assert!(mentions("use http_body;", "http-body"));
        assert!(mentions("#[serde_with::apply(x)]", "serde_with"));
        assert!(!mentions("struct Job { files: Vec<File> }", "files"));
        assert!(!mentions("use http_body_util::Full;", "http-body"));
        assert!(!mentions("my_csv::read()", "csv"));
    }
}
