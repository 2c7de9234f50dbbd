//! Checksums that clients send before or after a body.

use crate::crc::Crc;
use crate::error::{Code, Error};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use ring::digest;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

const ALL: [Algorithm; 5] =
    [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme, Algorithm::Sha1, Algorithm::Sha256];

impl Algorithm {
    /// Returns the header field for its value.
    pub(crate) fn field(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
        }
    }

    /// Returns the element for its value in a list of parts.
    pub(crate) fn element(self) -> &'static str {
        match self {
            Self::Crc32 => "ChecksumCRC32",
            Self::Crc32c => "ChecksumCRC32C",
            Self::Crc64Nvme => "ChecksumCRC64NVME",
            Self::Sha1 => "ChecksumSHA1",
            Self::Sha256 => "ChecksumSHA256",
        }
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        ALL.into_iter()
    }

    pub(crate) fn of_field(field: &str) -> Option<Self> {
        ALL.into_iter().find(|algorithm| algorithm.field().eq_ignore_ascii_case(field))
    }
}

/// A checksum as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checksum {
    pub(crate) algorithm: Algorithm,
    pub(crate) value: String,
}

impl Checksum {
    /// Returns the header field for it and its value.
    pub(crate) fn into_field(self) -> (String, String) {
        (self.algorithm.field().to_owned(), self.value)
    }

    /// Reads the checksum in the headers. Several are refused, because it would be unclear which
    /// one counts.
    pub(crate) fn read(headers: &HeaderMap) -> Result<Option<Self>, Error> {
        let unknown = headers.keys().find(|name| is_unknown(name.as_str()));
        if let Some(name) = unknown {
            let message = format!("{name} is not checked here.");
            return Err(Error::new(Code::NotImplemented, message));
        }
        let mut found = None;
        for algorithm in ALL {
            let Some(value) = headers.get(algorithm.field()) else { continue };
            if found.is_some() {
                let message = "A request has one checksum of its body or none.";
                return Err(Error::new(Code::InvalidRequest, message));
            }
            let value = value.to_str().unwrap_or_default().to_owned();
            found = Some(Self { algorithm, value });
        }
        Ok(found)
    }
}

/// Returns whether a field announces a checksum of an algorithm that is not known. It is refused: if
/// it was ignored, the client would believe that the body was checked.
fn is_unknown(field: &str) -> bool {
    let Some(rest) = field.strip_prefix("x-amz-checksum-") else { return false };
    !matches!(rest, "algorithm" | "mode" | "type") && Algorithm::of_field(field).is_none()
}

enum Sum {
    Crc(Crc),
    Digest(digest::Context),
}

/// A checksum that is computed while the body passes.
pub(crate) struct Running {
    pub(crate) algorithm: Algorithm,
    sum: Sum,
}

impl Running {
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        let sum = match algorithm {
            Algorithm::Crc32 => Sum::Crc(Crc::crc32()),
            Algorithm::Crc32c => Sum::Crc(Crc::crc32c()),
            Algorithm::Crc64Nvme => Sum::Crc(Crc::crc64_nvme()),
            Algorithm::Sha1 => Sum::Digest(digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY)),
            Algorithm::Sha256 => Sum::Digest(digest::Context::new(&digest::SHA256)),
        };
        Self { algorithm, sum }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match &mut self.sum {
            Sum::Crc(crc) => crc.update(bytes),
            Sum::Digest(context) => context.update(bytes),
        }
    }

    /// Returns the checksum of what has passed as text.
    pub(crate) fn value(self) -> String {
        STANDARD.encode(self.finish())
    }

    fn finish(self) -> Vec<u8> {
        match self.sum {
            Sum::Crc(crc) => crc.finish(),
            Sum::Digest(context) => context.finish().as_ref().to_vec(),
        }
    }

    /// Checks that the body has the announced checksum.
    pub(crate) fn check(self, announced: &str) -> Result<Checksum, Error> {
        let algorithm = self.algorithm;
        let not_valid = |_| {
            let message = format!("The value of {} is not valid.", algorithm.field());
            Error::new(Code::InvalidRequest, message)
        };
        if decoded(announced.trim()).map_err(not_valid)? != self.finish() {
            let message = format!("The content does not have the {} that came.", algorithm.field());
            return Err(Error::new(Code::BadDigest, message));
        }
        Ok(Checksum { algorithm, value: announced.trim().to_owned() })
    }
}

/// Returns the bytes of a checksum.
pub(crate) fn decoded(value: &str) -> Result<Vec<u8>, Error> {
    let not_valid = |_| Error::new(Code::InvalidRequest, "A checksum is not valid.");
    STANDARD.decode(value).map_err(not_valid)
}

/// Reads the bytes of `Content-MD5`.
pub(crate) fn content_md5(headers: &HeaderMap) -> Result<Option<[u8; 16]>, Error> {
    let Some(value) = headers.get("content-md5") else { return Ok(None) };
    let bytes = STANDARD.decode(value.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
    let wrong = || Error::new(Code::InvalidDigest, "The Content-MD5 is not valid.");
    bytes.map(Some).ok_or_else(wrong)
}
