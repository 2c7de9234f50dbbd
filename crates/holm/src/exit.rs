//! How a command ends. Scripts rely on the numbers: docs/command-line.md lists them. Each means one
//! thing.

use std::process::ExitCode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    /// Something failed that has no number of its own.
    Failed,
    /// The command line itself was wrong; the argument parser uses the same number.
    Usage,
    /// A setting or a settings file was wrong.
    Settings,
    /// No credentials, or the server does not take them.
    SignIn,
    /// The credentials are good but do not allow this.
    Forbidden,
    NotFound,
    /// The object exists already or was changed meanwhile.
    Conflict,
    /// The server cannot be reached or did not answer in time.
    Unreachable,
    /// The server failed, or this release of it cannot do this.
    Server,
    /// `holm doctor` found something that must be mended.
    Unhealthy,
    /// The server refused the request as wrong.
    Refused,
    /// Too many requests; try again later.
    Throttled,
    /// What was waited for was cancelled.
    Cancelled,
    /// Somebody did not want to wait any longer.
    Interrupted,
    /// What a program ended with that this one ran for somebody, here or in a sandbox.
    Program(u8),
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

    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Settings => 3,
            Self::SignIn => 4,
            Self::Forbidden => 5,
            Self::NotFound => 6,
            Self::Conflict => 7,
            Self::Unreachable => 8,
            Self::Server => 9,
            Self::Unhealthy => 10,
            Self::Refused => 11,
            Self::Throttled => 12,
            Self::Cancelled => 13,
            Self::Interrupted => 130,
            Self::Program(number) => number,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.number())
    }
}
