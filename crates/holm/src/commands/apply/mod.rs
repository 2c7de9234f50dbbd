//! `holm apply`: creates or updates the objects of YAML documents.

mod documents;
pub(crate) mod left_out;
pub(crate) mod substitute;

use crate::client::Client;
use crate::client::kinds::Write;
use crate::client::target::Target;
use crate::error::Error;
use crate::exit::Exit;
use crate::term::{self, Style};
pub(crate) use documents::Document;
use left_out::left_out;
use reqwest::{Method, StatusCode};
use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};
use substitute::Secrets;

/// Creates or updates the objects of YAML documents
///
/// A document has `kind`, `metadata` and `spec`, as `holm get KIND NAME -o yaml` prints them; a
/// line `---` begins the next one. Most objects are replaced as a whole.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm apply -f objects.yaml
  holm apply -R -f folder --env-file secrets.env
  holm get sandbox box -o yaml | sed 's/memory: 4096/memory: 8192/' | holm apply -f -")]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// File of NAME=VALUE lines that fill `${secrets.NAME}`; the environment fills the rest
    #[arg(long, value_name = "FILE")]
    env_file: Vec<PathBuf>,
    /// One value for `${secrets.NAME}`
    #[arg(long, value_name = "NAME=VALUE")]
    secret: Vec<String>,
}

/// Location of the documents.
#[derive(Debug, clap::Args)]
pub(crate) struct Source {
    /// File or folder of YAML documents; `-` is standard input
    #[arg(short, long, required = false, value_name = "FILE")]
    filename: Vec<PathBuf>,
    /// Include all folders below a folder
    #[arg(short = 'R', long)]
    recursive: bool,
}

pub(crate) fn read(source: &Source) -> Result<Vec<Document>, Error> {
    if source.filename.is_empty() {
        return Err(Error::Usage(
            "name a file or folder with -f, or `-f -` for standard input".into(),
        ));
    }
    documents::read(&source.filename, source.recursive)
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Created,
    Updated,
    Unchanged,
    Kept,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Unchanged => "unchanged",
            Self::Kept => "exists already, left as it is",
        })
    }
}

pub(crate) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    let mut documents = read(&args.source)?;
    let secrets = Secrets::read(&args.env_file, &args.secret)?;
    for document in &mut documents {
        secrets.fill(document)?;
    }
    apply_all(&documents, &mut client, term::say).await?;
    Ok(Exit::Success)
}

/// Reads the documents of a folder; none if there is no such folder.
pub(crate) fn read_folder(folder: &Path, secrets: &Secrets) -> Result<Vec<Document>, Error> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut documents = documents::read_folder(folder)?;
    for document in &mut documents {
        secrets.fill(document)?;
    }
    Ok(documents)
}

/// Applies all documents, going on after failures. `say` is called with the outcome of each.
pub(crate) async fn apply_all(
    documents: &[Document],
    client: &mut Client,
    say: fn(String),
) -> Result<(), Error> {
    let all = documents.len();
    let mut failures = Vec::new();
    for document in documents {
        if let Err(error) = apply(document, client, say).await {
            let place = match error {
                Error::Document { .. } => String::new(),
                _ => format!("{}: ", document.place()),
            };
            let failed = term::styled_note(Style::Bad, "failed");
            term::note(format!("{failed} {document}: {place}{error}"));
            failures.push(error);
        }
    }
    match failures.as_slice() {
        [] => Ok(()),
        [first, ..] => Err(Error::Several { failed: failures.len(), all, exit: first.exit() }),
    }
}

async fn apply(document: &Document, client: &mut Client, say: fn(String)) -> Result<(), Error> {
    let target = document.target()?;
    let (outcome, object) = match target.kind.write {
        Write::Append => (Outcome::Created, create(&target, document, client).await?),
        Write::CreateOnly | Write::Upsert => write_named(&target, document, client).await?,
        Write::Never => {
            let message = format!("{} cannot be applied", target.kind.name());
            return Err(Error::Document { place: document.to_string(), message });
        }
    };
    let style = if outcome == Outcome::Created { Style::Good } else { Style::Dim };
    say(format!("{document} {}", term::styled(style, outcome)));
    report(&object, say);
    if outcome != Outcome::Kept {
        for path in left_out(&document.body, &object) {
            let path = term::harmless(&path);
            term::note(format!("  {path} was not kept: is it spelt right?"));
        }
    }
    Ok(())
}

