//! Waits, on a server that runs nothing itself, until a machine has taken what was created. Before
//! that nobody knows which server will answer for it, and published clients call what they made at
//! the address in the answer.

use crate::context::Context;
use crate::engine::{self, Held, Managed, Secrets};
use crate::error::Error;
use crate::json;
use bytes::Bytes;
use serde_json::Value;
use std::time::Duration;
use store::Tx;
use tokio::time::{Instant, timeout_at};
use types::parts::Status;

/// How long an answer waits for that. Machines learn of new rows within `feed_poll`.
const TAKING_MAX: Duration = Duration::from_secs(5);
/// What a machine changes of an object by taking it.
const CHANGED: [&str; 3] = ["/metadata/url", "/status", "/events"];

/// Returns the answer to a creation as it is once a machine has taken the object. If none does so
/// in time, or nothing is to run, returns it as it was.
pub async fn taken<K: Managed>(context: &Context, name: &str, answer: Bytes) -> Bytes {
    let control = &context.control;
    if control.machine().is_some() || !control.servers.has_others() {
        return answer;
    }
    let until = Instant::now() + TAKING_MAX;
    let mut published = control.workloads.published.subscribe();
    loop {
        published.mark_unchanged();
        match look::<K>(context, name).await {
            Ok(Look::Waits) => {}
            Ok(Look::Taken(object)) => return told(answer, &object),
            Ok(Look::Stays) => return answer,
            Err(error) => {
                tracing::warn!(%error, name, "an answer may lack the address of what it is about");
                return answer;
            }
        }
        if !matches!(timeout_at(until, published.changed()).await, Ok(Ok(()))) {
            return answer;
        }
    }
}

enum Look {
    Waits,
    Taken(Value),
    /// Nothing of it is to run now, or it does not belong to one machine.
    Stays,
}

async fn look<K: Managed>(context: &Context, name: &str) -> Result<Look, Error> {
    let (of, name) = (context.clone(), name.to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let Some(held) = Held::<K>::find(&of, tx, &[], &name)? else { return Ok(Look::Stays) };
        if K::machine(&held.state).is_some() {
            let shown = engine::present(&of, tx, &held, &Secrets::Masked)?;
            return Ok(Look::Taken(json::value(&shown)));
        }
        let waits = held.row.status == Some(Status::Deploying) && K::url(&of, &held).is_some();
        Ok::<_, Error>(if waits { Look::Waits } else { Look::Stays })
    };
    context.control.store.read(work).await
}

/// Puts what has changed into the answer, which may show secrets that are shown only once.
fn told(answer: Bytes, object: &Value) -> Bytes {
    let Ok(mut told) = serde_json::from_slice::<Value>(&answer) else { return answer };
    for member in CHANGED {
        if let (Some(place), Some(now)) = (told.pointer_mut(member), object.pointer(member)) {
            place.clone_from(now);
        }
    }
    json::bytes(&told).into()
}
