//! Mounting drives in sandboxes that run.
//!
//! The drives that a sandbox has mounted are listed in its row. The entry is written before the
//! mount and removed after the unmount, so no kill leaves a mount that no row knows. The next run of
//! this program completes what was interrupted, and so does repeating the request. A new instance
//! gets the drives in the row, as far as the rules still allow them.

use super::{granted, label};
use crate::control::Control;
use crate::drive_store::{DriveFault, name_of};
use crate::engine::Held;
use crate::error::Error;
use crate::run_to_end::run_to_end;
use crate::workloads::{launch, rows};
use store::Tx;
use types::KindName;
use types::drive_mounts::{DriveOrder, DriveRefusal, MountedDrive};
use types::ids::ResourceId;
use types::instance::{DriveMount, InstanceName};
use types::kinds::sandbox::DriveAttachment;
use types::kinds::{Drive, Sandbox};
use types::parts::{free_place, overlap};

/// Lists the drives that a sandbox has mounted.
pub async fn list(
    control: &Control,
    sandbox: &ResourceId,
) -> Result<Vec<MountedDrive>, DriveRefusal> {
    let id = sandbox.clone();
    let work = move |tx: &mut Tx<'_>| {
        let held = rows::find::<Sandbox>(tx, &id)?;
        Ok::<_, Error>(held.map(|held| held.state.drives).unwrap_or_default())
    };
    let attached = control.store.read(work).await.map_err(failed)?;
    Ok(attached.into_iter().map(|attached| attached.mounted).collect())
}

/// Mounts a drive in a sandbox that runs or sleeps.
pub async fn mount(
    control: &Control,
    sandbox: &ResourceId,
    order: DriveOrder,
) -> Result<MountedDrive, DriveRefusal> {
    order.check().map_err(DriveRefusal::Bad)?;
    let place = free_place(&order.mount_path).ok_or_else(|| {
        DriveRefusal::Bad(
            "`mountPath` would hide a folder of the system: choose another, such as `/mnt/data`"
                .into(),
        )
    })?;
    let (control, id) = (control.clone(), sandbox.clone());
    run_to_end(async move { mount_now(&control, &id, order, place).await })
        .await
        .unwrap_or_else(|_| Err(interrupted()))
}

async fn mount_now(
    control: &Control,
    id: &ResourceId,
    order: DriveOrder,
    place: String,
) -> Result<MountedDrive, DriveRefusal> {
    let (drives, machine) = control.drive_store().ok_or_else(no_drives)?;
    let _lock = control.workloads.lock(id).await;
    // The lock on the drive keeps its folders from being removed during the mount.
    let _drive = match drive_of(control, id, &order.drive_name).await? {
        Some(drive) => Some(control.workloads.lock(&drive).await),
        None => None,
    };
    let (of, row) = (control.clone(), id.clone());
    let work = move |tx: &mut Tx<'_>| note(&of, tx, &row, (&order, &place), &machine);
    let Noted { attached, instance, mount, new } =
        control.store.write(work).await.map_err(failed)??;
    match drives.mount(&instance, mount).await {
        Ok(()) => Ok(attached.mounted),
        Err(fault) => {
            if new {
                forget(control, id, &attached.mounted.mount_path).await?;
            }
            Err(refusal(fault))
        }
    }
}

/// Mounts the drives in the row of a sandbox that its instance lacks, because an earlier run of this
/// program was killed before it mounted them, or before it noted that it had unmounted them. The
/// caller holds the lock of the sandbox.
pub(crate) async fn complete(
    control: &Control,
    id: &ResourceId,
    instance: &InstanceName,
    mounts: Vec<DriveMount>,
) {
    let Some((drives, _)) = control.drive_store() else { return };
    for mount in mounts {
        let place = mount.place.clone();
        let done = match drives.mount(instance, mount).await {
            Ok(()) | Err(DriveFault::Gone) => Ok(()),
            // The request would have been refused.
            Err(DriveFault::Place(_)) => forget(control, id, &place).await,
            Err(fault) => Err(refusal(fault)),
        };
        if let Err(refusal) = done {
            tracing::warn!(%refusal, sandbox = %id, place, "a sandbox may lack a drive that its row lists");
        }
    }
}

