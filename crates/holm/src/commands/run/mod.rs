//! `holm run`: runs a job and follows it, or sends a request to a workload.

mod invoke;
mod status;
mod watch;

pub(super) use status::Status;

use crate::client::{Client, kinds, target};
use crate::error::Error;
use crate::exit::Exit;
use crate::term;
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

/// Runs a job, or sends a request to an agent, function, application, model or sandbox
///
/// For a job it prints the id of the execution. On a terminal, and with --wait, it then shows
/// progress until the execution has ended; the exit code is 0 if it succeeded, 1 if it failed and
/// 13 if it was cancelled. For other kinds it prints the answer as it arrives.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm run job nightly --data '[{\"city\": \"Bonn\"}]'
  holm run agent helper --data '{\"inputs\": \"hello\"}'
  holm run function tools --path /mcp --data '{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/list\"}' \\
    --header 'Accept: application/json, text/event-stream'
  holm run sandbox box --path /health")]
pub(crate) struct Args {
    /// What to run: job, agent, function, application, model or sandbox
    kind: String,
    /// Name of the object
    name: String,
    /// Data to send, as JSON. For a job `{"tasks": [{"key": "value"}, …]}`, or only the list of
    /// tasks
    ///
    /// Without data, a job has one task without arguments.
    #[arg(short, long, value_name = "JSON", conflicts_with = "file")]
    data: Option<String>,
    /// File with the data; `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// A variable that overrides the job's. Other users of this machine can see it, so put secrets
    /// into `env` of the file
    #[arg(short, long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Memory of each task in megabytes, at most that of the job
    #[arg(long, value_name = "MB")]
    memory: Option<i64>,
    /// Id for the execution
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Fail if there is no free capacity now
    #[arg(long)]
    no_queue: bool,
    /// Wait until the execution has ended
    #[arg(long, conflicts_with = "detach")]
    wait: bool,
    /// Do not wait, even on a terminal
    #[arg(long)]
    detach: bool,
    /// Path below the address of the workload
    #[arg(long, value_name = "PATH", help_heading = FOR_REQUESTS)]
    path: Option<String>,
    /// Method of the request; by default POST for agents, functions and models, and if data is sent
    #[arg(long, help_heading = FOR_REQUESTS)]
    method: Option<String>,
    /// A header of the request
    #[arg(long, value_name = "NAME:VALUE", help_heading = FOR_REQUESTS)]
    header: Vec<String>,
    /// A query parameter
    #[arg(long, value_name = "NAME=VALUE", help_heading = FOR_REQUESTS)]
    params: Vec<String>,
}

const FOR_REQUESTS: &str = "For requests, not for jobs";

impl Args {
    fn is_about_jobs(&self) -> bool {
        let flags = [self.no_queue, self.wait, self.detach];
        let given = !self.env.is_empty() || self.memory.is_some() || self.id.is_some();
        given || flags.contains(&true)
    }

    fn is_about_requests(&self) -> bool {
        let given = self.path.is_some() || self.method.is_some();
        given || !self.header.is_empty() || !self.params.is_empty()
    }
}

pub(crate) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    let kind = kinds::find(&args.kind)?;
    match kind.name() {
        "jobs" if args.is_about_requests() => {
            let message = "--path, --method, --header and --params are for requests, not for jobs";
            return Err(Error::Usage(message.into()));
        }
        "jobs" => {}
        name if !invoke::KINDS.contains(&name) => {
            let can = invoke::KINDS.join(", ");
            let message = format!("`{}` cannot be run: jobs, {can} can", args.kind);
            return Err(Error::Usage(message));
        }
        _ if args.is_about_jobs() => {
            let message = "--env, --memory, --id, --no-queue, --wait and --detach are for jobs";
            return Err(Error::Usage(message.into()));
        }
        _ => return invoke::run(args, kind, client).await,
    }
    let body = body(&args)?;
    let executions = target::resolve(&["jobs".into(), args.name.clone(), "executions".into()])?;
    let answer = client.call(Method::POST, &executions.collection, &[], Some(&body)).await?;
    let id =
        ["executionId", "id", "execution_id"].iter().find_map(|name| answer.get(name)?.as_str());
    let id = id.ok_or_else(|| Error::NotHolm {
        server: client.server(),
        message: "it names no execution".into(),
    })?;
    term::say(term::harmless(id));
    let watched = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
    if !args.wait && (args.detach || !watched) {
        return Ok(Exit::Success);
    }
    let execution =
        watch::Execution { job: args.name, id: id.to_owned(), path: executions.object(id)? };
    watch::to_the_end(&execution, &mut client).await
}

