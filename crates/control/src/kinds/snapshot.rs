//! Snapshots of sandboxes.

use crate::context::Context;
use crate::engine::{Draft, Held, Managed};
use crate::error::{Error, Forbidden};
use crate::query::ListQuery;
use crate::snapshots;
use store::{Tx, resources};
use types::Kind;
use types::kinds::Snapshot;
use types::kinds::snapshot::State;
use types::parts::Status;

/// How many hidden snapshots a workspace may have, as a multiple of the quota. The quota does not
/// count them, because callers cannot delete them, only what begins with them.
const HIDDEN_TIMES: i64 = 10;

impl Managed for Snapshot {
    fn prepare(
        context: &Context,
        tx: &mut Tx<'_>,
        draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        let quota = context.control.settings.quotas.get(&Self::NAME);
        let Some(quota) = quota.filter(|_| draft.old.is_none()) else { return Ok(()) };
        let limit = quota.saturating_mul(HIDDEN_TIMES);
        match resources::hidden_snapshots(tx, &context.member.workspace)? >= limit {
            true => Err(Forbidden::ManyHiddenSnapshots { limit }.into()),
            false => Ok(()),
        }
    }

    fn hidden(_asked: &ListQuery) -> &'static [Status] {
        &State::HIDDEN
    }

    fn adorn(&mut self, _: &Context, tx: &mut Tx<'_>) -> Result<(), Error> {
        let Some(sandbox) = self.taken_of.take() else { return Ok(()) };
        let there = resources::find_by_id(tx, &sandbox)?.is_some_and(|row| !row.is_terminated());
        if let Some(source) = &mut self.source {
            source.deleted = Some(!there);
        }
        Ok(())
    }

    fn release(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        if held.state.metered > 0 {
            let mut state = held.state.clone();
            snapshots::meter(context, tx, held, &mut state, 0)?;
        }
        Ok(())
    }
}
