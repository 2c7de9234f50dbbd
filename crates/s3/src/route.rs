//! Finds out which bucket and key a request is about, and what it asks for.

use crate::error::{Code, Error};
use crate::signature::decode;
use http::request::Parts;

/// The names and values of a query.
pub(crate) struct Query(pub(crate) Vec<(String, String)>);

impl Query {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

/// The decoded target of a request. Whether the key is valid is checked once the caller is known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Service,
    Bucket(String),
    Object(String, String),
}

impl Place {
    pub(crate) fn of(parts: &Parts, base: &str) -> Result<Self, Error> {
        let bad = || Error::new(Code::InvalidUri, "The address is none that is served here.");
        let path = parts.uri.path().strip_prefix(base).ok_or_else(bad)?;
        let path = match path.strip_prefix('/') {
            Some(path) => path,
            None if path.is_empty() => path,
            None => return Err(bad()),
        };
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        let (bucket, key) = (decode(bucket).ok_or_else(bad)?, decode(key).ok_or_else(bad)?);
        Ok(match (bucket.as_ref(), key.as_ref()) {
            ("", "") => Self::Service,
            ("", _) => return Err(bad()),
            (bucket, "") => Self::Bucket(bucket.to_owned()),
            (bucket, key) => Self::Object(bucket.to_owned(), key.to_owned()),
        })
    }

    pub(crate) fn bucket(&self) -> Option<&str> {
        match self {
            Self::Service => None,
            Self::Bucket(bucket) | Self::Object(bucket, _) => Some(bucket),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BucketAct {
    Head,
    Location,
    Versioning,
    Uploads,
    ListV1,
    ListV2,
    DeleteMany,
    Create,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectAct {
    Get,
    Head,
    Put,
    Copy,
    Delete,
    CreateUpload,
    PutPart,
    CopyPart,
    CompleteUpload,
    AbortUpload,
    ListParts,
}

/// Subresources that S3 has and drives do not.
const NOT_HERE: [&str; 26] = [
    "accelerate",
    "acl",
    "analytics",
    "attributes",
    "cors",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "renameObject",
    "replication",
    "requestPayment",
    "restore",
    "retention",
    "select",
    "tagging",
    "torrent",
];
const NOT_HERE_EITHER: [&str; 5] = ["versionId", "versions", "website", "session", "partNumber"];

fn not_here(query: &Query, known: &[&str]) -> Result<(), Error> {
    let all = NOT_HERE.iter().chain(&NOT_HERE_EITHER);
    match all.into_iter().find(|name| query.has(name) && !known.contains(name)) {
        Some(name) => Err(nothing_of(name)),
        None => Ok(()),
    }
}

fn nothing_of(name: &str) -> Error {
    let message = format!("A drive has nothing of what `{name}` asks for.");
    Error::new(Code::NotImplemented, message)
}

fn no_method() -> Error {
    Error::new(Code::MethodNotAllowed, "This method is not allowed here.")
}

impl BucketAct {
    pub(crate) fn of(parts: &Parts, query: &Query) -> Result<Self, Error> {
        not_here(query, &[])?;
        Ok(match parts.method.as_str() {
            "HEAD" => Self::Head,
            "GET" if query.has("location") => Self::Location,
            "GET" if query.has("versioning") => Self::Versioning,
            "GET" if query.has("uploads") => Self::Uploads,
            "GET" if query.get("list-type") == Some("2") => Self::ListV2,
            "GET" => Self::ListV1,
            "POST" if query.has("delete") => Self::DeleteMany,
            "PUT" if query.has("versioning") => return Err(nothing_of("versioning")),
            "PUT" => Self::Create,
            _ => return Err(no_method()),
        })
    }

    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::DeleteMany)
    }
}

impl ObjectAct {
    pub(crate) fn of(parts: &Parts, query: &Query) -> Result<Self, Error> {
        let upload = query.has("uploadId");
        not_here(query, if upload { &["partNumber"] } else { &[] })?;
        let copies = parts.headers.contains_key("x-amz-copy-source");
        Ok(match (parts.method.as_str(), upload) {
            ("GET", true) => Self::ListParts,
            ("GET", false) => Self::Get,
            ("HEAD", false) => Self::Head,
            ("PUT", true) if copies => Self::CopyPart,
            ("PUT", true) => Self::PutPart,
            ("PUT", false) if copies => Self::Copy,
            ("PUT", false) => Self::Put,
            ("DELETE", true) => Self::AbortUpload,
            ("DELETE", false) => Self::Delete,
            ("POST", true) => Self::CompleteUpload,
            ("POST", false) if query.has("uploads") => Self::CreateUpload,
            _ => return Err(no_method()),
        })
    }

    pub(crate) fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::Head | Self::ListParts)
    }
}
