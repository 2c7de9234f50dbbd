//! Multipart uploads in the hidden folder. `uploads/<id>/` has a file `begin`, which says what the
//! upload is for, and a file for each part. The id begins with the time, so an expired upload is
//! recognized by its name even if a kill left only the folder.

use crate::error::{Code, Error};
use crate::folder::{Facts, Folder, Object, PASSING, Sheet, look_hidden};
use crate::key::Key;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;
use types::{Timestamp, World};

const UPLOADS: &str = "uploads";
const BEGIN: &str = "begin";
/// Number of random characters in an id.
const RANDOM: usize = 24;
/// Most bytes of `begin`, which holds a key and the header fields to store.
const BEGIN_MAX: u64 = 16 << 10;
/// How many names in a folder are read at once: sandboxes may have filled it.
const NAMES_MAX: usize = 100_000;
/// Age at which a temporary name is considered left over from a kill.
const PASSING_MAX: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Begin {
    pub(super) key: String,
    pub(super) headers: Vec<(String, String)>,
}

/// An open upload.
pub(super) struct Upload {
    folder: OwnedFd,
    pub(super) begin: Begin,
}

/// An upload in a list.
pub(crate) struct Listed {
    pub(super) id: String,
    pub(super) key: String,
    pub(super) begun_at: Timestamp,
}

pub(super) fn no_upload() -> Error {
    Error::new(Code::NoSuchUpload, "The upload does not exist; it was completed or aborted.")
}

fn open_at(folder: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::empty())
}

