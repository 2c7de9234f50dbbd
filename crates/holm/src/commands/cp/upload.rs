//! Copying into a sandbox.

use super::copied::{Copied, tell_left_out};
use super::place::{join, means_content, name_of};
use crate::client::workload::Workload;
use crate::commands::progress::Bytes;
use crate::error::Error;
use crate::project::folder::{Entry, Kind, walk};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tokio::fs::File;

/// Number of files sent at the same time.
const AT_ONCE: usize = 4;

pub(super) async fn upload(from: &Path, sandbox: &Workload, to: &str) -> Result<Copied, Error> {
    let about = from.metadata().map_err(Error::reading(format!("read {}", from.display())))?;
    let shown = from.to_string_lossy();
    // An existing folder receives the copy inside it, as with other tools.
    let into = to.ends_with('/') || sandbox.list(to).await?.is_some();
    let target = match name_of(&shown).filter(|_| into && !means_content(&shown)) {
        Some(name) => join(to, name),
        None => to.to_owned(),
    };
    if about.is_dir() {
        return upload_folder(from, sandbox, &target).await;
    }
    let bar = Bytes::new(about.len());
    send(sandbox, from, &target, about.permissions().mode() & 0o777, &bar).await?;
    bar.finish();
    Ok(Copied { files: 1, bytes: about.len() })
}

async fn upload_folder(from: &Path, sandbox: &Workload, to: &str) -> Result<Copied, Error> {
    let found = walk(from, &|_, _| false)?;
    tell_left_out(&found.left_out);
    let mode = from.metadata().map_err(Error::reading(format!("read {}", from.display())))?;
    sandbox.make_folder(to, mode.permissions().mode() & 0o777).await?;
    // Folders come first, so that each gets its own permissions.
    for folder in found.entries.iter().filter(|entry| entry.kind == Kind::Folder) {
        sandbox.make_folder(&join(to, &folder.path), folder.mode).await?;
    }
    let bar = Bytes::new(found.bytes());
    let files = found.entries.iter().filter(|entry| entry.kind == Kind::File);
    let copies = files.map(|file| copy(sandbox, file, to, &bar));
    stream::iter(copies).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    bar.finish();
    Ok(Copied { files: found.files() as u64, bytes: found.bytes() })
}

async fn copy(sandbox: &Workload, file: &Entry, to: &str, bar: &Bytes) -> Result<(), Error> {
    send(sandbox, &file.full, &join(to, &file.path), file.mode, bar).await
}

async fn send(
    sandbox: &Workload,
    from: &Path,
    to: &str,
    mode: u32,
    bar: &Bytes,
) -> Result<(), Error> {
    let content =
        File::open(from).await.map_err(Error::reading(format!("read {}", from.display())))?;
    sandbox.put_file(to, mode, content, &|sent| bar.add(sent)).await
}
