//! Recipes: short files that say what an image is made of.
//!
//! A recipe begins either with Debian's packages or with another image (`from`), whose layers it shares. Those of the
//! project are part of the program; what else there is, is read from files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::manifest::Config;
use crate::reference::Reference;

/// A recipe of the project and the files beside it.
struct Source {
    recipe: &'static str,
    files: &'static [(&'static str, &'static str)],
}

/// In an order in which each comes after what it begins with.
const SOURCES: [Source; 8] = [
    Source { recipe: include_str!("../recipes/debian.toml"), files: &[] },
    Source { recipe: include_str!("../recipes/base.toml"), files: &[] },
    Source { recipe: include_str!("../recipes/node.toml"), files: &[] },
    Source { recipe: include_str!("../recipes/py-app.toml"), files: &[] },
    Source { recipe: include_str!("../recipes/ts-app.toml"), files: &[] },
    Source {
        recipe: include_str!("../recipes/nextjs/recipe.toml"),
        files: &[
            ("package.json", include_str!("../recipes/nextjs/package.json")),
            ("layout.tsx", include_str!("../recipes/nextjs/layout.tsx")),
            ("page.tsx", include_str!("../recipes/nextjs/page.tsx")),
            ("next.config.ts", include_str!("../recipes/nextjs/next.config.ts")),
            ("tsconfig.json", include_str!("../recipes/nextjs/tsconfig.json")),
        ],
    },
    Source {
        recipe: include_str!("../recipes/vite/recipe.toml"),
        files: &[("vite.config.ts", include_str!("../recipes/vite/vite.config.ts"))],
    },
    Source {
        recipe: include_str!("../recipes/jupyter-server/recipe.toml"),
        files: &[
            ("interpreter.py", include_str!("../recipes/jupyter-server/interpreter.py")),
            ("kernels.py", include_str!("../recipes/jupyter-server/kernels.py")),
        ],
    },
];

/// How an image is made. Whoever writes one decides what runs on this machine as root.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    pub name: Reference,
    /// What the image is for, in one sentence. It changes nothing in the image.
    #[serde(default, skip_serializing)]
    pub summary: String,
    /// Other names that the image gets.
    #[serde(default)]
    pub aliases: Vec<Reference>,
    /// The image to begin with. Without one it is made of `packages` alone.
    pub from: Option<Reference>,
    #[serde(default)]
    pub packages: Vec<String>,
    /// Where in the image which file beside the recipe goes. Once read: where which text goes.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Shell commands that run inside, as root and with the network, when packages and files are there, in the working
    /// folder. The first line of each names the step.
    #[serde(default)]
    pub run: Vec<String>,
    /// Lies over that of the image to begin with.
    #[serde(default)]
    pub config: Config,
}

impl Recipe {
    /// Those of the project, each after what it begins with.
    pub fn all() -> Result<Vec<Self>, Error> {
        let found = |source: &Source, name: &str| {
            let file = source.files.iter().find(|(file, _)| *file == name);
            file.map(|(_, text)| (*text).to_owned()).ok_or_else(|| missing(name))
        };
        SOURCES.iter().map(|source| Self::read(source.recipe, |name| found(source, name))).collect()
    }

    /// The one of the project that makes this image, if there is one.
    pub fn of(name: &Reference) -> Result<Option<Self>, Error> {
        let makes = |recipe: &Self| recipe.name == *name || recipe.aliases.contains(name);
        Ok(Self::all()?.into_iter().find(makes))
    }

