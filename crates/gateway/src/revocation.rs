//! Ends exchanges whose request would no longer be let in.
//!
//! Terminals, WebSockets, long answers and long polls outlive the check of their credentials. So
//! the same request is decided on again, by the same function, whenever credentials or previews
//! change or a sandbox is turned off, and at intervals too, because tokens expire without a change.

use crate::address::Address;
use crate::context::Context;
use crate::destination::{Decision, Destination, decide};
use crate::hold::Right;
use crate::models::{Shown, admit};
use crate::peer::Peer;
use crate::problem::Problem;
use crate::turned_off::turned_off;
use admission::{Due, Verdict};
use http::Request;
use http::request::Parts as Head;
use std::sync::Arc;
use types::ids::ResourceId;
use types::models::ModelRoute;

/// Returns the right to an exchange. `head` is the request as it came.
pub(crate) fn right(
    context: &Arc<Context>,
    head: &Head,
    address: Address,
    peer: Peer,
    destination: &Destination,
) -> Right {
    let (context, head) = (Arc::clone(context), decided_on(head));
    let (workload, port) = (destination.workload.id.clone(), destination.port);
    let due = Due::Told(context.recheck_due.subscribe());
    Right::until(async move {
        // Boxed: few exchanges last long enough to be checked again.
        let look = || Box::pin(look(&context, &head, &address, peer, (&workload, port)));
        let why = context.recheck.until_refused(due, look).await;
        metrics::counter!("holm_gateway_ended_total").increment(1);
        tracing::debug!(%why, "an exchange ends with the right to it");
        why
    })
}

/// Returns the right to the answer of a model. It lasts while the key may use the model and the
/// model is served.
pub(crate) fn right_to_model(
    context: &Arc<Context>,
    shown: Option<Shown>,
    route: &ModelRoute,
) -> Right {
    let context = Arc::clone(context);
    let (id, workspace, name) =
        (route.id.clone(), route.workspace_name.clone(), route.name.clone());
    let due = Due::Told(context.recheck_due.subscribe());
    Right::until(async move {
        let look = || Box::pin(look_at_model(&context, shown.as_ref(), &id, (&workspace, &name)));
        let why = context.recheck.until_refused(due, look).await;
        metrics::counter!("holm_gateway_ended_total").increment(1);
        tracing::debug!(%why, "the answer of a model ends with the right to it");
        why
    })
}

async fn look_at_model(
    context: &Context,
    shown: Option<&Shown>,
    id: &ResourceId,
    place: (&str, &str),
) -> Verdict<Problem> {
    match admit(context, shown, place).await {
        Ok((_, served)) if served.route.id == *id && served.route.off.is_none() => Verdict::Good,
        Ok(_) => Verdict::Refused(Problem::NoWorkload),
        Err(Problem::Refused(why)) if why.may_pass() => Verdict::Unsure(why.into()),
        Err(why) => Verdict::Refused(why),
    }
}

/// Copies the parts of a request that the decision depends on. The extensions are left out: they
/// hold the connection, which must not be kept alive by a task that waits for its end.
fn decided_on(head: &Head) -> Head {
    let (mut copy, ()) = Request::new(()).into_parts();
    copy.method = head.method.clone();
    copy.uri = head.uri.clone();
    copy.version = head.version;
    copy.headers = head.headers.clone();
    copy
}

async fn look(
    context: &Context,
    head: &Head,
    address: &Address,
    peer: Peer,
    (workload, port): (&ResourceId, u16),
) -> Verdict<Problem> {
    match decide(context, head, address, peer).await {
        Ok(Decision::Forward(to)) if to.workload.id == *workload && to.port == port => {
            turned_off(&to.workload).map_or(Verdict::Good, Verdict::Refused)
        }
        Ok(_) => Verdict::Refused(Problem::NoWorkload),
        Err(Problem::Refused(why)) if why.may_pass() => Verdict::Unsure(why.into()),
        Err(why) => Verdict::Refused(why),
    }
}
