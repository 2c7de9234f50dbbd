//! Why a request to the database failed.

use std::error::Error as _;
use std::time::Duration;
use tokio_postgres::error::{DbError, SqlState};

/// What the driver says of a request, or that nobody answered it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Driver(#[from] tokio_postgres::Error),
    #[error("the database has not answered for {} seconds", .0.as_secs_f32())]
    Silent(Duration),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Failure {
    pub(super) fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Driver(error) => error.code(),
            Self::Silent(_) | Self::Io(_) => None,
        }
    }

    pub(super) fn as_db_error(&self) -> Option<&DbError> {
        match self {
            Self::Driver(error) => error.as_db_error(),
            Self::Silent(_) | Self::Io(_) => None,
        }
    }

    /// Returns true if there is no connection any more, or none to the database behind whatever
    /// answers in its place.
    pub(super) fn is_cut(&self) -> bool {
        let is_io = |error: &tokio_postgres::Error| {
            error.source().is_some_and(|source| source.is::<std::io::Error>())
        };
        match (self, self.code()) {
            // The class of broken connections, and what a server says that is being stopped.
            (_, Some(code)) => code.code().starts_with("08") || code.code().starts_with("57P0"),
            (Self::Driver(error), None) => error.is_closed() || is_io(error),
            (Self::Silent(_) | Self::Io(_), None) => true,
        }
    }

    /// Returns true if the database ended the work because it took too long.
    pub(super) fn is_late(&self) -> bool {
        let late = [SqlState::QUERY_CANCELED, SqlState::LOCK_NOT_AVAILABLE];
        self.code().is_some_and(|code| late.contains(code))
    }
}
