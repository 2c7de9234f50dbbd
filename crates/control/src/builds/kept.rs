//! What builders keep for later builds, which goes together with its workspace.

use crate::control::Control;
use crate::error::Error;
use store::Tx;
use store::identity::workspaces;

/// Has the builder of this machine remove what it keeps for workspaces that are deleted, whenever
/// that was.
pub(crate) async fn clear_deleted(control: &Control) -> Result<(), Error> {
    let Some(builder) = &control.builder else { return Ok(()) };
    let kept = builder.keeps_for().await?;
    let gone = move |tx: &mut Tx<'_>| {
        let mut gone = Vec::new();
        for workspace in &kept {
            if workspaces::find_open(tx, workspace)?.is_none() {
                gone.push(workspace.clone());
            }
        }
        Ok::<_, store::Error>(gone)
    };
    for workspace in control.store.read(gone).await? {
        builder.forget_workspace(&workspace).await?;
    }
    Ok(())
}
