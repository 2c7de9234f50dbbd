//! Exit codes of commands. Scripts rely on them, so docs/command-line.md lists them, and each has a
//! single meaning.

use std::process::ExitCode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    /// A failure without an exit code of its own.
    Failed,
    /// The command line itself was wrong; the argument parser uses the same code.
    Usage,
    /// A setting or a settings file was wrong.
    Settings,
    /// There are no credentials, or the server does not accept them.
    SignIn,
    /// The credentials are valid but do not allow this.
    Forbidden,
    /// The object, or a file or folder here, does not exist.
    NotFound,
    /// The object exists already, or was changed in the meantime.
    Conflict,
    /// The server cannot be reached or did not answer in time.
    Unreachable,
    /// The server failed, or its release does not support this.
    Server,
    /// `holm doctor` found a problem that must be fixed.
    Unhealthy,
    /// The server refused the request as invalid.
    Refused,
    /// Too many requests; try again later.
    Throttled,
    /// The command waited for something that was cancelled.
    Cancelled,
    /// The user stopped waiting.
    Interrupted,
    /// Exit code of a program that this command ran, here or in a sandbox.
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
            // It leads elsewhere, which this program does not follow.
            300..=399 => Self::Failed,
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
