//! Copies within the server.

use super::answers::{quoted, xml};
use super::call::{Call, blocking};
use super::write::holding;
use crate::body::Body;
use crate::conditions::{Conditions, Verdict};
use crate::error::{Code, Error};
use crate::folder::{Folder, Object, Sheet};
use crate::headers::{text, to_keep};
use crate::key::Key;
use crate::range::{self, Span};
use crate::signature::decode;
use crate::xml::Xml;
use http::Response;
use md5::{Digest, Md5};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use types::hex;

/// How many bytes are read at once for a checksum.
const PIECE: usize = 1 << 20;

/// The object to copy.
pub(super) struct Source {
    pub(super) folder: Folder,
    pub(super) key: Key,
    /// Whether it is in the bucket that is written to.
    is_here: bool,
}

/// Finds the source that the header names, if this key may open its bucket.
pub(super) async fn source(call: &Call) -> Result<Source, Error> {
    let bad = || Error::argument("x-amz-copy-source is none that can be read.");
    let named = text(&call.parts, "x-amz-copy-source").ok_or_else(bad)?;
    if named.contains('?') {
        return Err(Error::new(Code::NotImplemented, "A drive has no versions of objects."));
    }
    let named = decode(named).ok_or_else(bad)?;
    let (bucket, key) =
        named.strip_prefix('/').unwrap_or(&named).split_once('/').ok_or_else(bad)?;
    let key = Key::new(key)?;
    if bucket == call.bucket {
        return Ok(Source { folder: call.folder.clone(), key, is_here: true });
    }
    let opened = call.caller.open(bucket).await?;
    let turn = Arc::clone(&call.turn);
    let folder = Folder::new(opened, &call.locks, call.world.clone(), turn);
    Ok(Source { folder, key, is_here: false })
}

impl Source {
    /// Returns the object, if it meets the conditions.
    pub(super) fn find(&self, conditions: &Conditions) -> Result<Object, Error> {
        let object = self.folder.find(&self.key)?.ok_or_else(Error::no_key)?;
        match conditions.for_reading(&object.etag(), object.facts.modified_at()) {
            Verdict::Go => Ok(object),
            Verdict::NotModified | Verdict::Failed => Err(Error::condition()),
        }
    }
}

/// Copies bytes of an object into a draft. Returns it with its MD5.
pub(super) fn draft_of(
    folder: &Folder,
    object: &Object,
    span: Span,
) -> Result<(File, [u8; 16]), Error> {
    let (source, draft) = (object.open()?, folder.draft()?);
    (&source).seek(SeekFrom::Start(span.start))?;
    let copied = io::copy(&mut (&source).take(span.length), &mut &draft)?;
    if copied != span.length {
        let message = "The source was cut shorter while it was copied.";
        return Err(Error::new(Code::Unavailable, message));
    }
    let md5 = md5_of(&draft)?;
    Ok((draft, md5))
}

fn md5_of(file: &File) -> Result<[u8; 16], Error> {
    let mut md5 = Md5::new();
    each_piece(file, |piece| md5.update(piece))?;
    Ok(md5.finalize().into())
}

/// Reads a file from its beginning.
pub(super) fn each_piece(file: &File, mut take: impl FnMut(&[u8])) -> Result<(), Error> {
    let mut file = file;
    file.seek(SeekFrom::Start(0))?;
    let mut piece = vec![0; PIECE];
    loop {
        let length = file.read(&mut piece)?;
        let Some(read) = piece.get(..length).filter(|read| !read.is_empty()) else { return Ok(()) };
        take(read);
    }
}

pub(super) async fn object(call: Call, key: Key) -> Result<Response<Body>, Error> {
    let source = source(&call).await?;
    let replace = match text(&call.parts, "x-amz-metadata-directive") {
        None | Some("COPY") => false,
        Some("REPLACE") => true,
        Some(_) => return Err(Error::argument("x-amz-metadata-directive is COPY or REPLACE.")),
    };
    if source.is_here && source.key == key && !replace {
        let message = "A copy of an object onto itself has to replace its metadata.";
        return Err(Error::new(Code::InvalidRequest, message));
    }
    let headers = &call.parts.headers;
    let kept = to_keep(headers, call.settings.metadata_bytes_max)?;
    let on_source = Conditions::of_source(headers);
    let on_target = Conditions::read(headers);
    let turn = call.heavy().await?;
    call.require_bucket().await?;
    let (etag, modified_at) = blocking(move || {
        let _turn = turn;
        let object = source.find(&on_source)?;
        // A file with holes can be as large as it likes, and all of it is read for its ETag.
        if object.size() > call.settings.put_bytes_max {
            let message = "An object that is as large as this one is copied in parts.";
            return Err(Error::new(Code::EntityTooLarge, message));
        }
        let sheet = Sheet::new(if replace { kept } else { object.sheet.headers.clone() });
        write(&call, &object, &key, sheet, &on_target)
    })
    .await?;
    let mut answer = Xml::begin("CopyObjectResult", true);
    answer.leaf("LastModified", &modified_at.to_string());
    answer.leaf("ETag", &quoted(&etag));
    Ok(xml(answer))
}

fn write(
    call: &Call,
    object: &Object,
    key: &Key,
    sheet: Sheet,
    conditions: &Conditions,
) -> Result<(String, types::Timestamp), Error> {
    if key.is_folder() {
        if object.size() > 0 {
            let message = "A key that ends in a slash is a folder, which has no content.";
            return Err(Error::argument(message));
        }
        call.folder.put_folder(key, sheet, holding(conditions))?;
        return Ok((hex::encode(&crate::payload::md5_of(b"")), call.world.now()));
    }
    let (draft, md5) = if object.is_folder() {
        (call.folder.draft()?, crate::payload::md5_of(b""))
    } else {
        draft_of(&call.folder, object, Span { start: 0, length: object.size() })?
    };
    let (etag, mut sheet) = (hex::encode(&md5), sheet);
    call.folder.finish(&draft, &mut sheet, &etag)?;
    let draft = (&draft, sheet);
    let facts = call.folder.publish(draft, key, conditions.is_exclusive(), holding(conditions))?;
    Ok((etag, facts.modified_at()))
}

/// Returns which bytes of the source a part is made of.
pub(super) fn span_of(call: &Call, size: u64) -> Result<Span, Error> {
    let Some(range) = text(&call.parts, "x-amz-copy-source-range") else {
        return Ok(Span { start: 0, length: size });
    };
    let bad = || Error::argument("x-amz-copy-source-range is not valid.");
    let span = range::read(range, size)?.ok_or_else(bad)?;
    // Unlike in reads, the whole range has to exist.
    let last: u64 =
        range.rsplit_once('-').and_then(|(_, last)| last.parse().ok()).ok_or_else(bad)?;
    if last >= size {
        return Err(Error::new(Code::InvalidRange, "The range is not within the source."));
    }
    Ok(span)
}
