//! `holm image list`: lists the images of this machine.

use super::local::failed;
use crate::error::Error;
use crate::exit::Exit;
use crate::output;
use crate::term::{self, Style};
use comfy_table::{Table, presets};
use images::{Listed, Recipe, Reference, Store};

const DIGEST_DIGITS: usize = 12;

/// Lists the images on this machine
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print a JSON list, for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, store: &Store) -> Result<Exit, Error> {
    let broken = |error: images::Error| failed("list the images", &error);
    let mut images = store.list().map_err(broken)?;
    images.retain(|image| !image.names.is_empty());
    images.sort_by_key(names);
    if args.json {
        term::say(json(&images));
        return Ok(Exit::Success);
    }
    if !images.is_empty() {
        term::say(table(&images));
    }
    let here = |name: &Reference| images.iter().any(|image| image.names.contains(name));
    let missing: Vec<_> =
        Recipe::all().map_err(broken)?.into_iter().map(|recipe| recipe.name).collect();
    let missing: Vec<_> = missing.iter().filter(|name| !here(name)).map(Reference::path).collect();
    if !missing.is_empty() {
        term::note(format!(
            "not made yet: {}; `holm image make NAME` makes them",
            missing.join(", ")
        ));
    }
    Ok(Exit::Success)
}

/// Returns an image's names, with the recipe's own before those from the public hub.
fn names(image: &Listed) -> Vec<String> {
    let recipe = |name: &Reference| {
        Recipe::of(name).ok().flatten().is_some_and(|recipe| recipe.name == *name)
    };
    let (own, other): (Vec<_>, Vec<_>) = image.names.iter().partition(|name| recipe(name));
    own.into_iter().chain(other).map(ToString::to_string).collect()
}

fn table(images: &[Listed]) -> String {
    let mut table = Table::new();
    *table.style_mut() = presets::NOTHING;
    table.set_header(
        ["NAME", "SIZE", "DIGEST", "ALSO"].map(|heading| term::styled(Style::Bold, heading)),
    );
    for image in images {
        let names = names(image);
        let digest = image.digest.hex().chars().take(DIGEST_DIGITS).collect();
        table.add_row([
            names[0].clone(),
            output::size(image.size_bytes),
            digest,
            names[1..].join(", "),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

fn json(images: &[Listed]) -> String {
    let object = |image: &Listed| serde_json::json!({"names": names(image), "digest": image.digest.to_string(), "size_bytes": image.size_bytes});
    output::json(&images.iter().map(object).collect::<Vec<_>>())
}