    /// Reads a recipe from a file, and the files in the same folder that it names.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let read = |path: &Path| fs::read_to_string(path).map_err(Error::io("read", path));
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::read(&read(path)?, |name| read(&folder.join(name)))
    }

    /// `file` reads what lies beside the recipe.
    pub fn read(text: &str, file: impl Fn(&str) -> Result<String, Error>) -> Result<Self, Error> {
        let mut recipe: Self = toml::from_str(text).map_err(|error| Error::malformed("recipe", error.message()))?;
        recipe.check()?;
        for content in recipe.files.values_mut() {
            *content = file(content)?;
        }
        Ok(recipe)
    }

    fn check(&self) -> Result<(), Error> {
        // Each becomes a word of a command, or a part of an argument in which a comma divides.
        let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'+' | b'-');
        let is_package = |name: &String| !name.is_empty() && !name.starts_with('-') && name.bytes().all(word);
        if let Some(name) = self.packages.iter().find(|name| !is_package(name)) {
            return Err(Error::malformed("recipe", format!("`{name}` is not the name of a package")));
        }
        let is_place =
            |path: &str| path.starts_with('/') && !path.split('/').skip(1).any(|part| matches!(part, "" | "." | ".."));
        if let Some(path) = self.files.keys().find(|path| !is_place(path)) {
            return Err(Error::malformed("recipe", format!("`{path}` is not a plain path from the root")));
        }
        match &self.from {
            None if !self.run.is_empty() || !self.files.is_empty() => {
                Err(Error::malformed("recipe", "`run` and `files` need an image to begin with: `from`"))
            }
            None if self.packages.is_empty() => Err(Error::malformed("recipe", "it has neither `from` nor `packages`")),
            _ => Ok(()),
        }
    }
}

fn missing(name: &str) -> Error {
    Error::malformed("recipe", format!("the file `{name}` is not beside it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Recipe, Error> {
        Recipe::read(text, |name| Err(missing(name)))
    }

    #[test]
    fn each_recipe_of_the_project_comes_after_what_it_begins_with() {
        let mut names = Vec::new();
        for recipe in Recipe::all().unwrap() {
            assert!(recipe.from.is_none_or(|from| names.contains(&from)), "{}", recipe.name);
            assert!(!names.contains(&recipe.name) && !recipe.aliases.iter().any(|alias| names.contains(alias)));
            names.push(recipe.name);
            names.extend(recipe.aliases);
        }
    }

    #[test]
    fn clients_find_the_images_that_they_ask_for() {
        for name in ["base-image", "node", "py-app", "ts-app", "nextjs", "vite", "jupyter-server"] {
            let own = if name == "base-image" { "holm/base".to_owned() } else { format!("holm/{name}") };
            for asked in [&own, &format!("blaxel/{name}"), &format!("docker.io/blaxel/{name}:latest")] {
                let recipe = Recipe::of(&asked.parse().unwrap()).unwrap();
                assert_eq!(recipe.unwrap_or_else(|| panic!("{asked}")).name, own.parse().unwrap());
            }
        }
        assert!(Recipe::of(&"blaxel/unheard-of".parse().unwrap()).unwrap().is_none());
    }

    #[test]
    fn names_that_are_no_packages_are_refused() {
        for name in ["", "-o", "a,b", "a b", "A", "$(x)"] {
            assert!(read(&format!("name = \"x\"\npackages = [\"{name}\"]")).is_err(), "{name}");
        }
    }

    #[test]
    fn recipes_that_cannot_be_made_are_refused() {
        let start = "name = \"x\"\nfrom = \"y\"\n";
        assert!(read(start).is_ok());
        for wrong in ["name = \"x\"", "name = \"x\"\npackages = [\"a\"]\nrun = [\"true\"]"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        for wrong in
            ["other = 1", "files = { a = \"b\" }", "files = { \"/a/../b\" = \"b\" }", "files = { \"/a\" = \"b\" }"]
        {
            assert!(read(&format!("{start}{wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn files_are_read_from_beside_the_recipe() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.toml");
        fs::write(&path, "name = \"x\"\nfrom = \"y\"\nfiles = { \"/etc/motd\" = \"motd\" }").unwrap();
        assert!(Recipe::open(&path).is_err());
        fs::write(folder.path().join("motd"), "hello").unwrap();
        assert_eq!(Recipe::open(&path).unwrap().files["/etc/motd"], "hello");
    }
}
