//! Requests to start a process, and the plan made from one.

use super::plain;
use crate::environment::Variables;
use crate::http::Error;
use crate::instance::Instance;
use crate::program::{self, USUAL_PATH};
use crate::settings::User;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const NAME_CHARS_MAX: usize = 255;
/// What the kernel takes as one argument, without the byte 0 at its end.
const COMMAND_BYTES_MAX: usize = (128 << 10) - 1;
const PORTS_MAX: usize = 64;
/// Default run time in seconds of a process with `keepAlive`.
const KEEP_ALIVE_S: u64 = 600;
/// Ten years. A longer time-out counts as this, because no clock could represent its end.
const TIMEOUT_S_MAX: u64 = 10 * 365 * 24 * 60 * 60;
/// Default time that `waitForPorts` waits.
const PORTS_WAIT: Duration = Duration::from_secs(60);

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Ask {
    pub(crate) command: String,
    pub(crate) name: Option<String>,
    pub(crate) working_dir: Option<String>,
    pub(crate) env: Option<BTreeMap<String, String>>,
    pub(crate) wait_for_completion: Option<bool>,
    /// Seconds. Limits the wait or, with `keepAlive`, the run time.
    pub(crate) timeout: Option<i64>,
    pub(crate) wait_for_ports: Option<Vec<u16>>,
    pub(crate) restart_on_failure: Option<bool>,
    /// Negative means without limit.
    pub(crate) max_restarts: Option<i64>,
    pub(crate) keep_alive: Option<bool>,
    /// Whether requests may write to its standard input.
    pub(crate) stdin: Option<bool>,
}

/// What a request waits for after starting a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wait {
    Nothing,
    Completion { within: Option<Duration> },
    Ports { ports: Vec<u16>, within: Duration },
}

impl Wait {
    /// Returns the same wait, limited to `longest`.
    pub(super) fn within(self, longest: Duration) -> Self {
        match self {
            Self::Nothing => Self::Nothing,
            Self::Completion { within } => Self::Completion {
                within: Some(within.map_or(longest, |asked| asked.min(longest))),
            },
            Self::Ports { ports, within } => Self::Ports { ports, within: within.min(longest) },
        }
    }
}

/// Everything that a start, and each restart, needs to know.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) command: String,
    #[serde(with = "super::byte_strings::path")]
    pub(crate) working_dir: PathBuf,
    pub(crate) keep_alive: bool,
    pub(crate) restart_on_failure: bool,
    pub(crate) max_restarts: i64,
    /// Whether requests may write to its standard input, which is empty otherwise.
    #[serde(default)]
    pub(crate) takes_input: bool,
    /// The process is killed after this time.
    pub(crate) life: Option<Duration>,
    pub(super) program: OsString,
    pub(super) arguments: Vec<OsString>,
    /// Whether the command is started directly because it needs no shell. If it cannot be executed,
    /// the shell gets it after all.
    #[serde(default)]
    pub(super) is_plain: bool,
    /// The environment of all processes.
    #[serde(with = "super::byte_strings::shared_pairs")]
    pub(super) environment: Arc<Variables>,
    /// Additional variables of this process, which take precedence.
    #[serde(with = "super::byte_strings::pairs")]
    pub(super) own_environment: Variables,
    pub(super) user: Option<User>,
}

/// Name of the process that an image starts.
const ENTRYPOINT: &str = "entrypoint";

impl Plan {
    /// Plans the program that the image itself starts, without a shell, because an image need not
    /// have one.
    pub(crate) fn of_image(instance: &Instance, words: &[String]) -> Option<Self> {
        let (program, arguments) = words.split_first()?;
        let command = words.join(" ");
        let asked =
            Ask { command: command.clone(), name: Some(ENTRYPOINT.to_owned()), ..Ask::default() };
        let plan = asked.plan_without_program(instance).ok()?;
        Some(Self {
            program: program.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            ..plan
        })
    }

    /// Plans a program with its arguments, without a shell, or says why it cannot be started.
    pub(crate) fn of_words(instance: &Instance, words: &[String]) -> Result<Self, String> {
        let Some((program, arguments)) = words.split_first() else {
            return Err(
                "there is nothing to start: neither the image nor the arguments name a program"
                    .to_owned(),
            );
        };
        let asked =
            Ask { command: program.clone(), name: Some(ENTRYPOINT.to_owned()), ..Ask::default() };
        let plan = asked.plan_without_program(instance).map_err(|error| error.to_string())?;
        let program = program::find(program.as_ref(), plan.path(), &plan.working_dir)
            .map_err(|_| format!("there is no program `{}` on the path", plan.command))?;
        Ok(Self {
            program: program.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            ..plan
        })
    }

