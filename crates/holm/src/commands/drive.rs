//! `holm drive`: drives in running sandboxes.

use crate::client::workload::Workload;
use crate::client::{Client, target};
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::term;
use clap::Subcommand;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde_json::{Value, json};

const PATH: &str = "/drives/mount";

/// Mounts drives in running sandboxes
///
/// A drive is a folder that several sandboxes can share. `holm get drives` lists the existing ones.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm drive mount files box /mnt/files
  holm drive mount files box /mnt/photos --folder /photos --read-only
  holm drive mounts box
  holm drive unmount box /mnt/files")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Mounts a drive in a sandbox
    Mount {
        /// Name of the drive
        drive: String,
        /// Name of the sandbox
        sandbox: String,
        /// Path in the sandbox; made if it is missing
        path: String,
        /// Folder of the drive; by default all of it
        #[arg(long, value_name = "FOLDER")]
        folder: Option<String>,
        /// Forbid the sandbox to write there
        #[arg(long)]
        read_only: bool,
    },
    /// Unmounts a drive in a sandbox
    Unmount {
        /// Name of the sandbox
        sandbox: String,
        /// Path in the sandbox
        path: String,
    },
    /// Shows the drives mounted in a sandbox
    Mounts {
        /// Name of the sandbox
        sandbox: String,
        /// How to show them
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
}

pub(crate) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    match args.command {
        Command::Mount { drive, sandbox, path, folder, read_only } => {
            let order = json!({
                "driveName": drive, "mountPath": path, "drivePath": folder.as_deref().unwrap_or("/"),
                "readOnly": read_only,
            });
            // The sandbox would answer 500.
            let known = target::resolve(&["drives".into(), drive.clone()])?;
            client.get(&known.object(&drive)?, &[]).await?;
            let sandbox = find(client, &sandbox).await?;
            let request = sandbox.request(Method::POST, PATH).await?.json(&order);
            let mounted = sandbox.ask_json(request).await?;
            let path = mounted["mountPath"].as_str().unwrap_or(&path);
            term::say(term::harmless(&format!("{drive} is mounted at {path} in {}", sandbox.name)));
        }
        Command::Unmount { sandbox, path } => {
            let sandbox = find(client, &sandbox).await?;
            // A single path segment, as the published command line sends it.
            let place = utf8_percent_encode(path.trim_start_matches('/'), NON_ALPHANUMERIC);
            let request = sandbox.request(Method::DELETE, &format!("{PATH}/{place}")).await?;
            if let Err(error) = sandbox.ask_json(request).await {
                // The sandbox answers 500 also if there is nothing to unmount.
                let mounts = mounts(&sandbox).await?;
                let is_there = mounts.iter().any(|mount| mount["mountPath"] == path.as_str());
                let absent =
                    || Error::Absent(format!("no drive is mounted at {path} in {}", sandbox.name));
                return Err(if is_there { error } else { absent() });
            }
            term::say(term::harmless(&format!("{path} is unmounted in {}", sandbox.name)));
        }
        Command::Mounts { sandbox, output } => {
            let sandbox = find(client, &sandbox).await?;
            show(&mounts(&sandbox).await?, output);
        }
    }
    Ok(Exit::Success)
}

async fn mounts(sandbox: &Workload) -> Result<Vec<Value>, Error> {
    let request = sandbox.request(Method::GET, PATH).await?;
    match sandbox.ask_json(request).await?["mounts"].take() {
        Value::Array(mounts) => Ok(mounts),
        _ => Err(sandbox.odd("the answer has no mounts")),
    }
}

async fn find(client: Client, sandbox: &str) -> Result<Workload, Error> {
    let target = target::resolve(&["sandboxes".into(), sandbox.to_owned()])?;
    Workload::find(client, &target).await
}

fn show(mounts: &[Value], format: Format) {
    if format != Format::Table {
        return term::say(output::plain(mounts, format));
    }
    if mounts.is_empty() {
        return term::note("no drives are mounted here");
    }
    let text = |mount: &Value, member: &str| {
        term::harmless(mount[member].as_str().unwrap_or_default()).to_string()
    };
    let row = |mount: &Value| {
        let mode = if mount["readOnly"] == true { "read" } else { "read-write" };
        vec![
            text(mount, "mountPath"),
            text(mount, "driveName"),
            text(mount, "drivePath"),
            mode.to_owned(),
        ]
    };
    let heading = ["PATH", "DRIVE", "FOLDER", "MODE"].map(str::to_owned);
    term::say(output::lines(&heading, mounts.iter().map(row)));
}
