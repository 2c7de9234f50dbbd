//! Sending an object to the server, and then its sources.

use crate::client::target::Target;
use crate::client::upload::UploadAddress;
use crate::client::{Client, Query};
use crate::commands::apply::is_absent;
use crate::commands::progress::Bytes;
use crate::error::Error;
use crate::term;
use reqwest::{Method, StatusCode};
use serde_json::Value;
use std::cell::Cell;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Pauses after failed uploads. There is one more try than there are pauses.
const WAITS: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

/// Progress of a deployment, for a message when the user stops waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing was sent yet.
    Prepared,
    /// The server waits for the rest of the sources.
    Uploading,
    /// Everything was sent, and the server continues by itself.
    Begun,
}

impl Phase {
    /// Says what an interruption leaves behind. `look` is the command that shows it.
    pub(crate) fn left(self, what: &str, look: &str) -> String {
        match self {
            Self::Prepared => format!("nothing of {what} was sent"),
            Self::Uploading => format!(
                "the upload was broken off, so {what} is not built; what served before serves on"
            ),
            Self::Begun => format!("what was begun goes on; `{look}` shows how far it is"),
        }
    }
}

/// A request whose answer may have an upload address.
pub(crate) struct Submission<'a> {
    pub(crate) target: &'a Target,
    pub(crate) name: &'a str,
    pub(crate) body: &'a Value,
    pub(crate) upload: bool,
    pub(crate) order: Order,
}

/// Which requests to try, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Replace the object, or create it if it does not exist.
    Replace,
    /// Create the object, or replace it if it exists.
    Create,
    /// Only create it.
    CreateOnly,
}

impl Submission<'_> {
    pub(crate) async fn send(
        &self,
        client: &mut Client,
    ) -> Result<(Value, Option<UploadAddress>), Error> {
        let query: Query<'_> = if self.upload { &[("upload", "true")] } else { &[] };
        let object = self.target.object(self.name)?;
        let create = (Method::POST, self.target.collection.as_str());
        let replace = (Method::PUT, object.as_str());
        let (first, second) = match self.order {
            Order::Replace => (replace, Some(create)),
            Order::Create => (create, Some(replace)),
            Order::CreateOnly => (create, None),
        };
        let answer = client.call_for_upload(first.0.clone(), first.1, query, self.body).await;
        match (answer, second) {
            (Err(error), Some(second)) if is_other_way(&first.0, &error) => {
                match client.call_for_upload(second.0, second.1, query, self.body).await {
                    // It does not exist, so what is taken is something else, such as a domain.
                    Err(absent) if first.0 == Method::POST && is_absent(&absent) => Err(error),
                    answer => answer,
                }
            }
            (answer, _) => answer,
        }
    }

    /// Uploads the archive. An address works only once, so each try asks for a new one.
    pub(crate) async fn send_with(
        &self,
        archive: &File,
        phase: &Cell<Phase>,
        client: &mut Client,
    ) -> Result<Value, Error> {
        let length = archive.metadata().map_err(Error::io("read the archive"))?.len();
        let mut waits = WAITS.into_iter();
        loop {
            phase.set(Phase::Uploading);
            let (answer, address) = self.send(client).await?;
            let address = address.ok_or_else(|| Error::NotHolm {
                server: client.server(),
                message: "it names no address for the sources".into(),
            })?;
            let bar = Arc::new(Bytes::new(length));
            let shown = bar.clone();
            let sent = client.upload(&address, archive, move |bytes| shown.add(bytes)).await;
            bar.finish();
            match (sent, waits.next()) {
                (Ok(()), _) => {
                    phase.set(Phase::Begun);
                    return Ok(answer);
                }
                (Err(error), Some(wait)) if may_pass(&error) => {
                    term::note(format!("the upload failed, trying again: {error}"));
                    sleep(wait).await;
                }
                (Err(error), _) => return Err(error),
            }
        }
    }
}

fn is_other_way(method: &Method, error: &Error) -> bool {
    match *method {
        Method::PUT => is_absent(error),
        _ => matches!(error, Error::Answer { status: StatusCode::CONFLICT, .. }),
    }
}

/// True if another try may help. An archive refused for its content would be refused again.
fn may_pass(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. } => true,
        Error::Answer { status, .. } => !matches!(status.as_u16(), 400 | 413 | 415 | 422 | 501),
        _ => false,
    }
}
