//! Small files that must be whole and on disk once they have their name.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a file beside `path` and renames it, so that a crash leaves the old content or the new.
/// Only root may read it.
pub(crate) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let mut file =
        File::options().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    // The name, too, has to survive a loss of power.
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
