//! Schedules of sandboxes.

use crate::context::Context;
use crate::engine::{Draft, Managed, Paging};
use crate::error::{Error, Unfit};
use crate::query::SMALL_PAGE;
use store::Tx;
use store::resources::{Query, total};
use types::KindName;
use types::kinds::Schedule;

/// Most schedules of one sandbox.
pub const SCHEDULES_MAX: i64 = 100;

impl Managed for Schedule {
    const PAGING: Paging = Paging::Pages(SMALL_PAGE);

    fn prepare(
        context: &Context,
        tx: &mut Tx<'_>,
        draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        if draft.old.is_none() && count(context, tx, &draft.parents.join("/"))? >= SCHEDULES_MAX {
            return Err(Unfit::ManySchedules { max: SCHEDULES_MAX }.into());
        }
        Ok(())
    }
}

fn count(context: &Context, tx: &mut Tx<'_>, sandbox: &str) -> Result<i64, Error> {
    let of_sandbox = Query::new(&context.member.workspace, KindName::Schedule, Some(sandbox));
    let query = Query { limit: SCHEDULES_MAX, ..of_sandbox };
    Ok(total(tx, &query)?)
}
