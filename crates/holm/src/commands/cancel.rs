//! `holm cancel`: ends an execution early.

use super::run::Status;
use crate::client::{Client, kinds, target};
use crate::error::Error;
use crate::exit::Exit;
use crate::term;
use reqwest::Method;
use serde_json::Value;

/// Cancels an execution of a job
///
/// Running tasks finish; no others are started.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to cancel: job
    kind: String,
    /// Name of the job
    name: String,
    /// Id of the execution
    execution: String,
}

pub(crate) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    if kinds::find(&args.kind)?.name() != "jobs" {
        return Err(Error::Usage(format!(
            "`{}` has nothing to cancel: jobs have executions",
            args.kind
        )));
    }
    let executions = target::resolve(&["jobs".into(), args.name, "executions".into()])?;
    let answer =
        client.call(Method::DELETE, &executions.object(&args.execution)?, &[], None).await?;
    let status = answer.get("status").and_then(Value::as_str).unwrap_or("cancelling");
    term::say(format!("executions/{} {}", term::harmless(&args.execution), term::harmless(status)));
    if let Some(Exit::Success | Exit::Failed) = Status::read(&answer).exit() {
        term::note("it had ended before, so there was nothing to cancel");
    }
    Ok(Exit::Success)
}
