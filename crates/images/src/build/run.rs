//! Prepares a RUN: its command, its environment and its mounts.

use super::binds::{Binds, Copied};
use super::budget::Budget;
use super::config::shell;
use super::instruction::{Command, Run};
use super::lines::{Heredoc, opened_name};
use super::making::Build;
use super::scope::{PLATFORM_ARGUMENTS, PROXY_ARGUMENTS};
use super::stage::State;
use super::supplies::From;
use super::{Fault, places, words};
use crate::digest::{Digest, Hasher};
use std::path::PathBuf;

const MOUNTS_MAX: usize = 32;
const SCRIPT: &str = "/run/build-script";
const SECRET_MODE: u32 = 0o400;
const SECRETS: &str = "/run/secrets";

/// A command to run, for a caller that has instances.
pub struct RunOrder {
    pub command: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub workdir: String,
    /// The user in the form of USER, which the files of the image know; empty for root.
    pub user: String,
    pub has_network: bool,
    pub mounts: Vec<Mount>,
    /// Folders of the unpacked layers, the lowest first.
    pub layers: Vec<PathBuf>,
    pub(super) key: Digest,
    pub(super) by: String,
    /// What its mounts bind, for as long as the order is there.
    copies: Vec<Copied>,
}

impl RunOrder {
    /// Copies what its mounts bind, which the command needs and its key does not. Fails if a mount
    /// has no place then.
    pub(super) fn copy(&self) -> Result<(), Fault> {
        self.copies.iter().try_for_each(Copied::make)?;
        places::check(&self.mounts)
    }
}

pub struct Mount {
    /// Absolute path.
    pub target: String,
    pub what: What,
}

impl Mount {
    pub(super) fn is_in_memory(&self) -> bool {
        matches!(self.what, What::Empty { .. })
    }
}

pub enum What {
    /// A file or folder of this machine, mounted read-only.
    Bind(PathBuf),
    /// A file that exists only in memory.
    File { content: Vec<u8>, mode: u32, owner: (u32, u32) },
    /// A folder that is kept for the next build that asks for this name.
    Cache { name: String, read_only: bool, mode: u32, owner: (u32, u32) },
    /// An empty folder in memory.
    Empty { size_mb: Option<u32> },
}

/// The options of one `--mount`.
#[derive(Default)]
struct Options {
    kind: String,
    id: Option<String>,
    target: Option<String>,
    source: Option<String>,
    from: Option<String>,
    required: bool,
    read_only: Option<bool>,
    variable: Option<String>,
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    size_mb: Option<u32>,
}

impl Build {
    pub(super) fn order(
        &self,
        state: &State,
        run: &Run,
        by: &str,
        sources: &dyn Fn(&str) -> Result<From, Fault>,
    ) -> Result<RunOrder, Fault> {
        if run.mounts.len() > MOUNTS_MAX {
            return Err(Fault::Sources(format!("a RUN has more than {MOUNTS_MAX} mounts")));
        }
        let mut environment = self.environment(state);
        let mut hasher = Hasher::default();
        hasher.update(self.chain(state, by).to_string().as_bytes());
        for (name, value) in &environment {
            if !PROXY_ARGUMENTS.contains(&name.as_str()) {
                hasher.update(format!("{}={value}\0", name).as_bytes());
            }
        }
        let mut mounts = Vec::new();
        let budget = Budget::default();
        let (bytes_left, entries_left) = (self.limits.step_bytes, self.limits.step_entries);
        let mut binds = Binds { sources, bytes_left, entries_left, copies: Vec::new() };
        for text in &run.mounts {
            let options = options(text, state, &budget).map_err(Fault::Sources)?;
            self.mount(state, options, &mut binds, &mut hasher, &mut mounts, &mut environment)?;
        }
        let command = self.command(state, run, &mut mounts);
        places::sort(&mut mounts);
        for word in &command {
            hasher.update(word.as_bytes());
            hasher.update(b"\0");
        }
        for Heredoc { content, .. } in &run.heredocs {
            hasher.update(content.as_bytes());
        }
        hasher.update(&[u8::from(run.has_network)]);
        // Fails here, with the line, if the image has no such user.
        self.user(state)?;
        Ok(RunOrder {
            command,
            environment,
            workdir: state.workdir().to_owned(),
            user: state.document.config.user.clone(),
            has_network: run.has_network,
            mounts,
            layers: self.paths(state),
            key: hasher.finish(),
            by: by.to_owned(),
            copies: binds.copies,
        })
    }

