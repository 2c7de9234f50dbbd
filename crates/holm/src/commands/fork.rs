//! `holm fork`: makes a sandbox or an application from the files of a sandbox.

use super::progress;
use crate::client::Client;
use crate::client::kinds;
use crate::client::target::{Target, resolve};
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::term;
use serde_json::{Value, json};

/// Makes a sandbox or an application from a sandbox's files
///
/// Starts from its present files, or from those of a snapshot, without memory and processes. An
/// existing application gets a new revision.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm fork sbx/box sbx/second
  holm fork sbx/box app/shop --port 3000 --traffic 10
  holm fork snapshot/snap_3f9c0a sbx/second      # the sandbox may be gone")]
pub(crate) struct Args {
    /// sbx/NAME, or snapshot/ID
    source: String,
    /// sbx/NAME or app/NAME
    target: String,
    /// Id or name of the sandbox's snapshot to start from
    #[arg(long)]
    snapshot: Option<String>,
    /// Port that the program listens on
    #[arg(long)]
    port: Option<u16>,
    /// Percentage of requests that go to the new revision of an existing application
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=100))]
    traffic: Option<u8>,
    /// Memory in megabytes; by default that of the sandbox
    #[arg(long)]
    memory: Option<u32>,
    /// How to show the answer; by default only its kind and name
    #[arg(short, long, value_enum, default_value_t, hide_default_value = true)]
    output: Format,
}

pub(crate) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    let (kind, source) = named(&args.source)?;
    let path = match kind.kind.name() {
        "sandboxes" | "snapshots" => format!("{}/fork", kind.object(&source)?),
        other => return Err(Error::Usage(format!("{other} cannot be forked: sandboxes can"))),
    };
    let (target, name) = named(&args.target)?;
    let kind = match target.kind.name() {
        "sandboxes" => "sandbox",
        "applications" => "application",
        other => return Err(Error::Usage(format!("a fork is sbx/NAME or app/NAME, not {other}"))),
    };
    let mut body = json!({"targetType": kind, "targetName": name});
    let members = [
        ("snapshotId", args.snapshot.map(Value::from)),
        ("port", args.port.map(Value::from)),
        ("traffic", args.traffic.map(Value::from)),
        ("memory", args.memory.map(Value::from)),
    ];
    for (member, value) in members {
        if let Some(value) = value {
            body[member] = value;
        }
    }
    let spinner = progress::spinner("forking");
    let made = client.post_slow(&path, &body).await;
    spinner.finish_and_clear();
    let made = made?;
    match args.output {
        Format::Table => {
            let word = kinds::find(kind)?.name();
            term::say(format!("{word}/{}", term::harmless(&name)));
        }
        format => term::say(output::plain(&[made], format)),
    }
    Ok(Exit::Success)
}

/// Returns kind and name of a word such as `sbx/box`.
fn named(word: &str) -> Result<(Target, String), Error> {
    if !word.contains('/') {
        return Err(Error::Usage(format!(
            "`{word}` needs its kind before the name: `sbx/{word}`, `app/{word}` or `snapshot/{word}`"
        )));
    }
    let target = resolve(&[word.to_owned()])?;
    match target.name.clone() {
        Some(name) => Ok((target, name)),
        None => Err(Error::Usage(format!("`{word}` names no object: write `sbx/NAME`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_names_a_kind_and_an_object() {
        for (word, collection) in
            [("sbx/a", "sandboxes"), ("app/a", "applications"), ("snapshot/a", "snapshots")]
        {
            let (target, name) = named(word).unwrap();
            assert_eq!((target.collection.as_str(), name.as_str()), (collection, "a"));
        }
        assert!(named("box").unwrap_err().to_string().contains("sbx/box"));
        for bad in ["sbx", "", "planet/a", "sbx/.."] {
            assert!(named(bad).and_then(|(target, name)| target.object(&name)).is_err(), "{bad}");
        }
    }
}
