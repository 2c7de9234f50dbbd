//! `holm delete`: deletes objects by name, or those in a file of documents.

use super::apply::{self, Source};
use crate::client::Client;
use crate::client::kinds::{self, Write};
use crate::client::target::{Target, resolve};
use crate::error::Error;
use crate::exit::Exit;
use crate::term::{self, Style};
use reqwest::Method;

/// Deletes objects
///
/// For a kind below another object, write its path: `holm delete sandboxes/box/previews main`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kind, such as `sandbox`
    #[arg(required_unless_present = "filename", conflicts_with = "filename")]
    kind: Option<String>,
    /// Names of the objects
    #[arg(required_unless_present = "filename")]
    names: Vec<String>,
    #[command(flatten)]
    source: Source,
    /// Do not fail if an object does not exist
    #[arg(long)]
    ignore_missing: bool,
}

pub(crate) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    let targets = match &args.kind {
        Some(kind) => {
            let target = resolve(std::slice::from_ref(kind))?;
            if target.name.is_some() {
                return Err(Error::Usage(format!(
                    "`{kind}` names an object; write the kind and then its names"
                )));
            }
            args.names
                .iter()
                .map(|name| (target.collection.clone(), target.kind, name.clone()))
                .collect()
        }
        None => targets_of_file(&args.source)?,
    };
    let all = targets.len();
    let mut failures = Vec::new();
    for (collection, kind, name) in targets {
        let target = Target { kind, collection, name: None };
        if let Err(error) = delete(&target, &name, args.ignore_missing, &mut client).await {
            term::note(format!(
                "{} {}/{name}: {error}",
                term::styled_note(Style::Bad, "failed"),
                kind.name()
            ));
            failures.push(error);
        }
    }
    match failures.as_slice() {
        [] => Ok(Exit::Success),
        [first, ..] => Err(Error::Several { failed: failures.len(), all, exit: first.exit() }),
    }
}

type Named = (String, &'static kinds::Kind, String);

/// Returns the objects of the documents in reverse order, since later ones may depend on earlier
/// ones.
fn targets_of_file(source: &Source) -> Result<Vec<Named>, Error> {
    let documents = apply::read(source)?;
    let mut targets = Vec::with_capacity(documents.len());
    for document in documents.iter().rev() {
        let target = document.target()?;
        // The server named these; they are deleted together with their parent.
        if target.kind.write == Write::Append {
            continue;
        }
        targets.push((target.collection, target.kind, document.name()?.to_owned()));
    }
    Ok(targets)
}

async fn delete(
    target: &Target,
    name: &str,
    ignore_missing: bool,
    client: &mut Client,
) -> Result<(), Error> {
    target.check_name(name)?;
    match client.call(Method::DELETE, &target.object(name)?, &[], None).await {
        Ok(_) => term::say(format!("{}/{name} deleted", target.kind.name())),
        Err(error) if ignore_missing && error.exit() == Exit::NotFound => {
            term::say(format!("{}/{name} was not there", target.kind.name()));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}
