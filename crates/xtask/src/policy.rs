//! Checks dependencies against the policy in `deny.toml`: licences, sources and banned crates.
//!
//! Checks everything in `Cargo.lock`, including packages that only other platforms build. So all of
//! it is fetched first; after that no network is needed. Advisories need an outside list, for which
//! `tools/check-dependencies` runs cargo-deny if possible.

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::{MetadataCommand, Package};
use serde::Deserialize;
use std::path::Path;
use std::process::Command;

#[derive(Deserialize)]
struct Policy {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

pub(crate) fn check(root: &Path) -> Result<()> {
    let text = std::fs::read_to_string(root.join("deny.toml")).context("cannot read deny.toml")?;
    let policy: Policy = toml::from_str(&text).context("deny.toml is not as expected")?;
    let manifest = root.join("Cargo.toml");
    fetch(&manifest)?;
    let metadata = MetadataCommand::new()
        .manifest_path(manifest)
        .other_options(["--locked".to_owned(), "--offline".to_owned()])
        .exec()?;
    let problems: Vec<String> =
        metadata.packages.iter().flat_map(|package| faults(package, &policy)).collect();
    if !problems.is_empty() {
        bail!("the dependencies break deny.toml:\n  {}", problems.join("\n  "));
    }
    println!("{} packages keep to deny.toml", metadata.packages.len());
    Ok(())
}

/// Fetches the sources for all platforms: a build fetches only those for its own, but `cargo
/// metadata` reads all manifests.
fn fetch(manifest: &Path) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["fetch", "--locked", "--quiet", "--manifest-path"]).arg(manifest);
    ensure!(
        command.status().context("cannot run cargo")?.success(),
        "the dependencies cannot be fetched"
    );
    Ok(())
}

fn faults(package: &Package, policy: &Policy) -> Vec<String> {
    let name = format!("{} {}", package.name, package.version);
    let mut faults = Vec::new();
    if let Some(ban) = policy.bans.deny.iter().find(|ban| ban.name == package.name.as_str()) {
        faults.push(format!("{name} is banned: {}", ban.reason));
    }
    if package.source.as_ref().is_some_and(|source| !source.is_crates_io()) {
        faults.push(format!("{name} does not come from crates.io"));
    }
    if !licensed(package.license.as_deref().unwrap_or_default(), &policy.licenses.allow) {
        let licence = package.license.as_deref().unwrap_or("none named");
        faults.push(format!("{name} has the licence {licence}, which is not allowed"));
    }
    faults
}

/// True if one of the choices in the expression consists of allowed licences only.
fn licensed(expression: &str, allowed: &[String]) -> bool {
    let Ok(expression) = spdx::Expression::parse_mode(expression, spdx::ParseMode::LAX) else {
        return false;
    };
    expression.evaluate(|requirement| allowed.iter().any(|name| *name == requirement.to_string()))
}

#[cfg(test)]
mod tests {
    use super::licensed;

    #[test]
    fn one_allowed_choice_is_enough_and_every_part_of_it_counts() {
        let allowed = ["MIT".to_owned(), "ISC".to_owned()];
        assert!(licensed("MIT OR GPL-3.0-only", &allowed));
        assert!(licensed("MIT AND ISC", &allowed));
        assert!(licensed("MIT/Apache-2.0", &allowed));
        assert!(!licensed("MIT AND GPL-3.0-only", &allowed));
        assert!(!licensed("", &allowed));
    }
}
