//! Multipart uploads, for files too large for one request.
//!
//! An upload is a folder named after its id. It is in the temporary directory or, if the target is
//! on another file system, at the top of that: the temporary directory may be in memory, and what
//! has room for a file has room for its parts.
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
use types::{Timestamp, hex};

const UPLOADS_MAX: usize = 1_000;
const PARTS_MAX: u32 = 10_000;
const RECORD: &str = "upload.json";

/// Held while a part is moved into place, so that of two with the same number exactly one stays.
static PLACING: Mutex<()> = Mutex::new(());
/// Held while the folder of all uploads may be made or removed.
static COMING_AND_GOING: Mutex<()> = Mutex::new(());

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
        let folder = folder_for(&target).map_err(internal)?;
        begin(&folder, &id, &Record { path, permissions })
            .map_err(|error| Error::Unprocessable(format!("{}: {error}", folder.display())))?;
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
        let mut uploads = Vec::new();
        for folder in folders().map_err(internal)? {
            let ids = match entry::entries(&folder) {
                Ok(entries) => entries,
                // Some mounts are files.
                Err(error) if is_absent(&error) => continue,
                Err(error) => return Err(internal(error)),
            };
            // An upload may be completed while the list is made.
            uploads.extend(ids.iter().filter_map(|(id, _)| describe(&folder, &text(id)).ok()));
        }
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
        let _ = forget(&folder);
        Done::of("Upload completed successfully", &target)
    })
    .await
}

pub(crate) async fn abort(id: String) -> Result<Answer, Error> {
    blocking(move || {
        let folder = find(&id)?;
        let target = read_record(&folder)?.0.target();
        forget(&folder).map_err(internal)?;
        Done::of("Upload aborted successfully", &target)
    })
    .await
}

/// Formats random bytes as a version 4 UUID.
fn new_id(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = hex::encode(&bytes);
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Returns the folder for the uploads of files like this one.
fn folder_for(target: &Path) -> io::Result<PathBuf> {
    let temporary = std::env::temp_dir();
    let top = top_of(target).filter(|top| device(top) != device(&temporary));
    let folder = top.map(|top| top.join(entry::UPLOADS));
    // Where it could not be found again, it is of no use.
    let known = folders()?;
    let folder = folder.filter(|folder| known.contains(folder));
    Ok(folder.unwrap_or_else(|| temporary.join(entry::UPLOADS)))
}

/// Returns the topmost folder of the file system that has, or will have, a file.
fn top_of(target: &Path) -> Option<PathBuf> {
    let there = target.ancestors().find_map(|path| path.canonicalize().ok())?;
    let folder = there.ancestors().find(|path| path.is_dir())?;
    let same = folder.ancestors().take_while(|path| device(path) == device(folder));
    same.last().map(Path::to_path_buf)
}

fn device(path: &Path) -> Option<u64> {
    path.metadata().ok().map(|metadata| metadata.dev())
}

/// Returns the folders in which uploads may be: for temporary files, and at the top of each file
/// system.
fn folders() -> io::Result<Vec<PathBuf>> {
    let mounts = std::fs::read("/proc/self/mounts")?;
    let mut folders = vec![std::env::temp_dir().join(entry::UPLOADS)];
    for line in mounts.split(|byte| *byte == b'\n') {
        let Some(place) = line.split(|byte| *byte == b' ').nth(1) else { continue };
        let folder = from_bytes(unescaped(place)).join(entry::UPLOADS);
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    Ok(folders)
}

/// Reads a path as the kernel writes it into lists of mounts: with some bytes as `\040`.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| byte == b'\\');
        let code = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 8).ok());
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    bytes
}

/// Returns the folder of an upload. A malformed id counts as unknown.
fn find(id: &str) -> Result<PathBuf, Error> {
    let well_formed =
        id.len() == 36 && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let folders = if well_formed { folders().map_err(internal)? } else { Vec::new() };
    let mut folders = folders.into_iter().map(|folder| folder.join(id));
    let found = folders.find(|folder| folder.join(RECORD).is_file());
    found.ok_or_else(|| Error::NotFound(format!("there is no upload `{id}`")))
}

fn internal(error: io::Error) -> Error {
    Error::Internal(error.to_string())
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn begin(folder: &Path, id: &str, record: &Record) -> io::Result<()> {
    let _held = COMING_AND_GOING.lock();
    let private = |path: &Path| DirBuilder::new().mode(0o700).create(path);
    match private(folder) {
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
    let written = std::fs::write(folder.join(RECORD), serde_json::to_vec(record)?);
    if written.is_err() {
        // On a full disk, say; the failure says enough.
        let _ = std::fs::remove_dir_all(&folder);
    }
    written
}

/// Removes an upload, and the folder of all uploads with the last of them.
fn forget(folder: &Path) -> io::Result<()> {
    let _held = COMING_AND_GOING.lock();
    std::fs::remove_dir_all(folder)?;
    // It stays while it has others.
    let _ = folder.parent().map(std::fs::remove_dir);
    Ok(())
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

fn describe(folder: &Path, id: &str) -> Result<Upload, Error> {
    let folder = folder.join(id);
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
    let entries = entry::entries(folder).map_err(internal)?;
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
        let file = file.map_err(|error| refuse(&folder, &error))?;
        Ok(Self { folder, file, digest: Md5::new(), size: 0 })
    }

    /// Moves the part into place, replacing an earlier one with the same number.
    fn place(self, number: u32) -> Result<Placed, Error> {
        let etag = hex::encode(&self.digest.finalize());
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
        let written = self.file.as_file_mut().write(bytes);
        // If it is full, the caller has to know which folder that is.
        let count = written.map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", self.folder.display()))
        })?;
        self.digest.update(&bytes[..count]);
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_mounts_are_read_as_the_kernel_writes_them() {
        assert_eq!(unescaped(b"/a\\040b\\134"), b"/a b\\");
        assert_eq!(unescaped(b"/a\\04"), b"/a\\04");
    }

    #[test]
    fn uploads_of_files_on_the_file_system_of_temporary_files_are_among_those() {
        let temporary = std::env::temp_dir();
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("not/there/yet");
        assert_eq!(folder_for(&target).unwrap(), temporary.join(entry::UPLOADS));
        // Nothing can be made there, and it is another file system.
        assert_eq!(
            folder_for(Path::new("/proc/x")).unwrap(),
            Path::new("/proc").join(entry::UPLOADS)
        );
    }
}
