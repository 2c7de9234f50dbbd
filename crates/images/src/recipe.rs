//! Recipes: short files that describe how an image is made.
//!
//! A recipe starts either from Debian packages or from another image (`from`), whose layers it
//! shares. The project's own recipes are compiled into the program; others are read from files.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use serde::{Deserialize, Serialize, Serializer};

use crate::error::Error;
use crate::manifest::Config;
use crate::reference::Reference;

/// A recipe of the project, with the files beside it.
struct Source {
    recipe: &'static str,
    files: &'static [(&'static str, &'static [u8])],
}

/// Ordered so that each recipe comes after the one that it is based on.
const SOURCES: [Source; 9] = [
    Source { recipe: include_str!("../recipes/debian.toml"), files: &[] },
    Source {
        recipe: include_str!("../recipes/base/recipe.toml"),
        files: &[("apk", include_bytes!("../recipes/base/apk"))],
    },
    Source { recipe: include_str!("../recipes/node.toml"), files: &[] },
    Source { recipe: include_str!("../recipes/py-app.toml"), files: &[] },
    Source { recipe: include_str!("../recipes/ts-app.toml"), files: &[] },
    Source {
        recipe: include_str!("../recipes/nextjs/recipe.toml"),
        files: &[
            ("package.json", include_bytes!("../recipes/nextjs/package.json")),
            ("layout.tsx", include_bytes!("../recipes/nextjs/layout.tsx")),
            ("page.tsx", include_bytes!("../recipes/nextjs/page.tsx")),
            ("next.config.ts", include_bytes!("../recipes/nextjs/next.config.ts")),
            ("tsconfig.json", include_bytes!("../recipes/nextjs/tsconfig.json")),
        ],
    },
    Source {
        recipe: include_str!("../recipes/vite/recipe.toml"),
        files: &[("vite.config.ts", include_bytes!("../recipes/vite/vite.config.ts"))],
    },
    Source {
        recipe: include_str!("../recipes/jupyter-server/recipe.toml"),
        files: &[
            ("interpreter.py", include_bytes!("../recipes/jupyter-server/interpreter.py")),
            ("kernels.py", include_bytes!("../recipes/jupyter-server/kernels.py")),
        ],
    },
    Source {
        recipe: include_str!("../recipes/mcp-servers/recipe.toml"),
        files: &[("postgres.py", include_bytes!("../recipes/mcp-servers/postgres.py"))],
    },
];

/// Largest recipe, and largest file beside one, because both are read into memory. Larger files are
/// better fetched by a command of the recipe.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// How an image is made. The author of a recipe decides what runs on this machine as root.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe<File = Content> {
    pub name: Reference,
    /// One sentence about what the image is for. It changes nothing in the image.
    #[serde(default, skip_serializing)]
    pub summary: String,
    /// Further names that the image gets.
    #[serde(default)]
    pub aliases: Vec<Reference>,
    /// The base image. Without one, the image is made from `packages` alone.
    pub from: Option<Reference>,
    #[serde(default)]
    pub packages: Vec<String>,
    /// Files to add: the path in the image, with the name of a file beside the recipe or, once it
    /// is read, its content.
    #[serde(default = "BTreeMap::new")]
    pub files: BTreeMap<String, File>,
    /// Shell commands that run inside, as root and with network access, after packages and files
    /// are in place, in the working folder. The first line of each names the step.
    #[serde(default)]
    pub run: Vec<String>,
    /// Applied on top of the base image's configuration.
    #[serde(default)]
    pub config: Changes,
}

/// The bytes of a file beside a recipe. `Debug` shows text readably.
#[derive(Clone, PartialEq, Eq)]
pub struct Content(pub Vec<u8>);

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(f)
    }
}

/// Writes text as a string, so that images made before files could be binary still match their
/// recipe.
impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => text.serialize(serializer),
            Err(_) => self.0.serialize(serializer),
        }
    }
}

/// Changes that a recipe makes to how the image is run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Changes {
    pub env: BTreeMap<String, String>,
    pub workdir: String,
    /// An empty list removes the base image's entry point and its arguments.
    #[serde(serialize_with = "list_or_none")]
    pub entrypoint: Option<Vec<String>>,
    #[serde(serialize_with = "list_or_none")]
    pub cmd: Option<Vec<String>>,
    pub user: String,
    /// Ports as images write them: `80`, `53/udp`.
    pub exposed: Vec<String>,
}

/// Writes `None` as an empty list, as it was before lists could be removed, so that keys of images
/// stay the same. The empty list is therefore written as null.
fn list_or_none<S: Serializer>(
    list: &Option<Vec<String>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match list {
        None => Vec::<String>::new().serialize(serializer),
        Some(list) if list.is_empty() => serializer.serialize_none(),
        Some(list) => list.serialize(serializer),
    }
}

