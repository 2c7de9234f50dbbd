//! Images made on this machine from Debian's packages.
//!
//! A recipe is a short file in `recipes/`. `mmdebstrap` turns it into a root filesystem, which goes into the store
//! while it is written; a recipe that did not change since is not made again.

use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::Error;
use crate::leases::Lease;
use crate::manifest::{self, Config};
use crate::reference::Reference;
use crate::store::Store;

const BASE: &str = include_str!("../recipes/base.toml");
/// Of what the tool said, for the one who asks why it failed.
const LAST_WORDS_MAX: usize = 20;
/// The same for all files that the tool makes, so that the same packages give the same image.
const SOURCE_DATE_EPOCH: &str = "1700000000";
/// Nobody reads these in a sandbox, and they are a third of its size.
const LEFT_OUT: [&str; 4] = ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*"];

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    pub name: Reference,
    pub packages: Vec<String>,
    /// Shell commands that run inside, as root, when the packages are there.
    #[serde(default)]
    pub run: Vec<String>,
    #[serde(default)]
    pub config: Config,
}

impl Recipe {
    /// The image of a sandbox for which none was chosen.
    pub fn base() -> Result<Self, Error> {
        Self::read(BASE)
    }

    pub fn read(text: &str) -> Result<Self, Error> {
        let recipe: Self = toml::from_str(text).map_err(|error| Error::malformed("recipe", error.message()))?;
        // Each becomes a part of an argument, in which a comma divides.
        let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'+' | b'-');
        match recipe.packages.iter().find(|name| name.is_empty() || name.starts_with('-') || !name.bytes().all(word)) {
            Some(name) => Err(Error::malformed("recipe", format!("`{name}` is not the name of a package"))),
            None => Ok(recipe),
        }
    }
}

/// What recipes are made with.
#[derive(Clone, Debug, Serialize)]
pub struct Kitchen {
    #[serde(skip)]
    pub mmdebstrap: PathBuf,
    /// Debian's name of its release, such as `bookworm`.
    pub suite: String,
    /// Instead of Debian's own server.
    pub mirror: Option<String>,
    #[serde(skip)]
    pub time_max: Duration,
}