    #[cfg(test)]
    pub(super) fn for_tests(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            command: String::new(),
            working_dir: PathBuf::new(),
            keep_alive: false,
            restart_on_failure: false,
            max_restarts: 0,
            takes_input: false,
            life: None,
            program: OsString::new(),
            arguments: Vec::new(),
            is_plain: false,
            environment: Arc::default(),
            own_environment: Variables::default(),
            user: None,
        }
    }

    pub(crate) fn set_variable(&mut self, name: &str, value: &str) {
        self.own_environment.insert(name.into(), value.into());
    }

    pub(crate) fn program(&self) -> &Path {
        Path::new(&self.program)
    }

    /// Returns the environment of the process.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        let own = &self.own_environment;
        self.environment.iter().filter(|(name, _)| !own.contains_key(*name)).chain(own)
    }

    /// Returns the search path for its programs.
    pub(super) fn path(&self) -> &OsStr {
        let name = OsStr::new("PATH");
        let path = self.own_environment.get(name).or_else(|| self.environment.get(name));
        path.map_or(USUAL_PATH.as_ref(), OsString::as_os_str)
    }

    /// Returns the shell, with its arguments for the command.
    pub(super) fn by_shell(&self, instance: &Instance) -> (OsString, Vec<OsString>) {
        let options = variable(instance, "SHELL_ARGS").unwrap_or_else(|| "-c".into());
        let options = options.to_string_lossy();
        let arguments = options.split_whitespace().chain([self.command.as_str()]);
        let arguments = arguments.map(OsString::from).collect();
        let shell =
            variable(instance, "SHELL").unwrap_or_else(|| instance.shell.path(&self.environment));
        (shell, arguments)
    }

    /// Returns the program and its arguments if a shell would add nothing. If the image asks for a
    /// shell of its own, that is used.
    fn without_shell(&self, instance: &Instance) -> Option<(OsString, Vec<OsString>)> {
        let asks_for_shell =
            ["SHELL", "SHELL_ARGS"].iter().any(|name| variable(instance, name).is_some());
        let variables = [&*self.environment, &self.own_environment];
        let words = plain::words(&self.command)
            .filter(|_| !asks_for_shell && plain::pass_through(variables))?;
        let (program, arguments) = words.split_first()?;
        Some((program.into(), arguments.iter().map(OsString::from).collect()))
    }

    /// Completes the plan with its command, run by the shell or, where that makes no difference,
    /// directly.
    fn with_command(mut self, instance: &Instance) -> Self {
        if let Some((program, arguments)) = self.without_shell(instance) {
            let directory = self.shown_directory();
            self.own_environment.insert("PWD".into(), directory);
            return Self { program, arguments, is_plain: true, ..self };
        }
        let (program, arguments) = self.by_shell(instance);
        Self { program, arguments, ..self }
    }

    /// Returns the value of `PWD` that a shell would set: the path in the environment if it leads
    /// here, else the path without links.
    fn shown_directory(&self) -> OsString {
        let place = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).ok();
        let variables = [&self.own_environment, &*self.environment];
        let told = variables.into_iter().find_map(|variables| variables.get(OsStr::new("PWD")));
        let told = told.filter(|path| {
            let path = Path::new(path);
            path.is_absolute()
                && place(path).is_some_and(|there| Some(there) == place(&self.working_dir))
        });
        let real = || self.working_dir.canonicalize().unwrap_or_else(|_| self.working_dir.clone());
        told.cloned().unwrap_or_else(|| real().into())
    }
}

/// Returns a variable of all processes if it is not empty.
fn variable(instance: &Instance, name: &str) -> Option<OsString> {
    instance.variable(name).filter(|value| !value.is_empty())
}

impl Ask {
    pub(crate) fn keeps_alive(&self) -> bool {
        self.keep_alive.unwrap_or(false)
    }

    pub(crate) fn wait(&self) -> Wait {
        let given = self
            .timeout
            .and_then(|seconds| u64::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0);
        // With `keepAlive`, the time-out ends the process itself, and with it the wait.
        let within = given.filter(|_| !self.keeps_alive()).map(seconds);
        match (self.wait_for_completion, &self.wait_for_ports) {
            (Some(true), _) => Wait::Completion { within },
            (_, Some(ports)) if !ports.is_empty() => {
                Wait::Ports { ports: ports.clone(), within: within.unwrap_or(PORTS_WAIT) }
            }
            _ => Wait::Nothing,
        }
    }

