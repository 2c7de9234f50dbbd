//! `holm serve`: runs a project on this machine.

mod changes;
mod program;

use crate::client::Choice;
use crate::commands::apply::substitute::Secrets;
use crate::error::Error;
use crate::exit::Exit;
use crate::project::manifest::Manifest;
use crate::project::resource::{Deployed, environment};
use crate::signals::Ends;
use crate::term;
use changes::Changes;
use program::Group;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// Runs the project in a folder on this machine
///
/// Runs `[entrypoint] dev` of `blaxel.toml`, or `prod`, or the usual script of `package.json`, or
/// `main.py` or `main.js`. The program gets the variables that it would have on the server (HOST,
/// PORT, BL_NAME, BL_TYPE and BL_WORKSPACE), and those of `[env]` and `.env`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm serve --watch
  holm serve ./helper --port 8080 --env-file .env.local")]
pub(crate) struct Args {
    /// Folder of the project
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Port for the program to listen on
    #[arg(short, long, default_value_t = 1338)]
    port: u16,
    /// Address for the program to listen on
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    /// Restart it whenever a file changes
    #[arg(long, alias = "hotreload")]
    watch: bool,
    /// File of NAME=VALUE lines for the program; by default `.env` in the folder
    #[arg(short, long, value_name = "FILE")]
    env_file: Vec<PathBuf>,
}

pub(crate) async fn run(args: Args, choice: &Choice) -> Result<Exit, Error> {
    if !args.folder.is_dir() {
        return Err(Error::Absent(format!("{} is no folder", args.folder.display())));
    }
    let manifest = Manifest::read(&args.folder)?;
    let variables = variables(&args, &manifest, choice)?;
    let line = program::line(&args.folder, &manifest)?;
    let mut ends = Ends::new()?;
    let mut changes = if args.watch { Some(Changes::new(&args.folder)?) } else { None };
    loop {
        term::note(format!("http://{}:{} runs `{line}`", args.host, args.port));
        let mut group = Group::start(&line, &args.folder, &variables)?;
        let next = attend(&mut group, &mut changes, &mut ends).await;
        group.end().await;
        match next? {
            Next::Again => term::note("a file has changed"),
            Next::End(exit) => return Ok(exit),
        }
    }
}

enum Next {
    Again,
    End(Exit),
}

/// Waits until the program has to be restarted, or the command should end.
async fn attend(
    group: &mut Group,
    changes: &mut Option<Changes>,
    ends: &mut Ends,
) -> Result<Next, Error> {
    let ended = tokio::select! {
        ended = group.ended() => ended?,
        changed = change(changes) => return changed.map(|()| Next::Again),
        () = ends.next() => return Ok(Next::End(Exit::Interrupted)),
    };
    if changes.is_none() {
        return Ok(Next::End(Exit::Program(number(ended))));
    }
    term::note(format!("the program has ended with {}; waiting for a change", number(ended)));
    tokio::select! {
        changed = change(changes) => changed.map(|()| Next::Again),
        () = ends.next() => Ok(Next::End(Exit::Interrupted)),
    }
}

async fn change(changes: &mut Option<Changes>) -> Result<(), Error> {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

/// Returns the exit status as shells report it.
fn number(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| signal.saturating_add(128));
    signal.or(status.code()).and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX)
}

fn variables(
    args: &Args,
    manifest: &Manifest,
    choice: &Choice,
) -> Result<BTreeMap<String, String>, Error> {
    let own = args.folder.join(".env");
    let files = match args.env_file.as_slice() {
        [] if own.is_file() => vec![own],
        given => given.to_vec(),
    };
    let mut all = BTreeMap::new();
    for variable in environment(manifest, &Secrets::read(&files, &[])?)? {
        let text = |name: &str| variable.get(name).and_then(Value::as_str).map(str::to_owned);
        if let (Some(name), Some(value)) = (text("name"), text("value")) {
            all.insert(name, value);
        }
    }
    let kind = Deployed::read(manifest.kind.as_deref())?;
    let (host, port) = (args.host.to_string(), args.port.to_string());
    let platform = [
        ("HOST", Some(host.clone())),
        ("PORT", Some(port.clone())),
        ("BL_SERVER_HOST", Some(host)),
        ("BL_SERVER_PORT", Some(port)),
        ("BL_NAME", manifest.name.clone().or_else(|| folder_name(&args.folder))),
        ("BL_TYPE", Some(kind.name().to_owned())),
        ("BL_WORKSPACE", workspace(choice)?),
        ("BL_HOTRELOAD", args.watch.then(|| "true".to_owned())),
    ];
    for (name, value) in platform {
        value.and_then(|value| all.insert(name.to_owned(), value));
    }
    Ok(all)
}

fn folder_name(folder: &Path) -> Option<String> {
    folder.canonicalize().ok()?.file_name()?.to_str().map(str::to_owned)
}

/// Returns the chosen workspace, if any, without asking a server.
fn workspace(choice: &Choice) -> Result<Option<String>, Error> {
    if let Some(name) = choice.workspace() {
        return Ok(Some(name));
    }
    Ok(choice.contexts()?.current().and_then(|context| context.workspace.clone()))
}
