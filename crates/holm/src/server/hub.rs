//! The images that a sandbox can start from, as catalogue entries: those that the project has
//! recipes for.

use images::{Recipe, Reference};
use types::parts::{Port, Protocol};
use types::wire::SandboxDefinition;

/// Megabytes that a sandbox on one of them does well with.
const MEMORY_MB: i64 = 4096;

/// Every recipe that makes something to start from. What others only begin with has no public name.
pub(super) fn definitions() -> Result<Vec<SandboxDefinition>, images::Error> {
    let recipes = Recipe::all()?;
    Ok(recipes
        .iter()
        .filter_map(|recipe| Some(definition(recipe, recipe.aliases.first()?)))
        .collect())
}

fn definition(recipe: &Recipe, image: &Reference) -> SandboxDefinition {
    let name = image.path().rsplit('/').next().unwrap_or_default().to_owned();
    let ports =
        recipe.config.exposed.iter().filter_map(|port| port.split('/').next()?.parse().ok());
    let port = |target| Port { target, name: None, protocol: Some(Protocol::Http) };
    SandboxDefinition {
        display_name: Some(name.replace('-', " ")),
        name: Some(name),
        image: Some(image.to_string()),
        description: Some(recipe.summary.clone()),
        memory: Some(MEMORY_MB),
        ports: Some(ports.map(port).collect()),
        ..SandboxDefinition::default()
    }
}
