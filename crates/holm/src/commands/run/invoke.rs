//! `holm run agent …`: sends a request to a workload.

use super::{Args, read_file};
use crate::characters::Characters;
use crate::client::Client;
use crate::client::kinds::Kind;
use crate::client::target::resolve;
use crate::client::workload::{Workload, is_of_platform, refusal, segment};
use crate::error::Error;
use crate::exit::Exit;
use crate::term;
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use reqwest::{Method, Response};
use std::io::{self, IsTerminal};

/// Kinds that answer requests.
pub(super) const KINDS: [&str; 5] = ["agents", "applications", "functions", "models", "sandboxes"];

pub(super) async fn run(args: Args, kind: &'static Kind, client: Client) -> Result<Exit, Error> {
    let path = path(&args)?;
    let headers = headers(&args.header)?;
    let method = method(&args, kind)?;
    let data = match (args.data, &args.file) {
        (Some(data), _) => Some(data),
        (None, Some(file)) => Some(read_file(file)?),
        (None, None) => None,
    };
    let target = resolve(&[kind.name().to_owned(), args.name.clone()])?;
    let workload = Workload::find(client, &target).await?;
    let mut request = workload.request(method, &path).await?;
    if let Some(data) = data {
        request = request.header(CONTENT_TYPE, "application/json").body(data);
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let response = workload.send(request).await?;
    let status = response.status();
    let is_failure = !status.is_success() && !status.is_redirection();
    if is_failure && is_of_platform(&response) {
        return Err(refusal(response).await);
    }
    if status.is_redirection() {
        tell_redirect(&response);
    }
    print(&workload, response).await?;
    // An answer of the workload is what was asked for, whatever its status.
    Ok(if is_failure { Exit::of_status(status) } else { Exit::Success })
}

/// Says where an answer leads that usually has no text. It is not followed, because the credentials
/// would go there too.
fn tell_redirect(response: &Response) {
    let status = response.status();
    let place =
        response.headers().get(LOCATION).map(|place| String::from_utf8_lossy(place.as_bytes()));
    term::note(match place {
        Some(place) => format!("the answer is {status}, to {}", term::harmless(&place)),
        None => format!("the answer is {status}"),
    });
}

/// Returns the path with the query parameters.
fn path(args: &Args) -> Result<String, Error> {
    let path = args.path.clone().unwrap_or_default();
    if !path.is_empty() && !path.starts_with(['/', '?']) {
        return Err(Error::Usage("--path begins with a slash".into()));
    }
    let mut whole = path;
    for parameter in &args.params {
        let (name, value) = parameter
            .split_once('=')
            .ok_or_else(|| Error::Usage("--params must be NAME=VALUE".into()))?;
        whole.push(if whole.contains('?') { '&' } else { '?' });
        whole.push_str(&format!("{}={}", segment(name), segment(value)));
    }
    Ok(whole)
}

fn headers(given: &[String]) -> Result<Vec<(HeaderName, HeaderValue)>, Error> {
    let read = |text: &String| {
        let (name, value) = text.split_once(':')?;
        Some((name.trim().parse().ok()?, value.trim().parse().ok()?))
    };
    // The text may contain a secret, so it is not repeated.
    let wrong = || Error::Usage("--header must be NAME:VALUE".into());
    given.iter().map(|text| read(text).ok_or_else(wrong)).collect()
}

/// Returns the method: by default POST if data is sent or the kind is meant to be called, else GET.
fn method(args: &Args, kind: &Kind) -> Result<Method, Error> {
    match &args.method {
        Some(method) => Method::from_bytes(method.to_ascii_uppercase().as_bytes())
            .map_err(|_| Error::Usage(format!("`{method}` is no method"))),
        None if args.data.is_some() || args.file.is_some() => Ok(Method::POST),
        None if matches!(kind.name(), "agents" | "functions" | "models") => Ok(Method::POST),
        None => Ok(Method::GET),
    }
}

/// Prints the answer as it arrives: exact bytes for programs, harmless text for a terminal.
async fn print(workload: &Workload, mut response: Response) -> Result<(), Error> {
    let (is_terminal, mut characters) = (io::stdout().is_terminal(), Characters::default());
    let mut ends_line = true;
    while let Some(piece) =
        response.chunk().await.map_err(|source| workload.broke_off(source.without_url()))?
    {
        ends_line = piece.ends_with(b"\n");
        if is_terminal {
            term::say_part(term::harmless(&characters.take(&piece)));
            continue;
        }
        if !term::say_bytes(&piece) {
            // The reader has closed the pipe, as `head` does, or there is no room for more.
            return Ok(());
        }
    }
    if is_terminal && !ends_line {
        term::say("");
    }
    Ok(())
}
