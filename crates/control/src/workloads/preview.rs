//! Previews and the domains above them, as the background follows them.

use super::followed::{Followed, Look, Reader};
use super::routes::{self, PREVIEWS_MAX};
use super::rows;
use crate::control::Control;
use crate::engine::Held;
use crate::error::Error;
use store::Tx;
use store::resources::{self, Query};
use types::KindName;
use types::Timestamp;
use types::ids::ResourceId;
use types::kinds::{CustomDomain, Preview, Sandbox};

impl Followed for Preview {
    const ROUTED: bool = true;

    fn look(reader: &mut Reader<'_>, tx: &mut Tx<'_>, held: Held<Self>) -> Result<Look, Error> {
        let route = routes::of_preview(reader.control, tx, &held)?;
        Ok(Look { route, due: due(&held), ..Look::default() })
    }

    async fn act_when_due(control: &Control, id: &ResourceId) -> Result<(), Error> {
        let (of, id) = (control.clone(), id.clone());
        control.store.write(move |tx| expire(&of, tx, &id)).await
    }
}

fn due(held: &Held<Preview>) -> Option<Timestamp> {
    held.wish.expires_at(held.row.created_at)
}

fn expire(control: &Control, tx: &mut Tx<'_>, id: &ResourceId) -> Result<(), Error> {
    let Some(held) = rows::lock::<Preview>(tx, id)? else { return Ok(()) };
    match due(&held) {
        Some(due) if due <= control.world.now() => rows::remove::<Preview>(control, tx, id),
        _ => Ok(()),
    }
}

/// Notes in the previews of a sandbox which machine runs it: their URLs are those of its server.
pub(super) fn follow(
    tx: &mut Tx<'_>,
    sandbox: &Held<Sandbox>,
    machine: Option<&str>,
) -> Result<(), Error> {
    let (workspace, parent) = (&sandbox.row.workspace, sandbox.row.name.as_str());
    let all =
        Query { limit: PREVIEWS_MAX, ..Query::new(workspace, KindName::Preview, Some(parent)) };
    for row in resources::list(tx, &all)? {
        let Some(held) = rows::lock::<Preview>(tx, &row.id)? else { continue };
        if held.state.machine.as_deref() != machine {
            let mut state = held.state.clone();
            state.machine = machine.map(str::to_owned);
            rows::put_state(tx, held, state)?;
        }
    }
    Ok(())
}

impl Followed for CustomDomain {
    const ROUTED: bool = true;

    fn look(reader: &mut Reader<'_>, tx: &mut Tx<'_>, held: Held<Self>) -> Result<Look, Error> {
        let route = routes::of_domain(reader.control, tx, &held)?;
        Ok(Look { route: Some(route), ..Look::default() })
    }
}
