//! Drives: their rows, the file systems on a machine that the rows ask for, and what their rules
//! grant to a sandbox. [`mounting`] mounts and unmounts them.

mod mounting;

pub(crate) use mounting::complete;
pub use mounting::{list, mount, unmount};

use crate::context::Context;
use crate::drive_store::{DriveStore, NewDrive, name_of};
use crate::engine::{self, Checked, Held};
use crate::error::{Conflict, Error};
use crate::idempotency::{JsonAnswer, RequestKey, once};
use crate::new_names::NewName;
use crate::run_to_end::run_to_end;
use crate::workloads::{rows, soon};
use std::sync::Arc;
use store::{Tx, resources};
use types::ids::ResourceId;
use types::instance::DriveMount;
use types::kinds::{Drive, Sandbox, drive};
use types::{Kind, KindName};

/// Creates a drive: first its file system, then its row.
pub async fn create(
    context: Context,
    wish: Drive,
    key: Option<RequestKey>,
) -> Result<JsonAnswer, Error> {
    let Some(drives) = context.control.drive_store() else {
        let store = context.control.store.clone();
        return once(&store, key, move |tx| engine::create(&context, tx, &[], wish.clone())).await;
    };
    let checked = Checked::new(&context, wish)?;
    // Spawned, because a caller that disconnects must not leave a file system without its row.
    run_to_end(async move { made(&context, checked, key, drives).await }).await?
}

async fn made(
    context: &Context,
    checked: Checked<Drive>,
    key: Option<RequestKey>,
    (drives, machine): (Arc<dyn DriveStore>, String),
) -> Result<JsonAnswer, Error> {
    let control = &context.control;
    let (id, wished) = (ResourceId::new(context.world()), checked.wish().name().to_owned());
    let new = NewName::take(context, KindName::Drive, &wished, key.as_ref()).await;
    let _lock = control.workloads.lock(&id).await;
    let name = name_of(&id);
    let file_system = !new.is_decided().await? && {
        let workspace = context.member.workspace.to_string();
        new.is_made(drives.make(NewDrive { name: name.clone(), workspace }).await).await?
    };
    let (of, row) = (context.clone(), id.clone());
    let answer = once(&control.store, key.clone(), move |tx| {
        resources::hold(tx, &row)?;
        let kept_by = Some(machine.clone()).filter(|_| file_system);
        let done = |state: &mut drive::State| state.machine = kept_by;
        engine::create_checked(&of, tx, &[], checked.clone(), row.clone(), done)
    })
    .await;
    match &answer {
        _ if !file_system => {}
        Ok(answer) if !answer.replayed => {}
        // Whoever can read next whether there is a row decides what becomes of the file system.
        Err(error) if rows::is_uncertain(error) => soon::reconcile(control, KindName::Drive, id),
        Ok(_) | Err(_) => {
            if let Err(fault) = drives.remove(&name).await {
                tracing::error!(%fault, drive = %name, "a drive without a row could not be removed");
            }
        }
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
    if let Some((drives, _)) = context.control.drive_store()
        && let Err(fault) = drives.remove(&name_of(&id)).await
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
