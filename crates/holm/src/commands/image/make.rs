//! `holm image make`: makes images from recipes.

use super::local::{self, failed};
use crate::commands::progress;
use crate::error::Error;
use crate::exit::Exit;
use crate::output;
use crate::term;
use images::{Builder, Recipe, Store};
use std::iter;
use std::path::Path;
use std::time::Instant;

/// Debian release that images are made from.
const SUITE: &str = "bookworm";
const DEFAULT: &str = "holm/base";

/// Makes images from recipes: the project's by name, or your own by file
///
/// Base images are made first. Whatever has not changed is not made again.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names such as `holm/vite`, or recipe files ending in `.toml`; by default holm/base
    names: Vec<String>,
    /// Make all recipes of the project
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// Mirror of Debian's packages to use instead of Debian's own server
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,
}

pub(super) fn run(args: Args, store: &Store) -> Result<Exit, Error> {
    let builder = Builder { mirror: args.mirror, ..Builder::new(SUITE) };
    for recipe in recipes(args.names, args.all)? {
        make(&recipe, &builder, store)?;
    }
    Ok(Exit::Success)
}

fn recipes(names: Vec<String>, all: bool) -> Result<Vec<Recipe>, Error> {
    let broken = |error: images::Error| failed("read the recipes", &error);
    if all {
        return Recipe::all().map_err(broken);
    }
    let names = if names.is_empty() { vec![DEFAULT.to_owned()] } else { names };
    let recipe = |text: String| {
        if text.ends_with(".toml") {
            return written(&text);
        }
        Recipe::of(&local::name(&text)?).map_err(broken)?.ok_or_else(|| unknown(&text))
    };
    names.into_iter().map(recipe).collect()
}

fn written(file: &str) -> Result<Recipe, Error> {
    let act = format!("read the recipe {file}");
    std::fs::metadata(file).map_err(Error::reading(&act))?;
    let recipe = Recipe::open(Path::new(file)).map_err(|error| failed(&act, &error))?;
    for name in iter::once(&recipe.name).chain(&recipe.aliases) {
        local::public_name(&name.to_string())?;
    }
    Ok(recipe)
}

fn unknown(name: &str) -> Error {
    let known: Vec<_> = Recipe::all()
        .unwrap_or_default()
        .iter()
        .map(|recipe| recipe.name.path().to_owned())
        .collect();
    Error::Absent(format!(
        "there is no recipe `{name}`; there are {}, and files ending in .toml",
        known.join(", ")
    ))
}

fn make(recipe: &Recipe, builder: &Builder, store: &Store) -> Result<(), Error> {
    let start = Instant::now();
    let bar = progress::Steps::new();
    let made = store.make(recipe, builder, |step| bar.show(&step));
    let steps = bar.finish();
    made.map_err(|error| failed(&format!("make {}", recipe.name), &error))?;
    let resolved = store.resolve(&recipe.name).map_err(|error| failed("read the image", &error))?;
    let size = output::size(resolved.map_or(0, |image| image.size_bytes));
    let name = recipe.name.path();
    term::say(match steps {
        0 => format!("{name}: nothing has changed, {size}"),
        _ => format!("{name}: made in {} s, {size}", start.elapsed().as_secs()),
    });
    Ok(())
}
