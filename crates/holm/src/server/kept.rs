//! What earlier runs keep on this machine, which must belong to the database of this start: the
//! server removes whatever no row of its database names.

use super::machine_name::{self, NODE_FOLDER};
use crate::config::{Config, Role};
use crate::error::Error;
use std::fs::{self, ReadDir};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use store::{Store, Target};
use types::World;

/// Folders of the node that have a folder for each owner, with what is kept for them.
const OF_OWNERS: [&str; 2] = ["volumes", "snapshots"];
/// Folder of the node with a file for each instance that may still run. The names of other files in
/// it contain dots.
const INSTANCES: &str = "instances";
/// File of the node with what it cannot keep in those folders.
const POOL: &str = "pool";

/// Says that this machine keeps something.
pub(super) struct Kept {
    machine: String,
    node: PathBuf,
}

impl Kept {
    /// Returns `None` if nothing is kept, or if this process does not look after it.
    pub(super) fn find(config: &Config, world: &World) -> Result<Option<Self>, Error> {
        let data = &config.data.folder;
        let node = data.join(NODE_FOLDER);
        if !config.server.roles.contains(&Role::Node)
            || !has_any(&node).map_err(Error::io(format!("look into {}", node.display())))?
        {
            return Ok(None);
        }
        Ok(Some(Self { machine: machine_name::read(data, world)?, node }))
    }

    /// Refuses to make a new database beside what is kept. Checked before the store is opened, since
    /// the log of a new SQLite file would damage an old file that somebody puts in its place.
    pub(super) fn require_file(&self, config: &Config) -> Result<(), Error> {
        match config.store_settings().target {
            Target::Sqlite { file } if fs::metadata(&file).map_or(0, |about| about.len()) == 0 => {
                Err(self.foreign(&format!("there is no database {}", file.display())))
            }
            Target::Sqlite { .. } | Target::Postgres { .. } => Ok(()),
        }
    }

    /// Refuses a database that has never known this machine.
    pub(super) async fn require_known(&self, store: &Store) -> Result<(), Error> {
        let known = store.read(control::known_machines).await;
        let known = known.map_err(|source| Error::Store {
            act: "find this machine in the database".to_owned(),
            source,
        })?;
        if known.contains(&self.machine) {
            return Ok(());
        }
        Err(self.foreign(&format!("the database does not know this machine ({})", self.machine)))
    }

    fn foreign(&self, why: &str) -> Error {
        let node = self.node.display();
        let message = format!(
            "{why}, but {node} has volumes, snapshots or sandboxes, which would all be removed, \
             since no row names them\n  \
             if the database is lost, restore it first (`holm restore`); if it is elsewhere, check \
             store.url and data.folder; to begin anew, move {node} away"
        );
        Error::Start { act: "start on this database".to_owned(), message }
    }
}

/// Returns whether a node's folder has anything that a start on a wrong database would remove.
fn has_any(node: &Path) -> io::Result<bool> {
    if node.join(POOL).try_exists()? {
        return Ok(true);
    }
    for owners in OF_OWNERS {
        for owner in entries(&node.join(owners))?.into_iter().flatten() {
            if entries(&owner?.path())?.is_some_and(|mut files| files.next().is_some()) {
                return Ok(true);
            }
        }
    }
    for file in entries(&node.join(INSTANCES))?.into_iter().flatten() {
        if !file?.file_name().as_encoded_bytes().contains(&b'.') {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Lists a folder; `None` if there is none.
fn entries(folder: &Path) -> io::Result<Option<ReadDir>> {
    match fs::read_dir(folder) {
        Ok(entries) => Ok(Some(entries)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_has_an_owner_or_runs_is_kept() {
        for (path, is_kept) in [
            ("lock", false),
            ("volumes/wsp_a", false),
            ("volumes/wsp_a/vol_1", true),
            ("snapshots/wsp_a/snap_1/layer", true),
            ("instances/.spare", false),
            ("instances/sandbox-a-1", true),
            ("pool", true),
        ] {
            let node = tempfile::tempdir().unwrap();
            assert!(!has_any(&node.path().join("none")).unwrap());
            fs::create_dir_all(node.path().join(path)).unwrap();
            assert_eq!(has_any(node.path()).unwrap(), is_kept, "{path}");
        }
    }
}
