//! `holm rollback`: makes an earlier revision serve again.

use super::deploy::follow::{reason, status_of};
use super::progress;
use crate::client::Client;
use crate::client::target::{Target, resolve};
use crate::duration::Span;
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::signals::Ends;
use crate::term::{self, Style};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Makes an earlier revision serve again
///
/// Waits until it does. The current revision keeps serving until then. What is disabled stays so,
/// and the revision serves once it is enabled.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm rollback agent helper             # the one that served before
  holm rollback agent helper 3f9c0a      # `holm revisions agent helper` lists them")]
pub(crate) struct Args {
    /// agent, application, function, job or model
    kind: String,
    /// Name of the object
    name: String,
    /// Id of the revision; by default the one that served before
    revision: Option<String>,
    /// How long to wait
    #[arg(long, default_value = "15m", value_name = "LENGTH")]
    timeout: Span,
    /// How to show the result; by default not at all
    #[arg(short, long, value_enum, default_value_t, hide_default_value = true)]
    output: Format,
}

const POLL: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    let revisions = resolve(&[args.kind.clone(), args.name.clone(), "revisions".into()])?;
    let object = resolve(&[args.kind, args.name.clone()])?.object(&args.name)?;
    let known = client.list(&revisions, &[]).await?;
    let id = choose(&known, args.revision.as_deref())?;
    let server = client.server();
    let activate = |wish: &mut Value| {
        let spec = wish.pointer_mut("/spec").and_then(Value::as_object_mut);
        let spec = spec.ok_or_else(|| Error::NotHolm {
            server: server.clone(),
            message: "the object has no spec".into(),
        })?;
        let revision = spec.entry("revision").or_insert_with(|| json!({}));
        revision["active"] = id.as_str().into();
        Ok(())
    };
    let mut ends = Ends::new()?;
    client.change(&object, activate).await?;
    let now = tokio::select! {
        served = wait(&object, &revisions, &id, args.timeout.0, &mut client) => served?,
        () = ends.next() => {
            term::note("what was begun goes on");
            return Ok(Exit::Interrupted);
        }
    };
    let id = term::harmless(&id);
    if is_off(&now) {
        term::note(format!("revision {id} is active, and serves once `spec.enabled` is true"));
    } else {
        term::note(format!("revision {id} {}", term::styled_note(Style::Good, "serves")));
    }
    if args.output != Format::Table {
        term::say(output::plain(&[now], args.output));
    }
    Ok(Exit::Success)
}

fn is_off(object: &Value) -> bool {
    object.pointer("/spec/enabled").is_some_and(|enabled| enabled == false)
}

fn id_of(revision: &Value) -> Option<&str> {
    revision.get("id").and_then(Value::as_str).filter(|id| !id.is_empty())
}

fn is(revision: &Value, what: &str) -> bool {
    revision.get(what).is_some_and(|is| is == true)
}

/// Chooses the named revision, or the one that served before, or else the newest that does not
/// serve.
fn choose(revisions: &[Value], wanted: Option<&str>) -> Result<String, Error> {
    if let Some(wanted) = wanted {
        let ids: Vec<_> = revisions.iter().filter_map(id_of).collect();
        if ids.contains(&wanted) {
            return Ok(wanted.to_owned());
        }
        let known = term::harmless(&ids.join(", "));
        return Err(Error::Absent(format!("there is no revision `{wanted}`; known: {known}")));
    }
    let before = revisions.iter().find(|revision| is(revision, "previousActive"));
    let others = revisions.iter().filter(|revision| !is(revision, "active"));
    let created = |revision: &&Value| {
        revision.get("createdAt").and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let chosen = before.or_else(|| others.max_by_key(created)).and_then(id_of);
    chosen
        .map(str::to_owned)
        .ok_or_else(|| Error::Absent("there is no earlier revision to go back to".into()))
}

async fn wait(
    object: &str,
    revisions: &Target,
    id: &str,
    longest: Duration,
    client: &mut Client,
) -> Result<Value, Error> {
    let begun = Instant::now();
    let spinner = progress::spinner("waiting until it serves");
    loop {
        let now = client.get_with_retries(object).await?;
        let all = client.list(revisions, &[]).await?;
        let active =
            all.iter().any(|revision| id_of(revision) == Some(id) && is(revision, "active"));
        match status_of(&now) {
            "DEPLOYED" | "DEACTIVATING" | "DEACTIVATED" if active => {
                spinner.finish_and_clear();
                return Ok(now);
            }
            "FAILED" => {
                spinner.finish_and_clear();
                let reason = reason(&now).unwrap_or_else(|| "the server gives no reason".into());
                return Err(Error::Failed(format!("the revision does not serve: {reason}")));
            }
            status if begun.elapsed() > longest => {
                spinner.finish_and_clear();
                let status = term::harmless(status);
                return Err(Error::Failed(format!("the revision does not serve yet: {status}")));
            }
            _ => sleep(POLL).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_served_before_comes_back() {
        let list = [
            json!({"id": "c", "active": true, "createdAt": "3"}),
            json!({"id": "a", "previousActive": true, "createdAt": "1"}),
            json!({"id": "b", "createdAt": "2"}),
        ];
        assert_eq!(choose(&list, None).unwrap(), "a");
        assert_eq!(choose(&[list[0].clone(), list[2].clone()], None).unwrap(), "b");
        assert_eq!(choose(&list, Some("b")).unwrap(), "b");
        assert!(choose(&list, Some("x")).unwrap_err().to_string().contains("c, a, b"));
        assert!(choose(&list[..1], None).is_err());
    }
}
