//! Requests that may be for the list of tools: only their bodies say.

use super::form::is_of_type;
use crate::destination::Destination;
use crate::hold::Hold;
use crate::problem::Problem;
use crate::settings::Settings;
use crate::wire::RequestBody;
use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::request::Parts as Head;
use http_body_util::{BodyExt, Full};
use types::KindName;

/// The path at which MCP servers answer.
pub(super) const PATH: &str = "/mcp";

/// Returns whether a request may be for the list of tools, judging by its head.
fn may_ask(head: &Head, to: &Destination, body_max: u64) -> bool {
    let length = || {
        let length = head.headers.get(CONTENT_LENGTH)?.to_str().ok()?;
        length.parse::<u64>().ok()
    };
    to.workload.kind == KindName::Function
        && head.method == Method::POST
        && to.target.path() == PATH
        && is_of_type(&head.headers, "application/json")
        && !head.headers.contains_key(CONTENT_ENCODING)
        && length().is_some_and(|length| length > 0 && length <= body_max)
}

/// Reads the body of a request that may be for the list of tools. Any other body is left to pass as
/// it comes.
pub(crate) async fn read(
    settings: &Settings,
    (head, to): (&Head, &Destination),
    hold: &mut Hold,
    body: RequestBody,
) -> Result<(RequestBody, Option<Bytes>), Problem> {
    if !may_ask(head, to, settings.tool_list_request_max) {
        return Ok((body, None));
    }
    let kind = to.workload.kind;
    let limits = settings.exchange_limits(&to.workload);
    // Boxed, so that all other requests do not carry its state.
    let read = Box::pin(tokio::time::timeout(limits.idle, body.collect()));
    let read = tokio::select! {
        read = read => read,
        end = hold.end() => return Err(end.into_problem(kind)),
    };
    let Ok(Ok(whole)) = read else {
        return Err(Problem::BadRequest("the body of the request was cut off"));
    };
    let bytes = whole.to_bytes();
    Ok((RequestBody::Whole(Full::new(bytes.clone())), Some(bytes)))
}
