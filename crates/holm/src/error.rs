//! Reasons why a command failed, and what to do next.

use crate::config;
use crate::exit::Exit;
use std::error::Error as _;
use std::io;
use std::iter::successors;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The command line makes no sense, whatever exists.
    #[error("{0}")]
    Usage(String),
    /// The command line makes sense, but what it names does not exist.
    #[error("{0}")]
    Absent(String),
    #[error("{0}")]
    Taken(String),
    #[error("{0}")]
    NoCredentials(String),
    #[error(transparent)]
    Settings(#[from] config::Error),
    #[error("{place}: {message}")]
    ContextFile { place: String, message: String },
    #[error("you are not signed in")]
    NotSignedIn,
    #[error("you are not signed in to {server}")]
    NotSignedInTo { server: String },
    /// `next` is what the one who answered advises, or what this program does.
    #[error("{message}")]
    Answer { status: http::StatusCode, message: String, next: Option<String> },
    #[error("cannot reach {server}")]
    Unreachable { server: String, source: reqwest::Error },
    #[error("{server} did not answer as a Holm server does: {message}")]
    NotHolm { server: String, message: String },
    #[error("the answer of `{name}` broke off")]
    BrokeOff { name: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{place}: {message}")]
    Document { place: String, message: String },
    #[error("cannot {act}")]
    Io { act: String, source: io::Error },
    #[error("cannot {act}")]
    Store { act: String, source: store::Error },
    #[error("cannot {act}: {message}")]
    Start { act: String, message: String },
    #[error("{failed} of {all} failed")]
    Several { failed: usize, all: usize, exit: Exit },
    #[error("{0}")]
    NotServed(String),
    /// The command waited for something that then failed for reasons of its own.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    pub(crate) fn io(act: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let act = act.into();
        move |source| Self::Io { act, source }
    }

    /// Like [`Error::io`], for reading what the user has named, which may not be there.
    pub(crate) fn reading(act: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let act = act.into();
        move |source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                Self::Absent(format!("cannot {act}: there is no such file or folder"))
            }
            _ => Self::Io { act, source },
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::Settings(_) | Self::ContextFile { .. } => Exit::Settings,
            Self::NotSignedIn | Self::NotSignedInTo { .. } | Self::NoCredentials(_) => Exit::SignIn,
            Self::Absent(_) => Exit::NotFound,
            Self::Taken(_) => Exit::Conflict,
            Self::Answer { status, .. } => Exit::of_status(*status),
            Self::Unreachable { .. } => Exit::Unreachable,
            Self::NotHolm { .. } | Self::NotServed(_) | Self::BrokeOff { .. } => Exit::Server,
            Self::Document { .. } => Exit::Refused,
            Self::Several { exit, .. } => *exit,
            Self::Io { .. } | Self::Store { .. } | Self::Start { .. } | Self::Failed(_) => {
                Exit::Failed
            }
        }
    }

    /// Returns advice on what the user can do.
    pub(crate) fn next(&self) -> Option<String> {
        let next = match self {
            Self::NotSignedIn => "run `holm login`, or set HOLM_URL and HOLM_API_KEY",
            Self::NotSignedInTo { server } => {
                return Some(format!(
                    "run `holm login --server {server}`, or set HOLM_API_KEY to a key of that server"
                ));
            }
            Self::Answer { next, .. } => return next.clone(),
            Self::Unreachable { source, .. } if speaks_no_tls(source) => {
                "the server seems to speak no TLS: write its address with http://"
            }
            Self::Unreachable { .. } => {
                "check that the server runs (`holm up`) and that --server, HOLM_URL or `holm login` names the right address"
            }
            Self::NotHolm { .. } => {
                "check the address: it is the one that `holm up` prints, without a path"
            }
            _ => return None,
        };
        Some(next.to_owned())
    }

    /// Returns advice for a status of the management interface.
    pub(crate) fn next_after(status: http::StatusCode) -> Option<String> {
        let next = match Exit::of_status(status) {
            Exit::SignIn => "the key or session is not valid any more: run `holm login`",
            Exit::Forbidden => {
                "ask an admin of the workspace for the right, or switch with `holm workspaces NAME`"
            }
            Exit::NotFound => "`holm get KIND` lists what is there",
            Exit::Throttled => "wait a moment and repeat the command",
            _ => return None,
        };
        Some(next.to_owned())
    }
}

/// Returns whether what answered a TLS handshake was no TLS.
fn speaks_no_tls(error: &reqwest::Error) -> bool {
    let mut cause = successors(error.source(), |cause| (*cause).source()).last();
    // What an `io::Error` holds is not its source.
    while let Some(outer) = cause.and_then(|cause| cause.downcast_ref::<io::Error>()) {
        cause = outer.get_ref().map(|inner| inner as &(dyn std::error::Error + 'static));
    }
    let tls = cause.and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(tls, Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)))
}
