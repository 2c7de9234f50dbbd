//! Detection of changes in a project's files. The files are polled, since a project has few of them
//! and polling works on every file system.

use crate::error::Error;
use crate::project::folder::Entry;
use crate::project::pack::Sources;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tokio::time::sleep;

const LOOK: Duration = Duration::from_millis(500);
/// How long nothing may change before a burst of changes counts as over.
const QUIET: Duration = Duration::from_millis(200);

pub(super) struct Changes {
    folder: PathBuf,
    seen: Vec<Seen>,
}

type Seen = (String, u64, Option<SystemTime>);

impl Changes {
    pub(super) fn new(folder: &Path) -> Result<Self, Error> {
        Ok(Self { folder: folder.to_owned(), seen: look(folder)? })
    }

    /// Waits until a file was changed, added or removed.
    pub(super) async fn next(&mut self) -> Result<(), Error> {
        loop {
            sleep(LOOK).await;
            if !self.has_changed()? {
                continue;
            }
            while self.has_changed()? {
                sleep(QUIET).await;
            }
            return Ok(());
        }
    }

    fn has_changed(&mut self) -> Result<bool, Error> {
        let now = look(&self.folder)?;
        let changed = now != self.seen;
        self.seen = now;
        Ok(changed)
    }
}

fn look(folder: &Path) -> Result<Vec<Seen>, Error> {
    let seen = |entry: &Entry| {
        let modified = entry.full.metadata().and_then(|about| about.modified()).ok();
        (entry.path.clone(), entry.size, modified)
    };
    Ok(Sources::read(folder)?.entries.iter().map(seen).collect())
}
