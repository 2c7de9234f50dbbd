//! One blob of a registry into the store: continued where it was cut, and true in the end.

use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use reqwest::header::CONTENT_RANGE;
use reqwest::{Response, StatusCode};
use tokio::sync::{OwnedMutexGuard, mpsc};

use super::registry::Registry;
use super::{Progress, PullError, blocking};
use crate::blobs::Writer;
use crate::digest::{Digest, Hasher};
use crate::error::Error;
use crate::leases::{Held, Lease};
use crate::manifest::Descriptor;
use crate::reuse::Reuse;
use crate::store::Store;

/// Between the network and the disk.
const CHUNKS_MAX: usize = 32;

/// An attempt that brought this much more than all before it does not count as one: large blobs may
/// be cut often.
const PROGRESS_BYTES: u64 = 64 << 10;

/// A blob being written, and the right to be the only one who writes it.
struct Download {
    writer: Writer,
    turn: OwnedMutexGuard<()>,
}

/// Where blobs come from.
#[derive(Clone, Copy)]
pub(super) struct Source<'s> {
    pub(super) registry: &'s Registry<'s>,
    /// What need not come from there, as it is here.
    pub(super) reuse: &'s Reuse,
}

pub(super) async fn fetch(
    Source { registry, reuse }: Source<'_>,
    store: &Store,
    blob: &Descriptor,
    lease: &Arc<Lease>,
    progress: &(impl Fn(Progress) + Sync),
) -> Result<(), PullError> {
    let max = store.0.settings.limits.blob_bytes_max;
    if blob.size > max {
        return Err(Error::Limit { what: "bytes in one blob", max }.into());
    }
    lease.hold(Held::Blob(blob.digest));
    let mut turn = store.0.downloads.turn(blob.digest).await;
    if !reuse.blob(&blob.digest) && store.0.blobs.size(&blob.digest).is_some() {
        return show(registry, blob).await;
    }
    // Somebody else's beginning is somebody else's content.
    let mut begin = if reuse.blob(&blob.digest) { Begin::WhereItWasCut } else { Begin::Anew };
    let (mut attempt, mut furthest) = (0, 0);
    while store.0.blobs.size(&blob.digest).is_none() {
        let download =
            open(store, blob, turn, std::mem::replace(&mut begin, Begin::WhereItWasCut)).await?;
        let resumed = download.writer.size() > 0;
        let (download, outcome) = receive(registry, blob, download, progress).await?;
        if download.writer.size() >= furthest + PROGRESS_BYTES {
            (attempt, furthest) = (0, download.writer.size());
        }
        let problem = match outcome {
            Ok(()) if download.writer.size() == blob.size => {
                match finish(store, blob, download, lease).await? {
                    Finished::Stored => return Ok(()),
                    // What was there before may have been the wrong part; it is gone now.
                    Finished::Wrong { turn: again, .. } if resumed => {
                        turn = again;
                        PullError::Cut
                    }
                    Finished::Wrong { error, .. } => return Err(error.into()),
                }
            }
            outcome => {
                turn = download.turn;
                outcome.err().unwrap_or(PullError::Cut)
            }
        };
        attempt += 1;
        if attempt >= registry.retries.attempts_max || !problem.may_pass() {
            return Err(problem);
        }
        registry.pause(attempt, None).await;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Begin {
    WhereItWasCut,
    Anew,
}

/// Has the registry show a blob that is here already, and keeps nothing of it.
async fn show(registry: &Registry<'_>, blob: &Descriptor) -> Result<(), PullError> {
    let mut attempt = 0;
    loop {
        let problem = match read(registry, blob).await {
            Ok(found) if found == blob.digest => return Ok(()),
            Ok(found) => {
                return Err(Error::Digest { what: "blob", wanted: blob.digest, found }.into());
            }
            Err(problem) => problem,
        };
        attempt += 1;
        if attempt >= registry.retries.attempts_max || !problem.may_pass() {
            return Err(problem);
        }
        registry.pause(attempt, None).await;
    }
}

/// The digest of what the registry has for a blob.
async fn read(registry: &Registry<'_>, blob: &Descriptor) -> Result<Digest, PullError> {
    let mut answer = registry.get(&format!("blobs/{}", blob.digest), "*/*", 0).await?;
    let (mut hasher, mut bytes) = (Hasher::default(), 0);
    while let Some(chunk) = registry.chunk(&mut answer).await? {
        bytes += chunk.len() as u64;
        if bytes > blob.size {
            return Err(Error::Limit { what: "bytes in one blob", max: blob.size }.into());
        }
        hasher.update(&chunk);
    }
    if bytes < blob.size { Err(PullError::Cut) } else { Ok(hasher.finish()) }
}

enum Finished {
    Stored,
    Wrong { error: Error, turn: OwnedMutexGuard<()> },
}

async fn finish(
    store: &Store,
    blob: &Descriptor,
    download: Download,
    lease: &Arc<Lease>,
) -> Result<Finished, PullError> {
    let (store, digest, lease) = (store.clone(), blob.digest, lease.clone());
    let Download { writer, turn } = download;
    blocking(move || match store.0.blobs.finish(writer, Some(&digest), &lease) {
        Ok(_) => Ok(Finished::Stored),
        Err(error @ Error::Digest { .. }) => Ok(Finished::Wrong { error, turn }),
        Err(error) => Err(error),
    })
    .await
}

async fn open(
    store: &Store,
    blob: &Descriptor,
    turn: OwnedMutexGuard<()>,
    begin: Begin,
) -> Result<Download, PullError> {
    let (store, digest, size) = (store.clone(), blob.digest, blob.size);
    blocking(move || {
        let mut writer = store.0.blobs.resume(&digest, size, store.0.scratch())?;
        if begin == Begin::Anew || writer.size() > size {
            writer.restart()?;
        }
        Ok(Download { writer, turn })
    })
    .await
}

/// Receives what is missing. The inner result is the network's, the outer one the disk's.
async fn receive(
    registry: &Registry<'_>,
    blob: &Descriptor,
    mut download: Download,
    progress: &(impl Fn(Progress) + Sync),
) -> Result<(Download, Result<(), PullError>), PullError> {
    let from = download.writer.size();
    if from == blob.size {
        return Ok((download, Ok(())));
    }
    let answer = match registry.get(&format!("blobs/{}", blob.digest), "*/*", from).await {
        Ok(answer) => answer,
        Err(problem) => return Ok((download, Err(problem))),
    };
    if from > 0 && !continues(&answer, from) {
        download.writer.restart()?;
    }
    if answer.status() == StatusCode::RANGE_NOT_SATISFIABLE {
        return Ok((download, Err(PullError::Cut)));
    }
    let (send, chunks) = mpsc::channel(CHUNKS_MAX);
    let writing = blocking(move || write(download, chunks));
    let (download, outcome) =
        tokio::join!(writing, forward(registry, blob, answer, send, progress));
    Ok((download?, outcome))
}

fn continues(answer: &Response, from: u64) -> bool {
    let range = answer.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
    answer.status() == StatusCode::PARTIAL_CONTENT
        && range.is_some_and(|range| range.starts_with(&format!("bytes {from}-")))
}

async fn forward(
    registry: &Registry<'_>,
    blob: &Descriptor,
    mut answer: Response,
    send: mpsc::Sender<Bytes>,
    progress: &(impl Fn(Progress) + Sync),
) -> Result<(), PullError> {
    while let Some(chunk) = registry.chunk(&mut answer).await? {
        progress(Progress::Received { layer: blob.digest, bytes: chunk.len() as u64 });
        if send.send(chunk).await.is_err() {
            // The disk has a problem, and says it itself.
            break;
        }
    }
    Ok(())
}

fn write(mut download: Download, mut chunks: mpsc::Receiver<Bytes>) -> Result<Download, Error> {
    while let Some(chunk) = chunks.blocking_recv() {
        download.writer.write_all(&chunk)?;
    }
    Ok(download)
}
