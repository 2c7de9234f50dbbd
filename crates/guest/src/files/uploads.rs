//! Multipart uploads, for files too large for one request.
//!
//! An upload is a folder in the temporary directory, named after its id:
//!
//! ```text
//! .holm-uploads/{id}/upload.json            target and permissions; its time is that of the upload
//!                   /00001/{md5}            a complete part, by its number and etag
//!                   /incoming-…             a part that is still arriving
//! ```
//!
//! There is no other record, so an upload survives a restart of this program. Parts may arrive in
//! any order, concurrently and repeatedly. Completing an upload copies them into a draft of the
//! target and finally removes the folder.

use super::access::refuse;
use super::blocking::blocking;
use super::done::Done;
use super::draft::{self, Draft, FILE_MODE};
use super::path::{from_bytes, resolve, text};
use super::{entry, intake};
use crate::http::{Answer, Error, Request};
use crate::instance::Instance;
use crate::route::PathArgument;
use http::header;
use md5::{Digest, Md5};
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::NamedTempFile;
use types::Timestamp;

const UPLOADS_MAX: usize = 1_000;
const PARTS_MAX: u32 = 10_000;
const RECORD: &str = "upload.json";

/// Held while a part is moved into place, so that of two with the same number exactly one stays.
static PLACING: Mutex<()> = Mutex::new(());

#[derive(Default, Deserialize)]
#[serde(default)]
struct Start {
    permissions: Option<String>,
}

#[derive(Deserialize)]
struct Complete {
    #[serde(default)]
    parts: Vec<NamedPart>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NamedPart {
    part_number: u32,
    etag: String,
}

/// The stored description of an upload. The path is percent-encoded, because it may contain any
/// byte.
#[derive(Serialize, Deserialize)]
struct Record {
    path: String,
    permissions: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    part_number: u32,
    etag: String,
    size: u64,
    uploaded_at: Timestamp,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Upload {
    upload_id: String,
    path: String,
    permissions: u32,
    initiated_at: Timestamp,
    parts: BTreeMap<u32, Part>,
}

pub(crate) async fn start(
    instance: &Arc<Instance>,
    argument: &PathArgument,
    mut request: Request,
) -> Result<Answer, Error> {
    let target = resolve(instance, argument);
    let asked: Start = request.json_or_default().await?;
    let permissions = draft::parse_mode(asked.permissions.as_deref())?;
    let id = new_id(instance.world.random_bytes());
    blocking(move || {
        let path = percent_encode(target.as_os_str().as_bytes(), NON_ALPHANUMERIC).to_string();
        begin(&id, &Record { path, permissions })
            .map_err(|error| Error::Internal(error.to_string()))?;
        Answer::json(&serde_json::json!({"uploadId": id, "path": text(&target)}))
    })
    .await
}

pub(crate) async fn put_part(id: String, request: Request) -> Result<Answer, Error> {
    let number = request
        .query_number::<u32>("partNumber")?
        .filter(|number| (1..=PARTS_MAX).contains(number));
    let number = number
        .ok_or_else(|| Error::BadRequest(format!("`partNumber` goes from 1 to {PARTS_MAX}")))?;
    let content_type = request.header(header::CONTENT_TYPE).unwrap_or_default().to_owned();
    let open = move || Incoming::open(find(&id)?);
    let received = intake::receive(&content_type, request.into_body(), open).await?;
    blocking(move || {
        let part = received.sink.place(number)?;
        Answer::json(
            &serde_json::json!({"partNumber": number, "etag": part.etag, "size": part.size}),
        )
    })
    .await
}

pub(crate) async fn parts(id: String) -> Result<Answer, Error> {
    blocking(move || {
        let parts: Vec<Part> = read_parts(&find(&id)?)?.into_values().collect();
        Answer::json(&serde_json::json!({"uploadId": id, "parts": parts}))
    })
    .await
}

pub(crate) async fn list() -> Result<Answer, Error> {
    blocking(|| {
        let ids = match entry::entries(&folder()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Error::Internal(error.to_string())),
        };
        // An upload may be completed while the list is made.
        let uploads: Vec<Upload> =
            ids.iter().filter_map(|(id, _)| describe(&text(id)).ok()).collect();
        Answer::json(&serde_json::json!({"uploads": uploads}))
    })
    .await
}

pub(crate) async fn complete(
    instance: &Arc<Instance>,
    id: String,
    mut request: Request,
) -> Result<Answer, Error> {
    let asked: Complete = request.json().await?;
    if asked.parts.is_empty() {
        return Err(Error::BadRequest("`parts` is empty".into()));
    }
    let instance = instance.clone();
    blocking(move || {
        let folder = find(&id)?;
        let (record, _) = read_record(&folder)?;
        let target = record.target();
        let files = choose(&folder, asked.parts)?;
        let mut draft = Draft::open(&target, instance.settings.user.as_ref())?;
        for file in files {
            let copied = File::open(&file).and_then(|mut part| draft.append(&mut part));
            copied.map_err(|error| refuse(&target, &error))?;
        }
        draft.finish(record.permissions)?;
        // A folder that cannot be removed is only clutter; the file is in place.
        let _ = std::fs::remove_dir_all(folder);
        Done::of("Upload completed successfully", &target)
    })
    .await
}

pub(crate) async fn abort(id: String) -> Result<Answer, Error> {
    blocking(move || {
        let folder = find(&id)?;
        let target = read_record(&folder)?.0.target();
        std::fs::remove_dir_all(&folder).map_err(|error| Error::Internal(error.to_string()))?;
        Done::of("Upload aborted successfully", &target)
    })
    .await
}

/// Formats random bytes as a version 4 UUID.
fn new_id(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = hex(&bytes);
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn folder() -> PathBuf {
    std::env::temp_dir().join(".holm-uploads")
}

/// Returns the folder of an upload. A malformed id counts as unknown.
fn find(id: &str) -> Result<PathBuf, Error> {
    let well_formed =
        id.len() == 36 && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let folder = folder().join(id);
    if well_formed && folder.join(RECORD).is_file() {
        return Ok(folder);
    }
    Err(Error::NotFound(format!("there is no upload `{id}`")))
}

fn begin(id: &str, record: &Record) -> io::Result<()> {
    let folder = folder();
    let private = |path: &Path| DirBuilder::new().mode(0o700).create(path);
    match private(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Anybody can write to the temporary directory, so somebody else may already own the name.
    let metadata = folder.symlink_metadata()?;
    if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("the folder of uploads belongs to somebody else"));
    }
    if folder.read_dir()?.count() >= UPLOADS_MAX {
        return Err(io::Error::other(format!(
            "there are {UPLOADS_MAX} unfinished uploads; abort some"
        )));
    }
    let folder = folder.join(id);
    private(&folder)?;
    std::fs::write(folder.join(RECORD), serde_json::to_vec(record)?)
}

fn read_record(folder: &Path) -> Result<(Record, Timestamp), Error> {
    let read = || -> io::Result<_> {
        let mut file = File::open(folder.join(RECORD))?;
        let record = serde_json::from_reader(&mut file)?;
        Ok((record, entry::modified(&file.metadata()?)))
    };
    read().map_err(|error| {
        Error::Internal(format!("the record of the upload cannot be read: {error}"))
    })
}

impl Record {
    fn target(&self) -> PathBuf {
        from_bytes(percent_decode_str(&self.path).collect())
    }
}

fn describe(id: &str) -> Result<Upload, Error> {
    let folder = find(id)?;
    let (record, initiated_at) = read_record(&folder)?;
    Ok(Upload {
        upload_id: id.to_owned(),
        path: text(record.target()),
        permissions: record.permissions.unwrap_or(FILE_MODE),
        initiated_at,
        parts: read_parts(&folder)?,
    })
}

fn read_parts(folder: &Path) -> Result<BTreeMap<u32, Part>, Error> {
    let entries = entry::entries(folder).map_err(|error| Error::Internal(error.to_string()))?;
    let numbers = entries.iter().filter_map(|(name, _)| name.to_str()?.parse().ok());
    Ok(numbers.filter_map(|number| Some((number, read_part(folder, number)?))).collect())
}

fn read_part(folder: &Path, number: u32) -> Option<Part> {
    let place = place_of(folder, number);
    let (etag, _) = entry::entries(&place).ok()?.into_iter().next()?;
    let metadata = place.join(&etag).metadata().ok()?;
    Some(Part {
        part_number: number,
        etag: text(etag),
        size: metadata.len(),
        uploaded_at: entry::modified(&metadata),
    })
}

fn place_of(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number:05}"))
}