async fn write_named(
    target: &Target,
    document: &Document,
    client: &mut Client,
) -> Result<(Outcome, Value), Error> {
    let path = target.object(document.name()?)?;
    match client.find(&path).await? {
        Some(before) if target.kind.write == Write::CreateOnly => Ok((Outcome::Kept, before)),
        Some(before) => {
            match client.call(Method::PUT, &path, &[], Some(&document.body)).await {
                // Deleted, or not replaceable after all, since we looked: create it.
                Err(error) if is_absent(&error) => {
                    Ok((Outcome::Created, create(target, document, client).await?))
                }
                Err(error) => Err(error),
                Ok(after) if same_wish(&before, &after) => Ok((Outcome::Unchanged, after)),
                Ok(after) => Ok((Outcome::Updated, after)),
            }
        }
        None => match create(target, document, client).await {
            // Created by somebody else since we looked, or what it needs is taken, such as the path
            // of a trigger.
            Err(conflict @ Error::Answer { status: StatusCode::CONFLICT, .. })
                if target.kind.write == Write::CreateOnly =>
            {
                let kept = client.find(&path).await?.ok_or(conflict)?;
                Ok((Outcome::Kept, kept))
            }
            Err(conflict @ Error::Answer { status: StatusCode::CONFLICT, .. }) => {
                match client.call(Method::PUT, &path, &[], Some(&document.body)).await {
                    Err(error) if is_absent(&error) => Err(conflict),
                    after => Ok((Outcome::Updated, after?)),
                }
            }
            created => Ok((Outcome::Created, created?)),
        },
    }
}

/// True if there is no object to replace, or none of its kind can be replaced.
pub(crate) fn is_absent(error: &Error) -> bool {
    matches!(
        error,
        Error::Answer { status: StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, .. }
    )
}

async fn create(target: &Target, document: &Document, client: &mut Client) -> Result<Value, Error> {
    client.call(Method::POST, &target.collection, &[], Some(&document.body)).await
}

/// True if both objects have the same user-set fields. Times, events and status belong to the
/// server.
fn same_wish(before: &Value, after: &Value) -> bool {
    ["/spec", "/metadata/displayName", "/metadata/labels", "/metadata/externalId"]
        .iter()
        .all(|part| before.pointer(part) == after.pointer(part))
}

/// Prints what the user needs next.
fn report(object: &Value, say: fn(String)) {
    if let Some(url) =
        object.pointer("/metadata/url").and_then(Value::as_str).filter(|url| !url.is_empty())
    {
        say(format!("  url: {}", term::harmless(url)));
    }
    if let Some(token) = object.pointer("/spec/token").and_then(Value::as_str) {
        say(format!("  token: {}", term::harmless(token)));
    }
    report_secrets(object, say);
}

/// Prints callback secrets, which are shown only once.
pub(crate) fn report_secrets(object: &Value, say: fn(String)) {
    let triggers = object.pointer("/spec/triggers").and_then(Value::as_array);
    for trigger in triggers
        .into_iter()
        .flatten()
        .filter(|trigger| trigger.get("type").is_some_and(|t| t == "http-async"))
    {
        let secret = trigger.pointer("/configuration/callbackSecret").and_then(Value::as_str);
        if let Some(secret) = secret.filter(|secret| !secret.is_empty() && !secret.contains('*')) {
            say(format!("  callback secret (shown once): {}", term::harmless(secret)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_server_adds_is_no_change() {
        let before = json!({"metadata": {"name": "a", "updatedAt": "1"}, "spec": {"x": 1}, "status": "DEPLOYING"});
        let after = json!({"metadata": {"name": "a", "updatedAt": "2"}, "spec": {"x": 1}, "status": "DEPLOYED"});
        assert!(same_wish(&before, &after));
        assert!(!same_wish(&before, &json!({"metadata": {"name": "a"}, "spec": {"x": 2}})));
    }
}
