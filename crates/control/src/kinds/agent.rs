//! Agents.

use crate::attachments::Holder;
use crate::context::Context;
use crate::engine::{self, Draft, Held, Managed};
use crate::error::Error;
use crate::executions::triggered::take_addresses;
use store::Tx;
use types::Kind;
use types::ids::ResourceId;
use types::kinds::Agent;
use types::kinds::policy::PolicyResourceType;
use types::parts::{Deployment, Lifecycle};

impl Managed for Agent {
    fn url(context: &Context, held: &Held<Self>) -> Option<String> {
        let machine = Self::machine(&held.state);
        Some(super::inference_url(context, Self::NAME, &held.row.name, machine))
    }

    fn machine(state: &Self::State) -> Option<&str> {
        state.machine.as_deref()
    }

    fn lifecycle(state: &mut Self::State) -> Option<&mut Lifecycle> {
        Some(&mut state.lifecycle)
    }

    fn prepare(
        context: &Context,
        tx: &mut Tx<'_>,
        draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        super::require_place(context, tx, draft.wish, PolicyResourceType::Agent)?;
        let old = draft.old.map(Holder::agent);
        let serving = serving(context, tx, draft.id, draft.state)?;
        let serving = serving.as_ref().map(Holder::agent);
        Holder::agent(draft.wish).take(context, tx, old.as_ref(), serving.as_ref())
    }

    fn follow(context: &Context, tx: &mut Tx<'_>, wish: &Self) -> Result<(), Error> {
        take_addresses(context, tx, wish)
    }

    fn release(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        Holder::agent(&held.wish).leave(context, tx)?;
        if let Some(serving) = serving(context, tx, &held.row.id, &held.state)? {
            Holder::agent(&serving).leave(context, tx)?;
        }
        super::release_triggered(context, tx, held)
    }
}

/// Returns the wish of the revision that serves, which may mount volumes that the newest does not.
fn serving(
    context: &Context,
    tx: &mut Tx<'_>,
    id: &ResourceId,
    state: &Deployment,
) -> Result<Option<Agent>, Error> {
    let Some(revision) = state.serves() else { return Ok(None) };
    engine::wish_of(context, tx, id, revision)
}
