//! Defaults for an operator without a catalogue: the images that sandboxes can start from, which
//! are those that the project has recipes for, and the MCP servers of the hub.

use images::{Recipe, Reference};
use types::parts::{Port, Protocol};
use types::wire::{McpDefinition, SandboxDefinition};

/// One file for each MCP server, in the format of the operator's catalogue.
const SERVERS: [&str; 4] = [
    include_str!("../../hub/fetch.yaml"),
    include_str!("../../hub/postgres.yaml"),
    include_str!("../../hub/sequentialthinking.yaml"),
    include_str!("../../hub/time.yaml"),
];

pub(super) fn servers() -> Result<Vec<McpDefinition>, serde_norway::Error> {
    SERVERS.iter().map(|text| serde_norway::from_str(text)).collect()
}

/// Default memory of a sandbox that starts from one of these images.
const MEMORY_MB: i64 = 4096;

/// Returns one definition for each recipe with a public name. Recipes without one only serve as a
/// base for others.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_of_the_hub_can_be_run() {
        let servers = servers().unwrap();
        for server in &servers {
            let image = server.image.as_deref().unwrap();
            assert!(
                Recipe::of(&image.parse().unwrap()).unwrap().is_some(),
                "{image} has no recipe"
            );
            assert!(server.name.is_some() && server.integration == server.name);
            for told in [&server.display_name, &server.description, &server.icon] {
                assert!(told.as_ref().is_some_and(|text| !text.is_empty()), "{:?}", server.name);
            }
        }
        let catalogue = control::Catalogue { servers, ..Default::default() };
        assert_eq!(catalogue.check(), Ok(()));
    }
}
