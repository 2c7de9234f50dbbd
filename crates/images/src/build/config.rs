//! The configuration of an image that is being built, and the instructions that change it without
//! making files.

use super::budget::Budget;
use super::instruction::{Command, Healthcheck, Instruction};
use super::scope::Scope;
use super::words;
use crate::digest::Digest;
use crate::manifest::{Platform, RootFs};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const PORTS_MAX: usize = 1_024;
/// Most bytes of the names and values of labels, variables and ONBUILD instructions together, and
/// of the arguments of a stage, counting [`ENTRY_BYTES`] for each.
pub(super) const TEXT_BYTES_MAX: usize = 1 << 20;
/// What an entry costs besides its text. It keeps them to a number that can be searched one by one.
pub(super) const ENTRY_BYTES: usize = 64;

/// The configuration as it is stored, with the members that other programs read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Document {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    #[serde(default)]
    pub architecture: String,
    #[serde(default)]
    pub os: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub config: Process,
    pub(crate) rootfs: RootFs,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub history: Vec<Happened>,
}

/// How programs of the image are run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Process {
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "String::is_empty")]
    pub user: String,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "BTreeMap::is_empty")]
    pub exposed_ports: BTreeMap<String, Empty>,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cmd: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthcheck: Option<Check>,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "BTreeMap::is_empty")]
    pub volumes: BTreeMap<String, Empty>,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "String::is_empty")]
    pub working_dir: String,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub on_build: Vec<String>,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "String::is_empty")]
    pub stop_signal: String,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub shell: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Check {
    #[serde(deserialize_with = "null_is_empty")]
    pub test: Vec<String>,
    #[serde(skip_serializing_if = "is_zero")]
    pub interval: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub timeout: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub start_period: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub start_interval: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub retries: i64,
}

/// One entry of an image's history.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Happened {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub created_by: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub comment: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub empty_layer: bool,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// Reads `null` as empty, because that is how Go writes empty values.
fn null_is_empty<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    input: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

impl Document {
    /// Returns the configuration of an image that starts from nothing.
    pub(super) fn scratch() -> Self {
        let here = Platform::here();
        Self {
            created: None,
            author: None,
            architecture: here.architecture,
            os: here.os,
            variant: None,
            config: Process { env: vec![DEFAULT_PATH.to_owned()], ..Process::default() },
            rootfs: RootFs { kind: "layers".to_owned(), diff_ids: Vec::new() },
            history: Vec::new(),
        }
    }

    /// Adds entries for unknown steps, because other programs expect as many history entries with
    /// files as there are layers.
    pub(super) fn complete_history(&mut self) {
        let told = self.history.iter().filter(|step| !step.empty_layer).count();
        let missing = self.rootfs.diff_ids.len().saturating_sub(told);
        let unknown = Happened { created_by: "unknown".to_owned(), ..Happened::default() };
        self.history.splice(0..0, std::iter::repeat_n(unknown, missing));
    }
}

/// What an instruction that makes no files may change.
pub(super) struct Change<'a> {
    pub(super) document: &'a mut Document,
    pub(super) arguments: &'a BTreeMap<String, String>,
    pub(super) escape: char,
    pub(super) budget: Budget,
    /// Whether this stage has set a command of its own, which a new entry point then leaves alone.
    pub(super) has_cmd: &'a mut bool,
}

