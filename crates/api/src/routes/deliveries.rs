//! The log of calls to the addresses that users gave.

use crate::http::call::Call;
use crate::http::error::Error;
use crate::http::query::{ListQuery, SMALL_PAGE};
use crate::http::reply::Reply;
use auth::Member;
use control::engine::{Held, Page};
use store::Tx;
use store::deliveries;
use types::kinds::Job;
use types::parts::PaginationMeta;
use types::wire::Delivery;
use types::{Kind, Timestamp};

/// Those about a job, newest first.
pub(crate) async fn of_job(call: Call<Member, ListQuery>) -> Result<Reply<Page<Delivery>>, Error> {
    let size = call.query.size(SMALL_PAGE)?;
    let (context, job, cursor) =
        (call.context(), call.path.at(0).to_owned(), call.query.cursor.clone());
    let work = move |tx: &mut Tx<'_>| {
        Held::<Job>::get(&context, tx, &[], &job)?;
        let (workspace, about) = (&context.member.workspace, (Job::NAME.name(), job.as_str()));
        let bound = format!("{workspace}/deliveries/{job}");
        let after = cursor.as_deref().filter(|cursor| !cursor.is_empty());
        let after = after
            .map(|cursor| context.control.cursors.open(&bound, cursor, context.world().now()))
            .transpose()?;
        let after = after.as_deref().and_then(position);
        // One more than asked for tells whether there is another page.
        let mut found = deliveries::list(tx, workspace, about, after, size + 1)?;
        let has_more = i64::try_from(found.len()).unwrap_or(i64::MAX) > size;
        found.truncate(usize::try_from(size).unwrap_or(usize::MAX));
        let next_cursor = match found.last().filter(|_| has_more) {
            Some(last) => {
                let position = format!("{}:{}", last.created_at.ms(), last.id);
                context.control.cursors.sign(&bound, &position, context.world().now())
            }
            None => String::new(),
        };
        let meta = PaginationMeta {
            has_more,
            next_cursor,
            total: deliveries::count(tx, workspace, about)?,
        };
        Ok::<_, Error>(Page { data: found.into_iter().map(shown).collect(), meta })
    };
    Ok(Reply::of(&call.app.store.read(work).await?))
}

fn position(text: &str) -> Option<(Timestamp, &str)> {
    let (time, id) = text.split_once(':')?;
    Some((Timestamp::from_ms(time.parse().ok()?), id))
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