impl Changes {
    /// Applies these changes on top of the base image's configuration.
    pub(crate) fn over(&self, below: &Config) -> Config {
        let text =
            |own: &String, below: &String| if own.is_empty() { below.clone() } else { own.clone() };
        // Arguments for another program mean nothing to this one.
        let cmd_below = if self.entrypoint.is_none() { below.cmd.clone() } else { Vec::new() };
        let mut config = Config {
            env: below.env.clone(),
            workdir: text(&self.workdir, &below.workdir),
            entrypoint: self.entrypoint.clone().unwrap_or_else(|| below.entrypoint.clone()),
            cmd: self.cmd.clone().unwrap_or(cmd_below),
            user: text(&self.user, &below.user),
            exposed: below.exposed.clone(),
        };
        config.env.extend(self.env.clone());
        config
            .exposed
            .extend(self.exposed.iter().filter(|port| !below.exposed.contains(port)).cloned());
        config
    }
}

impl Recipe {
    /// Returns the recipes of the project, each after the one that it is based on.
    pub fn all() -> Result<Vec<Self>, Error> {
        let found = |source: &Source, name: &str| {
            let file = source.files.iter().find(|(file, _)| *file == name);
            file.map(|(_, content)| content.to_vec()).ok_or_else(|| missing(name))
        };
        SOURCES.iter().map(|source| Self::read(source.recipe, |name| found(source, name))).collect()
    }

    /// Returns the project's recipe for this image, if there is one.
    pub fn of(name: &Reference) -> Result<Option<Self>, Error> {
        let makes = |recipe: &Self| recipe.name == *name || recipe.aliases.contains(name);
        Ok(Self::all()?.into_iter().find(makes))
    }

    /// Reads a recipe from a file, and the files that it names in the same folder.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let text = String::from_utf8(read_file(path)?)
            .map_err(|error| Error::malformed("recipe", error))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::read(&text, |name| read_file(&folder.join(name)))
    }

    /// Parses a recipe. `file` reads the files beside it.
    pub fn read(text: &str, file: impl Fn(&str) -> Result<Vec<u8>, Error>) -> Result<Self, Error> {
        let written: Recipe<String> =
            toml::from_str(text).map_err(|error| Error::malformed("recipe", error.message()))?;
        written.check()?;
        let Recipe { name, summary, aliases, from, packages, files, run, config } = written;
        let files = files.into_iter().map(|(path, name)| Ok((path, Content(file(&name)?))));
        let files = files.collect::<Result<_, Error>>()?;
        Ok(Self { name, summary, aliases, from, packages, files, run, config })
    }
}

impl Recipe<String> {
    fn check(&self) -> Result<(), Error> {
        // Each name becomes a word of a command, or part of an argument in which commas separate.
        let word = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'+' | b'-')
        };
        let is_package =
            |name: &String| !name.is_empty() && !name.starts_with('-') && name.bytes().all(word);
        if let Some(name) = self.packages.iter().find(|name| !is_package(name)) {
            return Err(Error::malformed(
                "recipe",
                format!("`{name}` is not the name of a package"),
            ));
        }
        let is_place = |path: &str| {
            path.starts_with('/')
                && !path.split('/').skip(1).any(|part| matches!(part, "" | "." | ".."))
        };
        if let Some(path) = self.files.keys().find(|path| !is_place(path)) {
            return Err(Error::malformed(
                "recipe",
                format!("`{path}` is not a plain path from the root"),
            ));
        }
        match &self.from {
            None if !self.run.is_empty() || !self.files.is_empty() => Err(Error::malformed(
                "recipe",
                "`run` and `files` need an image to begin with: `from`",
            )),
            None if self.packages.is_empty() => {
                Err(Error::malformed("recipe", "it has neither `from` nor `packages`"))
            }
            _ => Ok(()),
        }
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, Error> {
    let broken = || Error::io("read", path);
    let mut content = Vec::new();
    let file = fs::File::open(path).map_err(broken())?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut content).map_err(broken())?;
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err(Error::Limit { what: "bytes in a file of a recipe", max: FILE_BYTES_MAX });
    }
    Ok(content)
}

