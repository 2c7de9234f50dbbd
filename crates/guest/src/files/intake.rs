//! Form data from the wire into a file, with a few pieces of it in memory at a time.

use super::cut_off;
use super::form::{self, Event};
use crate::http::{Error, RequestBody};
use bytes::Bytes;
use http_body_util::BodyExt;
use std::io::Write;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

/// The most that a field other than the file may have.
const TEXT_FIELD_BYTES_MAX: usize = 4 << 10;
/// Pieces that wait for the disk before the sender has to. Each is what one read from the
/// connection gave.
const WAITING_PIECES_MAX: usize = 2;

pub(crate) struct Received<S> {
    pub(crate) sink: S,
    pub(crate) permissions: Option<String>,
}

/// Receives the field `file` into what `open` gives, and the field `permissions`. Fields may come
/// in any order.
pub(crate) async fn receive<S: Write + Send + 'static>(
    content_type: &str,
    mut body: RequestBody,
    open: impl FnOnce() -> Result<S, Error> + Send + 'static,
) -> Result<Received<S>, Error> {
    let mut reader = form::Reader::new(content_type).map_err(bad)?;
    let mut open = Some(open);
    let mut form = Form { file: None, permissions: None, field: Field::Other, ended: false };
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| Error::BadRequest(format!("the body ended early: {error}")))?;
        let Ok(piece) = frame.into_data() else { continue };
        reader.push(piece);
        while let Some(event) = reader.next().map_err(bad)? {
            form.take(event, &mut open).await?;
        }
    }
    form.finish().await
}

/// What the field that is being read is for.
enum Field {
    File,
    Permissions,
    Other,
}

/// What has come of the form so far.
struct Form<S> {
    file: Option<Target<S>>,
    permissions: Option<Vec<u8>>,
    field: Field,
    ended: bool,
}

impl<S: Write + Send + 'static> Form<S> {
    async fn take(
        &mut self,
        event: Event,
        open: &mut Option<impl FnOnce() -> Result<S, Error> + Send + 'static>,
    ) -> Result<(), Error> {
        match event {
            Event::Field { name } if name == "file" => {
                let open = open
                    .take()
                    .ok_or_else(|| Error::BadRequest("the form has two files".into()))?;
                self.file = Some(Target::open(open));
                self.field = Field::File;
            }
            Event::Field { name } if name == "permissions" => {
                self.permissions = Some(Vec::new());
                self.field = Field::Permissions;
            }
            Event::Field { .. } | Event::FieldEnd => self.field = Field::Other,
            Event::Data(data) => self.take_data(data).await?,
            Event::End => self.ended = true,
        }
        Ok(())
    }

    async fn take_data(&mut self, data: Bytes) -> Result<(), Error> {
        match (&self.field, &mut self.permissions) {
            (Field::File, _) => {
                if let Some(target) = self.file.take() {
                    self.file = Some(target.write(data).await?);
                }
            }
            (Field::Permissions, Some(text)) => extend(text, &data)?,
            _ => {}
        }
        Ok(())
    }

    async fn finish(self) -> Result<Received<S>, Error> {
        if !self.ended {
            return Err(Error::BadRequest("the form ended early".into()));
        }
        let file =
            self.file.ok_or_else(|| Error::BadRequest("the form has no field `file`".into()))?;
        let permissions = self.permissions.map(|text| String::from_utf8_lossy(&text).into_owned());
        Ok(Received { sink: file.finish().await?, permissions })
    }
}

/// A file that a thread writes while more of it comes in. When this is dropped, the thread drops
/// what it has written.
struct Target<S> {
    pieces: mpsc::Sender<Bytes>,
    writing: JoinHandle<Result<S, Error>>,
}

impl<S: Write + Send + 'static> Target<S> {
    fn open(open: impl FnOnce() -> Result<S, Error> + Send + 'static) -> Self {
        let (pieces, mut coming) = mpsc::channel::<Bytes>(WAITING_PIECES_MAX);
        let writing = spawn_blocking(move || {
            let mut sink = open()?;
            while let Some(piece) = coming.blocking_recv() {
                sink.write_all(&piece).map_err(|error| {
                    Error::Unprocessable(format!("the content could not be written: {error}"))
                })?;
            }
            Ok(sink)
        });
        Self { pieces, writing }
    }

    async fn write(self, data: Bytes) -> Result<Self, Error> {
        if self.pieces.send(data).await.is_ok() {
            return Ok(self);
        }
        // The thread has ended before the file did, and says why.
        self.finish().await.and_then(|_| Err(Error::Internal("the file was not written".into())))
    }

    async fn finish(self) -> Result<S, Error> {
        drop(self.pieces);
        self.writing.await.unwrap_or_else(|error| Err(cut_off(&error)))
    }
}

fn extend(text: &mut Vec<u8>, data: &[u8]) -> Result<(), Error> {
    if text.len() + data.len() > TEXT_FIELD_BYTES_MAX {
        return Err(Error::BadRequest(format!(
            "a field other than `file` is longer than {TEXT_FIELD_BYTES_MAX} bytes"
        )));
    }
    text.extend_from_slice(data);
    Ok(())
}

fn bad(error: form::Error) -> Error {
    Error::BadRequest(error.to_string())
}