impl Change<'_> {
    fn value(&self, text: &str) -> Result<String, String> {
        words::value(text, self.escape, &self.scope(), &self.budget)
    }

    fn scope(&self) -> Scope<'_> {
        Scope { environment: &self.document.config.env, arguments: self.arguments }
    }

    /// Applies an instruction that changes only the configuration. Returns `false` for one that
    /// makes files.
    pub(super) fn apply(&mut self, instruction: &Instruction) -> Result<bool, String> {
        match instruction {
            Instruction::Env(pairs) => self.set_environment(pairs)?,
            Instruction::Label(pairs) => {
                for (name, value) in pairs {
                    let (name, value) = (self.value(name)?, self.value(value)?);
                    self.document.config.labels.insert(name, value);
                }
            }
            Instruction::User(text) => self.document.config.user = self.value(text)?,
            Instruction::Expose(text) => self.expose(text)?,
            Instruction::Volume(paths) => {
                for path in paths {
                    let path = self.value(path)?;
                    if path.is_empty() {
                        return Err("VOLUME names an empty path".to_owned());
                    }
                    self.document.config.volumes.insert(path, Empty {});
                }
            }
            Instruction::Entrypoint(command) => {
                self.document.config.entrypoint = self.words(command);
                if !*self.has_cmd {
                    self.document.config.cmd = None;
                }
            }
            Instruction::Cmd(command) => {
                self.document.config.cmd = self.words(command);
                *self.has_cmd = true;
            }
            Instruction::Shell(words) => self.document.config.shell.clone_from(words),
            Instruction::StopSignal(text) => {
                self.document.config.stop_signal = self.signal(text)?
            }
            Instruction::Healthcheck(check) => {
                self.document.config.healthcheck = Some(self.check(check.as_ref()));
            }
            Instruction::OnBuild(text) => self.document.config.on_build.push(text.clone()),
            Instruction::Maintainer(text) => self.document.author = Some(text.clone()),
            Instruction::From(_)
            | Instruction::Arg(_)
            | Instruction::Run(_)
            | Instruction::Copy(_)
            | Instruction::Add(_)
            | Instruction::Workdir(_) => return Ok(false),
        }
        self.check_size()?;
        Ok(true)
    }

    /// Sets variables. All values are expanded with the environment from before the instruction.
    fn set_environment(&mut self, pairs: &[(String, String)]) -> Result<(), String> {
        let pairs = pairs.iter().map(|(name, value)| Ok((self.value(name)?, self.value(value)?)));
        for (name, value) in pairs.collect::<Result<Vec<_>, String>>()? {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(format!("`{}` cannot name a variable", name.escape_debug()));
            }
            let entry = format!("{name}={value}");
            let environment = &mut self.document.config.env;
            let same =
                |known: &&mut String| known.split_once('=').is_some_and(|(known, _)| known == name);
            match environment.iter_mut().find(same) {
                Some(known) => *known = entry,
                None => environment.push(entry),
            }
        }
        Ok(())
    }

    fn expose(&mut self, text: &str) -> Result<(), String> {
        for port in words::values(text, self.escape, &self.scope(), &self.budget)? {
            let (numbers, protocol) = port.split_once('/').unwrap_or((&port, "tcp"));
            let protocol = protocol.to_ascii_lowercase();
            let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
            let wrong = || format!("`{port}` is not a port such as 80, 53/udp or 8000-8010");
            let (first, last): (u16, u16) =
                (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
            if !matches!(protocol.as_str(), "tcp" | "udp" | "sctp") || first == 0 || last < first {
                return Err(wrong());
            }
            let ports = &mut self.document.config.exposed_ports;
            ports.extend((first..=last).map(|number| (format!("{number}/{protocol}"), Empty {})));
            if ports.len() > PORTS_MAX {
                return Err(format!("more than {PORTS_MAX} ports are exposed"));
            }
        }
        Ok(())
    }

    fn words(&self, command: &Command) -> Option<Vec<String>> {
        match command {
            Command::Exec(words) => Some(words.clone()),
            Command::Shell(text) if text.is_empty() => None,
            Command::Shell(text) => {
                Some(self.shell().iter().cloned().chain([text.clone()]).collect())
            }
        }
    }

    fn shell(&self) -> Vec<String> {
        shell(&self.document.config)
    }

    fn signal(&self, text: &str) -> Result<String, String> {
        let signal = self.value(text)?;
        let plain = |sign: char| sign.is_ascii_alphanumeric() || "+-".contains(sign);
        match signal.is_empty() || !signal.chars().all(plain) {
            true => Err(format!("`{}` is no signal", signal.escape_debug())),
            false => Ok(signal),
        }
    }

    fn check(&self, check: Option<&Healthcheck>) -> Check {
        let Some(check) = check else {
            return Check { test: vec!["NONE".to_owned()], ..Check::default() };
        };
        let test = match &check.command {
            Command::Exec(words) => [vec!["CMD".to_owned()], words.clone()].concat(),
            Command::Shell(text) => vec!["CMD-SHELL".to_owned(), text.clone()],
        };
        Check {
            test,
            interval: check.interval,
            timeout: check.timeout,
            start_period: check.start_period,
            start_interval: check.start_interval,
            retries: check.retries,
        }
    }

    fn check_size(&self) -> Result<(), String> {
        let config = &self.document.config;
        let labels = config.labels.iter().map(|(name, value)| name.len() + value.len());
        let volumes = config.volumes.keys().map(String::len);
        let lists = [&config.env, &config.on_build].into_iter().flatten().map(String::len);
        let all = labels.chain(volumes).chain(lists);
        match all.map(|bytes| bytes + ENTRY_BYTES).sum::<usize>() > TEXT_BYTES_MAX {
            true => {
                Err(format!("variables, labels and volumes have more than {TEXT_BYTES_MAX} bytes"))
            }
            false => Ok(()),
        }
    }
}

