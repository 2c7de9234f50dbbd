//! The change stream of a workspace as server-sent events, so that watchers need not poll.

use crate::http::call::Call;
use crate::http::error::Error;
use crate::http::headers;
use crate::http::malformed::Malformed;
use crate::http::reply::Answer;
use crate::http::streams::OpenStream;
use auth::{Auth, Denied, Identity, Member, Ticket};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream;
use http::{HeaderValue, header};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use store::feed::{self, Change, Follower};
use tokio::time::Instant;
use types::ids::WorkspaceId;
use types::{KindName, Timestamp, Verb};

/// How long nothing is sent before a comment is, so that proxies keep the stream open and a dead
/// peer is noticed.
const KEEPALIVE: Duration = Duration::from_secs(15);

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct StreamQuery {
    /// Revision after which to begin. Default: from now on. The header `Last-Event-ID` takes
    /// precedence.
    pub after: Option<i64>,
    /// Kinds, separated by commas, such as `sandbox,preview`. Default: all that the credentials may
    /// list.
    pub kind: Option<String>,
}

/// One event of the stream. The object itself is read with its own operation.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChangeEvent {
    revision: i64,
    /// `created`, `updated` or `deleted`.
    act: &'static str,
    kind: String,
    name: String,
    /// Names of the objects that contain it, outermost first.
    parents: Vec<String>,
    version: i64,
    actor: String,
    at: Timestamp,
}

pub(crate) struct ChangeStream {
    follower: Follower,
    /// Kinds whose changes are sent.
    kinds: Vec<KindName>,
    auth: Auth,
    /// The credentials with which the stream was requested; it ends when they are no longer valid.
    ticket: Arc<Ticket>,
    outlived: BoxFuture<'static, Denied>,
    _open: OpenStream,
}

impl Answer for ChangeStream {
    fn into_response(self) -> Response {
        // Says where the stream begins, so that a stream without events can be resumed too.
        let hello = format!("id: {}\n\n", self.follower.position());
        let hello = stream::once(async { Ok::<_, Infallible>(Bytes::from(hello)) });
        let events = stream::unfold(Some(self), |stream| async { next(stream?).await });
        let mut response =
            Response::new(Body::from_stream(stream::StreamExt::chain(hello, events)));
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        response
    }

    fn describe(_: &mut SchemaGenerator) -> Vec<(u16, Option<Schema>)> {
        vec![(200, None)]
    }
}

pub(crate) async fn stream(call: Call<Member, StreamQuery>) -> Result<ChangeStream, Error> {
    let kinds = kinds(call.query.kind.as_deref(), &call.who.who)?;
    let open = call.app.streams.take(&call.who.workspace, call.who.who.holder())?;
    let last = call.headers.get("last-event-id").map(|id| id.to_str().unwrap_or_default());
    let after = match last {
        Some(id) => Some(id.parse().map_err(|_| Malformed::LastEventId)?),
        None => call.query.after,
    };
    let workspace = call.who.workspace.clone();
    let start = move |tx: &mut store::Tx<'_>| match after {
        None => Ok(feed::latest(tx)?),
        Some(after) => begin(tx, &workspace, after),
    };
    let after = call.app.store.read(start).await?;
    let follower =
        call.app.store.follow(after, call.app.settings.feed_poll).of(call.who.workspace.clone());
    let token = headers::bearer(&call.headers).ok_or(Denied::Missing)?;
    let (auth, ticket) =
        (call.app.auth.clone(), Arc::new(Ticket::new(token, &call.who, call.needs.scopes())));
    let (waiting, waits_for) = (auth.clone(), Arc::clone(&ticket));
    let outlived = Box::pin(async move { waiting.outlived(&waits_for).await });
    Ok(ChangeStream { follower, kinds, auth, ticket, outlived, _open: open })
}

/// Checks a revision from which a watcher continues. It is read from once now, so that one that is
/// no longer kept is refused with a status and not within the stream. Nothing would ever be told
/// after one that was not given out yet.
fn begin(tx: &mut store::Tx<'_>, workspace: &WorkspaceId, after: i64) -> Result<i64, Error> {
    let newest = feed::newest(tx)?;
    if after > newest {
        return Err(Error::ChangesAhead { newest });
    }
    feed::since(tx, Some(workspace), after, 1).map(|_| after).map_err(gone)
}

fn gone(error: store::Error) -> Error {
    match error {
        store::Error::Gone { oldest } => Error::ChangesGone { oldest },
        other => other.into(),
    }
}

/// Returns the kinds to tell of. The rights of the credentials count, and not the role: every
/// member may know what changed.
fn kinds(asked: Option<&str>, who: &Identity) -> Result<Vec<KindName>, Error> {
    let names = asked
        .into_iter()
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .filter(|name| !name.is_empty());
    let asked = names.map(|name| KindName::parse(name).ok_or_else(|| unknown_kind(name)));
    let asked: Vec<KindName> = asked.collect::<Result<_, _>>()?;
    if asked.is_empty() {
        let may_list = |kind: &KindName| who.may(&[kind.scope(Verb::List)]).is_ok();
        return Ok(KindName::ALL.iter().copied().filter(may_list).collect());
    }
    for kind in &asked {
        who.may(&[kind.scope(Verb::List)])?;
    }
    Ok(asked)
}

fn unknown_kind(name: &str) -> Error {
    let known: Vec<&str> = KindName::ALL.iter().map(|kind| kind.name()).collect();
    let shown: String = name.chars().take(40).collect();
    Malformed::UnknownKind { given: shown, known: known.join(", ") }.into()
}

/// Waits for the next events of the stream. It ends when the feed fails or has moved on too far,
/// and when the caller has lost the right to it.
async fn next(
    mut stream: ChangeStream,
) -> Option<(Result<Bytes, Infallible>, Option<ChangeStream>)> {
    let due = Instant::now() + KEEPALIVE;
    loop {
        let changes = tokio::select! {
            biased;
            _ = &mut stream.outlived => return None,
            changes = tokio::time::timeout_at(due, stream.follower.next()) => changes,
        };
        // Changes after the loss of the right are not sent, even if both were noticed at the same
        // time.
        if stream.auth.still_admits(&stream.ticket).await.is_err() {
            return None;
        }
        let text: String = match changes {
            Err(_) => String::new(),
            Ok(Ok(changes)) => {
                changes.into_iter().filter_map(|change| event(&stream.kinds, change)).collect()
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "a change stream ended");
                return Some((Ok(Bytes::from_static(b"event: gone\ndata: {}\n\n")), None));
            }
        };
        if !text.is_empty() {
            return Some((Ok(text.into()), Some(stream)));
        }
        // Changes of other kinds do not put this off.
        if Instant::now() >= due {
            let text = still_here(stream.follower.position());
            return Some((Ok(text.into()), Some(stream)));
        }
    }
}

/// Says that the stream goes on, and from where to resume it: what was left out since the last
/// event need not be read again.
fn still_here(position: i64) -> String {
    format!(": still here\nid: {position}\n\n")
}

fn event(kinds: &[KindName], change: Change) -> Option<String> {
    // Changes of members and keys are not resources of the workspace.
    let kind = KindName::parse(&change.kind).filter(|kind| kinds.contains(kind))?;
    let event = ChangeEvent {
        revision: change.revision,
        act: change.act.name(),
        kind: kind.name().into(),
        name: change.name,
        parents: change
            .parent
            .split('/')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
        version: change.version,
        actor: change.actor,
        at: change.at,
    };
    let data = control::json::text(&event);
    Some(format!("id: {}\nevent: change\ndata: {data}\n\n", change.revision))
}
