//! Why somebody could not sign in through the provider.

use crate::Throttled;

#[derive(Debug, thiserror::Error)]
pub enum OutsideError {
    #[error("no outside provider is configured")]
    Off,
    #[error("this sign-in was not begun in this browser, or took too long; begin again")]
    NotBegun,
    #[error("the provider did not agree: {0}")]
    Declined(String),
    #[error("the provider has not verified your address, or did not name one")]
    Unverified,
    #[error(
        "{0} has no account and no open invitation here; ask an admin of a workspace to invite you"
    )]
    NotInvited(String),
    #[error("the invitation cannot be accepted: {0}")]
    NotAccepted(String),
    #[error("the provider could not be used: {0}")]
    Provider(String),
    #[error(transparent)]
    Throttled(#[from] Throttled),
    #[error("the store failed")]
    Store(#[from] store::Error),
}