/// Opens the folder of all uploads, if there is one. It is not created here: there may be no space
/// for it, and reads do not need it.
fn find_all(folder: &Folder) -> Result<Option<OwnedFd>, Error> {
    let Some(hidden) = folder.hidden_if_there()? else { return Ok(None) };
    match open_at(hidden, UPLOADS) {
        Ok(uploads) => Ok(Some(uploads)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn make_all(folder: &Folder) -> Result<OwnedFd, Error> {
    let hidden = folder.hidden()?;
    match rustix::fs::mkdirat(hidden, UPLOADS, Mode::RWXU) {
        Ok(()) => rustix::fs::fsync(hidden)?,
        Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    Ok(open_at(hidden, UPLOADS)?)
}

/// Returns the time in an id, if it is a valid one.
fn begun_at(id: &str) -> Option<Timestamp> {
    let (time, random) = id.split_once('-')?;
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let fits = plain(time) && plain(random) && random.len() == RANDOM;
    Some(Timestamp::from_ms(i64::from_str_radix(time, 16).ok().filter(|_| fits)?))
}

/// Returns at most `most` names in a folder.
fn names(folder: &OwnedFd, most: usize) -> Result<Vec<String>, Error> {
    let (mut found, mut entries) = (Vec::new(), Dir::read_from(folder)?);
    while let Some(entry) = entries.read() {
        let entry = entry?;
        match entry.file_name().to_str() {
            Ok("." | "..") | Err(_) => {}
            Ok(_) if found.len() >= most => break,
            Ok(name) => found.push(name.to_owned()),
        }
    }
    Ok(found)
}

/// Creates an upload and returns its id. The upload is on disk then.
pub(super) fn create(
    folder: &Folder,
    begin: &Begin,
    uploads_max: usize,
    world: &World,
) -> Result<String, Error> {
    let uploads = make_all(folder)?;
    if names(&uploads, uploads_max)?.len() >= uploads_max {
        let message = "The bucket has as many uploads open as it may; complete or abort some.";
        return Err(Error::new(Code::TooManyUploads, message));
    }
    let id = format!("{:x}-{}", world.now().ms(), world.random_text(RANDOM));
    rustix::fs::mkdirat(&uploads, id.as_str(), Mode::RWXU)?;
    let upload = open_at(&uploads, &id)?;
    let mut draft = folder.draft()?;
    draft.write_all(&serde_json::to_vec(begin).map_err(std::io::Error::from)?)?;
    rustix::fs::fsync(&draft)?;
    folder.place(&draft, &upload, BEGIN, true)?;
    rustix::fs::fsync(&upload)?;
    rustix::fs::fsync(&uploads)?;
    Ok(id)
}

/// Opens an upload for this key.
pub(super) fn open(folder: &Folder, id: &str, key: &Key) -> Result<Upload, Error> {
    begun_at(id).ok_or_else(no_upload)?;
    let uploads = find_all(folder)?.ok_or_else(no_upload)?;
    let upload = match open_at(&uploads, id) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Err(no_upload()),
        upload => upload?,
    };
    let begin = read_begin(&upload)?.filter(|begin| begin.key == key.as_str());
    Ok(Upload { folder: upload, begin: begin.ok_or_else(no_upload)? })
}

fn read_begin(upload: &OwnedFd) -> Result<Option<Begin>, Error> {
    let Some(object) = look_hidden(upload, BEGIN)? else { return Ok(None) };
    let mut text = Vec::new();
    object.open()?.take(BEGIN_MAX).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text).ok())
}

impl Upload {
    /// Stores a draft as a part. It replaces a part with the same number.
    pub(super) fn keep(
        &self,
        folder: &Folder,
        number: u32,
        (draft, mut sheet, etag): (&File, Sheet, &str),
    ) -> Result<Facts, Error> {
        folder.finish(draft, &mut sheet, etag)?;
        match folder.place(draft, &self.folder, &name_of(number), false) {
            Err(Errno::NOENT) => return Err(no_upload()),
            placed => placed?,
        }
        let facts = folder.keep_sealed(draft, &mut sheet)?;
        rustix::fs::fsync(&self.folder)?;
        Ok(facts)
    }

    pub(super) fn part(&self, number: u32) -> Result<Option<Object>, Error> {
        look_hidden(&self.folder, &name_of(number))
    }

    /// Returns the numbers of the parts, in order.
    pub(super) fn numbers(&self, parts_max: u32) -> Result<Vec<u32>, Error> {
        let most = usize::try_from(parts_max).unwrap_or(usize::MAX).saturating_add(1);
        let names = names(&self.folder, most)?;
        let mut numbers: Vec<u32> = names
            .iter()
            .filter_map(|name| name.parse().ok().filter(|number| name_of(*number) == **name))
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}

fn name_of(number: u32) -> String {
    format!("{number:05}")
}

/// Removes an upload and its parts.
pub(super) fn remove(folder: &Folder, id: &str) -> Result<(), Error> {
    find_all(folder)?.map_or(Ok(()), |uploads| remove_from(&uploads, id))
}

fn remove_from(uploads: &OwnedFd, id: &str) -> Result<(), Error> {
    let upload = match open_at(uploads, id) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        upload => upload?,
    };
    // More parts may arrive until the folder is gone; after that they have no place to go.
    for _ in 0..8 {
        for name in names(&upload, NAMES_MAX)? {
            match rustix::fs::unlinkat(&upload, name.as_str(), AtFlags::empty()) {
                // A folder in there is not ours, so it stays. It does no harm.
                Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        match rustix::fs::unlinkat(uploads, id, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Ok(()) | Err(Errno::NOENT) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(rustix::fs::fsync(uploads)?)
}

/// Lists the open uploads, by key and then by time.
pub(crate) fn list(folder: &Folder, uploads_max: usize) -> Result<Vec<Listed>, Error> {
    let Some(uploads) = find_all(folder)? else { return Ok(Vec::new()) };
    let mut listed = Vec::new();
    for id in names(&uploads, uploads_max)? {
        let Some(begun_at) = begun_at(&id) else { continue };
        let Ok(upload) = open_at(&uploads, &id) else { continue };
        if let Some(begin) = read_begin(&upload)? {
            listed.push(Listed { id, key: begin.key, begun_at });
        }
    }
    listed.sort_by(|a, b| (&a.key, &a.id).cmp(&(&b.key, &b.id)));
    Ok(listed)
}

/// Removes uploads and temporary files that are too old.
pub(crate) fn tidy(folder: &Folder, now: Timestamp, life: Duration) -> Result<(), Error> {
    let Some(hidden) = folder.hidden_if_there()? else { return Ok(()) };
    if let Some(uploads) = find_all(folder)? {
        for id in names(&uploads, NAMES_MAX)? {
            if begun_at(&id).is_some_and(|begun| now > begun.plus(life)) {
                remove_from(&uploads, &id)?;
            }
        }
    }
    for name in names(hidden, NAMES_MAX)?.iter().filter(|name| name.starts_with(PASSING)) {
        let stat = rustix::fs::statat(hidden, name.as_str(), AtFlags::SYMLINK_NOFOLLOW);
        if stat.is_ok_and(|stat| now > Facts::of(&stat).modified_at().plus(PASSING_MAX)) {
            let _ = rustix::fs::unlinkat(hidden, name.as_str(), AtFlags::empty());
        }
    }
    Ok(())
}
