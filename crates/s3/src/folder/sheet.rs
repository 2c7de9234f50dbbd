//! The sheet of a file: its ETag, and what a client stored with it. It is kept in an extended
//! attribute that only the server's machine can read and set, so a sandbox cannot forge it.
//!
//! The ETag is bound to the state that the file was in when it was computed ([`Seal`]). A change
//! that bypasses this server changes that state, and then the ETag is made from the state instead.

use crate::error::{Code, Error};
use rustix::fs::{Stat, XattrFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use types::Timestamp;

const NAME: &str = "trusted.holm.s3.sheet";
/// The size that fits into the block that ext4 has for all attributes of a file.
const BYTES_MAX: usize = 3600;
/// Room that is left beside what a client stores: for the seal, the checksum and the id of an
/// upload.
const OWN_BYTES: usize = 400;
/// A file gets its name at most this long after its sheet was written, or else the sheet is written
/// again. A later change to the file shows in its change time, which nobody can set.
const NAMED_WITHIN_NS: i64 = 10_000_000_000;

/// The state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    inode: u64,
    pub(crate) size: u64,
    modified_ns: i64,
    changed_ns: i64,
}

impl Facts {
    pub(crate) fn of(stat: &Stat) -> Self {
        let ns = |seconds: i64, rest: u64| {
            seconds.saturating_mul(1_000_000_000).saturating_add_unsigned(rest)
        };
        Self {
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            modified_ns: ns(stat.st_mtime, stat.st_mtime_nsec),
            changed_ns: ns(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    pub(crate) fn modified_at(&self) -> Timestamp {
        Timestamp::from_ms(self.modified_ns.div_euclid(1_000_000))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Seal {
    etag: String,
    inode: u64,
    size: u64,
    modified_ns: i64,
    changed_until_ns: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sheet {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seal: Option<Seal>,
    /// Header fields to return with the object: its type, `x-amz-meta-…` and others.
    #[serde(default)]
    pub(crate) headers: Vec<(String, String)>,
    /// Field and value of the checksum that the content came with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<(String, String)>,
    /// The upload in parts that has become the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    upload: Option<String>,
}

impl Seal {
    /// Returns whether the file has the content that was sealed, as far as its facts tell.
    fn is_of(&self, facts: &Facts) -> bool {
        self.inode == facts.inode
            && self.size == facts.size
            && self.modified_ns == facts.modified_ns
    }

    fn renew(&mut self, facts: &Facts) {
        self.changed_until_ns = facts.changed_ns.saturating_add(NAMED_WITHIN_NS);
    }
}

impl Sheet {
    pub(crate) fn new(headers: Vec<(String, String)>) -> Self {
        Self { headers, ..Self::default() }
    }

    pub(crate) fn with_checksum(self, checksum: Option<(String, String)>) -> Self {
        Self { checksum, ..self }
    }

    pub(crate) fn of_upload(self, id: &str) -> Self {
        Self { upload: Some(id.to_owned()), ..self }
    }

    /// Reads the sheet of the file at this path, which must not lead through anything that a tenant
    /// controls.
    pub(super) fn read(path: &str) -> Result<Self, Errno> {
        let mut value = vec![0; BYTES_MAX];
        match rustix::fs::getxattr(path, NAME, value.as_mut_slice()) {
            Ok(length) => {
                let read = serde_json::from_slice(value.get(..length).unwrap_or_default());
                // A sheet that a later release wrote in another format is ignored.
                Ok(read.unwrap_or_default())
            }
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(Self::default()),
            Err(errno) => Err(errno),
        }
    }

    /// Binds the sheet, with this ETag, to the file as it is now.
    pub(super) fn seal(&mut self, etag: &str, facts: &Facts) {
        self.seal = Some(Seal {
            etag: etag.to_owned(),
            inode: facts.inode,
            size: facts.size,
            modified_ns: facts.modified_ns,
            changed_until_ns: facts.changed_ns.saturating_add(NAMED_WITHIN_NS),
        });
    }

    /// Renews a seal that no longer holds only because naming the file took long. Returns `false`
    /// if the file was written since: its content is not what was sealed.
    pub(super) fn renew(&mut self, facts: &Facts) -> bool {
        let seal = self.seal.as_mut().filter(|seal| seal.is_of(facts));
        seal.map(|seal| seal.renew(facts)).is_some()
    }

    /// Checks that there will be room for it, before the content comes.
    pub(crate) fn require_room(&self) -> Result<(), Error> {
        let text = serde_json::to_vec(self).map_err(std::io::Error::from)?;
        if text.len() + OWN_BYTES > BYTES_MAX { Err(too_large()) } else { Ok(()) }
    }

    pub(super) fn write(&self, path: &str) -> Result<(), Error> {
        let text = serde_json::to_vec(self).map_err(std::io::Error::from)?;
        if text.len() > BYTES_MAX {
            return Err(too_large());
        }
        match rustix::fs::setxattr(path, NAME, &text, XattrFlags::empty()) {
            Err(Errno::TOOBIG | Errno::RANGE) => Err(too_large()),
            result => Ok(result?),
        }
    }

    fn holds(&self, facts: &Facts) -> Option<&Seal> {
        self.seal
            .as_ref()
            .filter(|seal| seal.is_of(facts) && seal.changed_until_ns >= facts.changed_ns)
    }

    /// Returns whether the file is still in the state it was sealed in.
    pub(crate) fn is_sealed(&self, facts: &Facts) -> bool {
        self.holds(facts).is_some()
    }

    /// Returns the ETag without its quotes. If the file was written or changed without S3, it ends
    /// in `-0`, which no other does: the `-` tells clients that take an ETag for an MD5 that it is
    /// none.
    pub(crate) fn etag(&self, facts: &Facts) -> String {
        if let Some(seal) = self.holds(facts) {
            return seal.etag.clone();
        }
        let Facts { inode, size, modified_ns, changed_ns } = facts;
        let state = format!("{inode} {size} {modified_ns} {changed_ns}");
        let digest = crate::signature::sha256_hex(state.as_bytes());
        format!("{}-0", digest.get(..32).unwrap_or(&digest))
    }

    /// Returns whether the file has the content that an upload in parts has brought.
    pub(crate) fn is_of_upload(&self, id: &str, facts: &Facts) -> bool {
        self.upload.as_deref() == Some(id) && self.is_sealed(facts)
    }

    /// Returns the checksum of the content, if the file still has that content.
    pub(crate) fn checksum(&self, facts: &Facts) -> Option<&(String, String)> {
        self.checksum.as_ref().filter(|_| self.is_sealed(facts))
    }
}

fn too_large() -> Error {
    let message = "The metadata of the object is larger than what can be kept.";
    Error::new(Code::MetadataTooLarge, message)
}

pub(super) fn etag_of_nothing() -> String {
    types::hex::encode(&crate::payload::md5_of(b""))
}