/// Finds the drive of this name in the workspace of a sandbox.
async fn drive_of(
    control: &Control,
    sandbox: &ResourceId,
    name: &str,
) -> Result<Option<ResourceId>, DriveRefusal> {
    let (of, sandbox, name) = (control.clone(), sandbox.clone(), name.to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let found = rows::find_in::<Sandbox>(&of, tx, &sandbox)?;
        let Some((context, _)) = found else { return Ok(None) };
        let drive = context.find(tx, KindName::Drive, &[], &name)?;
        Ok::<_, Error>(drive.map(|row| row.id))
    };
    control.store.read(work).await.map_err(failed)
}

/// What is to be mounted, as now noted in the row. `new` is false if the row had it already.
struct Noted {
    attached: DriveAttachment,
    instance: InstanceName,
    mount: DriveMount,
    new: bool,
}

type Decided<T> = Result<Result<T, DriveRefusal>, Error>;

/// Decides whether a sandbox may mount a drive, and notes in the row that it has it.
fn note(
    control: &Control,
    tx: &mut Tx<'_>,
    id: &ResourceId,
    (order, place): (&DriveOrder, &str),
    machine: &str,
) -> Decided<Noted> {
    let refused = |why: String| Ok(Err(DriveRefusal::Failed(why)));
    let Some((context, held)) = rows::lock_in::<Sandbox>(control, tx, id)? else {
        return refused("the sandbox is gone".into());
    };
    let name = &order.drive_name;
    if context.find(tx, KindName::Drive, &[], name)?.is_none() {
        return refused(format!("there is no drive `{name}`"));
    }
    // Locked, so that it is not removed meanwhile.
    let drive = Held::<Drive>::lock(&context, tx, &[], name)?;
    if drive.state.machine.as_deref() != Some(machine) {
        let why = control.kept_elsewhere(drive.state.machine.as_deref());
        return refused(format!("the drive `{name}` {why}, not by the sandbox's"));
    }
    let labels = |key: &str| label(&context, &held.wish, key);
    let Some((granted, folder)) = granted(&drive.wish, &labels)
        .and_then(|granted| granted.folder(&order.folder()).map(|folder| (granted, folder)))
    else {
        return refused(format!(
            "permission denied: no rule of the drive `{name}` gives this sandbox that folder"
        ));
    };
    let read_only = granted.read_only || order.read_only.unwrap_or(false);
    let mounted = mounted(order, place, &folder, read_only);
    let attached = DriveAttachment { drive: drive.row.id.clone(), mounted };
    let new = match room(control, &held, &attached) {
        Ok(new) => new,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let drive = name_of(&attached.drive);
    let mount = DriveMount { drive, place: place.to_owned(), folder, read_only };
    let instance = launch::instance(id, &held.state);
    if new {
        let mut state = held.state.clone();
        state.drives.push(attached.clone());
        rows::put_state(tx, held, state)?;
    }
    Ok(Ok(Noted { attached, instance, mount, new }))
}

/// Returns the entry for a mounted folder, which is empty for the whole drive.
fn mounted(order: &DriveOrder, place: &str, folder: &str, read_only: bool) -> MountedDrive {
    MountedDrive {
        drive_name: order.drive_name.clone(),
        mount_path: place.to_owned(),
        drive_path: if folder.is_empty() { "/".to_owned() } else { folder.to_owned() },
        read_only,
        uid_map: order.uid_map.clone().unwrap_or_default(),
        gid_map: order.gid_map.clone().unwrap_or_default(),
    }
}

/// Checks whether there is room for a drive at its place. Returns `false` if the sandbox has this
/// mount already.
fn room(
    control: &Control,
    held: &Held<Sandbox>,
    wanted: &DriveAttachment,
) -> Result<bool, DriveRefusal> {
    let place = &wanted.mounted.mount_path;
    let has = &held.state.drives;
    if has.contains(wanted) {
        return Ok(false);
    }
    let busy = |what: String| Err(DriveRefusal::Busy(format!("`{place}` is in use: {what}")));
    if let Some(other) = has.iter().find(|other| overlap(place, &other.mounted.mount_path)) {
        let MountedDrive { drive_name, mount_path, .. } = &other.mounted;
        return busy(format!("the drive `{drive_name}` is mounted at `{mount_path}`"));
    }
    let volumes = held.wish.spec.volumes.iter().flatten();
    let mut taken =
        volumes.map(|it| types::parts::mount_place(it.mount_path.as_deref().unwrap_or_default()));
    if let Some(volume) = taken.find(|taken| overlap(place, taken)) {
        return busy(format!("a volume is mounted at `{volume}`"));
    }
    let most = control.settings.sandbox_drives_max;
    if has.len() >= most {
        return Err(DriveRefusal::Bad(format!(
            "a sandbox may have {most} drives mounted at a time: unmount one"
        )));
    }
    Ok(true)
}

/// Unmounts a drive from a sandbox.
pub async fn unmount(
    control: &Control,
    sandbox: &ResourceId,
    place: &str,
) -> Result<(), DriveRefusal> {
    let (control, id, place) = (control.clone(), sandbox.clone(), place.to_owned());
    run_to_end(async move { unmount_now(&control, &id, &place).await })
        .await
        .unwrap_or_else(|_| Err(interrupted()))
}

async fn unmount_now(control: &Control, id: &ResourceId, place: &str) -> Result<(), DriveRefusal> {
    let (drives, _) = control.drive_store().ok_or_else(no_drives)?;
    let _lock = control.workloads.lock(id).await;
    let of = id.clone();
    let read = move |tx: &mut Tx<'_>| rows::find::<Sandbox>(tx, &of);
    let held = control.store.read(read).await.map_err(failed)?;
    let state = held.map(|held| held.state).unwrap_or_default();
    let is_it = |attached: &&DriveAttachment| attached.mounted.mount_path == place;
    let Some(attached) = state.drives.iter().find(is_it) else {
        return Err(DriveRefusal::Failed(format!("no drive is mounted at `{place}`")));
    };
    let same = |other: &&DriveAttachment| other.drive == attached.drive && !is_it(other);
    let others: Vec<_> =
        state.drives.iter().filter(same).map(|it| it.mounted.mount_path.clone()).collect();
    let instance = launch::instance(id, &state);
    match drives.unmount(&instance, &name_of(&attached.drive), place, &others).await {
        Ok(()) | Err(DriveFault::Gone) => forget(control, id, place).await,
        Err(fault) => Err(refusal(fault)),
    }
}

/// Notes that a sandbox no longer has anything mounted at a place.
async fn forget(control: &Control, id: &ResourceId, place: &str) -> Result<(), DriveRefusal> {
    let (id, place) = (id.clone(), place.to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let Some(held) = rows::lock::<Sandbox>(tx, &id)? else { return Ok::<_, Error>(()) };
        let mut state = held.state.clone();
        state.drives.retain(|attached| attached.mounted.mount_path != place);
        rows::put_state(tx, held, state).map(drop)
    };
    control.store.write(work).await.map_err(failed)
}

fn refusal(fault: DriveFault) -> DriveRefusal {
    match fault {
        DriveFault::Place(why) => DriveRefusal::Bad(why),
        DriveFault::InUse | DriveFault::Gone => DriveRefusal::Failed(fault.to_string()),
        DriveFault::Full(why) => DriveRefusal::Full(why),
        DriveFault::Broken(why) => {
            tracing::error!(why, "a drive could not be mounted or unmounted");
            DriveRefusal::Failed("the machine failed; its log says why".into())
        }
    }
}

fn failed(error: Error) -> DriveRefusal {
    tracing::error!(%error, "what is asked of drives could not be read or written");
    match error {
        Error::Store(full @ store::Error::Full(_)) => DriveRefusal::Full(full.for_callers().into()),
        Error::Store(away) if away.is_away() => DriveRefusal::Away(away.for_callers().into()),
        _ => DriveRefusal::Failed("the server failed; its log says why".into()),
    }
}

fn interrupted() -> DriveRefusal {
    DriveRefusal::Failed("it was interrupted".into())
}

fn no_drives() -> DriveRefusal {
    DriveRefusal::Failed("the machine of this sandbox keeps no drives".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_or_absent_database_is_told_apart_from_a_failure() {
        let full = failed(store::Error::Full("x".into()).into());
        assert_eq!(full, DriveRefusal::Full("the disk of the database is full".into()));
        let away = failed(store::Error::Busy { limit: 1 }.into());
        assert!(matches!(away, DriveRefusal::Away(_)), "{away}");
        let broken = failed(store::Error::Database("x".into()).into());
        assert!(matches!(broken, DriveRefusal::Failed(_)), "{broken}");
    }
}
