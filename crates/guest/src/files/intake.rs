//! Streams form data from the connection into a file, with one piece in memory at a time.

use super::blocking::blocking;
use super::form::{self, Event};
use crate::http::{Error, RequestBody};
use bytes::Bytes;
use http_body_util::BodyExt;
use std::io::Write;

/// Longest field other than the file.
const TEXT_FIELD_BYTES_MAX: usize = 4 << 10;
/// Smaller pieces are gathered until they reach this size, then written at once.
const WRITE_BYTES: usize = 256 << 10;

pub(crate) struct Received<S> {
    pub(crate) sink: S,
    pub(crate) permissions: Option<String>,
}

/// Receives the field `file` into the writer that `open` returns, and the field `permissions`.
/// Fields may come in any order.
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

/// The purpose of the field that is being read.
enum Field {
    File,
    Permissions,
    Other,
}

/// The parts of the form received so far.
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
                self.file = Some(Target { sink: blocking(open).await?, gathered: Vec::new() });
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
        Ok(Received { sink: file.flush(Bytes::new()).await?.sink, permissions })
    }
}

/// The file, and data gathered for it.
struct Target<S> {
    sink: S,
    gathered: Vec<u8>,
}

impl<S: Write + Send + 'static> Target<S> {
    /// Writes large pieces directly. The next piece is read only after that: the connection buffers
    /// more meanwhile, and this memory is reused while it is still in the caches.
    async fn write(mut self, data: Bytes) -> Result<Self, Error> {
        if self.gathered.len() + data.len() < WRITE_BYTES {
            self.gathered.extend_from_slice(&data);
            return Ok(self);
        }
        self.flush(data).await
    }

    async fn flush(mut self, data: Bytes) -> Result<Self, Error> {
        blocking(move || {
            let written = self.sink.write_all(&self.gathered);
            written.and_then(|()| self.sink.write_all(&data)).map_err(|error| {
                Error::Unprocessable(format!("the content could not be written: {error}"))
            })?;
            self.gathered.clear();
            Ok(self)
        })
        .await
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
