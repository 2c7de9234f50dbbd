//! How a command ends. Scripts rely on the numbers: docs/command-line.md lists them. Each means one
//! thing.

use std::process::ExitCode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Success = 0,
    /// Something failed that has no number of its own.
    Failed = 1,
    /// The command line itself was wrong; the argument parser uses the same number.
    Usage = 2,
    /// A setting or a settings file was wrong.
    Settings = 3,
    /// No credentials, or the server does not take them.
    SignIn = 4,
    /// The credentials are good but do not allow this.
    Forbidden = 5,
    NotFound = 6,
    /// The object exists already or was changed meanwhile.
    Conflict = 7,
    /// The server cannot be reached or did not answer in time.
    Unreachable = 8,
    /// The server failed, or this release of it cannot do this.
    Server = 9,
    /// `holm doctor` found something that must be mended.
    Unhealthy = 10,
    /// The server refused the request as wrong.
    Refused = 11,
    /// Too many requests; try again later.
    Throttled = 12,
    /// What was waited for was cancelled.
    Cancelled = 13,
    /// Somebody did not want to wait any longer.
    Interrupted = 130,
}

impl Exit {
    pub(crate) fn of_status(status: http::StatusCode) -> Self {
        match status.as_u16() {
            401 => Self::SignIn,
            403 => Self::Forbidden,
            404 => Self::NotFound,
            409 | 412 => Self::Conflict,
            429 => Self::Throttled,
            400..=499 => Self::Refused,
            _ => Self::Server,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
