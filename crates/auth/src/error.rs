//! Errors of management operations, with one variant per decision that a caller can take.

use crate::{Denied, passwords::Crowded};
use types::Problems;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error("{0}")]
    Invalid(#[from] Problems),
    #[error("there is no {what} `{name}`")]
    NotFound { what: &'static str, name: String },
    #[error("{0}")]
    Exists(String),
    #[error("the workspace needs an admin; make somebody else admin first")]
    LastAdmin,
    #[error("the account needs an admin; make somebody else admin first")]
    LastAccountAdmin,
    #[error("the invitation has expired; ask for a new one")]
    InvitationExpired,
    #[error("there are {limit} {what} already; delete some first")]
    TooMany { what: &'static str, limit: usize },
    #[error(transparent)]
    Crowded(#[from] Crowded),
    #[error("the store failed")]
    Store(#[from] store::Error),
}

impl Error {
    pub(crate) fn not_found(what: &'static str, name: impl Into<String>) -> Self {
        Self::NotFound { what, name: name.into() }
    }

    pub(crate) fn invalid(field: &str, rule: impl Into<String>) -> Self {
        Self::Invalid(Problems::one(field, rule))
    }
}
