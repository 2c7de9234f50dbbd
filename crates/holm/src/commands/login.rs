//! `holm login`: stores a server and credentials for it.

use crate::client::contexts::{Context, Contexts, Credentials};
use crate::client::{self, Choice, Client, sign_in};
use crate::error::Error;
use crate::exit::Exit;
use crate::term::{self, Style};
use crate::world;
use reqwest::StatusCode;
use serde_json::Value;
use std::io::{BufRead, IsTerminal};

/// Signs in to a server and remembers it
///
/// Without options, it shows a code to confirm in a browser. Server and credentials are kept
/// under the address, or under the name of --context, so there can be two accounts of one server.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm login --server https://holm.example.org
  holm login --api-key < key.txt
  holm login team --context team@work    # another workspace, kept beside the first")]
pub(crate) struct Args {
    /// Workspace to use; if there are several, you are asked
    #[arg(value_name = "WORKSPACE")]
    name: Option<String>,
    /// Sign in with an API key, read from HOLM_API_KEY or standard input
    #[arg(long, conflicts_with = "client_credentials")]
    api_key: bool,
    /// Sign in as a service account: `ID:SECRET`, read from HOLM_CLIENT_CREDENTIALS or standard
    /// input
    #[arg(long)]
    client_credentials: bool,
}

/// Default server, which is where `holm up` listens without settings.
const DEFAULT_SERVER: &str = "http://127.0.0.1:8700";

pub(crate) async fn run(args: Args, choice: &Choice) -> Result<Exit, Error> {
    // Here a context is the name to keep them under, so the variables count beside it.
    let (name, choice) = (choice.context(), Choice { context: None, ..choice.clone() });
    let mut contexts = Contexts::load()?;
    if let Some(name) = &name {
        // A new name is no context yet.
        let _ = contexts.select(name);
    }
    let known = contexts.current().map(|context| context.server.clone());
    let server = choice.server().or(known).unwrap_or_else(|| DEFAULT_SERVER.to_owned());
    let credentials = credentials(&args, &server).await?;
    let wanted = args.name.or_else(|| choice.workspace());
    let mut client = Client::new(&server, wanted.clone(), credentials, None)?;
    let workspace = match choose_workspace(wanted, &mut client).await {
        // The usual advice is to run this very command.
        Err(Error::Answer { status: StatusCode::UNAUTHORIZED, message, .. }) if args.api_key => {
            let message = format!("the server does not accept this API key: {message}");
            return Err(Error::NoCredentials(message));
        }
        chosen => chosen?,
    };
    let server = client.server();
    let name = name.unwrap_or_else(|| server.split("://").last().unwrap_or_default().to_owned());
    term::note(format!(
        "{} to {server}, workspace {workspace}",
        term::styled_note(Style::Good, "Signed in")
    ));
    let credentials = client.into_credentials();
    let context = Context { name, server, workspace: Some(workspace), credentials };
    Contexts::change(|contexts| {
        contexts.put(context);
        Ok(())
    })?;
    Ok(Exit::Success)
}

async fn credentials(args: &Args, server: &str) -> Result<Credentials, Error> {
    if args.api_key {
        return Ok(Credentials::ApiKey(secret("HOLM_API_KEY", "API key")?));
    }
    if args.client_credentials {
        let pair = secret("HOLM_CLIENT_CREDENTIALS", "ID:SECRET")?;
        return sign_in::decode_pair(&pair).ok_or_else(|| {
            Error::NoCredentials("client credentials are `ID:SECRET`, plain or in base64".into())
        });
    }
    let (http, base) = (client::http_client()?, client::base(server)?);
    let device = sign_in::start_device(&http, &base).await?;
    let address = device.verification_uri_complete.as_deref().unwrap_or(&device.verification_uri);
    term::note(format!("Open this address in a browser:\n\n    {}\n", term::harmless(address)));
    term::note(format!(
        "and confirm the code {}",
        term::styled_note(Style::Bold, term::harmless(&device.user_code))
    ));
    let spinner = super::progress::spinner("waiting for the confirmation");
    let session =
        sign_in::wait_for_device(&http, &base, &device, world::system().now().seconds()).await;
    spinner.finish_and_clear();
    session
}

/// Reads a secret from the environment or standard input, never from arguments, which other users
/// of the machine can see.
fn secret(variable: &str, what: &str) -> Result<String, Error> {
    if let Some(value) = std::env::var(variable).ok().filter(|value| !value.is_empty()) {
        return Ok(value);
    }
    if std::io::stdin().is_terminal() {
        term::note(format!("{what}, then Enter:"));
    }
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(Error::io("read standard input"))?;
    let value = line.trim();
    if value.is_empty() {
        return Err(Error::NoCredentials(format!(
            "no {what} was given: set {variable} or write it to standard input"
        )));
    }
    Ok(value.to_owned())
}

async fn choose_workspace(wanted: Option<String>, client: &mut Client) -> Result<String, Error> {
    let answer = client.get("workspaces", &[]).await?;
    let names: Vec<_> = names(&answer).collect();
    match (wanted, names.as_slice()) {
        (Some(wanted), _) if names.contains(&wanted.as_str()) => Ok(wanted),
        (Some(wanted), _) => Err(Error::Absent(format!(
            "you have no workspace `{wanted}`; yours: {}",
            names.join(", ")
        ))),
        (None, [only]) => Ok((*only).to_owned()),
        (None, []) => {
            Err(Error::Absent("you are in no workspace yet; ask an admin to invite you".into()))
        }
        (None, [..]) => ask_workspace(&names),
    }
}

pub(crate) fn names(answer: &Value) -> impl Iterator<Item = &str> {
    let all = answer.as_array().into_iter().flatten();
    all.filter_map(|workspace| workspace.get("name").and_then(Value::as_str))
}

fn ask_workspace(names: &[&str]) -> Result<String, Error> {
    if !std::io::stdin().is_terminal() {
        return Err(Error::Usage(format!("name one of your workspaces: {}", names.join(", "))));
    }
    for (at, name) in names.iter().enumerate() {
        term::note(format!("  {}  {}", at + 1, term::harmless(name)));
    }
    term::note("Number of the workspace, then Enter:");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(Error::io("read standard input"))?;
    let chosen =
        line.trim().parse::<usize>().ok().and_then(|number| names.get(number.checked_sub(1)?));
    chosen
        .map(|name| (*name).to_owned())
        .ok_or_else(|| Error::Absent("that is none of the numbers".into()))
}
