//! `holm delete`: deletes objects by name, or those in a file of documents.

use super::apply::{self, Source};
use super::question::{self, Usual};
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
#[command(after_help = "Examples:
  holm delete sandbox box
  holm delete agents helper writer --ignore-missing
  holm delete sandboxes/box/previews main
  holm delete -f objects.yaml            # the objects of its documents, last first")]
pub(crate) struct Args {
    /// Kind, such as `sandbox`; or kind and name, as in `sandbox/box`
    #[arg(required_unless_present = "filename", conflicts_with = "filename")]
    kind: Option<String>,
    /// Names of the objects
    names: Vec<String>,
    #[command(flatten)]
    source: Source,
    /// Do not fail if an object does not exist
    #[arg(long)]
    ignore_missing: bool,
    /// Do not ask for confirmation before a workspace is deleted
    #[arg(short, long)]
    yes: bool,
}

pub(crate) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    let targets: Vec<Named> = match &args.kind {
        Some(kind) => {
            let target = resolve(std::slice::from_ref(kind))?;
            named(kind, &target, &args.names)?
                .into_iter()
                .map(|name| (target.collection.clone(), target.kind, name))
                .collect()
        }
        None => targets_of_file(&args.source)?,
    };
    if !args.yes && !agreed(&targets, &client)? {
        return Ok(Exit::Cancelled);
    }
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

/// Returns the names of the objects: that in the first word, or those after it.
fn named(word: &str, target: &Target, names: &[String]) -> Result<Vec<String>, Error> {
    match (&target.name, names) {
        (None, []) => Err(Error::Usage(format!(
            "name what to delete: `holm delete {word} NAME`; `holm get {word}` lists them"
        ))),
        (None, names) => Ok(names.to_vec()),
        (Some(name), []) => Ok(vec![name.clone()]),
        (Some(_), _) => Err(Error::Usage(format!(
            "`{word}` names an object already; write the kind alone and then all names"
        ))),
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

/// Asks before workspaces are deleted, because everything in them goes with them.
fn agreed(targets: &[Named], client: &Client) -> Result<bool, Error> {
    let workspaces = targets.iter().filter(|(_, kind, _)| kind.name() == "workspaces");
    let names: Vec<_> = workspaces.map(|(_, _, name)| name.as_str()).collect();
    if names.is_empty() {
        return Ok(true);
    }
    let (names, server) = (names.join(", "), client.server());
    let question = format!("Delete workspace {names} of {server}, with everything in it");
    question::agreed(&question, Usual::No)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_path_or_behind_it() {
        let names = |word: &str, names: &[&str]| {
            let target = resolve(&[word.to_owned()]).unwrap();
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            named(word, &target, &names)
        };
        assert_eq!(names("sandbox", &["a", "b"]).unwrap(), ["a", "b"]);
        assert_eq!(names("sandbox/a", &[]).unwrap(), ["a"]);
        assert_eq!(names("sandboxes/box/previews", &["main"]).unwrap(), ["main"]);
        for (word, given) in [("sandbox", &[][..]), ("sandbox/a", &["b"])] {
            assert_eq!(names(word, given).unwrap_err().exit(), Exit::Usage, "{word}");
        }
    }
}
