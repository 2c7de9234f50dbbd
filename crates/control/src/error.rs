//! Why the control plane refuses, one variant per decision.

use crate::machine::{LaunchFault, UnknownImage};
use crate::missing::Missing;
use auth::Denied;
use types::{KindName, Problems};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Invalid(#[from] Problems),
    #[error("{0}")]
    Malformed(String),
    #[error("{0}")]
    Denied(Denied),
    #[error("there is no {kind} `{name}` in this workspace")]
    NoResource { kind: KindName, name: String },
    #[error("{0}")]
    NotFound(String),
    #[error("a {kind} named `{name}` exists already; choose another name, or change it with PUT")]
    Exists { kind: KindName, name: String },
    #[error("{0}")]
    Conflict(String),
    #[error(
        "the {kind} has version {version} now, not the one in `If-Match`; read it and try again"
    )]
    Changed { kind: KindName, version: i64 },
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Gone(String),
    #[error(
        "`{kind}` objects are limited to {limit} in this workspace; delete some, or ask the operator for more"
    )]
    Quota { kind: KindName, limit: i64 },
    #[error(
        "the budget `{budget}` is spent: new work is refused until the month ends (UTC) or an admin of the account raises it"
    )]
    Spent { budget: String },
    #[error("too many requests; try again in {retry_after_s} s")]
    TooMany { retry_after_s: u64 },
    #[error("{0}; end some first, or try again later")]
    Crowded(admission::Refused),
    #[error("{0}; try again later, or let it wait with `allowQueue`")]
    NoSlots(String),
    #[error("{0}; try again when some have ended")]
    TooManyOpen(String),
    #[error(transparent)]
    InvalidImage(UnknownImage),
    #[error("{0}; try again later, or elsewhere")]
    NoRoom(String),
    #[error("{0}")]
    OverShare(String),
    #[error("the sandbox could not be started: {0}")]
    Launch(String),
    #[error("this server cannot yet {}", .0.act())]
    Missing(Missing),
    #[error(transparent)]
    Store(store::Error),
}

impl From<admission::Refused> for Error {
    fn from(refused: admission::Refused) -> Self {
        Self::Crowded(refused)
    }
}

impl From<Denied> for Error {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Store(error) => error.into(),
            other => Self::Denied(other),
        }
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::Stale { what } => {
                Self::Conflict(format!("{what} was changed meanwhile; read it and try again"))
            }
            other => Self::Store(other),
        }
    }
}

impl From<LaunchFault> for Error {
    fn from(fault: LaunchFault) -> Self {
        match fault {
            LaunchFault::Image(unknown) => Self::InvalidImage(unknown),
            LaunchFault::Full(why) => Self::NoRoom(why),
            LaunchFault::OverShare(why) => Self::OverShare(why),
            LaunchFault::Pull(why) | LaunchFault::Broken(why) => Self::Launch(why),
        }
    }
}

impl From<auth::Error> for Error {
    fn from(error: auth::Error) -> Self {
        use auth::Error as Identity;
        let message = error.to_string();
        match error {
            Identity::Denied(denied) => denied.into(),
            Identity::Invalid(problems) => problems.into(),
            Identity::NotFound { .. } => Self::NotFound(message),
            Identity::Exists(_) | Identity::LastAdmin | Identity::LastAccountAdmin => {
                Self::Conflict(message)
            }
            Identity::InvitationExpired => Self::Gone(message),
            Identity::TooMany { .. } => Self::Refused(message),
            Identity::Crowded(_) => Self::TooMany { retry_after_s: 1 },
            Identity::Store(error) => error.into(),
        }
    }
}
