//! Drives: their rows, the file systems on a machine that the rows ask for, and who may mount them.
//!
//! The drives that a sandbox has mounted are listed in its row. The entry is written before the
//! mount and removed after the unmount, so no kill leaves a mount that no row knows. Repeating a
//! request completes what was interrupted. A new instance gets the drives in the row, as far as the
//! rules still allow them.

use crate::context::Context;
use crate::control::Control;
use crate::drive_store::{DriveFault, DriveStore, NewDrive, name_of};
use crate::engine::{self, Checked, Held};
use crate::error::{Conflict, Error};
use crate::idempotency::{JsonAnswer, RequestKey, once};
use crate::workloads::{launch, rows};
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use store::{Tx, resources};
use tracing::Instrument;
use types::drive_mounts::{DriveOrder, DriveRefusal, MountedDrive};
use types::ids::ResourceId;
use types::instance::{DriveMount, InstanceName};
use types::kinds::sandbox::DriveAttachment;
use types::kinds::{Drive, Sandbox, drive};
use types::parts::{free_place, overlap};
use types::{Kind, KindName};

/// Returns the drive store of this server's machine, if it has one, and the machine's name.
pub(crate) fn keeper(control: &Control) -> Option<(Arc<dyn DriveStore>, String)> {
    let machine = control.machine()?;
    Some((machine.drives()?, machine.name().to_owned()))
}

/// Creates a drive: first its file system, then its row.
pub async fn create(
    context: Context,
    wish: Drive,
    key: Option<RequestKey>,
) -> Result<JsonAnswer, Error> {
    let Some(keeper) = keeper(&context.control) else {
        let store = context.control.store.clone();
        return once(&store, key, move |tx| engine::create(&context, tx, &[], wish.clone())).await;
    };
    let checked = Checked::new(&context, wish)?;
    // Spawned, because a caller that disconnects must not leave a file system without its row.
    spawned(async move { made(&context, checked, key, keeper).await })
        .await
        .unwrap_or_else(|| Err(Error::Launch("it was interrupted".to_owned())))
}

/// Runs work to its end, even if nobody waits for it any more. `None` if it was interrupted.
async fn spawned<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Option<T> {
    tokio::spawn(work.in_current_span()).await.ok()
}

async fn made(
    context: &Context,
    checked: Checked<Drive>,
    key: Option<RequestKey>,
    (keeper, machine): (Arc<dyn DriveStore>, String),
) -> Result<JsonAnswer, Error> {
    let control = &context.control;
    let id = ResourceId::new(context.world());
    let _lock = control.workloads.lock(&id).await;
    let (of, wished) = (context.clone(), checked.wish().name().to_owned());
    let taken = move |tx: &mut Tx<'_>| of.find(tx, KindName::Drive, &[], &wished);
    let file_system = control.store.read(taken).await?.is_none();
    let name = name_of(&id);
    if file_system {
        let workspace = context.member.workspace.to_string();
        keeper.make(NewDrive { name: name.clone(), workspace }).await?;
    }
    let (of, row, mine) = (context.clone(), id.clone(), Arc::new(Mutex::new(false)));
    let written = Arc::clone(&mine);
    let answer = once(&control.store, key, move |tx| {
        *written.lock() = false;
        let kept_by = Some(machine.clone()).filter(|_| file_system);
        let done = |state: &mut drive::State| state.machine = kept_by;
        let made = engine::create_checked(&of, tx, &[], checked.clone(), row.clone(), done)?;
        *written.lock() = true;
        Ok::<_, Error>(made)
    })
    .await;
    if (answer.is_err() || !*mine.lock())
        && file_system
        && let Err(fault) = keeper.remove(&name).await
    {
        tracing::error!(%fault, drive = %name, "a drive without a row could not be removed");
    }
    answer
}

/// Removes a drive that no sandbox has mounted, with its files.
pub async fn remove(context: Context, name: String) -> Result<Drive, Error> {
    let (of, store) = (context.clone(), context.control.store.clone());
    let work = move |tx: &mut Tx<'_>| {
        let held = Held::<Drive>::lock(&of, tx, &[], &name)?;
        let last = engine::remove::<Drive>(&of, tx, &[], &name)?;
        Ok::<_, Error>((held.row.id, last))
    };
    let (id, last) = store.write(work).await?;
    if let Some((keeper, _)) = keeper(&context.control)
        && let Err(fault) = keeper.remove(&name_of(&id)).await
    {
        // The task that follows the rows tries it again.
        tracing::warn!(%fault, drive = %id, "the files of a drive are still there");
    }
    Ok(last)
}