    /// Returns the environment of the command: that of the image, which overrides the arguments
    /// that the stage has declared.
    fn environment(&self, state: &State) -> Vec<(String, String)> {
        let proxies = PROXY_ARGUMENTS.iter().filter_map(|name| {
            Some(((*name).to_owned(), self.given.arguments.get(*name)?.clone()))
        });
        let mut all: std::collections::BTreeMap<String, String> = proxies.collect();
        let asked = state.arguments.iter();
        all.extend(
            asked
                .filter(|(name, value)| {
                    !value.is_empty() || !PLATFORM_ARGUMENTS.contains(&name.as_str())
                })
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        for entry in &state.document.config.env {
            let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
            all.insert(name.to_owned(), value.to_owned());
        }
        all.into_iter().collect()
    }

    fn command(&self, state: &State, run: &Run, mounts: &mut Vec<Mount>) -> Vec<String> {
        let text = match &run.command {
            Command::Exec(words) => return words.clone(),
            Command::Shell(text) => text,
        };
        let shell = shell(&state.document.config);
        let with = |text: String| shell.iter().cloned().chain([text]).collect();
        let (Some(first), one) = (run.heredocs.first(), run.heredocs.len() == 1) else {
            return with(text.clone());
        };
        let alone = one && opened_name(text).is_some();
        match (alone, first.content.strip_prefix("#!")) {
            // A script, run by the interpreter that its first line names.
            (true, Some(rest)) => {
                let line = rest.lines().next().unwrap_or_default();
                let words = line.trim().splitn(2, char::is_whitespace).map(str::to_owned);
                mounts.push(Mount {
                    target: SCRIPT.to_owned(),
                    what: What::File {
                        content: first.content.clone().into_bytes(),
                        mode: 0o555,
                        owner: (0, 0),
                    },
                });
                words.chain([SCRIPT.to_owned()]).collect()
            }
            (true, None) => with(first.content.clone()),
            (false, _) => {
                let texts = run.heredocs.iter().map(|one| format!("\n{}{}", one.content, one.name));
                with([text.clone()].into_iter().chain(texts).collect())
            }
        }
    }

    fn mount(
        &self,
        state: &State,
        options: Options,
        binds: &mut Binds<'_>,
        hasher: &mut Hasher,
        mounts: &mut Vec<Mount>,
        environment: &mut Vec<(String, String)>,
    ) -> Result<(), Fault> {
        let wrong = |why: &str| Fault::Sources(format!("RUN --mount: {why}"));
        let seen = |path: &str| super::config::absolute(state.workdir(), path);
        let target = options.target.as_deref().map(seen);
        let needed = || target.clone().ok_or_else(|| wrong("it needs a target"));
        let owner = (options.uid.unwrap_or(0), options.gid.unwrap_or(0));
        let what = match options.kind.as_str() {
            "bind" => {
                if options.read_only == Some(false) {
                    return Err(wrong("what is bound can be read only"));
                }
                let (path, digest) = self.bind(&options, binds)?;
                hasher.update(digest.to_string().as_bytes());
                What::Bind(path)
            }
            "cache" if options.from.is_some() || options.source.is_some() => {
                return Err(wrong("a cache begins empty: `from` and `source` are not supported"));
            }
            "cache" => {
                let name = options.id.clone().map_or_else(&needed, Ok)?;
                let mode = options.mode.unwrap_or(0o755);
                let read_only = options.read_only == Some(true);
                What::Cache { name, read_only, mode, owner }
            }
            "tmpfs" => What::Empty { size_mb: options.size_mb },
            "secret" => return self.secret(&options, target, mounts, environment),
            "ssh" => return Err(wrong("there are no keys of SSH for builds")),
            other => return Err(wrong(&format!("there is no type `{other}`"))),
        };
        mounts.push(Mount { target: needed()?, what });
        Ok(())
    }

    fn secret(
        &self,
        options: &Options,
        target: Option<String>,
        mounts: &mut Vec<Mount>,
        environment: &mut Vec<(String, String)>,
    ) -> Result<(), Fault> {
        let named =
            || target.as_deref().and_then(|path| path.rsplit('/').next()).map(str::to_owned);
        let id = options.source.as_ref().or(options.id.as_ref()).cloned();
        let Some(id) = id.or_else(named) else {
            return Err(Fault::Sources("RUN --mount: a secret needs an id".to_owned()));
        };
        let Some(value) = self.given.secrets.get(&id) else {
            return match options.required {
                true => Err(Fault::Sources(format!(
                    "there is no secret `{id}`; secrets of builds are the lines of .env.build"
                ))),
                false => Ok(()),
            };
        };
        if let Some(name) = &options.variable {
            environment.retain(|(known, _)| known != name);
            environment.push((name.clone(), value.clone()));
            if target.is_none() {
                return Ok(());
            }
        }
        let what = What::File {
            content: value.clone().into_bytes(),
            mode: options.mode.unwrap_or(SECRET_MODE),
            owner: (options.uid.unwrap_or(0), options.gid.unwrap_or(0)),
        };
        let target = target.unwrap_or_else(|| super::config::absolute(SECRETS, &id));
        mounts.push(Mount { target, what });
        Ok(())
    }

    fn bind(&self, options: &Options, binds: &mut Binds<'_>) -> Result<(PathBuf, Digest), Fault> {
        let source = options.source.as_deref().unwrap_or("/");
        let from = (binds.sources)(options.from.as_deref().unwrap_or_default())?;
        self.bound(from, source, binds)
    }
}

fn options(text: &str, state: &State, budget: &Budget) -> Result<Options, String> {
    let mut options = Options { kind: "bind".to_owned(), ..Options::default() };
    for part in text.split(',') {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let value = words::value(value.trim(), state.escape, &state.scope(), budget)?;
        let wrong = || format!("RUN --mount: `{part}` means nothing here");
        let number = |radix| u32::from_str_radix(&value, radix).map_err(|_| wrong());
        let truth = || match value.as_str() {
            "" | "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(wrong()),
        };
        match name.trim().to_ascii_lowercase().as_str() {
            "type" => options.kind = value,
            "id" => options.id = Some(value),
            "target" | "dst" | "destination" => options.target = Some(value),
            "source" | "src" => options.source = Some(value),
            "from" => options.from = Some(value),
            "required" => options.required = truth()?,
            "ro" | "readonly" => options.read_only = Some(truth()?),
            "rw" | "readwrite" => options.read_only = Some(!truth()?),
            "env" => options.variable = Some(value),
            "mode" => options.mode = Some(number(8)? & 0o7777),
            "uid" => options.uid = Some(number(10)?),
            "gid" => options.gid = Some(number(10)?),
            "size" => options.size_mb = Some(size_mb(&value).ok_or_else(wrong)?),
            "sharing" if matches!(value.as_str(), "shared" | "private" | "locked") => {}
            _ => return Err(wrong()),
        }
    }
    Ok(options)
}

/// Parses a size in bytes, or with a unit after it, into megabytes.
fn size_mb(text: &str) -> Option<u32> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|sign: char| sign.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    let bytes = match lower[digits.len()..].trim_end_matches('b') {
        "" => number,
        "k" => number.checked_mul(1 << 10)?,
        "m" => number.checked_mul(1 << 20)?,
        "g" => number.checked_mul(1 << 30)?,
        _ => return None,
    };
    u32::try_from(bytes.div_ceil(1 << 20)).ok().map(|mb| mb.max(1))
}