fn missing(name: &str) -> Error {
    Error::malformed("recipe", format!("the file `{name}` is not beside it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Not text: the start of a compressed file.
    const BINARY: &[u8] = &[0x1f, 0x8b, 0x08, 0x00, 0xff];

    fn read(text: &str) -> Result<Recipe, Error> {
        Recipe::read(text, |name| Err(missing(name)))
    }

    #[test]
    fn each_recipe_of_the_project_comes_after_what_it_begins_with() {
        let mut names = Vec::new();
        for recipe in Recipe::all().unwrap() {
            assert!(recipe.from.is_none_or(|from| names.contains(&from)), "{}", recipe.name);
            assert!(
                !names.contains(&recipe.name)
                    && !recipe.aliases.iter().any(|alias| names.contains(alias))
            );
            names.push(recipe.name);
            names.extend(recipe.aliases);
        }
    }

    #[test]
    fn clients_find_the_images_that_they_ask_for() {
        for name in ["base-image", "node", "py-app", "ts-app", "nextjs", "vite", "jupyter-server"] {
            let own =
                if name == "base-image" { "holm/base".to_owned() } else { format!("holm/{name}") };
            for asked in
                [&own, &format!("blaxel/{name}"), &format!("docker.io/blaxel/{name}:latest")]
            {
                let recipe = Recipe::of(&asked.parse().unwrap()).unwrap();
                assert_eq!(recipe.unwrap_or_else(|| panic!("{asked}")).name, own.parse().unwrap());
            }
        }
        assert!(Recipe::of(&"blaxel/unheard-of".parse().unwrap()).unwrap().is_none());
    }

    /// A reader who copies an example from the docs must have its image, or have just made it.
    #[test]
    fn images_that_the_documents_use_are_there() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
        let mut seen = 0;
        for page in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let text = fs::read_to_string(&page).unwrap();
            for (at, found) in text
                .match_indices("image")
                .filter(|_| page.extension().is_some_and(|end| end == "md"))
            {
                let value = text[at + found.len()..].trim_start_matches(['"', ':', ' ', '=']);
                let name = value.split(|c| !is_part(c)).next().unwrap_or_default();
                if ["holm/", "blaxel/"].iter().any(|start| name.starts_with(start)) {
                    let recipe = Recipe::of(&name.parse().unwrap()).unwrap();
                    assert!(recipe.is_some(), "{} names {name}", page.display());
                    seen += 1;
                }
            }
        }
        assert!(seen > 0);
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
        for wrong in [
            "other = 1",
            "files = { a = \"b\" }",
            "files = { \"/a/../b\" = \"b\" }",
            "files = { \"/a\" = \"b\" }",
        ] {
            assert!(read(&format!("{start}{wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn files_are_read_from_beside_the_recipe() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.toml");
        fs::write(&path, "name = \"x\"\nfrom = \"y\"\nfiles = { \"/etc/motd\" = \"motd\" }")
            .unwrap();
        assert!(Recipe::open(&path).is_err());
        fs::write(folder.path().join("motd"), BINARY).unwrap();
        assert_eq!(Recipe::open(&path).unwrap().files["/etc/motd"], Content(BINARY.into()));
    }

    #[test]
    fn a_file_beside_a_recipe_is_not_larger_than_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.toml");
        fs::write(&path, "name = \"x\"\nfrom = \"y\"\nfiles = { \"/large\" = \"large\" }").unwrap();
        let large = fs::File::create(folder.path().join("large")).unwrap();
        large.set_len(FILE_BYTES_MAX + 1).unwrap();
        assert!(matches!(Recipe::open(&path), Err(Error::Limit { max: FILE_BYTES_MAX, .. })));
    }

    /// Images are kept under a digest of this, so text and present lists must serialize as they did
    /// before.
    #[test]
    fn what_was_made_before_is_still_known() {
        let text =
            "name = \"x\"\nfrom = \"y\"\nfiles = { \"/a\" = \"a\" }\n[config]\ncmd = [\"sh\"]";
        let key = |text: &str, file: &[u8]| {
            serde_json::to_value(Recipe::read(text, |_| Ok(file.to_vec())).unwrap()).unwrap()
        };
        let text_key = key(text, b"hello");
        assert_eq!(text_key["files"]["/a"], "hello");
        assert_eq!(text_key["config"]["entrypoint"], serde_json::json!([]));
        assert_eq!(text_key["config"]["cmd"], serde_json::json!(["sh"]));
        assert_ne!(key(text, BINARY)["files"], text_key["files"]);
        assert_ne!(key(&format!("{text}\nentrypoint = []"), b"hello"), text_key);
    }

    #[test]
    fn an_empty_list_takes_away_what_the_image_below_starts() {
        let words =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let below = Config {
            entrypoint: words(&["serve"]),
            cmd: words(&["--port", "1"]),
            ..Config::default()
        };
        let over = |text: &str| {
            let config = toml::from_str::<Changes>(text).unwrap().over(&below);
            (config.entrypoint, config.cmd)
        };
        assert_eq!(over(""), (words(&["serve"]), words(&["--port", "1"])));
        assert_eq!(over("entrypoint = []"), (vec![], vec![]));
        assert_eq!(over("cmd = []"), (words(&["serve"]), vec![]));
        assert_eq!(over("entrypoint = []\ncmd = [\"bash\"]"), (vec![], words(&["bash"])));
        assert_eq!(over("entrypoint = [\"other\"]"), (words(&["other"]), vec![]));
        assert_eq!(over("cmd = [\"--port\", \"2\"]"), (words(&["serve"]), words(&["--port", "2"])));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*", rest in "(entrypoint|files|run|env)[ =\\[\\]{}\"a-z/.]{0,40}") {
            let _ = read(&text);
            let _ = read(&format!("name = \"x\"\nfrom = \"y\"\n{rest}"));
        }

        #[test]
        fn bytes_of_a_file_are_kept(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let text = "name = \"x\"\nfrom = \"y\"\nfiles = { \"/a\" = \"a\" }";
            let recipe = Recipe::read(text, |_| Ok(bytes.clone()));
            prop_assert_eq!(&recipe.unwrap().files["/a"], &Content(bytes));
        }
    }
}
