//! `holm push`: builds an image of a project without running it.

use super::deploy::follow::{Followed, status_of, to_the_end};
use super::deploy::poller::{Before, Guard};
use super::deploy::submit::{Order, Phase, Submission};
use super::deploy::supplies::Supplies;
use super::deploy::tell;
use crate::client::Client;
use crate::client::log_lines::Ask;
use crate::client::target::resolve;
use crate::duration::Span;
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::project::manifest::Manifest;
use crate::project::pack::Sources;
use crate::project::resource::Deployed;
use crate::signals::Ends;
use crate::{term, world};
use reqwest::Method;
use serde_json::{Value, json};
use std::cell::Cell;
use std::path::PathBuf;

/// Builds the project in a folder as an image of the workspace, or copies one from a registry
///
/// Prints the reference of the image, such as `agent/helper:3f9c0a`. Nothing is run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm push ./helper --name helper --type agent
  holm push --build-env-file build.env --docker-config ~/.docker/config.json
  holm push --name helper --type agent --image ghcr.io/org/helper:1
  holm get image agent/helper")]
pub(crate) struct Args {
    /// Folder of the project
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Name; by default that in `blaxel.toml`
    #[arg(short, long)]
    name: Option<String>,
    /// agent, function, job, sandbox or application; by default that in `blaxel.toml`, or sandbox
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Image in a registry to copy, instead of building the folder
    #[arg(long, value_name = "IMAGE", conflicts_with = "build_env_file")]
    image: Option<String>,
    #[command(flatten)]
    supplies: Supplies,
    /// How long to wait
    #[arg(long, default_value = "1h", value_name = "LENGTH")]
    timeout: Span,
    /// How to show the image; by default only its reference
    #[arg(short, long, value_enum, default_value_t, hide_default_value = true)]
    output: Format,
}

pub(crate) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    let manifest = Manifest::read(&args.folder)?;
    let kind = Deployed::read(args.kind.as_deref().or(manifest.kind.as_deref()))?;
    let name = args.name.clone().or(manifest.name);
    let name =
        name.ok_or_else(|| Error::Usage("the image has no name: give it with --name".into()))?;
    let image = match &args.image {
        Some(image) => {
            let mut body = json!({"name": name, "resourceType": kind.name(), "image": image});
            if let Some(config) = args.supplies.docker_config()? {
                body["dockerConfig"] = config.into();
            }
            let query = [("skip-build", "true")];
            client.call(Method::POST, "images", &query, Some(&body)).await?
        }
        None => {
            let (phase, mut ends) = (Cell::new(Phase::Prepared), Ends::new()?);
            tokio::select! {
                built = build(&args, kind, &name, &phase, &mut client) => built?,
                () = ends.next() => {
                    let image = format!("{}/{name}", kind.name());
                    let look = format!("holm get image {image}");
                    term::note(phase.get().left(&format!("image {image}"), &look));
                    return Ok(Exit::Interrupted);
                }
            }
        }
    };
    match args.output {
        Format::Table => term::say(term::harmless(&reference(kind, &name, &image))),
        format => term::say(output::plain(&[image], format)),
    }
    Ok(Exit::Success)
}

async fn build(
    args: &Args,
    kind: Deployed,
    name: &str,
    phase: &Cell<Phase>,
    client: &mut Client,
) -> Result<Value, Error> {
    let mut sources = Sources::read(&args.folder)?;
    args.supplies.add_to(&mut sources)?;
    let target = resolve(&["images".into()])?;
    let path = target.object(&format!("{}/{name}", kind.name()))?;
    let before = client.find(&path).await?;
    let what = format!("image {}/{name}", kind.name());
    tell(&sources, &what);
    let since = world::system().now();
    let body = json!({"name": name, "resourceType": kind.name()});
    let submission =
        Submission { target: &target, name, body: &body, upload: true, order: Order::CreateOnly };
    submission.send_with(&sources.pack().await?, phase, client).await?;
    let log_kind = crate::client::kinds::find(kind.name())?.name();
    let log = Some(Ask { kind: log_kind, name: name.to_owned(), ..Ask::default() });
    let is_there = before.is_some();
    let guard = Guard::of_image(Before::new(before.as_ref().map(status_of), None));
    let timeout = args.timeout.0;
    let followed = Followed { path: &path, is_there, what: &what, log, since, timeout };
    to_the_end(followed, guard, client).await
}

/// Returns the reference to run: that in the answer, or else the newest tag.
fn reference(kind: Deployed, name: &str, image: &Value) -> String {
    if let Some(reference) = image.get("image").and_then(Value::as_str) {
        return reference.to_owned();
    }
    let text = |tag: &Value, name: &str| tag.get(name).and_then(Value::as_str).map(str::to_owned);
    let tags = image.pointer("/spec/tags").and_then(Value::as_array).into_iter().flatten();
    let newest = tags.max_by_key(|tag| text(tag, "createdAt").unwrap_or_default());
    let tag = newest.and_then(|tag| text(tag, "name")).map(|tag| format!(":{tag}"));
    format!("{}/{name}{}", kind.name(), tag.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_tag_is_the_reference() {
        let tags = json!([{"name": "b", "createdAt": "2"}, {"name": "a", "createdAt": "1"}]);
        let image = json!({"spec": {"tags": tags}});
        assert_eq!(reference(Deployed::Agent, "x", &image), "agent/x:b");
        assert_eq!(reference(Deployed::Job, "x", &json!({"image": "job/x:c"})), "job/x:c");
        assert_eq!(reference(Deployed::Job, "x", &json!({})), "job/x");
    }
}
