//! The log of callbacks to the addresses that users have set.

use crate::http::call::Call;
use crate::http::error::Error;
use crate::http::query::ListQuery;
use crate::http::reply::Reply;
use auth::Member;
use control::engine::{Held, Page};
use control::pager::{Pager, TimePosition};
use control::query::SMALL_PAGE;
use store::Tx;
use store::deliveries;
use types::Kind;
use types::kinds::Job;
use types::wire::Delivery;

/// Lists the callbacks of a job, newest first.
pub(crate) async fn of_job(call: Call<Member, ListQuery>) -> Result<Reply<Page<Delivery>>, Error> {
    let size = call.query.size(SMALL_PAGE)?;
    let (context, job, cursor) =
        (call.context(), call.path.at(0).to_owned(), call.query.cursor.clone());
    let work = move |tx: &mut Tx<'_>| {
        Held::<Job>::get(&context, tx, &[], &job)?;
        let (workspace, about) = (&context.member.workspace, (Job::NAME.name(), job.as_str()));
        let pager = Pager::new(&context, format!("{workspace}/deliveries/{job}"));
        let after: Option<TimePosition> = pager.after(cursor.as_deref())?;
        let after = after.as_ref().map(|after| (after.at, after.id.as_str()));
        // One more than requested, to know whether there is another page.
        let found = deliveries::list(tx, workspace, about, after, size + 1)?;
        let total = deliveries::count(tx, workspace, about)?;
        let at = |one: &deliveries::Delivery| TimePosition {
            at: one.created_at,
            id: one.id.to_string(),
        };
        let Page { data, meta } = pager.page(found, size, total, at);
        Ok::<_, control::Error>(Page { data: data.into_iter().map(shown).collect(), meta })
    };
    Ok(Reply::of(&call.app.lists.read(call.who.workspace.as_str(), work).await?))
}

fn shown(delivery: deliveries::Delivery) -> Delivery {
    let end = delivery.url.find(['?', '#']).unwrap_or(delivery.url.len());
    Delivery {
        id: Some(delivery.id.to_string()),
        execution_id: delivery.execution,
        url: delivery.url.get(..end).map(str::to_owned),
        state: Some(delivery.state.name().to_owned()),
        attempts: Some(delivery.attempts),
        next_attempt_at: delivery.due_at,
        last_status: delivery.last_status,
        last_error: delivery.last_error,
        created_at: Some(delivery.created_at),
        ended_at: delivery.ended_at,
    }
}