/// Refuses if a sandbox has the drive mounted.
pub(crate) fn require_unused(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<Drive>,
) -> Result<(), Error> {
    let (workspace, id) = (&context.member.workspace, held.row.id.as_str());
    match resources::name_with_state(tx, workspace, KindName::Sandbox, id)? {
        Some(sandbox) => Err(Conflict::DriveMounted { sandbox }.into()),
        None => Ok(()),
    }
}

/// What the rules of a drive grant to a sandbox.
#[derive(Debug, PartialEq, Eq)]
struct Granted {
    /// The only folder that it may have; empty for the whole drive.
    folder: String,
    read_only: bool,
}

/// Returns what a drive grants, by the first rule whose labels the sandbox has all of. `None` if no
/// rule matches.
fn granted(drive: &Drive, labels: &dyn Fn(&str) -> Option<String>) -> Option<Granted> {
    let rules = drive.spec.permissions.as_deref().unwrap_or_default();
    if rules.is_empty() {
        return Some(Granted { folder: String::new(), read_only: false });
    }
    let matches = |rule: &&drive::DrivePermission| {
        let wanted = rule.labels.iter().flatten();
        wanted.into_iter().all(|(key, value)| labels(key).as_ref() == Some(value))
    };
    rules.iter().find(matches).map(|rule| Granted {
        folder: types::parts::mount_place(rule.path.as_deref().unwrap_or_default()),
        read_only: rule.mode == Some(drive::DriveMode::Read),
    })
}

/// Returns a label of a sandbox as drive rules see it. Nobody can set the server's own labels.
fn label(context: &Context, sandbox: &Sandbox, key: &str) -> Option<String> {
    match key {
        "blaxel-workspace" => Some(context.member.workspace_name.clone()),
        "blaxel-type" => Some(Sandbox::NAME.name().to_owned()),
        "blaxel-name" => Some(sandbox.name().to_owned()),
        _ => sandbox.metadata.labels.as_ref()?.get(key).cloned(),
    }
}

impl Granted {
    /// Returns the folder to mount for the one asked for, if that is allowed. Asking for the whole
    /// drive yields the folder that is granted.
    fn folder(&self, asked: &str) -> Option<String> {
        if asked.is_empty() || asked == self.folder {
            return Some(self.folder.clone());
        }
        let inside = asked.strip_prefix(self.folder.as_str())?;
        inside.starts_with('/').then(|| asked.to_owned())
    }
}

/// Returns the drives that a new instance of a sandbox gets, without those no longer allowed.
pub(crate) fn mounts(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<Sandbox>,
    machine: &str,
) -> Result<Vec<DriveMount>, Error> {
    let mut mounts = Vec::new();
    for attached in &held.state.drives {
        let drive = Held::<Drive>::find(context, tx, &[], &attached.mounted.drive_name)?;
        let labels = |key: &str| label(context, &held.wish, key);
        let granted = drive.filter(|drive| drive.row.id == attached.drive).and_then(|drive| {
            let here = drive.state.machine.as_deref() == Some(machine);
            granted(&drive.wish, &labels).filter(|_| here)
        });
        let folder = types::parts::mount_place(&attached.mounted.drive_path);
        match granted.and_then(|it| Some((it.folder(&folder)?, it.read_only))) {
            Some((folder, read_only)) => mounts.push(DriveMount {
                drive: name_of(&attached.drive),
                place: attached.mounted.mount_path.clone(),
                folder,
                read_only: read_only || attached.mounted.read_only,
            }),
            None => tracing::info!(
                sandbox = %held.row.id, drive = attached.mounted.drive_name,
                "it starts without a drive, which is gone or not for it any more"
            ),
        }
    }
    Ok(mounts)
}

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
    spawned(async move { mount_now(&control, &id, order, place).await })
        .await
        .unwrap_or_else(|| Err(interrupted()))
}

