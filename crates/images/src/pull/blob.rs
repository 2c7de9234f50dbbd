//! Downloads one blob from a registry into the store: it is resumed after interruptions and
//! verified at the end.

use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use reqwest::header::CONTENT_RANGE;
use reqwest::{Response, StatusCode};
use tokio::sync::{OwnedMutexGuard, mpsc};

use super::blocking::blocking;
use super::error::PullError;
use super::progress::Progress;
use super::registry::Registry;
use crate::blobs::Writer;
use crate::digest::{Digest, Hasher};
use crate::error::Error;
use crate::leases::{Held, Lease};
use crate::manifest::Descriptor;
use crate::reuse::Reuse;
use crate::store::Store;

/// Chunks buffered between the network and the disk.
const CHUNKS_MAX: usize = 32;

/// If an attempt gets this many bytes further than all earlier ones, the count of attempts starts
/// again: downloads of large blobs may be interrupted often.
const PROGRESS_BYTES: u64 = 64 << 10;

/// A blob that is being written, and the lock that makes this its only writer.
struct Download {
    writer: Writer,
    turn: OwnedMutexGuard<()>,
}

/// Where blobs are fetched from.
#[derive(Clone, Copy)]
pub(super) struct Source<'s> {
    pub(super) registry: &'s Registry<'s>,
    /// What is here already and need not be fetched.
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
    // A beginning that somebody else downloaded is not reused, because its content is theirs.
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
                    // The resumed part may have been wrong. It is removed now, so another attempt
                    // makes sense.
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

/// Downloads a blob that is already here, only to prove that the registry hands it out, and
/// discards it.
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

/// Computes the digest of what the registry has for a blob.
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

/// Receives the missing bytes. The inner result is that of the network, the outer one that of the
/// disk.
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
            // Writing to disk has failed, and the writer reports that itself.
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
