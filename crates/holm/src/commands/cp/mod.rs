//! `holm cp`: copies files and folders into a sandbox and out of it.

mod destination;
mod download;
mod place;
mod upload;

use crate::client::workload::Workload;
use crate::client::{Client, target};
use crate::error::Error;
use crate::exit::Exit;
use crate::signals::Ends;
use crate::{output, term};
use place::Place;
use std::path::PathBuf;

/// Copies files and folders into a sandbox, and out of it
///
/// A folder that is there takes what is copied into it; any other path is the new name. `FOLDER/.`
/// is what the folder holds. Files keep their permissions; links that lead out of a folder, and links
/// in a sandbox, are left out and named.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm cp ./src box:/app              # becomes /app/src, if /app is there
  holm cp ./src/. box:/app            # what is in src, into /app
  holm cp box:/app/result.csv .
  holm cp box:notes ./notes           # relative to the working directory of the image")]
pub(crate) struct Args {
    /// What to copy: a path here, or SANDBOX:PATH
    from: String,
    /// Where to: a path here, or SANDBOX:PATH
    to: String,
}

/// What was copied.
struct Copied {
    files: u64,
    bytes: u64,
}

/// Of what was left out, so many are named.
const NAMED_MAX: usize = 10;

pub(crate) async fn run(args: Args, client: Client) -> Result<Exit, Error> {
    let mut ends = Ends::new()?;
    let copy = match (Place::read(&args.from)?, Place::read(&args.to)?) {
        (Place::Here(from), Place::There { sandbox, path: to }) => Copy::In { from, sandbox, to },
        (Place::There { sandbox, path: from }, Place::Here(to)) => Copy::Out { sandbox, from, to },
        (Place::Here(_), Place::Here(_)) => {
            let message = "name a sandbox at one of the two ends: `holm cp ./folder box:/path`";
            return Err(Error::Usage(message.into()));
        }
        (Place::There { .. }, Place::There { .. }) => {
            let message = "copy out of one sandbox first, and then into the other";
            return Err(Error::Usage(message.into()));
        }
    };
    let target = target::resolve(&["sandboxes".into(), copy.sandbox().to_owned()])?;
    let sandbox = Workload::find(client, &target).await?;
    let copied = tokio::select! {
        copied = copy.run(&sandbox) => copied?,
        // What is half copied here goes with the copy that is given up.
        () = ends.next() => {
            sandbox.abort_uploads().await;
            return Ok(Exit::Interrupted);
        }
    };
    let files = if copied.files == 1 { "file" } else { "files" };
    term::note(format!("copied {} {files}, {}", copied.files, output::size(copied.bytes)));
    Ok(Exit::Success)
}

/// What is copied where.
enum Copy {
    In { from: PathBuf, sandbox: String, to: String },
    Out { sandbox: String, from: String, to: PathBuf },
}

impl Copy {
    fn sandbox(&self) -> &str {
        match self {
            Self::In { sandbox, .. } | Self::Out { sandbox, .. } => sandbox,
        }
    }

    async fn run(&self, there: &Workload) -> Result<Copied, Error> {
        match self {
            Self::In { from, to, .. } => upload::upload(from, there, to).await,
            Self::Out { from, to, .. } => download::download(there, from, to).await,
        }
    }
}

fn tell_left_out(left_out: &[(PathBuf, &'static str)]) {
    for (path, why) in left_out.iter().take(NAMED_MAX) {
        term::note(format!("left out {}: {why}", term::harmless(&path.to_string_lossy())));
    }
    if left_out.len() > NAMED_MAX {
        term::note(format!("left out {} more", left_out.len() - NAMED_MAX));
    }
}
