//! The program of a project: what to run, and its processes.

use crate::error::Error;
use crate::project::manifest::Manifest;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// How long programs have to end once asked.
const GRACE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);

/// Returns the shell command: what `blaxel.toml` says, or what the files in the folder suggest.
pub(super) fn line(folder: &Path, manifest: &Manifest) -> Result<String, Error> {
    let entry = &manifest.entrypoint;
    if let Some(line) = entry.dev.as_ref().or(entry.prod.as_ref()) {
        return Ok(line.clone());
    }
    let has = |name: &str| folder.join(name).is_file();
    if has("package.json")
        && let Some(script) = script(&folder.join("package.json"))
    {
        return Ok(format!("npm run --silent {script}"));
    }
    let python = if has(".venv/bin/python") { ".venv/bin/python" } else { "python3" };
    let candidates = [
        ("main.py", python),
        ("app.py", python),
        ("src/main.py", python),
        ("main.js", "node"),
        ("index.js", "node"),
        ("src/index.js", "node"),
    ];
    let found = candidates.into_iter().find(|(file, _)| has(file));
    found.map(|(file, program)| format!("{program} {file}")).ok_or_else(|| {
        let message = format!(
            "nothing says what to run in {}: set `[entrypoint] dev = \"…\"` in blaxel.toml",
            folder.display()
        );
        Error::Absent(message)
    })
}

/// Returns the first of the usual scripts that a package has.
fn script(file: &Path) -> Option<&'static str> {
    let text = std::fs::read_to_string(file).ok()?;
    let package: serde_json::Value = serde_json::from_str(&text).ok()?;
    ["dev", "start", "prod"].into_iter().find(|name| package["scripts"].get(name).is_some())
}

/// A program and all its children, as one process group.
pub(super) struct Group {
    child: Child,
    id: Option<Pid>,
}

impl Group {
    pub(super) fn start(
        line: &str,
        folder: &Path,
        variables: &BTreeMap<String, String>,
    ) -> Result<Self, Error> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(line).current_dir(folder).envs(variables).stdin(Stdio::null());
        // In a group of its own, so that Ctrl-C reaches only this program, which then ends the
        // group cleanly.
        let child = command.process_group(0).spawn().map_err(Error::io(format!("run `{line}`")))?;
        let id = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(Self { child, id })
    }

    pub(super) async fn ended(&mut self) -> Result<ExitStatus, Error> {
        self.child.wait().await.map_err(Error::io("wait for the program"))
    }

    /// Asks all processes of the group to end, and kills those that do not in time.
    pub(super) async fn end(mut self) {
        let Some(id) = self.id else { return };
        // A group that is gone needs no signal.
        let _ = kill_process_group(id, Signal::TERM);
        let until = Instant::now() + GRACE;
        let _ = timeout(GRACE, self.child.wait()).await;
        gone(id, until).await;
        let _ = kill_process_group(id, Signal::KILL);
        let _ = self.child.wait().await;
        gone(id, Instant::now() + GRACE).await;
    }
}

/// Waits until the group is gone, but no longer than `until`.
async fn gone(id: Pid, until: Instant) {
    while test_kill_process_group(id).is_ok() && Instant::now() < until {
        sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_runs_is_said_or_found() {
        let place = tempfile::tempdir().unwrap();
        let found = |text: &str| {
            line(place.path(), &Manifest::parse(text).unwrap()).map_err(|error| error.to_string())
        };
        assert!(found("").unwrap_err().contains("entrypoint"));
        fs::write(place.path().join("main.py"), "").unwrap();
        assert_eq!(found("").unwrap(), "python3 main.py");
        let package = r#"{"scripts": {"start": "node x"}}"#;
        fs::write(place.path().join("package.json"), package).unwrap();
        assert_eq!(found("").unwrap(), "npm run --silent start");
        assert_eq!(found("[entrypoint]\nprod = 'a'").unwrap(), "a");
        assert_eq!(found("[entrypoint]\nprod = 'a'\ndev = 'b'").unwrap(), "b");
    }
}
