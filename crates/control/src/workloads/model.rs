//! Models and their connections, as the background follows them.

use super::followed::{Followed, Look, Reader};
use super::rows;
use crate::control::Control;
use crate::engine::Held;
use crate::error::Error;
use crate::models::{access, route};
use store::Tx;
use types::KindName;
use types::ids::ResourceId;
use types::kinds::{IntegrationConnection, Model};

/// Pause after a failure of the database, or when too many tokens are being fetched already.
const RETRY_AFTER_S: i64 = 5;

impl Followed for Model {
    const ROUTED: bool = true;

    fn look(reader: &mut Reader<'_>, tx: &mut Tx<'_>, held: Held<Self>) -> Result<Look, Error> {
        Ok(Look { route: route::of(reader.control, tx, &held)?, ..Look::default() })
    }
}

impl Followed for IntegrationConnection {
    const ROUTED: bool = false;

    /// A connection that needs access tokens is due when it needs the next one.
    fn look(reader: &mut Reader<'_>, tx: &mut Tx<'_>, held: Held<Self>) -> Result<Look, Error> {
        let context = rows::context(reader.control, tx, &held.row.workspace)?;
        let due = match context {
            Some((context, _)) => access::due(&context, &held)?,
            None => None,
        };
        Ok(Look { due, ..Look::default() })
    }

    /// Runs in a task of its own: providers are slow, and other due rows must not wait for them.
    async fn act_when_due(control: &Control, id: &ResourceId) -> Result<(), Error> {
        let (control, id) = (control.clone(), id.clone());
        let tasks = control.workloads.tasks.clone();
        tasks.spawn(async move {
            match access::renew(&control, &id).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(%error, %id, "an access token could not be renewed; it is tried again");
                }
            }
            let due = control.world.now().plus_s(RETRY_AFTER_S);
            control.workloads.alarm.set(id, KindName::IntegrationConnection, Some(due));
        });
        Ok(())
    }
}