impl Kitchen {
    pub fn new(suite: &str) -> Self {
        let time_max = Duration::from_secs(60 * 60);
        Self { mmdebstrap: "mmdebstrap".into(), suite: suite.into(), mirror: None, time_max }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    #[error("failed to start {}; it comes with Debian's package mmdebstrap", program.display())]
    Start { program: PathBuf, source: io::Error },
    #[error("making the image took longer than {0:?}")]
    TooSlow(Duration),
    #[error("making the image failed: {}", last_words.join("; "))]
    Failed { last_words: Vec<String> },
    #[error(transparent)]
    Store(#[from] Error),
}

impl Store {
    /// Makes the image of a recipe unless it is there already, and gives it its name. `progress` gets what is being
    /// done, in the words of the tool.
    pub fn make(&self, recipe: &Recipe, kitchen: &Kitchen, progress: impl FnMut(&str)) -> Result<Digest, RecipeError> {
        let key = Digest::of(&manifest::write("recipe", &(recipe, kitchen, LEFT_OUT))?);
        let tag = format!("recipe-{}", &key.hex()[..16]);
        let made = recipe.name.with_tag(&tag).map_err(|error| Error::malformed("recipe", error))?;
        if let Some(digest) = self.tag(&made, &recipe.name)? {
            return Ok(digest);
        }
        let lease = self.0.leases.take();
        let digest = self.cook(recipe, kitchen, progress, &lease)?;
        self.0.name(&made, digest)?;
        self.0.name(&recipe.name, digest)?;
        Ok(digest)
    }

    fn cook(
        &self,
        recipe: &Recipe,
        kitchen: &Kitchen,
        progress: impl FnMut(&str),
        lease: &Lease,
    ) -> Result<Digest, RecipeError> {
        let options = self.0.scratch();
        std::fs::write(&options, download_options()).map_err(Error::io("write", &options))?;
        let mut command = command(recipe, kitchen);
        command.arg(format!("--aptopt={}", options.display()));
        command.args([&kitchen.suite, "-"]).args(&kitchen.mirror);
        let start = |source: io::Error| RecipeError::Start { program: kitchen.mmdebstrap.clone(), source };
        let mut child = command.spawn().map_err(start)?;
        let (stored, last_words) = self.take_in(&mut child, recipe, progress, lease);
        let status = child.wait().map_err(start)?;
        crate::disk::remove_file(&options)?;
        match status.code() {
            // What `timeout` answers for itself.
            Some(124) => Err(RecipeError::TooSlow(kitchen.time_max)),
            Some(127) => Err(start(io::ErrorKind::NotFound.into())),
            Some(0) => Ok(stored?),
            _ => Err(RecipeError::Failed { last_words }),
        }
    }

    /// Stores what the tool writes, and listens to what it says.
    fn take_in(
        &self,
        child: &mut Child,
        recipe: &Recipe,
        mut progress: impl FnMut(&str),
        lease: &Lease,
    ) -> (Result<Digest, Error>, Vec<String>) {
        let (Some(archive), Some(words)) = (child.stdout.take(), child.stderr.take()) else {
            return (Err(Error::malformed("recipe", "the tool has no output")), Vec::new());
        };
        let mut last_words = std::collections::VecDeque::new();
        let stored = std::thread::scope(|scope| {
            let storing = scope.spawn(|| self.0.store_rootfs(archive, &recipe.config, lease));
            for line in BufReader::new(words).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                if let Some(step) = line.strip_prefix("I: ") {
                    progress(step);
                }
                if last_words.len() == LAST_WORDS_MAX {
                    last_words.pop_front();
                }
                last_words.push_back(line);
            }
            storing.join()
        });
        let stored = stored.unwrap_or_else(|_| Err(Error::malformed("recipe", "storing the image broke off")));
        (stored, last_words.into())
    }
}

fn command(recipe: &Recipe, kitchen: &Kitchen) -> Command {
    let mut command = Command::new("timeout");
    command.arg(kitchen.time_max.as_secs().to_string()).arg(&kitchen.mmdebstrap);
    command.args(["--mode=auto", "--variant=minbase", "--format=tar"]);
    command.arg(format!("--include={}", recipe.packages.join(",")));
    command.args(LEFT_OUT.map(|path| format!("--dpkgopt=path-exclude={path}")));
    command.arg("--dpkgopt=path-include=/usr/share/locale/locale.alias");
    for run in &recipe.run {
        command.arg(format!("--customize-hook=chroot \"$1\" /bin/sh -euc {}", quoted(run)));
    }
    // How this machine reaches its mirror is nobody's business inside.
    command.arg("--customize-hook=rm -f \"$1/etc/apt/apt.conf.d/99mmdebstrap\"");
    command.env("SOURCE_DATE_EPOCH", SOURCE_DATE_EPOCH).env("LC_ALL", "C.UTF-8");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// As one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// What this machine's own apt needs to reach its server: a proxy, a certificate.
fn download_options() -> Vec<u8> {
    let dump = Command::new("apt-config").args(["dump", "--format", "%f \"%v\";%n", "Acquire"]).output();
    let mut options = dump.map(|output| output.stdout).unwrap_or_default();
    options.extend_from_slice(b"APT::Install-Recommends \"false\";\n");
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipes_of_the_project_are_sound() {
        let base = Recipe::base().unwrap();
        assert_eq!(base.name.path(), "holm/base");
        assert!(base.config.env.contains_key("PATH"));
    }

    #[test]
    fn names_that_are_no_packages_are_refused() {
        for name in ["", "-o", "a,b", "a b", "A", "$(x)"] {
            let text = format!("name = \"x\"\npackages = [\"{name}\"]");
            assert!(Recipe::read(&text).is_err(), "{name}");
        }
        assert!(Recipe::read("name = \"x\"\npackages = []\nother = 1").is_err());
    }

    #[test]
    fn a_command_stays_one_word() {
        let output =
            Command::new("sh").arg("-c").arg(format!("printf %s {}", quoted("it's $HOME `x`"))).output().unwrap();
        assert_eq!(output.stdout, b"it's $HOME `x`");
    }
}
