//! `holm cp`: copies files and folders to and from sandboxes.

mod copied;
mod destination;
mod download;
mod place;
mod upload;

use crate::client::workload::Workload;
use crate::client::{Client, target};
use crate::error::Error;
use crate::exit::Exit;
use crate::signals::Ends;
use place::{Place, below};
use std::path::PathBuf;

pub(crate) use copied::Copied;

/// Copies files and folders to and from a sandbox
///
/// Anything copied to an existing folder is put inside it; any other path is the new name.
/// `FOLDER/.` means the content of the folder. Files keep their permissions. Links that lead out of
/// a folder, and links inside a folder of a sandbox, are skipped with a note.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm cp ./src box:/app              # becomes /app/src, if /app is there
  holm cp ./src/. box:/app            # what is in src, into /app
  holm cp box:/app/result.csv .
  holm cp box:notes ./notes           # relative to the working directory of the image")]
pub(crate) struct Args {
    /// Source: a local path, or SANDBOX:PATH
    from: String,
    /// Destination: a local path, or SANDBOX:PATH
    to: String,
}

pub(crate) async fn run(args: Args, client: Client) -> Result<Exit, Error> {
    let mut ends = Ends::new()?;
    let copy = Copy::read(&args.from, &args.to, "sandbox")?;
    let target = target::resolve(&["sandboxes".into(), copy.there().to_owned()])?;
    let sandbox = Workload::find(client, &target).await?;
    let copied = tokio::select! {
        copied = copy.run(&sandbox) => copied?,
        // Dropping the copy removes local files that are incomplete.
        () = ends.next() => {
            sandbox.abort_uploads().await;
            return Ok(Exit::Interrupted);
        }
    };
    copied.tell();
    Ok(Exit::Success)
}

/// Source and destination of a copy.
pub(crate) enum Copy {
    In { from: PathBuf, there: String, to: String },
    Out { there: String, from: String, to: PathBuf },
}

impl Copy {
    /// Reads both ends. `what` is the kind of the remote end: a sandbox, or a volume.
    pub(crate) fn read(from: &str, to: &str, what: &str) -> Result<Self, Error> {
        match (Place::read(from)?, Place::read(to)?) {
            (Place::Here(from), Place::There { name: there, path: to }) => {
                Ok(Self::In { from, there, to })
            }
            (Place::There { name: there, path: from }, Place::Here(to)) => {
                Ok(Self::Out { there, from, to })
            }
            (Place::Here(_), Place::Here(_)) => Err(Error::Usage(format!(
                "name a {what} at one of the two ends: `./folder {what}:/path`"
            ))),
            (Place::There { .. }, Place::There { .. }) => {
                Err(Error::Usage(format!("copy out of one {what} first, and then into the other")))
            }
        }
    }

    /// Returns the name of the remote end.
    pub(crate) fn there(&self) -> &str {
        match self {
            Self::In { there, .. } | Self::Out { there, .. } => there,
        }
    }

    /// Returns the same copy with the remote path inside a folder.
    pub(crate) fn below(self, folder: &str) -> Result<Self, Error> {
        Ok(match self {
            Self::In { from, there, to } => Self::In { from, there, to: below(folder, &to)? },
            Self::Out { there, from, to } => {
                let path = below(folder, &from)?;
                // The top folder has no name that it could be copied under.
                let from = if path == folder { format!("{path}/.") } else { path };
                Self::Out { there, from, to }
            }
        })
    }

    pub(crate) async fn run(&self, there: &Workload) -> Result<Copied, Error> {
        match self {
            Self::In { from, to, .. } => {
                let copied = upload::upload(from, there, to).await;
                if copied.is_err() {
                    // The first file that fails ends the copy, and others may be under way.
                    there.abort_uploads().await;
                }
                copied
            }
            Self::Out { from, to, .. } => download::download(there, from, to).await,
        }
    }
}
