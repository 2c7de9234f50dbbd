//! Makes images from recipes. An image whose recipe has not changed is not made again.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde::Serialize;

use crate::bootstrap;
use crate::digest::Digest;
use crate::error::Error;
use crate::extend::{self, Extension};
use crate::leases::Lease;
use crate::manifest;
use crate::names::{KEY_TAG, is_key};
use crate::recipe::Recipe;
use crate::reference::Reference;
use crate::store::{Image, Store};

/// Lines of the tools' output that are kept, to explain a failure.
const LAST_WORDS_MAX: usize = 20;
/// An image can be based on another, which is based on another. More levels than this must be a
/// loop.
const DEPTH_MAX: usize = 16;
/// To be raised when the same recipe starts to give a different image.
const FORM: u32 = 2;
/// Starts a program whose files others may read: the umask of this process may allow nobody else,
/// and the programs of an image are for all its users.
const WITH_OPEN_FILES: &str = "umask 022 && exec \"$@\"";

/// The tools and settings that recipes are made with.
#[derive(Clone, Debug, Serialize)]
pub struct Builder {
    #[serde(skip)]
    pub mmdebstrap: PathBuf,
    /// Debian's name for its release, such as `bookworm`.
    pub suite: String,
    /// Replaces Debian's own server.
    pub mirror: Option<String>,
    /// Time limit for making one image.
    #[serde(skip)]
    pub time_max: Duration,
}

impl Builder {
    pub fn new(suite: &str) -> Self {
        let time_max = Duration::from_secs(60 * 60);
        Self { mmdebstrap: "mmdebstrap".into(), suite: suite.into(), mirror: None, time_max }
    }

    /// Prepares a program that is ended when its time is over or when this process ends.
    pub(crate) fn tool(&self, program: &Path, package: &'static str) -> Tool {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", WITH_OPEN_FILES, "-", "setpriv", "--pdeathsig", "TERM"]);
        command.args(["timeout", "--foreground", "--kill-after=5"]);
        command.arg(self.time_max.as_secs().to_string()).arg(program);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Tool { command, program: program.to_owned(), package }
    }
}

/// A program of this machine that helps to make an image.
pub(crate) struct Tool {
    pub(crate) command: Command,
    program: PathBuf,
    /// The Debian package that contains it.
    package: &'static str,
}

/// The progress of making one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    pub image: &'a Reference,
    pub number: usize,
    /// Approximate number of steps.
    pub of: usize,
    pub what: &'a str,
}