fn body(args: &Args) -> Result<Value, Error> {
    let mut body = match (&args.data, &args.file) {
        (Some(data), _) => read_data("--data", data)?,
        (None, Some(file)) => read_data(&file.display().to_string(), &read_file(file)?)?,
        (None, None) => Map::new(),
    };
    body.entry("tasks").or_insert_with(|| json!([{}]));
    let mut set = |name: &str, value: Option<Value>| {
        value.and_then(|value| body.insert(name.to_owned(), value))
    };
    set("memory", args.memory.map(Value::from));
    set("executionId", args.id.clone().map(Value::from));
    set("allowQueue", args.no_queue.then_some(Value::Bool(false)));
    if !args.env.is_empty() {
        let env = body.entry("env").or_insert_with(|| json!({}));
        let wrong = || Error::Document { place: "env".into(), message: "must be an object".into() };
        let env = env.as_object_mut().ok_or_else(wrong)?;
        for variable in &args.env {
            let parts = variable.split_once('=').filter(|(name, _)| !name.is_empty());
            // The text may contain a secret, so it is not repeated.
            let (name, value) =
                parts.ok_or_else(|| Error::Usage("--env must be NAME=VALUE".into()))?;
            env.insert(name.to_owned(), value.into());
        }
    }
    Ok(Value::Object(body))
}

fn read_file(file: &Path) -> Result<String, Error> {
    if file != Path::new("-") {
        return std::fs::read_to_string(file)
            .map_err(Error::reading(format!("read {}", file.display())));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(Error::io("read standard input"))?;
    Ok(text)
}

/// What a request may have beside its tasks.
const OF_REQUEST: [&str; 7] =
    ["allowQueue", "env", "executionId", "id", "jobId", "memory", "workspaceId"];

/// Reads a request, or only its list of tasks.
fn read_data(place: &str, text: &str) -> Result<Map<String, Value>, Error> {
    let wrong = |message: String| Error::Document { place: place.to_owned(), message };
    match serde_json::from_str(text) {
        // The interface ignores members that it does not know, so the arguments of a task that stand
        // alone would be lost.
        Ok(Value::Object(body))
            if !body.contains_key("tasks")
                && body.keys().any(|name| !OF_REQUEST.contains(&name.as_str())) =>
        {
            Err(wrong("has no `tasks`; write one task with these arguments as `[{…}]`".into()))
        }
        Ok(Value::Object(body)) => Ok(body),
        Ok(tasks @ Value::Array(_)) => Ok(Map::from_iter([("tasks".to_owned(), tasks)])),
        Ok(_) => Err(wrong(r#"must be {"tasks": [{…}, …]}, or the list alone"#.into())),
        Err(error) => Err(wrong(format!("is not JSON: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::flags;
    use proptest::prelude::*;

    fn body_of(words: &[&str]) -> Result<Value, Error> {
        body(&flags::read(["run", "job", "nightly"].iter().chain(words)).unwrap())
    }

    #[test]
    fn flags_are_laid_over_the_data() {
        let data = r#"{"tasks": [{"a": 1}, {"a": 2}], "env": {"X": "1", "Y": "2"}, "memory": 512}"#;
        let body = body_of(&[
            "--data",
            data,
            "--env",
            "Y=a=b",
            "--memory",
            "256",
            "--id",
            "mine",
            "--no-queue",
        ])
        .unwrap();
        let expected = json!({"tasks": [{"a": 1}, {"a": 2}], "env": {"X": "1", "Y": "a=b"}, "memory": 256,
            "executionId": "mine", "allowQueue": false});
        assert_eq!(body, expected);
    }

    #[test]
    fn tasks_may_stand_alone_or_be_left_out() {
        assert_eq!(body_of(&["--data", r#"[{"a": 1}]"#]).unwrap(), json!({"tasks": [{"a": 1}]}));
        assert_eq!(body_of(&[]).unwrap(), json!({"tasks": [{}]}));
    }

    #[test]
    fn arguments_without_a_task_are_refused() {
        let error = body_of(&["--data", r#"{"city": "Bonn"}"#]).unwrap_err();
        assert!(error.exit() == Exit::Refused && error.to_string().contains("[{…}]"), "{error}");
        let without = body_of(&["--data", r#"{"memory": 512, "env": {"A": "1"}}"#]).unwrap();
        assert_eq!(without, json!({"tasks": [{}], "memory": 512, "env": {"A": "1"}}));
    }

    #[test]
    fn a_wrong_variable_is_refused_and_not_repeated() {
        for wrong in ["s3cret", "=s3cret"] {
            let error = body_of(&["--env", wrong]).unwrap_err();
            assert!(
                error.exit() == Exit::Usage && !error.to_string().contains("s3cret"),
                "{error}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_data_is_read_or_refused(text in ".*") {
            let _ = read_data("--data", &text);
        }
    }
}
