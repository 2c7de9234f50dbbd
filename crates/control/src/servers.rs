//! Where callers reach the servers of this installation. Requests to a workload are answered by the
//! server on whose machine it runs, so the address of a workload is one of that server.

use crate::control::{Control, Inner};
use crate::settings::Settings;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;
use store::{Error, Store, Tx, settings, usage};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// What the names of the stored values begin with; the machine's name follows.
const PREFIX: &str = "urls/";
/// How often a server looks for others.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// More servers than an installation has. Those beyond are taken for unknown ones.
const SERVERS_MAX: i64 = 10_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Urls {
    public: String,
    content: String,
}

/// The URLs of the servers by machine, as they were when this server last looked.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    known: RwLock<HashMap<String, Urls>>,
    /// Told when they have changed, for whoever has published them elsewhere.
    pub(crate) changed: Notify,
}

/// Tells the other servers where callers reach this one.
pub(crate) fn announce(tx: &mut Tx<'_>, machine: &str, own: &Settings) -> Result<(), Error> {
    let urls = Urls { public: own.public_url.clone(), content: own.content_url.clone() };
    let text =
        serde_json::to_string(&urls).map_err(|error| Error::corrupt("settings", machine, error))?;
    settings::set(tx, &format!("{PREFIX}{machine}"), &text)
}

/// Returns the machines that a database knows, those seen last first: no row names another one, and
/// nothing is launched or kept on a machine before the database knows it.
pub fn known_machines(tx: &mut Tx<'_>) -> Result<Vec<String>, Error> {
    let mut known = usage::machines(tx)?;
    // It may not have been seen yet.
    for name in settings::names(tx, PREFIX, "", SERVERS_MAX)? {
        let machine = name.strip_prefix(PREFIX).unwrap_or(&name);
        if !known.iter().any(|other| other == machine) {
            known.push(machine.to_owned());
        }
    }
    Ok(known)
}

impl Servers {
    /// Reads them. Returns whether they are not what they were.
    pub(crate) async fn look(&self, store: &Store) -> Result<bool, Error> {
        let found = store.read(read_all).await?;
        let differs = *self.known.read() != found;
        if differs {
            *self.known.write() = found;
        }
        Ok(differs)
    }

    /// Returns whether there are servers with machines besides this one, if this one has none.
    pub(crate) fn has_others(&self) -> bool {
        !self.known.read().is_empty()
    }

    fn url_at(&self, machine: &str, url: fn(Urls) -> String) -> Option<String> {
        self.known.read().get(machine).cloned().map(url)
    }
}

fn read_all(tx: &mut Tx<'_>) -> Result<HashMap<String, Urls>, Error> {
    let mut all = HashMap::new();
    for (name, text) in settings::all(tx, PREFIX, SERVERS_MAX)? {
        let urls = serde_json::from_str(&text)
            .map_err(|error| Error::corrupt("settings", name.as_str(), error))?;
        let machine = name.strip_prefix(PREFIX).unwrap_or(&name);
        all.insert(machine.to_owned(), urls);
    }
    Ok(all)
}

impl Inner {
    /// Returns where callers reach the server on this machine. Its own address stands for a server
    /// that has not said, and for what has no machine yet.
    pub(crate) fn public_url_at(&self, machine: Option<&str>) -> Cow<'_, str> {
        self.url_elsewhere(machine, |urls| urls.public)
            .map_or(Cow::Borrowed(&self.settings.public_url), Cow::Owned)
    }

    /// The same for what workspaces serve.
    pub(crate) fn content_url_at(&self, machine: Option<&str>) -> Cow<'_, str> {
        self.url_elsewhere(machine, |urls| urls.content)
            .map_or(Cow::Borrowed(&self.settings.content_url), Cow::Owned)
    }

    /// Says why this server does not answer for what runs on another machine.
    pub(crate) fn runs_elsewhere(&self, machine: &str) -> String {
        format!("runs on another machine of this installation: ask {}", self.server_of(machine))
    }

    /// Says why this server cannot use what another machine keeps, or none does yet.
    pub(crate) fn kept_elsewhere(&self, machine: Option<&str>) -> String {
        let Some(machine) = machine else { return "is not on any machine yet".to_owned() };
        format!("is kept by another machine of this installation: ask {}", self.server_of(machine))
    }

    /// Names the server of another machine.
    fn server_of(&self, machine: &str) -> String {
        let url = self.url_elsewhere(Some(machine), |urls| urls.public);
        let url = url.filter(|url| *url != self.settings.public_url);
        url.unwrap_or_else(|| "its server".to_owned())
    }

    fn url_elsewhere(&self, machine: Option<&str>, url: fn(Urls) -> String) -> Option<String> {
        let machine = machine.filter(|name| !self.is_here(name))?;
        self.servers.url_at(machine, url)
    }

    pub(crate) fn is_here(&self, machine: &str) -> bool {
        self.machine.as_ref().is_some_and(|own| own.name() == machine)
    }
}

/// Notices servers that join, and those that are reached elsewhere than before.
pub(crate) async fn run(control: Control, ending: CancellationToken) {
    let mut is_failing = false;
    while ending.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
        let looked = control.servers.look(&control.store).await;
        if let Ok(true) = looked {
            control.servers.changed.notify_one();
        }
        if let (Err(error), false) = (&looked, is_failing) {
            tracing::warn!(%error, "the addresses of the other servers cannot be read");
        }
        is_failing = looked.is_err();
    }
}