/// Returns the shell that runs commands written in shell form.
pub(super) fn shell(config: &Process) -> Vec<String> {
    match config.shell.is_empty() {
        true => vec!["/bin/sh".to_owned(), "-c".to_owned()],
        false => config.shell.clone(),
    }
}

/// Resolves a path against a working directory, without `.`, `..` and doubled separators.
pub(super) fn absolute(workdir: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let whole = match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("{workdir}/{path}"),
    };
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

impl Document {
    pub(super) fn layers(&self) -> &[Digest] {
        &self.rootfs.diff_ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(text: &str) -> Result<Document, String> {
        let mut document = Document::scratch();
        document.config.cmd = Some(vec!["of the base".into()]);
        let (mut has_cmd, arguments) = (false, BTreeMap::from([("ARG".into(), "x y".into())]));
        for statement in super::super::lines::read(text).unwrap().statements {
            let step =
                super::super::instruction::read(statement, '\\').map_err(|mistake| mistake.why)?;
            let mut change = Change {
                document: &mut document,
                arguments: &arguments,
                escape: '\\',
                budget: Budget::default(),
                has_cmd: &mut has_cmd,
            };
            change.apply(&step.instruction)?;
        }
        Ok(document)
    }

    #[test]
    fn values_of_one_instruction_are_those_of_before_it() {
        let config = applied("ENV A=1\nENV A=2 B=$A C=\"${ARG}\" PATH=/x:$PATH").unwrap().config;
        let path = format!("PATH=/x:{}", &DEFAULT_PATH[5..]);
        assert_eq!(config.env, [path.as_str(), "A=2", "B=1", "C=x y"]);
        assert!(applied("ENV $MISSING=1").is_err());
    }

    #[test]
    fn an_entry_point_removes_the_command_of_the_base() {
        assert_eq!(applied("ENTRYPOINT x").unwrap().config.cmd, None);
        let config =
            applied("CMD [\"a\"]\nSHELL [\"/bin/bash\",\"-c\"]\nENTRYPOINT x y").unwrap().config;
        assert_eq!(config.cmd, Some(vec!["a".into()]));
        assert_eq!(config.entrypoint, Some(vec!["/bin/bash".into(), "-c".into(), "x y".into()]));
    }

    #[test]
    fn ports_and_signals_are_checked() {
        let config = applied("EXPOSE 80 53/UDP 8000-8002\nSTOPSIGNAL SIGINT").unwrap().config;
        let ports: Vec<&str> = config.exposed_ports.keys().map(String::as_str).collect();
        assert_eq!(ports, ["53/udp", "80/tcp", "8000/tcp", "8001/tcp", "8002/tcp"]);
        for bad in ["EXPOSE x", "EXPOSE 0", "EXPOSE 70000", "EXPOSE 9-8", "EXPOSE 1-65535"] {
            assert!(applied(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn many_copies_of_a_large_value_are_refused() {
        let large = "x".repeat(1 << 16);
        for name in ["ENV", "LABEL"] {
            let pairs: String = (0..1 << 10).map(|number| format!(" A{number}=$L")).collect();
            let why = applied(&format!("ENV L={large}\n{name}{pairs}")).unwrap_err();
            assert!(why.contains("of one instruction"), "{why}");
        }
        let many: String = (0..1 << 15).map(|number| format!(" A{number}=")).collect();
        assert!(applied(&format!("LABEL{many}")).is_err());
    }

    #[test]
    fn paths_are_seen_from_the_working_directory() {
        for (workdir, path, wanted) in [
            ("/", "a", "/a"),
            ("/a", "../../b/./c//", "/b/c"),
            ("", "x", "/x"),
            ("/a/b", "/c", "/c"),
            ("/a", "..", "/"),
        ] {
            assert_eq!(absolute(workdir, path), wanted);
        }
    }
}
