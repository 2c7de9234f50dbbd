//! MCP servers.

use crate::context::Context;
use crate::engine::{Draft, Held, Managed};
use crate::error::Error;
use crate::executions::triggered::take_addresses;
use store::Tx;
use types::Kind;
use types::kinds::Function;
use types::kinds::policy::PolicyResourceType;
use types::parts::Lifecycle;

impl Managed for Function {
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
        super::require_place(context, tx, draft.wish, PolicyResourceType::Function)
    }

    fn follow(context: &Context, tx: &mut Tx<'_>, wish: &Self) -> Result<(), Error> {
        take_addresses(context, tx, wish)
    }

    fn release(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        super::release_triggered(context, tx, held)
    }
}
