//! Errors with the codes and statuses that S3 clients know.

use crate::xml::Xml;
use http::StatusCode;
use rustix::io::Errno;
use std::borrow::Cow;
use std::io::ErrorKind;

macro_rules! codes {
    ($($name:ident $text:literal $status:ident,)*) => {
        /// The codes of S3 that are used here, and a few for conditions that only folders have.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code { $($name),* }

        impl Code {
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            pub fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status),* }
            }
        }
    };
}

codes! {
    AccessDenied "AccessDenied" FORBIDDEN,
    BadDigest "BadDigest" BAD_REQUEST,
    BadSignatureHeader "AuthorizationHeaderMalformed" BAD_REQUEST,
    BadSignatureQuery "AuthorizationQueryParametersError" BAD_REQUEST,
    BodyHashMismatch "XAmzContentSHA256Mismatch" BAD_REQUEST,
    BucketOwned "BucketAlreadyOwnedByYou" CONFLICT,
    ClockSkewed "RequestTimeTooSkewed" FORBIDDEN,
    EntityTooLarge "EntityTooLarge" BAD_REQUEST,
    EntityTooSmall "EntityTooSmall" BAD_REQUEST,
    IncompleteBody "IncompleteBody" BAD_REQUEST,
    Internal "InternalError" INTERNAL_SERVER_ERROR,
    InvalidArgument "InvalidArgument" BAD_REQUEST,
    InvalidDigest "InvalidDigest" BAD_REQUEST,
    InvalidKeyId "InvalidAccessKeyId" FORBIDDEN,
    InvalidPart "InvalidPart" BAD_REQUEST,
    InvalidPartOrder "InvalidPartOrder" BAD_REQUEST,
    InvalidRange "InvalidRange" RANGE_NOT_SATISFIABLE,
    InvalidRequest "InvalidRequest" BAD_REQUEST,
    InvalidUri "InvalidURI" BAD_REQUEST,
    // A part of the key is a file, or the key itself is a folder.
    KeyConflict "KeyConflictsWithFile" CONFLICT,
    KeyTooLong "KeyTooLongError" BAD_REQUEST,
    MalformedXml "MalformedXML" BAD_REQUEST,
    MetadataTooLarge "MetadataTooLarge" BAD_REQUEST,
    MethodNotAllowed "MethodNotAllowed" METHOD_NOT_ALLOWED,
    MissingLength "MissingContentLength" LENGTH_REQUIRED,
    NoSuchBucket "NoSuchBucket" NOT_FOUND,
    NoSuchKey "NoSuchKey" NOT_FOUND,
    NoSuchUpload "NoSuchUpload" NOT_FOUND,
    NotImplemented "NotImplemented" NOT_IMPLEMENTED,
    PreconditionFailed "PreconditionFailed" PRECONDITION_FAILED,
    SignatureMismatch "SignatureDoesNotMatch" FORBIDDEN,
    SlowDown "SlowDown" SERVICE_UNAVAILABLE,
    StorageFull "InsufficientStorage" INSUFFICIENT_STORAGE,
    Timeout "RequestTimeout" BAD_REQUEST,
    TooManyUploads "TooManyUploads" CONFLICT,
    Unavailable "ServiceUnavailable" SERVICE_UNAVAILABLE,
}

#[derive(Debug, thiserror::Error)]
#[error("{}: {message}", code.text())]
pub struct Error {
    pub code: Code,
    pub message: Cow<'static, str>,
    /// Details for the log only.
    pub cause: Option<std::io::Error>,
}

impl Error {
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), cause: None }
    }

    pub(crate) fn argument(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    pub(crate) fn no_key() -> Self {
        Self::new(Code::NoSuchKey, "The specified key does not exist.")
    }

    pub(crate) fn condition() -> Self {
        Self::new(Code::PreconditionFailed, "At least one of the conditions did not hold.")
    }

    pub(crate) fn conflict() -> Self {
        let message = "A part of the key is a file, or the key is a folder that is there.";
        Self::new(Code::KeyConflict, message)
    }

    pub(crate) fn may_not_write() -> Self {
        Self::new(Code::AccessDenied, "This key may not write to this bucket.")
    }

    pub(crate) fn incomplete() -> Self {
        Self::new(Code::IncompleteBody, "The body ended before what was announced.")
    }

    /// Reports an error of our own. Only the log says what it was.
    pub(crate) fn broken(cause: impl Into<std::io::Error>) -> Self {
        let message = "The server met an error of its own.";
        Self { code: Code::Internal, message: message.into(), cause: Some(cause.into()) }
    }

    pub(crate) fn to_xml(&self, resource: &str, request_id: &str) -> String {
        let mut xml = Xml::begin("Error", false);
        xml.leaf("Code", self.code.text());
        xml.leaf("Message", &self.message);
        xml.leaf("Resource", resource);
        xml.leaf("RequestId", request_id);
        xml.end()
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        std::io::Error::from(errno).into()
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                Self::new(Code::StorageFull, "There is no space left on the drive.")
            }
            _ => Self::broken(error),
        }
    }
}

impl From<tokio::task::JoinError> for Error {
    fn from(error: tokio::task::JoinError) -> Self {
        Self::broken(std::io::Error::other(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Refused;

    #[test]
    fn a_drive_that_cannot_be_opened_for_lack_of_space_says_so() {
        let told = |kind: ErrorKind| {
            let cause = std::io::Error::new(kind, "failed to mount it");
            Error::from(Refused::Broken(cause)).code
        };
        assert_eq!(told(ErrorKind::StorageFull), Code::StorageFull);
        assert_eq!(told(ErrorKind::Other), Code::Internal);
    }
}
