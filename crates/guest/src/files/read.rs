//! Reads files and directories.

use super::access::{open_file, refuse};
use super::blocking::blocking;
use super::entry::{self, File, Names};
use super::json_text::JsonText;
use super::kind;
use super::path::{resolve, text};
use super::range::Range;
use crate::blocking;
use crate::http::{Answer, Error, Request, StreamSender};
use crate::instance::Instance;
use crate::route::PathArgument;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use rustix::buffer::spare_capacity;
use rustix::io::retry_on_intr;
use std::fs::Metadata;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files up to this size are answered in one piece, larger ones as a stream.
const WHOLE_BYTES_MAX: u64 = 256 << 10;
const PIECE_BYTES: usize = 256 << 10;

/// The form in which a caller wants the content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As text in JSON, together with the description of the file.
    Json,
    Raw,
}

pub(crate) async fn get(
    instance: &Arc<Instance>,
    argument: &PathArgument,
    request: Request,
) -> Result<Answer, Error> {
    let path = resolve(instance, argument);
    let download = request.query_flag("download")? == Some(true);
    let form = if download { Form::Raw } else { Form::accepted(request.header(header::ACCEPT)) };
    let range = request.header(header::RANGE).map(str::to_owned);
    let opened = path.clone();
    let (file, metadata) = match blocking(move || open(&opened)).await? {
        Opened::File(file, metadata) => (file, metadata),
        Opened::Directory => {
            return blocking(move || Answer::json(&entry::list(&path, &Names::read())?)).await;
        }
    };
    match form {
        Form::Json => json(path, file, metadata).await,
        Form::Raw => raw(&path, file, &metadata, range.as_deref()),
    }
}

impl Form {
    /// Raw bytes are for callers that name a type other than JSON; browsers do.
    fn accepted(header: Option<&str>) -> Self {
        let types = header.unwrap_or_default().to_ascii_lowercase();
        let named = |kind: &str| kind.split(';').next().unwrap_or_default().trim().to_owned();
        let kinds: Vec<String> =
            types.split(',').map(named).filter(|kind| !kind.is_empty()).collect();
        let json = kinds.iter().any(|kind| kind.contains("json"));
        if json || kinds.iter().all(|kind| kind.ends_with("/*")) { Self::Json } else { Self::Raw }
    }
}

enum Opened {
    File(std::fs::File, Metadata),
    Directory,
}

fn open(path: &Path) -> Result<Opened, Error> {
    let metadata = path.metadata().map_err(|error| refuse(path, &error))?;
    if metadata.is_dir() {
        return Ok(Opened::Directory);
    }
    let (file, metadata) = open_file(path).map_err(|error| refuse(path, &error))?;
    Ok(Opened::File(file, metadata))
}

async fn json(path: PathBuf, mut file: std::fs::File, metadata: Metadata) -> Result<Answer, Error> {
    let (head, piece, file) = blocking(move || {
        let about = File::new(&path, String::new(), &metadata, &Names::read());
        let mut piece = Vec::new();
        file.by_ref()
            .take(WHOLE_BYTES_MAX + 1)
            .read_to_end(&mut piece)
            .map_err(|error| refuse(&path, &error))?;
        Ok((
            serde_json::to_vec(&about).map_err(|error| Error::Internal(error.to_string()))?,
            piece,
            file,
        ))
    })
    .await?;
    let mut text = JsonText::after(head, "content");
    text.push(&piece);
    if piece.len() as u64 <= WHOLE_BYTES_MAX {
        return Ok(Answer::new(StatusCode::OK, "application/json; charset=utf-8", text.finish()));
    }
    drop(piece);
    let (mut sender, answer) = Answer::stream("application/json; charset=utf-8");
    tokio::spawn(async move {
        let mut pieces = Pieces::new(file, u64::MAX);
        loop {
            if sender.send_data(text.take()).await.is_err() {
                return;
            }
            match pieces.next().await {
                Ok(piece) if piece.is_empty() => break,
                Ok(piece) => text.push(&piece),
                Err(error) => return sender.abort(error),
            }
        }
        // If the reader has gone, no end is needed.
        let _ = sender.send_data(Bytes::from(text.finish())).await;
    });
    Ok(answer)
}