#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    #[error("failed to start {}; it comes with Debian's package {package}", program.display())]
    Start { program: PathBuf, package: &'static str, source: io::Error },
    #[error("making the image took longer than {0:?}")]
    TooSlow(Duration),
    #[error("making the image {image} failed: {}", last_words.join("; "))]
    Failed { image: String, last_words: Vec<String> },
    #[error("the image {0} to begin with is not here, and there is no recipe for it")]
    NoParent(String),
    #[error(transparent)]
    Store(#[from] Error),
}

/// The result read from a program's output, and its last messages.
pub(crate) struct Listened<T> {
    pub(crate) result: Result<T, Error>,
    last_words: Vec<String>,
}

impl Store {
    /// Makes the image of a recipe, and the images that it is based on, unless they exist already,
    /// and gives it its names.
    pub fn make(
        &self,
        recipe: &Recipe,
        builder: &Builder,
        mut progress: impl FnMut(Step<'_>),
    ) -> Result<Digest, RecipeError> {
        self.make_deep(recipe, builder, &mut progress, DEPTH_MAX)
    }

    fn make_deep(
        &self,
        recipe: &Recipe,
        builder: &Builder,
        progress: &mut dyn FnMut(Step<'_>),
        depth: usize,
    ) -> Result<Digest, RecipeError> {
        let parent = recipe
            .from
            .as_ref()
            .map(|from| self.parent(from, builder, progress, depth))
            .transpose()?;
        let (parent, _lease) = parent.unzip();
        let made = made(recipe, builder, parent.as_ref())?;
        let digest = match self.resolve(&made)? {
            Some(image) => image.digest,
            None => {
                let lease = self.0.leases.take();
                let digest = self.build(recipe, builder, parent.as_ref(), progress, &lease)?;
                self.0.name(&made, digest)?;
                self.forget_others(&made)?;
                digest
            }
        };
        for name in recipe.aliases.iter().chain([&recipe.name]) {
            self.0.name(name, digest)?;
        }
        Ok(digest)
    }

    /// Returns the base image, made again if its own recipe has changed.
    fn parent(
        &self,
        from: &Reference,
        builder: &Builder,
        progress: &mut dyn FnMut(Step<'_>),
        depth: usize,
    ) -> Result<(Image, Lease), RecipeError> {
        let max = DEPTH_MAX as u64;
        let depth =
            depth.checked_sub(1).ok_or(Error::Limit { what: "images in each other", max })?;
        let digest = match Recipe::of(from)? {
            Some(recipe) => Some(self.make_deep(&recipe, builder, progress, depth)?),
            None => self.resolve(from)?.map(|image| image.digest),
        };
        let pinned = digest.map(|digest| self.pin(&digest)).transpose()?;
        pinned.flatten().ok_or_else(|| RecipeError::NoParent(from.to_string()))
    }

    /// Removes the keys of images that earlier versions of the recipe gave; nothing else keeps
    /// those.
    fn forget_others(&self, made: &Reference) -> Result<(), Error> {
        for named in self.0.names.list()? {
            if is_key(&named.name)
                && named.name.repository() == made.repository()
                && named.name != *made
            {
                self.0.names.remove(&named.name)?;
            }
        }
        Ok(())
    }

    fn build(
        &self,
        recipe: &Recipe,
        builder: &Builder,
        parent: Option<&Image>,
        progress: &mut dyn FnMut(Step<'_>),
        lease: &Lease,
    ) -> Result<Digest, RecipeError> {
        let of = if parent.is_some() { extend::steps(recipe) } else { bootstrap::STEPS };
        let mut number = 0;
        let mut progress = |what: &str| {
            number = of.min(number + 1);
            progress(Step { image: &recipe.name, number, of, what });
        };
        match parent {
            None => self.bootstrap(recipe, builder, &mut progress, lease),
            Some(parent) => Extension { recipe, builder, parent }.make(self, &mut progress, lease),
        }
    }
}

/// Returns the name that keeps the image of exactly this recipe.
fn made(recipe: &Recipe, builder: &Builder, parent: Option<&Image>) -> Result<Reference, Error> {
    let parent = parent.map(|image| image.digest.to_string());
    let key = Digest::of(&manifest::write(
        "recipe",
        &(FORM, recipe, builder, bootstrap::LEFT_OUT, parent),
    )?);
    let tag = format!("{KEY_TAG}{}", &key.hex()[..16]);
    recipe.name.with_tag(&tag).map_err(|error| Error::malformed("recipe", error))
}

/// Reads a program's messages while `take` reads its output. Messages that begin with `I: ` are its
/// steps.
pub(crate) fn listen<T: Send>(
    child: &mut Child,
    progress: &mut dyn FnMut(&str),
    take: impl FnOnce(ChildStdout) -> Result<T, Error> + Send,
) -> Listened<T> {
    let (Some(output), Some(words)) = (child.stdout.take(), child.stderr.take()) else {
        return Listened {
            result: Err(Error::malformed("recipe", "the tool has no output")),
            last_words: Vec::new(),
        };
    };
    let mut last_words = VecDeque::new();
    let taken = std::thread::scope(|scope| {
        let taking = scope.spawn(|| take(output));
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
        taking.join()
    });
    let result = taken
        .unwrap_or_else(|_| Err(Error::malformed("recipe", "reading the tool's output broke off")));
    Listened { result, last_words: last_words.into() }
}

/// Runs a program to its end, and returns the result of reading its output.
pub(crate) fn run<T: Send>(
    recipe: &Recipe,
    builder: &Builder,
    tool: Tool,
    progress: &mut dyn FnMut(&str),
    take: impl FnOnce(ChildStdout) -> Result<T, Error> + Send,
) -> Result<T, RecipeError> {
    let Tool { mut command, program, package } = tool;
    let start =
        |source: io::Error| RecipeError::Start { program: program.clone(), package, source };
    let mut child = command.spawn().map_err(start)?;
    let Listened { result, last_words } = listen(&mut child, progress, take);
    match child.wait().map_err(start)?.code() {
        // Exit statuses of `timeout` itself; 137 when it had to kill the program.
        Some(124 | 137) => Err(RecipeError::TooSlow(builder.time_max)),
        Some(127) => Err(start(io::ErrorKind::NotFound.into())),
        Some(0) => Ok(result?),
        _ => Err(RecipeError::Failed { image: recipe.name.to_string(), last_words }),
    }
}

/// Discards the output of a program that is not part of the image.
pub(crate) fn pass_over(mut output: impl Read) -> Result<(), Error> {
    io::copy(&mut output, &mut io::sink())?;
    Ok(())
}
