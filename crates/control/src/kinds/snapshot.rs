//! Snapshots of sandboxes.

use crate::context::Context;
use crate::engine::{Held, Managed};
use crate::error::Error;
use crate::query::ListQuery;
use crate::snapshots;
use store::{Tx, resources};
use types::kinds::Snapshot;
use types::kinds::snapshot::State;
use types::parts::Status;

impl Managed for Snapshot {
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
