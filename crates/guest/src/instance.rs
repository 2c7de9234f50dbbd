//! The instance that this program is in: its settings, the environment of its processes, and what
//! starts them.

use crate::environment::{Environment, Variables};
use crate::program::USUAL_PATH;
use crate::reaper::Reaper;
use crate::settings::Settings;
use crate::shell::Shell;
use parking_lot::Mutex;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use types::World;

pub(crate) struct Instance {
    pub(crate) world: World,
    pub(crate) settings: Settings,
    pub(crate) environment: Mutex<Environment>,
    /// The shell that runs the commands of processes.
    pub(crate) shell: Shell,
    pub(crate) reaper: Arc<Reaper>,
}

impl Instance {
    pub(crate) fn new(world: World, settings: Settings, reaper: Arc<Reaper>) -> Self {
        let environment = Mutex::new(Environment::new(settings.environment.clone()));
        Self { world, settings, environment, shell: Shell::default(), reaper }
    }

    /// Returns the environment for a process that is started now.
    pub(crate) fn environment(&self) -> Arc<Variables> {
        self.environment.lock().all()
    }

    pub(crate) fn variable(&self, name: &str) -> Option<OsString> {
        self.environment.lock().get(name)
    }

    /// Returns the folder that `~` stands for.
    pub(crate) fn home(&self) -> PathBuf {
        let of_user = || self.settings.user.as_ref().and_then(|user| user.home.clone());
        self.variable("HOME").map(PathBuf::from).or_else(of_user).unwrap_or_else(|| "/root".into())
    }
    /// Returns the variables that programs rely on, as far as an environment does not have them.
    pub(crate) fn lacking_in(&self, environment: &Variables) -> Variables {
        let usual = [("HOME", self.home().into()), ("PATH", OsString::from(USUAL_PATH))];
        let lacks = |(name, _): &(&str, OsString)| !environment.contains_key(OsStr::new(name));
        usual.into_iter().filter(lacks).map(|(name, value)| (name.into(), value)).collect()
    }
}
