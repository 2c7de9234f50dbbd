//! `holm deploy`: builds and runs the project of a folder.

mod flags;
pub(crate) mod follow;
mod plan;
pub(crate) mod poller;
pub(crate) mod submit;
pub(crate) mod supplies;
mod template;

pub(crate) use flags::Args;

use crate::client::log_lines::Ask;
use crate::client::target::resolve;
use crate::client::{Choice, Client};
use crate::commands::apply::{self, left_out::left_out};
use crate::commands::question::{self, Usual};
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::project::manifest;
use crate::project::resource::{Deployed, image_of, masked};
use crate::signals::Ends;
use crate::term::{self, Style};
use crate::world;
use follow::{Followed, status_of, to_the_end};
use plan::Plan;
use poller::{Before, Guard};
use serde_json::{Value, json};
use std::cell::Cell;
use submit::{Order, Phase, Submission};

pub(crate) async fn run(args: Args, choice: &Choice) -> Result<Exit, Error> {
    let plans = plan::plans(&args)?;
    if args.dryrun {
        let requests = plans.iter().map(shown).collect::<Result<Vec<_>, Error>>()?;
        term::say(output::plain(&requests, args.output));
        return Ok(Exit::Success);
    }
    let mut client = Client::choose(choice)?;
    if !args.yes && !agreed(&plans, &client)? {
        return Ok(Exit::Cancelled);
    }
    let mut ends = Ends::new()?;
    for plan in &plans {
        let phase = Cell::new(Phase::Prepared);
        tokio::select! {
            done = deploy(plan, &args, &phase, &mut client) => done?,
            () = ends.next() => {
                let look = format!("holm get {} {}", plan.kind.name(), plan.name);
                term::note(phase.get().left(&plan.what(), &look));
                return Ok(Exit::Interrupted);
            }
        }
    }
    Ok(Exit::Success)
}

fn order(plan: &Plan) -> Order {
    if plan.kind.is_created_first() { Order::Create } else { Order::Replace }
}

/// Returns the request without its secrets, and the list of files to pack.
fn shown(plan: &Plan) -> Result<Value, Error> {
    let placeholder = json!({"spec": {"runtime": {"image": "(the one that it has)"}}});
    let body = masked(&plan.object(Some(&placeholder))?);
    let path = plan.target.object(&plan.name)?;
    let (method, path) = match order(plan) {
        Order::Replace => ("PUT", path),
        Order::Create | Order::CreateOnly => ("POST", plan.target.collection.clone()),
    };
    let query = if plan.sources.is_some() { "?upload=true" } else { "" };
    let mut request = json!({"method": method, "path": format!("/v0/{path}{query}"), "body": body});
    if let Some(sources) = &plan.sources {
        let added = sources.added.iter().map(|(name, _)| *name);
        let paths = sources.entries.iter().map(|entry| entry.path.as_str());
        request["archive"] = paths
            .filter(|path| !sources.added.iter().any(|(name, _)| name == path))
            .chain(added)
            .collect();
    }
    if !plan.documents.is_empty() {
        request["documents"] = plan.documents.iter().map(ToString::to_string).collect();
    }
    Ok(request)
}

fn agreed(plans: &[Plan], client: &Client) -> Result<bool, Error> {
    let what = plans.iter().map(Plan::what).collect::<Vec<_>>().join(", ");
    let place = client.workspace().map_or_else(String::new, |name| format!(", workspace {name}"));
    question::agreed(&format!("Deploy {what} to {}{place}", client.server()), Usual::Yes)
}

async fn deploy(
    plan: &Plan,
    args: &Args,
    phase: &Cell<Phase>,
    client: &mut Client,
) -> Result<(), Error> {
    let path = plan.target.object(&plan.name)?;
    apply::apply_all(&plan.documents, client, term::note).await?;
    let before = client.find(&path).await?;
    let newest = if before.is_some() { newest_revision(plan, client).await } else { None };
    let body = plan.object(before.as_ref())?;
    let since = world::system().now();
    let asked = submit(plan, &body, phase, client).await?;
    phase.set(Phase::Begun);
    tell_left_out(plan.target.kind.name(), &body, &asked);
    if plan.kind == Deployed::VolumeTemplate {
        return follow_template(plan, &asked, &path, args, client).await;
    }
    let what = plan.what();
    let log = plan.sources.is_some().then(|| Ask {
        kind: plan.target.kind.name(),
        name: plan.name.clone(),
        ..Ask::default()
    });
    let before = Before::new(before.as_ref().map(status_of), before.as_ref().and_then(image_of));
    let disabled = body.pointer("/spec/enabled") == Some(&Value::Bool(false));
    let guard = match disabled {
        true => Guard::of_disabled(plan.sources.is_some(), before),
        false => Guard::new(plan.sources.is_some(), before),
    };
    let followed =
        Followed { path: &path, is_there: true, what: &what, log, since, timeout: args.timeout.0 };
    let object = to_the_end(followed, guard, client).await?;
    let stays = if disabled { ", which is disabled and stays so" } else { "" };
    let deployed = || format!("{} {what}{stays}", term::styled_note(Style::Good, "deployed"));
    let waiting = match newest {
        Some(before) => waiting(plan, &before, &object, client).await,
        None => None,
    };
    term::note(waiting.unwrap_or_else(deployed));
    apply::report_secrets(&asked, term::say);
    match args.output {
        Format::Table => say_address(&object),
        format => term::say(output::plain(&[object], format)),
    }
    Ok(())
}

