//! Parses the records of a PAX header: `length key=value
//! `.

use super::header::owner;
use super::malformed::Malformed;

const XATTR_PREFIX: &[u8] = b"SCHILY.xattr.";

/// Values from the blocks before an entry; they take precedence over the entry's own header.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) modified: Option<i64>,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) sparse: SparseRecords,
}

#[derive(Debug, Default)]
pub(super) struct SparseRecords {
    pub(super) major: Option<u64>,
    pub(super) minor: Option<u64>,
    pub(super) name: Option<Vec<u8>>,
    pub(super) real_size: Option<u64>,
    /// One of the older formats, without a version or with version 0.
    pub(super) old_form: bool,
}

impl Extensions {
    pub(super) fn read(&mut self, mut records: &[u8]) -> Result<(), Malformed> {
        let wrong = Malformed("extended header");
        while !records.is_empty() {
            let space = records.iter().take(20).position(|byte| *byte == b' ').ok_or(wrong)?;
            let length = usize::try_from(decimal(&records[..space])?).map_err(|_| wrong)?;
            if length <= space + 1 || length > records.len() || records[length - 1] != b'\n' {
                return Err(wrong);
            }
            let record = &records[space + 1..length - 1];
            let equals = record.iter().position(|byte| *byte == b'=').ok_or(wrong)?;
            self.set(&record[..equals], &record[equals + 1..])?;
            records = &records[length..];
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Malformed> {
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(decimal(value)?),
            b"uid" => self.uid = Some(owner(decimal(value)?)?),
            b"gid" => self.gid = Some(owner(decimal(value)?)?),
            b"mtime" => self.modified = Some(seconds(value)?),
            b"GNU.sparse.major" => self.sparse.major = Some(decimal(value)?),
            b"GNU.sparse.minor" => self.sparse.minor = Some(decimal(value)?),
            b"GNU.sparse.name" => self.sparse.name = Some(value.to_vec()),
            b"GNU.sparse.realsize" => self.sparse.real_size = Some(decimal(value)?),
            b"GNU.sparse.map" | b"GNU.sparse.numblocks" => self.sparse.old_form = true,
            _ => {
                if let Some(name) = key.strip_prefix(XATTR_PREFIX) {
                    self.xattrs.push((name.to_vec(), value.to_vec()));
                }
            }
        }
        Ok(())
    }
}

pub(super) fn decimal(digits: &[u8]) -> Result<u64, Malformed> {
    let text = std::str::from_utf8(digits)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    text.and_then(|text| text.parse().ok()).ok_or(Malformed("number"))
}

/// Parses a time. Fractions are dropped, and a time before 1970 becomes 1970.
fn seconds(text: &[u8]) -> Result<i64, Malformed> {
    if text.first() == Some(&b'-') {
        return Ok(0);
    }
    let whole = text.split(|byte| *byte == b'.').next().unwrap_or_default();
    decimal(whole)?.try_into().map_err(|_| Malformed("time"))
}
