//! Receiving sources from whoever has the upload address.

use super::ask::digest;
use super::end;
use super::shared::Arriving;
use crate::control::Control;
use crate::error::{Absent, Error};
use crate::machine::{BuildFault, Builder};
use crate::missing::Missing;
use admission::{Permit, Refused};
use bytes::Bytes;
use std::future::Future;
use std::io;
use std::time::Duration;
use store::Tx;
use store::builds::{self, Asker, Build, State};
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument;
use types::ids::WorkspaceId;

/// Pieces of an upload that are buffered on their way to the builder.
const PIECES_MAX: usize = 4;
const LOST_RIGHT: &str = "whoever asked for the upload may not build here any more";
const OVER: &str = "the sources that wait to be built";

/// An admitted upload. Its address has been used up.
pub struct Upload {
    control: Control,
    build: Build,
    bytes_max: u64,
    _permit: Permit<WorkspaceId>,
    _arriving: Arriving,
}

/// A request body, piece by piece; `None` at its end.
pub trait Source: Send {
    fn next(&mut self) -> impl Future<Output = Option<io::Result<Bytes>>> + Send;
}

/// Finds the build for an address and uses the address up. `length` is how much the caller means to
/// send.
pub async fn admit(control: &Control, secret: &str, length: Option<u64>) -> Result<Upload, Error> {
    let secret = digest(secret);
    let found = control.store.read(move |tx| builds::find_by_secret(tx, &secret)).await?;
    let build = found.ok_or(Absent::Upload)?;
    // The address may come from another server of the same database, so this one must be able to
    // build.
    let (Some(_), Some(machine)) = (&control.builder, control.machine()) else {
        return Err(Error::Missing(Missing::Build));
    };
    let machine = machine.name().to_owned();
    let now = control.world.now();
    if build.state != State::Awaited || build.until.is_none_or(|until| until <= now) {
        return Err(Error::UploadOver);
    }
    let _permit = control.builds.uploads.take(&build.workspace, 1)?;
    // Registered before the row changes, so that leftovers of the build are not removed meanwhile.
    let _arriving = Arriving::begin(&control.builds, &build.id);
    let settings = &control.settings.builds;
    let bytes_max = settings.upload_bytes_max;
    let (reserved, until) = (length.unwrap_or(bytes_max), now.plus(settings.upload_timeout));
    let (id, of, of_workspace) =
        (build.id.clone(), build.clone(), settings.sources_workspace_bytes_max);
    let taken = move |tx: &mut Tx<'_>| {
        if !may_still_ask(tx, &of)? {
            return Err(Absent::Upload.into());
        }
        require_room(tx, &of, reserved.min(bytes_max), of_workspace)?;
        let reserved = i64::try_from(reserved.min(bytes_max)).unwrap_or(i64::MAX);
        Ok::<_, Error>(builds::arrive(tx, &id, &machine, reserved, until)?)
    };
    if !control.store.write(taken).await? {
        return Err(Error::UploadOver);
    }
    let upload = Upload { control: control.clone(), build, bytes_max, _permit, _arriving };
    if reserved > bytes_max {
        return Err(upload.fail(Error::UploadTooLarge { limit: bytes_max }).await);
    }
    Ok(upload)
}

/// Checks that the person who asked for the address could still ask for one.
fn may_still_ask(tx: &mut Tx<'_>, build: &Build) -> Result<bool, store::Error> {
    let Asker { subject, key } = &build.asker;
    auth::is_still_member(tx, subject, key.as_ref(), &build.workspace)
}

/// Refuses sources if the workspace has no room left for them.
fn require_room(tx: &mut Tx<'_>, build: &Build, more: u64, limit: u64) -> Result<(), Error> {
    let taken = builds::open(tx, &build.workspace, &build.resource)?.bytes_of_workspace;
    match u64::try_from(taken).unwrap_or(u64::MAX).saturating_add(more) > limit {
        true => Err(Refused::Share { resource: OVER, limit }.into()),
        false => Ok(()),
    }
}

impl<S: Source> Source for &mut S {
    fn next(&mut self) -> impl Future<Output = Option<io::Result<Bytes>>> + Send {
        (**self).next()
    }
}

impl Upload {
    pub fn workspace(&self) -> &WorkspaceId {
        &self.build.workspace
    }

