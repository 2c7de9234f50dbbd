//! Schedules of sandboxes and the history of their firings.

use crate::call::Call;
use crate::engine::{Desk, Draft, Held, Managed, Page, Paging};
use crate::error::Error;
use crate::query::{ListQuery, SMALL_PAGE};
use crate::reply::Reply;
use auth::Member;
use store::Tx;
use store::resources::{Order, Query, total};
use types::KindName;
use types::kinds::{Sandbox, Schedule};
use types::parts::PaginationMeta;
use types::wire::SandboxScheduleExecution;

/// Of one sandbox.
const SCHEDULES_MAX: i64 = 100;

impl Managed for Schedule {
    const PAGING: Paging = Paging::Pages(SMALL_PAGE);

    fn settle(desk: &Desk, tx: &mut Tx<'_>, draft: &mut Draft<'_, Self>) -> Result<(), Error> {
        if draft.old.is_none() && count(desk, tx, &draft.parents.join("/"))? >= SCHEDULES_MAX {
            return Err(Error::Malformed(format!("a sandbox has at most {SCHEDULES_MAX} schedules; delete one first")));
        }
        Ok(())
    }
}

fn count(desk: &Desk, tx: &mut Tx<'_>, sandbox: &str) -> Result<i64, Error> {
    let query = Query {
        workspace: &desk.member.workspace,
        kind: KindName::Schedule,
        parent: Some(sandbox),
        statuses: &[],
        hidden_statuses: &[],
        external_id: None,
        text: None,
        order: Order::CreatedDesc,
        after: None,
        limit: SCHEDULES_MAX,
        from_end: false,
    };
    Ok(total(tx, &query)?)
}

/// What schedules did. Nothing fires before the sandbox engine runs, so the history is empty.
pub(crate) async fn executions(call: Call<Member, ListQuery>) -> Result<Reply<Page<SandboxScheduleExecution>>, Error> {
    call.query.size(SMALL_PAGE)?;
    let (desk, name) = (call.desk(), call.path.name().to_owned());
    call.app.store.read(move |tx| Held::<Sandbox>::get(&desk, tx, &[], &name).map(drop)).await?;
    Ok(Reply::of(&Page { data: Vec::new(), meta: PaginationMeta::default() }))
}
