//! Drives as the background follows them: every row gets a file system, and a file system without a
//! row is removed.

use super::followed::{Followed, Look, Reader};
use super::rows;
use crate::control::Control;
use crate::drive_store::{NewDrive, name_of};
use crate::engine::Held;
use crate::error::Error;
use store::Tx;
use types::ids::ResourceId;
use types::kinds::Drive;

impl Followed for Drive {
    const ROUTED: bool = false;
    const RUNS: bool = true;

    fn look(reader: &mut Reader<'_>, _: &mut Tx<'_>, held: Held<Self>) -> Result<Look, Error> {
        let differs = held.state.machine.is_none() && reader.control.drive_store().is_some();
        Ok(Look { differs, ..Look::default() })
    }

    /// Makes the file system of a row that no machine keeps yet, and removes the file system of a
    /// row that is gone.
    async fn reconcile(control: &Control, id: &ResourceId) -> Result<(), Error> {
        let Some((drives, machine)) = control.drive_store() else { return Ok(()) };
        let _lock = control.workloads.lock(id).await;
        let Some(held) = rows::find_held::<Self>(control, id).await? else {
            return Ok(drives.remove(&name_of(id)).await?);
        };
        if held.state.machine.is_some() {
            return Ok(());
        }
        let workspace = held.row.workspace.to_string();
        drives.make(NewDrive { name: name_of(id), workspace }).await?;
        let id = id.clone();
        let claim = move |tx: &mut Tx<'_>| {
            let Some(held) = rows::lock::<Self>(tx, &id)? else { return Ok::<_, Error>(()) };
            let mut state = held.state.clone();
            state.machine.get_or_insert_with(|| machine.clone());
            rows::put_state(tx, held, state).map(drop)
        };
        control.store.write(claim).await
    }
}
