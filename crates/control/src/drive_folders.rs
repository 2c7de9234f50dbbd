//! Removing folders of drives.

use crate::context::Context;
use crate::drive_store::{DriveFault, name_of};
use crate::engine::Held;
use crate::error::{Absent, Conflict, Error, Unfit};
use store::{Tx, resources};
use types::KindName;
use types::ids::ResourceId;
use types::kinds::sandbox::DriveAttachment;
use types::kinds::{Drive, Sandbox};
use types::parts::{mount_place, names};

/// Removes a folder of a drive with everything in it.
pub async fn remove_folder(context: Context, name: String, path: String) -> Result<(), Error> {
    let folder = mount_place(&path);
    if !names::is_absolute_path(&path) {
        return Err(Unfit::DriveFolder(names::ABSOLUTE_PATH.into()).into());
    }
    if folder.is_empty() {
        return Err(
            Unfit::DriveFolder("must be a folder in the drive, not all of it".into()).into()
        );
    }
    let (of, store) = (context.clone(), context.control.store.clone());
    let held = store.read(move |tx| Held::<Drive>::get(&of, tx, &[], &name)).await?;
    // Until the folder is gone, nobody can mount it.
    let _lock = context.control.workloads.lock(&held.row.id).await;
    let (of, drive, wanted) = (context.clone(), held.row.id.clone(), folder.clone());
    store.read(move |tx| require_folder_unused(&of, tx, &drive, &wanted)).await?;
    let drives = context.control.drive_store();
    let drives = drives.filter(|(_, machine)| held.state.machine.as_ref() == Some(machine));
    let Some((drives, _)) = drives else {
        let why = context.control.kept_elsewhere(held.state.machine.as_deref());
        return Err(Unfit::DriveOnOtherMachine { drive: held.row.name, why }.into());
    };
    match drives.remove_folder(&name_of(&held.row.id), &folder).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(Absent::DriveFolder { folder }.into()),
        Err(DriveFault::Place(why)) => Err(Unfit::DriveFolder(why).into()),
        Err(fault) => Err(Error::Machine(fault.to_string())),
    }
}

/// Refuses if a sandbox has the folder, or one inside it, mounted.
fn require_folder_unused(
    context: &Context,
    tx: &mut Tx<'_>,
    drive: &ResourceId,
    folder: &str,
) -> Result<(), Error> {
    let workspace = &context.member.workspace;
    let sandboxes = resources::names_with_state(tx, workspace, KindName::Sandbox, drive.as_str())?;
    for sandbox in sandboxes {
        let Some(held) = Held::<Sandbox>::find(context, tx, &[], &sandbox)? else { continue };
        let inside = |attached: &DriveAttachment| {
            let mounted = mount_place(&attached.mounted.drive_path);
            let below = mounted.strip_prefix(folder);
            attached.drive == *drive && below.is_some_and(|it| it.is_empty() || it.starts_with('/'))
        };
        if held.state.drives.iter().any(inside) {
            return Err(Conflict::DriveMounted { sandbox }.into());
        }
    }
    Ok(())
}
