//! Copying from a sandbox.

use super::copied::{Copied, tell_left_out};
use super::destination::{Destination, Name, Output};
use super::place::{join, means_content, name_of, parent, plain};
use crate::client::files::{Found, Listing};
use crate::client::workload::Workload;
use crate::commands::progress::Bytes;
use crate::error::Error;
use futures_util::{StreamExt, TryStreamExt, stream};
use reqwest::Response;
use std::io::Write;
use std::path::{Path, PathBuf};

const AT_ONCE: usize = 4;
const TRIES: u32 = 3;
const UNIQUE_CHARS: usize = 12;
const USUAL_MODE: u32 = 0o644;
/// Most entries in one copy; with more, the sandbox is assumed to be making them up.
const ENTRIES_MAX: usize = 500_000;
const DEPTH_MAX: usize = 128;

pub(super) async fn download(sandbox: &Workload, from: &str, to: &Path) -> Result<Copied, Error> {
    let (name, content) = (Name::new(name_of(from).unwrap_or_default()), means_content(from));
    let from = plain(from);
    let found = sandbox.open(from).await?;
    match found {
        Found::File(file) => {
            let output = place_of_file(to, name)?;
            let mode = mode_of(sandbox, from).await;
            let bar = Bytes::new(file.content_length().unwrap_or_default());
            let remote = Remote { path: from.to_owned(), output, mode };
            let bytes = fetch(sandbox, &remote, Some(file), &bar).await?;
            bar.finish();
            Ok(Copied { files: 1, bytes })
        }
        Found::Folder(listing) => {
            let name = name.filter(|_| !content);
            download_folder(sandbox, from, listing, place_of_folder(to, name)?).await
        }
    }
}

/// Finds where a file goes: into `to` under its own name if that is a folder, into `to` itself if
/// that is a stream, else `to` is its new name.
fn place_of_file(to: &Path, name: Option<Name>) -> Result<Output, Error> {
    let unnamed = || Error::Usage(format!("{} is no name for a file", to.display()));
    if to.is_dir() {
        return Ok(Output::File { folder: open(to)?, name: name.ok_or_else(unnamed)? });
    }
    if let Some(stream) = Output::stream(to) {
        return Ok(stream);
    }
    let last = to.file_name().and_then(|last| Name::new(last.to_str()?)).ok_or_else(unnamed)?;
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
    Ok(Output::File { folder: open(folder.unwrap_or(Path::new(".")))?, name: last })
}

/// Finds where a folder goes: into `to` under its own name if that exists, else `to` is made.
fn place_of_folder(to: &Path, name: Option<Name>) -> Result<Destination, Error> {
    match (to.is_dir(), name) {
        (true, Some(name)) => open(to)?.enter(&name).map_err(blocked(&to.join(name.as_str()))),
        (true, None) => open(to),
        (false, _) => {
            std::fs::create_dir(to).map_err(Error::io(format!("make {}", to.display())))?;
            open(to)
        }
    }
}

fn open(folder: &Path) -> Result<Destination, Error> {
    Destination::open(folder).map_err(Error::io(format!("open {}", folder.display())))
}

fn blocked(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    Error::io(format!("write {} (links in the destination are not followed)", path.display()))
}

/// Looks up the permissions of a single file, which only the listing of its folder has.
async fn mode_of(sandbox: &Workload, path: &str) -> u32 {
    // If that cannot be listed, default permissions are used.
    let listing = sandbox.list(parent(path)).await.ok().flatten().unwrap_or_default();
    let entry = listing.files.iter().find(|entry| Some(entry.name.as_str()) == name_of(path));
    entry.and_then(|entry| entry.mode()).unwrap_or(USUAL_MODE)
}

/// A file to fetch, and its destination.
struct Remote {
    path: String,
    output: Output,
    mode: u32,
}