async fn mount_now(
    control: &Control,
    id: &ResourceId,
    order: DriveOrder,
    place: String,
) -> Result<MountedDrive, DriveRefusal> {
    let (keeper, machine) = keeper(control).ok_or_else(no_drives)?;
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
    match keeper.mount(&instance, mount).await {
        Ok(()) => Ok(attached.mounted),
        Err(fault) => {
            if new {
                forget(control, id, &attached.mounted.mount_path).await?;
            }
            Err(refusal(fault))
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
        let Some(held) = rows::find::<Sandbox>(tx, &sandbox)? else { return Ok(None) };
        let found = rows::context(&of, tx, &held.row.workspace)?;
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
    let Some(held) = rows::lock::<Sandbox>(tx, id)? else {
        return refused("the sandbox is gone".into());
    };
    let Some((context, _)) = rows::context(control, tx, &held.row.workspace)? else {
        return refused("the sandbox is gone".into());
    };
    let name = &order.drive_name;
    if context.find(tx, KindName::Drive, &[], name)?.is_none() {
        return refused(format!("there is no drive `{name}`"));
    }
    // Locked, so that it is not removed meanwhile.
    let drive = Held::<Drive>::lock(&context, tx, &[], name)?;
    if drive.state.machine.as_deref() != Some(machine) {
        return refused(format!(
            "the drive `{name}` is kept by another machine than the sandbox's"
        ));
    }
    let labels = |key: &str| label(&context, &held.wish, key);
    let Some((granted, folder)) = granted(&drive.wish, &labels)
        .and_then(|granted| granted.folder(&order.folder()).map(|folder| (granted, folder)))
    else {
        return refused(format!(
            "permission denied: no rule of the drive `{name}` gives this sandbox that folder"
        ));
    };
    let attached = DriveAttachment {
        drive: drive.row.id.clone(),
        mounted: MountedDrive {
            drive_name: name.clone(),
            mount_path: place.to_owned(),
            drive_path: if folder.is_empty() { "/".to_owned() } else { folder.clone() },
            read_only: granted.read_only || order.read_only.unwrap_or(false),
            uid_map: order.uid_map.clone().unwrap_or_default(),
            gid_map: order.gid_map.clone().unwrap_or_default(),
        },
    };
    let new = match room(control, &held, &attached) {
        Ok(new) => new,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let mount = DriveMount {
        drive: name_of(&attached.drive),
        place: place.to_owned(),
        folder,
        read_only: attached.mounted.read_only,
    };
    let instance = launch::instance(id, &held.state);
    if new {
        let mut state = held.state.clone();
        state.drives.push(attached.clone());
        rows::put_state(tx, held, state)?;
    }
    Ok(Ok(Noted { attached, instance, mount, new }))
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
    spawned(async move { unmount_now(&control, &id, &place).await })
        .await
        .unwrap_or_else(|| Err(interrupted()))
}

async fn unmount_now(control: &Control, id: &ResourceId, place: &str) -> Result<(), DriveRefusal> {
    let (keeper, _) = keeper(control).ok_or_else(no_drives)?;
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
    match keeper.unmount(&instance, &name_of(&attached.drive), place, &others).await {
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
        DriveFault::Broken(why) => {
            tracing::error!(why, "a drive could not be mounted or unmounted");
            DriveRefusal::Failed("the machine failed; its log says why".into())
        }
    }
}

fn failed(error: Error) -> DriveRefusal {
    tracing::error!(%error, "what is asked of drives could not be read or written");
    DriveRefusal::Failed("the server failed; its log says why".into())
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
    use serde_json::json;

    fn drive(permissions: serde_json::Value) -> Drive {
        let drive = json!({"metadata": {"name": "d"}, "spec": {"permissions": permissions}});
        serde_json::from_value(drive).unwrap()
    }

    fn decide(permissions: serde_json::Value, labels: &[(&str, &str)]) -> Option<(String, bool)> {
        let label = |key: &str| {
            labels.iter().find(|(name, _)| *name == key).map(|(_, value)| (*value).to_owned())
        };
        granted(&drive(permissions), &label).map(|it| (it.folder, it.read_only))
    }

    #[test]
    fn the_first_rule_decides_whose_labels_are_all_there() {
        let everything = Some((String::new(), false));
        assert_eq!(decide(json!(null), &[]), everything);
        assert_eq!(decide(json!([]), &[]), everything);
        assert_eq!(decide(json!([{}]), &[]), everything);
        let rules = json!([
            {"labels": {"team": "a", "role": "reader"}, "mode": "read", "path": "/"},
            {"labels": {"team": "a"}, "path": "/a//b/", "mode": "read-write"},
            {"labels": {"blaxel-name": "boss"}},
        ]);
        let of = |labels: &[(&str, &str)]| decide(rules.clone(), labels);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("role", "reader")]), None);
        assert_eq!(of(&[("team", "b"), ("role", "reader")]), None);
        assert_eq!(of(&[("team", "a"), ("role", "reader")]), Some((String::new(), true)));
        assert_eq!(of(&[("team", "a"), ("role", "x")]), Some(("/a/b".into(), false)));
        assert_eq!(of(&[("blaxel-name", "boss")]), everything);
    }

    #[test]
    fn a_rule_bounds_the_folder() {
        let granted = Granted { folder: "/a".into(), read_only: false };
        let folder = |asked: &str| granted.folder(asked);
        assert_eq!(folder("").as_deref(), Some("/a"));
        assert_eq!(folder("/a").as_deref(), Some("/a"));
        assert_eq!(folder("/a/b").as_deref(), Some("/a/b"));
        for outside in ["/", "/ab", "/b", "/b/a"] {
            assert_eq!(folder(outside), None, "{outside}");
        }
        let whole = Granted { folder: String::new(), read_only: false };
        assert_eq!(whole.folder("/x/y").as_deref(), Some("/x/y"));
    }
}