    pub(crate) fn plan(self, instance: &Instance) -> Result<Plan, Error> {
        Ok(self.plan_without_program(instance)?.with_command(instance))
    }

    /// Plans everything but the program.
    fn plan_without_program(self, instance: &Instance) -> Result<Plan, Error> {
        self.check(instance)?;
        let life = self.life();
        let environment = instance.environment();
        let mut own: Variables = self
            .env
            .unwrap_or_default()
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        for (name, usual) in instance.lacking_in(&environment) {
            own.entry(name).or_insert(usual);
        }
        Ok(Plan {
            name: self
                .name
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| random_name(instance)),
            working_dir: working_dir(instance, self.working_dir.as_deref())?,
            command: self.command,
            keep_alive: self.keep_alive.unwrap_or(false),
            restart_on_failure: self.restart_on_failure.unwrap_or(false),
            max_restarts: self.max_restarts.unwrap_or(if self.restart_on_failure == Some(true) {
                -1
            } else {
                0
            }),
            takes_input: self.stdin.unwrap_or(false),
            life,
            program: OsString::new(),
            arguments: Vec::new(),
            is_plain: false,
            environment,
            own_environment: own,
            user: instance.settings.user.clone(),
        })
    }

    fn check(&self, instance: &Instance) -> Result<(), Error> {
        let refuse = |why: &str| Err(Error::BadRequest(why.to_owned()));
        let variables = || self.env.iter().flatten();
        if self.command.trim().is_empty() {
            return refuse("`command` is required");
        }
        if self.command.len() > COMMAND_BYTES_MAX {
            return refuse(
                "`command` is longer than a shell could be given; write it to a file and run that",
            );
        }
        if self.command.contains('\0') || variables().any(|(_, value)| value.contains('\0')) {
            return refuse("a command and its environment cannot hold the byte 0");
        }
        if variables().any(|(name, _)| name.is_empty() || name.contains(['=', '\0'])) {
            return refuse("an environment variable has a name that is none");
        }
        if self.name.as_ref().is_some_and(|name| name.chars().count() > NAME_CHARS_MAX) {
            return refuse("`name` is too long");
        }
        if self.wait_for_ports.as_ref().is_some_and(|ports| ports.len() > PORTS_MAX) {
            return refuse("`waitForPorts` lists too many ports");
        }
        if self.keeps_alive() && instance.settings.keep_alive_disabled {
            return refuse("`keepAlive` is disabled for this sandbox");
        }
        Ok(())
    }

    fn life(&self) -> Option<Duration> {
        let seconds = match self.timeout {
            _ if !self.keeps_alive() => None,
            Some(0) => None,
            Some(seconds) => Some(u64::try_from(seconds).unwrap_or(KEEP_ALIVE_S)),
            None => Some(KEEP_ALIVE_S),
        };
        seconds.map(self::seconds)
    }
}

fn seconds(asked: u64) -> Duration {
    Duration::from_secs(asked.min(TIMEOUT_S_MAX))
}

fn random_name(instance: &Instance) -> String {
    format!("proc-{}", instance.world.random_text(8))
}

fn working_dir(instance: &Instance, asked: Option<&str>) -> Result<PathBuf, Error> {
    let asked = asked.unwrap_or_default();
    let path = match asked.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'))
    {
        Some(rest) => instance.home().join(rest.trim_start_matches('/')),
        None if asked.is_empty() => instance.settings.workdir.clone(),
        None => instance.settings.workdir.join(asked),
    };
    match path.is_dir() {
        true => Ok(path),
        false => Err(Error::Unprocessable(format!(
            "the working directory '{}' does not exist",
            path.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    #[test]
    fn any_time_out_ends_at_a_time_that_a_clock_can_represent() {
        let ask = |keeps_alive| Ask {
            timeout: Some(i64::MAX),
            wait_for_completion: Some(true),
            keep_alive: Some(keeps_alive),
            ..Ask::default()
        };
        let Wait::Completion { within: Some(within) } = ask(false).wait() else {
            panic!("no wait")
        };
        let life = ask(true).life().unwrap();
        for time in [within, life] {
            assert!(Instant::now().checked_add(time).is_some(), "{time:?}");
        }
    }
}