#[derive(Default)]
struct Plan {
    files: Vec<Remote>,
    folders: usize,
    bytes: u64,
    left_out: Vec<(PathBuf, &'static str)>,
}

async fn download_folder(
    sandbox: &Workload,
    from: &str,
    listing: Listing,
    to: Destination,
) -> Result<Copied, Error> {
    let mut plan = Plan::default();
    let mut waiting = vec![(from.to_owned(), to, listing, 0)];
    while let Some((path, folder, listing, depth)) = waiting.pop() {
        for name in plan.take(sandbox, &path, &folder, listing, depth)? {
            let path = join(&path, name.as_str());
            let below = folder.enter(&name);
            let below = below.map_err(blocked(Path::new(sandbox.known_path(&path))))?;
            // Deleted since it was listed, or no longer a folder.
            let Some(listing) = sandbox.list(&path).await? else { continue };
            waiting.push((path, below, listing, depth + 1));
        }
    }
    tell_left_out(&plan.left_out);
    let bar = Bytes::new(plan.bytes);
    let fetches = plan.files.iter().map(|file| fetch(sandbox, file, None, &bar));
    let fetched: Vec<u64> = stream::iter(fetches).buffer_unordered(AT_ONCE).try_collect().await?;
    bar.finish();
    Ok(Copied { files: fetched.len() as u64, bytes: fetched.iter().sum() })
}

impl Plan {
    /// Adds the files of a listing to the plan, and returns its folders.
    fn take(
        &mut self,
        sandbox: &Workload,
        path: &str,
        folder: &Destination,
        listing: Listing,
        depth: usize,
    ) -> Result<Vec<Name>, Error> {
        let known = Path::new(sandbox.known_path(path));
        let mut odd = |name: &str, why| self.left_out.push((known.join(name), why));
        let mut folders = Vec::new();
        for below in &listing.subdirectories {
            match Name::new(&below.name) {
                Some(name) => folders.push(name),
                None => odd(&below.name, "its name cannot be one"),
            }
        }
        for entry in &listing.files {
            match (Name::new(&entry.name), entry.mode()) {
                (None, _) => odd(&entry.name, "its name cannot be one"),
                (_, None) => odd(&entry.name, "it is a link or no plain file"),
                (Some(name), Some(mode)) => {
                    self.bytes = self.bytes.saturating_add(entry.size);
                    let path = join(path, &entry.name);
                    let output = Output::File { folder: folder.clone(), name };
                    self.files.push(Remote { path, output, mode });
                }
            }
        }
        self.folders += folders.len();
        if self.files.len() + self.folders > ENTRIES_MAX || depth > DEPTH_MAX {
            return Err(sandbox.odd("the folder has more in it than can be copied"));
        }
        Ok(folders)
    }
}

/// Fetches one file, starting over if the connection breaks.
async fn fetch(
    sandbox: &Workload,
    file: &Remote,
    mut first: Option<Response>,
    bar: &Bytes,
) -> Result<u64, Error> {
    let mut tries = 1;
    loop {
        let content = match first.take() {
            Some(content) => content,
            None => match sandbox.open(&file.path).await? {
                Found::File(content) => content,
                Found::Folder(_) => return Err(sandbox.odd("a file became a folder meanwhile")),
            },
        };
        match receive(sandbox, file, content, bar).await {
            Err((Error::Unreachable { .. }, received))
                if tries < TRIES && (received == 0 || file.output.can_begin_again()) =>
            {
                bar.take_back(received);
                tries += 1;
            }
            done => return done.map_err(|(error, _)| error),
        }
    }
}

/// Receives one file. Returns its length, or an error with the number of bytes received before it.
async fn receive(
    sandbox: &Workload,
    file: &Remote,
    mut content: Response,
    bar: &Bytes,
) -> Result<u64, (Error, u64)> {
    let mut received = 0;
    let act = format!("write {}", file.output);
    let unique = sandbox.world.random_text(UNIQUE_CHARS);
    let writing = file.output.begin(&unique).await;
    let mut writing = writing.map_err(|error| (Error::io(&act)(error), received))?;
    loop {
        let piece = content.chunk().await;
        let piece = piece.map_err(|source| (sandbox.unreachable(source), received))?;
        let Some(piece) = piece else { break };
        writing.file().write_all(&piece).map_err(|error| (Error::io(&act)(error), received))?;
        received += piece.len() as u64;
        bar.add(piece.len() as u64);
    }
    writing.finish(file.mode).map_err(|error| (Error::io(&act)(error), received))?;
    Ok(received)
}
