//! Why the control plane refuses a request: one variant for each decision.

mod absent;
mod conflict;
mod forbidden;
mod provider;
mod unfit;

pub use absent::Absent;
pub use conflict::Conflict;
pub use forbidden::Forbidden;
pub use provider::ProviderFault;
pub use unfit::{BadCursor, Unfit};

use crate::machine::{LaunchFault, MachineFault, UnknownImage};
use crate::missing::Missing;
use crate::run_to_end::Interrupted;
use auth::Denied;
use types::{KindName, Problems};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Invalid(#[from] Problems),
    #[error(transparent)]
    Unfit(#[from] Unfit),
    #[error("{0}")]
    Denied(Denied),
    /// Refusals that concern accounts, members, keys and invitations.
    #[error(transparent)]
    Identity(auth::Error),
    #[error("there is no {kind} `{name}` in this workspace")]
    NoResource { kind: KindName, name: String },
    #[error(transparent)]
    Absent(#[from] Absent),
    #[error("the {kind} `{name}` exists already; choose another name, or change it with PUT")]
    Exists { kind: KindName, name: String },
    #[error(transparent)]
    Conflict(#[from] Conflict),
    #[error(
        "the {kind} has version {version} now, not the one in `If-Match`; read it and try again"
    )]
    Changed { kind: KindName, version: i64 },
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    #[error("the share has expired; ask for a new one")]
    ShareExpired,
    #[error(
        "this address was used, has expired or was replaced; apply the resource again with `upload=true` to get a new one"
    )]
    UploadOver,
    #[error("the upload has more than the {limit} bytes that are accepted")]
    UploadTooLarge { limit: u64 },
    /// The address was used up without success.
    #[error("{why}; apply the resource again with `upload=true` to get a new address")]
    UploadFailed { why: String },
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
    #[error(
        "nothing was done: the answers that a workspace keeps under idempotency keys may have {limit} bytes a day; send the request without `Idempotency-Key`, or try again tomorrow (UTC)"
    )]
    AnswersFull { limit: u64 },
    #[error("{0}; end some first, or try again later")]
    Crowded(#[from] admission::Refused),
    /// The queue does not take the execution.
    #[error("{}", not_queued(.0))]
    NotQueued(jobs::StartError),
    #[error(transparent)]
    InvalidImage(UnknownImage),
    #[error("{0}; try again later, or elsewhere")]
    NoRoom(String),
    #[error("{0}")]
    OverShare(String),
    #[error("the sandbox could not be started: {0}")]
    Launch(String),
    /// A failure of the machine that the caller can only repeat.
    #[error("the machine could not do it: {0}")]
    Machine(String),
    /// The text is the machine's; the rules are stored already.
    #[error(
        "the rules of the network are stored, but not in effect yet: {0}; that is tried again until it works"
    )]
    Egress(String),
    #[error(transparent)]
    Provider(#[from] ProviderFault),
    #[error("the volume could not be made or changed: {0}")]
    Volume(String),
    #[error("the snapshot could not be taken: {0}")]
    Snapshot(String),
    #[error("this server cannot yet {}", .0.act())]
    Missing(Missing),
    #[error(transparent)]
    Store(store::Error),
}

/// Most characters of a name that callers sent and that an error repeats.
const NAME_SHOWN: usize = 80;

/// Returns a name as errors repeat it.
pub(crate) fn shown_name(name: &str) -> String {
    name.chars().take(NAME_SHOWN).collect()
}

impl Error {
    pub(crate) fn no_resource(kind: KindName, name: &str) -> Self {
        Self::NoResource { kind, name: shown_name(name) }
    }
}

/// Formats the queue's refusal, and what to do about it.
fn not_queued(error: &jobs::StartError) -> String {
    use jobs::StartError as Queue;
    match error {
        Queue::Full { .. } => format!("{error}; try again later, or let it wait with `allowQueue`"),
        Queue::Crowded { .. } => format!("{error}; try again when some have ended"),
        Queue::UsedUp { .. } => format!("{error}; try again tomorrow"),
        Queue::Tasks { .. } | Queue::NeverFits(_) | Queue::Taken(_) | Queue::Store(_) => {
            error.to_string()
        }
    }
}

impl From<jobs::StartError> for Error {
    fn from(error: jobs::StartError) -> Self {
        match error {
            jobs::StartError::Store(error) => error.into(),
            other => Self::NotQueued(other),
        }
    }
}

impl From<BadCursor> for Error {
    fn from(bad: BadCursor) -> Self {
        Self::Unfit(bad.into())
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
                Self::Conflict(Conflict::Stale { what: what.to_string() })
            }
            other => Self::Store(other),
        }
    }
}

impl From<MachineFault> for Error {
    fn from(fault: MachineFault) -> Self {
        Self::Machine(fault.to_string())
    }
}

impl From<Interrupted> for Error {
    fn from(interrupted: Interrupted) -> Self {
        Self::Machine(interrupted.to_string())
    }
}

impl From<LaunchFault> for Error {
    fn from(fault: LaunchFault) -> Self {
        match fault {
            LaunchFault::Image(unknown) => Self::InvalidImage(unknown),
            LaunchFault::Full(why) => Self::NoRoom(why),
            LaunchFault::OverShare(why) => Self::OverShare(why),
            LaunchFault::Pull(why) => Self::Unfit(Unfit::ImageNotHad { why }),
            LaunchFault::Busy(why) | LaunchFault::Broken(why) => Self::Launch(why),
        }
    }
}

impl From<auth::Error> for Error {
    fn from(error: auth::Error) -> Self {
        match error {
            auth::Error::Denied(denied) => denied.into(),
            auth::Error::Invalid(problems) => problems.into(),
            auth::Error::Crowded(_) => Self::TooMany { retry_after_s: 1 },
            auth::Error::Store(error) => error.into(),
            other => Self::Identity(other),
        }
    }
}