/// Returns the files of the named parts, ordered by number.
fn choose(folder: &Path, mut named: Vec<NamedPart>) -> Result<Vec<PathBuf>, Error> {
    named.sort_by_key(|part| part.part_number);
    if named.windows(2).any(|pair| pair[0].part_number == pair[1].part_number) {
        return Err(Error::BadRequest("a part is named twice".into()));
    }
    let there = read_parts(folder)?;
    let file = |part: &NamedPart| {
        let number = part.part_number;
        let etag = part.etag.trim_matches('"');
        let known = there
            .get(&number)
            .ok_or_else(|| Error::BadRequest(format!("part {number} was not uploaded")))?;
        if !known.etag.eq_ignore_ascii_case(etag) {
            return Err(Error::BadRequest(format!(
                "part {number} has the etag {}, not the named one",
                known.etag
            )));
        }
        Ok(place_of(folder, number).join(&known.etag))
    };
    named.iter().map(file).collect()
}

/// A part that is still arriving.
struct Incoming {
    folder: PathBuf,
    file: NamedTempFile,
    digest: Md5,
    size: u64,
}

struct Placed {
    etag: String,
    size: u64,
}

impl Incoming {
    fn open(folder: PathBuf) -> Result<Self, Error> {
        let file = tempfile::Builder::new().prefix("incoming-").tempfile_in(&folder);
        let file = file.map_err(|error| Error::Internal(error.to_string()))?;
        Ok(Self { folder, file, digest: Md5::new(), size: 0 })
    }

    /// Moves the part into place, replacing an earlier one with the same number.
    fn place(self, number: u32) -> Result<Placed, Error> {
        let etag = hex(&self.digest.finalize());
        let place = place_of(&self.folder, number);
        let _held = PLACING.lock();
        let take = || -> io::Result<()> {
            draft::make_directories(&place, 0o700, None)?;
            self.file.persist(place.join(&etag))?;
            let mut others = entry::entries(&place)?
                .into_iter()
                .filter(|(name, _)| name.as_os_str() != etag.as_str());
            others.try_for_each(|(name, _)| std::fs::remove_file(place.join(name)))
        };
        take().map_err(|error| {
            Error::Internal(format!("part {number} could not be kept: {error}"))
        })?;
        Ok(Placed { etag, size: self.size })
    }
}

impl Write for Incoming {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.as_file_mut().write(bytes)?;
        self.digest.update(&bytes[..count]);
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