    /// Receives the sources. If this succeeds they are on disk, and will be built.
    pub async fn take(self, source: impl Source) -> Result<(), Error> {
        let (pieces, arriving) = mpsc::channel(PIECES_MAX);
        let (limit, settings) = (self.bytes_max, self.control.settings.builds.clone());
        let (over, is_over) = oneshot::channel();
        // Spawned, because a caller that disconnects must not leave half an upload behind.
        let kept = tokio::spawn(self.keep(arriving, is_over).in_current_span());
        let fed = feed(source, pieces, limit, settings.upload_idle);
        let fed = tokio::time::timeout(settings.upload_timeout, fed).await;
        // Only a caller that stayed until here has sent the end of the body.
        let _ = over.send(fed.unwrap_or_else(|_| Err(failed("the upload took too long"))));
        let gone = |_| Err(failed("the server could not keep the sources"));
        kept.await.unwrap_or_else(gone)
    }

    async fn keep(
        self,
        arriving: mpsc::Receiver<io::Result<Bytes>>,
        is_over: oneshot::Receiver<Result<(), Error>>,
    ) -> Result<(), Error> {
        let Some(builder) = self.control.builder.clone() else {
            return Err(self.fail(failed("this server builds nothing")).await);
        };
        let kept = keep_pieces(&*builder, &self.build, arriving, self.bytes_max);
        let kept = tokio::time::timeout(self.control.settings.builds.upload_timeout, kept).await;
        let kept = kept.unwrap_or_else(|_| Err(failed("the sources could not be kept in time")));
        let sent = is_over.await.unwrap_or_else(|_| Err(failed("the upload was broken off")));
        // A mistake of the sender explains more than the failure to store that follows from it.
        match sent.and(kept) {
            Ok(bytes) => self.queue(bytes).await,
            Err(error) => Err(self.fail(error).await),
        }
    }

    async fn queue(&self, bytes: u64) -> Result<(), Error> {
        let (build, settings) = (self.build.clone(), &self.control.settings.builds);
        let until = self.control.world.now().plus(settings.wait_max);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let queued = move |tx: &mut Tx<'_>| match may_still_ask(tx, &build)? {
            true => builds::queue(tx, &build.id, bytes, until).map(Some),
            false => Ok(None),
        };
        let queued = self.control.store.write(queued).await;
        self.control.builds.news.notify_one();
        match queued {
            Ok(Some(true)) => Ok(()),
            Ok(Some(false)) => Err(Error::UploadOver),
            Ok(None) => Err(self.fail(failed(LOST_RIGHT)).await),
            Err(error) => Err(self.fail(error.into()).await),
        }
    }

    /// Notes why the upload failed, for readers of the resource. The address is used up.
    async fn fail(&self, error: Error) -> Error {
        let why = match &error {
            Error::UploadFailed { why } => why.clone(),
            Error::UploadTooLarge { .. } => error.to_string(),
            Error::OverShare(why) => why.clone(),
            _ => "the server could not keep the sources".to_owned(),
        };
        if let Err(error) = end::fail(&self.control, &self.build, &why).await {
            tracing::error!(%error, build = %self.build.id, "a failed upload could not be noted; it runs out");
        }
        error
    }
}

async fn keep_pieces(
    builder: &dyn Builder,
    build: &Build,
    arriving: mpsc::Receiver<io::Result<Bytes>>,
    bytes_max: u64,
) -> Result<u64, Error> {
    builder.take_sources(&build.id, arriving, bytes_max).await.map_err(|fault| match fault {
        BuildFault::OverShare(why) => Error::OverShare(why),
        fault => {
            tracing::warn!(%fault, build = %build.id, "sources could not be kept");
            failed(&fault.to_string())
        }
    })
}

/// Passes the body on as it arrives.
async fn feed(
    mut source: impl Source,
    pieces: mpsc::Sender<io::Result<Bytes>>,
    limit: u64,
    idle: Duration,
) -> Result<(), Error> {
    let mut bytes: u64 = 0;
    let error = loop {
        let Ok(piece) = tokio::time::timeout(idle, source.next()).await else {
            break failed("nothing more was sent for too long");
        };
        let piece = match piece {
            None if bytes == 0 => break failed("nothing was sent"),
            None => return Ok(()),
            Some(Err(_)) => break failed("the upload was broken off"),
            Some(Ok(piece)) => piece,
        };
        bytes = bytes.saturating_add(piece.len() as u64);
        if bytes > limit {
            break Error::UploadTooLarge { limit };
        }
        // If the receiver stops, it reports the reason itself.
        let sent = tokio::time::timeout(idle, pieces.send(Ok(piece))).await;
        match sent {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Ok(()),
            Err(_) => break failed("the server could not keep the sources in time"),
        }
    };
    let _ = pieces.try_send(Err(io::Error::other("the upload is not whole")));
    Err(error)
}

fn failed(why: &str) -> Error {
    Error::UploadFailed { why: why.to_owned() }
}