fn raw(
    path: &Path,
    mut file: std::fs::File,
    metadata: &Metadata,
    range: Option<&str>,
) -> Result<Answer, Error> {
    let size = metadata.len();
    let (start, length, status) = match Range::parse(range, size) {
        Range::Outside => return Err(Error::Range { length: size }),
        Range::Whole => (0, size, StatusCode::OK),
        Range::Part { start, length } => (start, length, StatusCode::PARTIAL_CONTENT),
    };
    if start > 0 {
        file.seek(SeekFrom::Start(start)).map_err(|error| refuse(path, &error))?;
    }
    let mut answer = headers(path, status, start, length, size)?;
    let (sender, body) = Answer::stream(kind::of(path));
    // Files in `/proc` and `/sys` report size zero; their content is read until it ends.
    if size == 0 {
        tokio::spawn(send(sender, Pieces::new(file, u64::MAX), None));
    } else {
        answer.push((header::CONTENT_LENGTH, HeaderValue::from(length)));
        tokio::spawn(send(sender, Pieces::new(file, length), Some(length)));
    }
    Ok(answer
        .into_iter()
        .fold(body.with_status(status), |body, (name, value)| body.with_value(name, value)))
}

fn headers(
    path: &Path,
    status: StatusCode,
    start: u64,
    length: u64,
    size: u64,
) -> Result<Vec<(header::HeaderName, HeaderValue)>, Error> {
    let value = |text: String| {
        HeaderValue::from_str(&text).map_err(|error| Error::Internal(error.to_string()))
    };
    let mut headers = vec![
        (header::CONTENT_DISPOSITION, value(disposition(path))?),
        (header::ACCEPT_RANGES, HeaderValue::from_static("bytes")),
    ];
    if status == StatusCode::PARTIAL_CONTENT {
        let last = start + length - 1;
        headers.push((header::CONTENT_RANGE, value(format!("bytes {start}-{last}/{size}"))?));
    }
    Ok(headers)
}

/// Returns the header that names the file. The plain form is for old readers, so it keeps only
/// characters that cannot confuse them.
fn disposition(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    let safe = |c: char| {
        if c.is_ascii_graphic() && !matches!(c, '"' | '\\') || c == ' ' { c } else { '_' }
    };
    let plain: String = text(name).chars().map(safe).collect();
    let exact = percent_encode(name.as_bytes(), NON_ALPHANUMERIC);
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{exact}")
}

/// What is left to read of a file.
struct Pieces {
    file: Arc<std::fs::File>,
    left: u64,
}

impl Pieces {
    fn new(file: std::fs::File, left: u64) -> Self {
        Self { file: file.into(), left }
    }

    /// Reads the next piece, which is empty at the end.
    async fn next(&mut self) -> io::Result<Vec<u8>> {
        let length = usize::try_from(self.left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
        let file = self.file.clone();
        let read = move || {
            let mut piece = Vec::with_capacity(length);
            retry_on_intr(|| rustix::io::read(&file, spare_capacity(&mut piece)))?;
            io::Result::Ok(piece)
        };
        let piece: Vec<u8> = blocking::run(read).await.map_err(io::Error::other)??;
        self.left -= piece.len() as u64;
        Ok(piece)
    }
}

/// Sends up to `expected` bytes. If the file has become shorter meanwhile, the answer ends in an
/// error instead of just stopping.
async fn send(mut sender: StreamSender, mut pieces: Pieces, expected: Option<u64>) {
    let mut sent = 0;
    loop {
        let piece = match pieces.next().await {
            Ok(piece) => piece,
            Err(error) => return sender.abort(error),
        };
        sent += piece.len() as u64;
        if piece.is_empty() {
            if expected.is_some_and(|expected| sent < expected) {
                sender.abort(io::ErrorKind::UnexpectedEof.into());
            }
            return;
        }
        if sender.send_data(piece.into()).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_follows_the_accepted_types() {
        for header in [
            None,
            Some(""),
            Some("*/*"),
            Some("application/json"),
            Some("application/json, text/plain, */*"),
        ] {
            assert_eq!(Form::accepted(header), Form::Json, "{header:?}");
        }
        for header in ["application/octet-stream", "text/plain", "text/html,*/*;q=0.8", "Image/PNG"]
        {
            assert_eq!(Form::accepted(Some(header)), Form::Raw, "{header}");
        }
    }

    #[test]
    fn odd_names_cannot_break_out_of_the_header() {
        let shown = disposition(Path::new("/tmp/a\"b\r\né"));
        assert_eq!(shown, "attachment; filename=\"a_b___\"; filename*=UTF-8''a%22b%0D%0A%C3%A9");
    }
}