/// Sends what is to be deployed, with its sources if it has any.
async fn submit(
    plan: &Plan,
    body: &Value,
    phase: &Cell<Phase>,
    client: &mut Client,
) -> Result<Value, Error> {
    let submission = Submission {
        target: &plan.target,
        name: &plan.name,
        body,
        upload: plan.sources.is_some(),
        order: order(plan),
    };
    let Some(sources) = &plan.sources else { return Ok(submission.send(client).await?.0) };
    tell(sources, &plan.what());
    submission.send_with(&sources.pack().await?, phase, client).await
}

/// Waits until a volume template has its new version.
async fn follow_template(
    plan: &Plan,
    asked: &Value,
    path: &str,
    args: &Args,
    client: &mut Client,
) -> Result<(), Error> {
    let template = template::to_the_end(asked, path, args.timeout.0, client).await?;
    let version = template.pointer("/state/latestVersion").and_then(Value::as_str).unwrap_or("-");
    let (done, what) = (term::styled_note(Style::Good, "deployed"), plan.what());
    term::note(format!("{done} {what}, version {}", term::harmless(version)));
    if !matches!(args.output, Format::Table) {
        term::say(output::plain(&[template], args.output));
    }
    Ok(())
}

/// Returns the newest revision of what is deployed, for kinds that have revisions. If they cannot be
/// listed, that is no reason not to deploy.
async fn newest_revision(plan: &Plan, client: &mut Client) -> Option<String> {
    if !plan.kind.has_revisions() {
        return None;
    }
    let words = [plan.kind.name().to_owned(), plan.name.clone(), "revisions".to_owned()];
    let revisions = client.list(&resolve(&words).ok()?, &[]).await.ok()?;
    Some(revisions.first()?.get("id")?.as_str()?.to_owned())
}

/// Says that the new revision takes no requests, if an older one was made to serve. `before` was
/// the newest revision before.
async fn waiting(plan: &Plan, before: &str, object: &Value, client: &mut Client) -> Option<String> {
    let serving = object.pointer("/spec/revision/active")?.as_str()?;
    let made = newest_revision(plan, client).await?;
    if made == before || made == serving {
        return None;
    }
    let (kind, name) = (plan.kind.name(), &plan.name);
    let (made, serving) = (term::harmless(&made), term::harmless(serving));
    Some(format!(
        "{kind} {name} is built as revision {made}, but {serving} serves; \
         `holm rollback {kind} {name} {made}` makes it serve"
    ))
}

/// Names what the server has not kept of the request. Of `blaxel.toml` these are members of
/// `runtime` and `triggers`, which this program passes on as they are.
fn tell_left_out(kinds: &str, body: &Value, asked: &Value) {
    for path in left_out(body, asked) {
        let path = term::harmless(path.strip_prefix("spec.").unwrap_or(&path));
        let file = manifest::FILE;
        term::note(format!("{file}: `{path}` was not kept: it is mistyped, or not for {kinds}"));
    }
}

fn say_address(object: &Value) {
    let url = object.pointer("/metadata/url").and_then(Value::as_str);
    if let Some(url) = url.filter(|url| !url.is_empty()) {
        term::say(term::harmless(url));
    }
}

/// Most skipped files that are listed by name.
const NAMED_MAX: usize = 10;

pub(crate) fn tell(sources: &crate::project::pack::Sources, what: &str) {
    for (path, why) in sources.left_out.iter().take(NAMED_MAX) {
        term::note(format!("left out {}: {why}", term::harmless(&path.to_string_lossy())));
    }
    term::note(format!("{what}: {} to upload", output::counted(sources.files(), "file")));
}
