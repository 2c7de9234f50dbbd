//! What builds keep for later ones: finished steps, which are in the image store, and the folders of
//! `RUN --mount=type=cache`. All of it counts together, and each workspace has a share of the total.
//! Nothing is lost with it, so whatever was used longest ago goes when there is too much.

use super::caches::{Caches, Folder};
use super::settings::MIB;
use super::shared::Shared;
use admission::Limits;
use control::machine::BuildFault;
use images::Store;
use images::build::KeptStep;
use std::collections::HashMap;
use std::io;
use std::time::SystemTime;
use types::ids::WorkspaceId;

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("the kept folders cannot be looked through")]
    Folders(#[from] io::Error),
    #[error(transparent)]
    Steps(#[from] images::Error),
}

/// One thing that is kept.
struct Kept {
    workspace: String,
    used: SystemTime,
    bytes: u64,
    what: What,
}

enum What {
    Step(KeptStep),
    Folder(Folder),
}

/// Notes, before and after a build, that something may be kept for its workspace, which may be
/// deleted and forgotten meanwhile.
pub(super) fn note(shared: &Shared, workspace: &WorkspaceId) -> Result<(), BuildFault> {
    let noted = shared.caches.note(workspace.as_str());
    noted.map_err(|error| BuildFault::Broken(format!("its workspace cannot be noted: {error}")))
}

/// Removes what is too much after a build, whose end does not depend on it.
pub(super) fn make_room(shared: &Shared) {
    let images = &shared.machine.0.images;
    match remove_surplus(images, &shared.caches, shared.settings.kept_mb) {
        Ok(false) => {}
        // The layers of steps go with the collection.
        Ok(true) => shared.machine.tidy(),
        Err(error) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "what builds keep could not be made smaller; it is tried again after the next one"
            );
        }
    }
}

/// Removes everything that is kept for a workspace, but for folders that a step still uses.
pub(super) fn forget(shared: &Shared, workspace: &WorkspaceId) -> Result<(), Error> {
    let had_steps = shared.machine.0.images.forget_steps(workspace.as_str())?;
    shared.caches.forget(workspace.as_str())?;
    if had_steps {
        shared.machine.tidy();
    }
    Ok(())
}

/// Removes what is beyond the limits. Returns whether a step was removed.
fn remove_surplus(images: &Store, caches: &Caches, limits_mb: Limits) -> Result<bool, Error> {
    let steps = images.kept_steps()?.into_iter().map(|step| Kept {
        workspace: step.workspace.clone(),
        used: step.used,
        bytes: step.bytes,
        what: What::Step(step),
    });
    let folders = caches.all()?.into_iter().map(|folder| Kept {
        workspace: folder.workspace.clone(),
        used: folder.used,
        bytes: folder.bytes,
        what: What::Folder(folder),
    });
    let mut had_steps = false;
    for kept in surplus(steps.chain(folders).collect(), limits_mb) {
        match kept.what {
            What::Step(step) => {
                images.forget_step(&step)?;
                had_steps = true;
            }
            What::Folder(folder) => caches.remove(&folder.file)?,
        }
    }
    Ok(had_steps)
}

/// Chooses what has to go: first what workspaces have beyond their shares, then what all have beyond
/// the total, each time what was used longest ago.
fn surplus(mut all: Vec<Kept>, limits_mb: Limits) -> Vec<Kept> {
    all.sort_by_key(|kept| kept.used);
    let share = limits_mb.share.saturating_mul(MIB);
    let mut held: HashMap<String, u64> = HashMap::new();
    for kept in &all {
        let of_workspace = held.entry(kept.workspace.clone()).or_default();
        *of_workspace = of_workspace.saturating_add(kept.bytes);
    }
    let (mut gone, all): (Vec<Kept>, Vec<Kept>) = all.into_iter().partition(|kept| {
        let held = held.entry(kept.workspace.clone()).or_default();
        let is_over = *held > share;
        if is_over {
            *held = held.saturating_sub(kept.bytes);
        }
        is_over
    });
    let mut total = all.iter().fold(0, |sum: u64, kept| sum.saturating_add(kept.bytes));
    let too_much = all.into_iter().take_while(|kept| {
        let is_over = total > limits_mb.total.saturating_mul(MIB);
        total = total.saturating_sub(kept.bytes);
        is_over
    });
    gone.extend(too_much);
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn kept(workspace: &str, age_s: u64, mb: u64) -> Kept {
        let used = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000 - age_s);
        let (workspace, bytes) = (workspace.to_owned(), mb * MIB);
        let file = age_s.to_string().into();
        let folder = Folder { workspace: workspace.clone(), used, bytes, file };
        Kept { workspace, used, bytes, what: What::Folder(folder) }
    }

    /// Returns the ages of what has to go.
    fn check(all: Vec<Kept>, expect: &[u64]) {
        let limits = Limits { total: 100, share: 60 };
        let mut ages: Vec<u64> = surplus(all, limits)
            .iter()
            .map(|kept| {
                let used = kept.used.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                1_000 - used.as_secs()
            })
            .collect();
        ages.sort_unstable();
        assert_eq!(ages, expect);
    }

    #[test]
    fn what_builds_keep_is_divided_and_the_oldest_goes() {
        check(vec![kept("one", 1, 60), kept("other", 2, 40)], &[]);
        // Whoever has more than a share loses its own, though others have older things.
        check(vec![kept("one", 1, 40), kept("one", 2, 40), kept("other", 9, 40)], &[2]);
        // In all there is too much, and the oldest is somebody's within a share.
        check(vec![kept("one", 3, 50), kept("other", 1, 30), kept("third", 2, 30)], &[3]);
        check(vec![kept("one", 1, 200)], &[1]);
    }

    #[tokio::test]
    async fn folders_that_are_too_much_go_unless_a_step_uses_them() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("images"), images::Settings::default());
        let (store, caches) = (store.unwrap(), Caches::open(&folder.path().join("caches"), 9));
        let caches = caches.unwrap();
        let held = caches.take("one", "held").await.unwrap();
        let free = caches.take("one", "free").await.unwrap().file.clone();
        for file in [&held.file, &free] {
            std::fs::write(file, vec![1; 3 << 20]).unwrap();
        }
        let limits = Limits { total: 2, share: 2 };
        assert!(!remove_surplus(&store, &caches, limits).unwrap());
        assert!(held.file.exists() && !free.exists());
    }
}
