//! Taking sources in, from whoever has the address.

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

/// Pieces of an upload on their way to the builder.
const PIECES_MAX: usize = 4;
const LOST_RIGHT: &str = "whoever asked for the upload has lost the right to";
const OVER: &str = "the sources that wait to be built";

/// An upload that may begin. Its address is used up with that.
pub struct Upload {
    control: Control,
    build: Build,
    bytes_max: u64,
    _permit: Permit<WorkspaceId>,
    _arriving: Arriving,
}

/// Where a body comes from, piece by piece; `None` is its end.
pub trait Source: Send {
    fn next(&mut self) -> impl Future<Output = Option<io::Result<Bytes>>> + Send;
}

/// Finds whose address has a secret, and takes it. `length` is what the caller means to send.
pub async fn admit(control: &Control, secret: &str, length: Option<u64>) -> Result<Upload, Error> {
    let secret = digest(secret);
    let found = control.store.read(move |tx| builds::find_by_secret(tx, &secret)).await?;
    let build = found.ok_or(Absent::Upload)?;
    // The address may have been given by another server of the same database.
    let (Some(_), Some(machine)) = (&control.builder, control.machine()) else {
        return Err(Error::Missing(Missing::Build));
    };
    let machine = machine.name().to_owned();
    let now = control.world.now();
    if build.state != State::Awaited || build.until.is_none_or(|until| until <= now) {
        return Err(Error::UploadOver);
    }
    let _permit = control.builds.uploads.take(&build.workspace, 1)?;
    // Before the row says so: what is left of a build is not removed meanwhile.
    let _arriving = Arriving::begin(control, &build.id);
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

/// An address is good as long as whoever asked for it could ask again.
fn may_still_ask(tx: &mut Tx<'_>, build: &Build) -> Result<bool, store::Error> {
    let Asker { subject, key } = &build.asker;
    auth::is_still_member(tx, subject, key.as_ref(), &build.workspace)
}

/// Refuses sources for which the workspace has no room left.
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

    /// Takes the sources. When this succeeds they are on disk, and they will be built.
    pub async fn take(self, source: impl Source) -> Result<(), Error> {
        let (pieces, arriving) = mpsc::channel(PIECES_MAX);
        let (limit, settings) = (self.bytes_max, self.control.settings.builds.clone());
        let (over, is_over) = oneshot::channel();
        // Spawned, because a caller that goes away must not leave half an upload behind.
        let kept = tokio::spawn(self.keep(arriving, is_over).in_current_span());
        let fed = feed(source, pieces, limit, settings.upload_idle);
        let fed = tokio::time::timeout(settings.upload_timeout, fed).await;
        // Only who comes to this point has seen the end of the body.
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
        // What the sender did wrong says more than what became of it.
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

    /// The address is used up; readers of the resource see why.
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

/// Hands a body over as it arrives.
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
        // Whoever takes the pieces says why it takes no more.
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
