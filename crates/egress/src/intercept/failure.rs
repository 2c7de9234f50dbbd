//! Why a host did not answer.

use super::body::BoxError;
use crate::dial::DialError;
use std::io;
use types::parts::hosts::Host;

/// The texts are shown to the program.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{0}")]
    Dial(DialError),
    #[error("{host} does not prove who it is, or ended TLS: {error}")]
    Tls { host: Host, error: io::Error },
    #[error("{host} did not answer in time")]
    TooSlow { host: Host },
    #[error("{host} ended the connection, or answered what is no HTTP: {}", cause(.error))]
    Broken { host: Host, error: BoxError },
}

/// Adds the cause of an error. Hyper's own text only says where it happened.
fn cause(error: &BoxError) -> String {
    let source = error.source().map(|source| format!(": {source}"));
    format!("{error}{}", source.unwrap_or_default())
}

impl Failure {
    pub(super) fn is_too_slow(&self) -> bool {
        match self {
            Self::TooSlow { .. } => true,
            Self::Dial(error) => error.is_too_slow(),
            Self::Tls { .. } | Self::Broken { .. } => false,
        }
    }

    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Dial(DialError::NoAddress(_)) => "upstream_not_found",
            Self::Dial(DialError::Inside(_)) => "firewall_blocked",
            Self::TooSlow { .. } => "upstream_timeout",
            Self::Dial(error) if error.is_too_slow() => "upstream_timeout",
            Self::Dial(_) => "upstream_unreachable",
            Self::Tls { .. } => "upstream_tls",
            Self::Broken { .. } => "upstream_broken",
        }
    }
}
