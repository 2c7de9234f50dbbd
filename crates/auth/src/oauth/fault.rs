//! The errors that clients get when they are refused.

use crate::{Denied, Throttled};

/// Error codes of RFC 6749 and RFC 8628.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    AccessDenied,
    AuthorizationPending,
    ExpiredToken,
    InvalidClient,
    InvalidGrant,
    InvalidRequest,
    InvalidScope,
    SlowDown,
    UnauthorizedClient,
    UnsupportedGrantType,
    UnsupportedResponseType,
}

impl Code {
    pub const fn name(self) -> &'static str {
        match self {
            Self::AccessDenied => "access_denied",
            Self::AuthorizationPending => "authorization_pending",
            Self::ExpiredToken => "expired_token",
            Self::InvalidClient => "invalid_client",
            Self::InvalidGrant => "invalid_grant",
            Self::InvalidRequest => "invalid_request",
            Self::InvalidScope => "invalid_scope",
            Self::SlowDown => "slow_down",
            Self::UnauthorizedClient => "unauthorized_client",
            Self::UnsupportedGrantType => "unsupported_grant_type",
            Self::UnsupportedResponseType => "unsupported_response_type",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("{}: {description}", code.name())]
    Refused { code: Code, description: String },
    #[error(transparent)]
    Throttled(#[from] Throttled),
    #[error("the store failed")]
    Store(#[from] store::Error),
}

impl Fault {
    pub(crate) fn new(code: Code, description: impl Into<String>) -> Self {
        Self::Refused { code, description: description.into() }
    }

    pub(crate) fn request(description: impl Into<String>) -> Self {
        Self::new(Code::InvalidRequest, description)
    }

    pub(crate) fn grant(description: impl Into<String>) -> Self {
        Self::new(Code::InvalidGrant, description)
    }

    pub(crate) fn client(description: impl Into<String>) -> Self {
        Self::new(Code::InvalidClient, description)
    }

    pub(crate) fn scope(unknown: &str) -> Self {
        Self::new(
            Code::InvalidScope,
            format!("`scope` names `{}`, which does not exist", unknown.escape_debug()),
        )
    }
}

/// Converts the error of loading an identity: the person or service account behind a grant may be
/// gone by the time it is used.
impl From<Denied> for Fault {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Store(error) => Self::Store(error),
            other => Self::grant(other.to_string()),
        }
    }
}
