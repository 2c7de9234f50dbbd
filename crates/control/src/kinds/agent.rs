//! Agents.

use crate::context::Context;
use crate::engine::{Draft, Held, Managed};
use crate::error::Error;
use store::Tx;
use types::Kind;
use types::kinds::Agent;
use types::parts::Lifecycle;

impl Managed for Agent {
    fn url(context: &Context, held: &Held<Self>) -> Option<String> {
        Some(super::inference_url(context, Self::NAME, &held.row.name))
    }

    fn lifecycle(state: &mut Self::State) -> Option<&mut Lifecycle> {
        Some(state)
    }

    fn prepare(
        context: &Context,
        _: &mut Tx<'_>,
        draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        context.require_region(draft.wish.spec.region.as_deref(), "spec.region")
    }
}
