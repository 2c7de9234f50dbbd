//! The greeting: what a person or a program needs to begin. It is printed on standard output; the
//! first start also writes it to a file that only the owner of the data folder can read. It is
//! stored nowhere else.
//!
//! The file is first written under a temporary name, then one transaction creates what the file
//! describes, and then the file gets its final name. So no key is lost if the server is killed in
//! between: the next start finds either that nothing was created, and begins again, or a file whose
//! key works, and renames it.

use super::addresses::Addresses;
use crate::config::{Config, Role};
use crate::error::Error;
use crate::term::{self, Style};
use auth::setup::{self, FirstStart, Wishes};
use files::Readers;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use store::Store;
use types::World;

const FILE: &str = "first-start.json";

/// Form in which the server prints how to reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Greeting {
    Text,
    Json,
}

/// Says how to reach this server, which serves now.
pub(crate) fn greet(
    config: &Config,
    addresses: &Addresses,
    made: Option<FirstStart>,
    greeting: Greeting,
) {
    let (file, urls) = (Kept::of(&config.data.folder).path, &addresses.urls);
    match (greeting, made) {
        (Greeting::Text, Some(made)) => {
            let runs = config.server.roles.contains(&Role::Node);
            introduce(&made, &urls.public, &file, runs);
        }
        (Greeting::Text, None) => {
            let url = &urls.public;
            term::say(format!("Holm serves {url} (sign in: `holm login --server {url}`)"));
            if file.exists() {
                let file = file.display();
                term::say(format!(
                    "{file} has the first account. Remove it when you have kept it."
                ));
            }
        }
        (Greeting::Json, made) => {
            let (url, content_url, address) = (&urls.public, &urls.content, addresses.own);
            term::say(
                json!({"url": url, "content_url": content_url, "address": address, "first_start": made}),
            );
        }
    }
}

/// Creates the first account. Returns what was created, or `None` if an earlier start did so.
pub(crate) async fn make(
    config: &Config,
    store: &Store,
    world: &World,
) -> Result<Option<FirstStart>, Error> {
    let file = &Kept::of(&config.data.folder);
    let wishes = Wishes {
        region: config.placement.regions.first().map(|region| region.name.clone()),
        ..config.first_start.wishes()
    };
    let failed = |error: auth::Error| Error::Start {
        act: "set up the first account".into(),
        message: error.to_string(),
    };
    let Some(plan) = setup::plan(store, world, wishes).await.map_err(failed)? else {
        settle(store, file).await.map_err(failed)?;
        return Ok(None);
    };
    file.prepare(&plan.first)?;
    if setup::carry_out(store, &plan).await.map_err(failed)? {
        file.confirm()?;
        return Ok(Some(plan.first));
    }
    file.discard();
    Ok(None)
}

/// Renames or removes the file of a start that was interrupted.
async fn settle(store: &Store, file: &Kept) -> Result<(), auth::Error> {
    let Some(made) = file.prepared() else { return Ok(()) };
    if !setup::knows_key(store, &made.api_key).await? {
        file.discard();
    } else if let Err(error) = file.confirm() {
        tracing::warn!(%error, "what the first start made stays under another name; it is renamed at the next start");
    }
    Ok(())
}

/// The file, under its final name and under the temporary one that it has first.
struct Kept {
    path: PathBuf,
    new: PathBuf,
}

impl Kept {
    fn of(folder: &Path) -> Self {
        let path = folder.join(FILE);
        let new = path.with_extension("json.new");
        Self { path, new }
    }

    fn prepare(&self, made: &FirstStart) -> Result<(), Error> {
        let failed = || Error::io(format!("write {}", self.new.display()));
        let mut text = serde_json::to_vec_pretty(made).map_err(|error| failed()(error.into()))?;
        text.push(b'\n');
        files::write_new(&self.new, Readers::Owner, &text).map_err(failed())
    }

    fn prepared(&self) -> Option<FirstStart> {
        serde_json::from_slice(&fs::read(&self.new).ok()?).ok()
    }

    fn confirm(&self) -> Result<(), Error> {
        // That of another database, which this folder had before.
        if self.path.exists() {
            let old = self.path.with_extension("json.old");
            files::rename(&self.path, &old)
                .map_err(Error::io(format!("write {}", old.display())))?;
        }
        files::rename(&self.new, &self.path)
            .map_err(Error::io(format!("write {}", self.path.display())))
    }

    fn discard(&self) {
        if let Err(error) = files::remove(&self.new) {
            tracing::warn!(%error, file = %self.new.display(), "a file without use could not be removed");
        }
    }
}

/// Prints the greeting for a person. `runs` is true if this server runs workloads.
fn introduce(made: &FirstStart, public_url: &str, file: &Path, runs: bool) {
    let bold = |text: &str| term::styled(Style::Bold, text);
    term::say(format!("{} {public_url}\n", bold("Holm serves")));
    term::say("This is shown once. Keep it in a safe place.\n");
    term::say(format!("  account    {}", made.account));
    term::say(format!("  workspace  {}", made.workspace));
    term::say(format!("  sign in    {}  {}", made.email, made.password));
    term::say(format!("  API key    {}\n", made.api_key));
    term::say(format!(
        "{} has the same, for your eyes only. Remove it when you have kept it.\n",
        file.display()
    ));
    term::say(bold("In another shell, in the same folder"));
    term::say(format!(
        "  export BL_API_URL={public_url}/v0 BL_RUN_URL={public_url} BL_DISABLE_H2=1"
    ));
    term::say(format!("  export BL_WORKSPACE={} BL_API_KEY={}\n", made.workspace, made.api_key));
    let holm = program();
    term::say(bold("The command line"));
    term::say(format!("  {holm} get sandboxes"));
    if runs {
        term::say(format!("  {holm} new agent helper && {holm} deploy helper --yes"));
        term::say(format!("  {holm} chat helper --message 'Good day'"));
    }
    term::say("");
    term::say(bold("The published TypeScript client"));
    term::say(format!("  {TRY_IT}\n"));
    term::say(
        "The Python client reads no address from the environment: docs/command-line.md shows what it needs.",
    );
}

/// Returns this program's name as it was called, if a shell needs no quoting for it, else `holm`.
fn program() -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_');
    let called = std::env::args().next().filter(|name| name.chars().all(is_plain));
    called.filter(|name| !name.is_empty()).unwrap_or_else(|| "holm".to_owned())
}

/// A single command that lists the sandboxes; it works as soon as the server answers.
const TRY_IT: &str = "npm install @blaxel/core && node -e 'import(\"@blaxel/core\").then(async b => console.log((await b.SandboxInstance.list()).data))'";
