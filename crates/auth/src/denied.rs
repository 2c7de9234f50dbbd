//! Reasons why somebody may not do something, with one variant per decision.

use store::identity::Role;
use types::Scope;

#[derive(Debug, thiserror::Error)]
pub enum Denied {
    #[error(
        "no credentials were sent; send `Authorization: Bearer` with an API key or an access token"
    )]
    Missing,
    #[error("the credentials are not valid; they may have been revoked")]
    Unknown,
    #[error("the credentials have expired; create a new key or refresh the token")]
    Expired,
    #[error("the token lacks the scope `{needed}`")]
    Scope { needed: Scope },
    #[error(
        "this would make a credential with all scopes, which a token limited to some must not; use an API key or a token with the scope `admin`"
    )]
    LimitedToken,
    #[error("this needs the role `{}` in the workspace", needed.name())]
    Role { needed: Role },
    #[error(
        "this key is for models alone: it opens `/{{workspace}}/models/{{name}}/` and nothing else; use another key"
    )]
    ForModels,
    #[error("only admins of the account may do this")]
    NotAccountAdmin,
    #[error("only people may do this, not service accounts")]
    NotPerson,
    #[error(
        "nobody has proven that your address is yours; open the link of the invitation, or sign in with a provider that vouches for it"
    )]
    AddressUnproven,
    #[error("you administer no account; only admins of an account can create workspaces in it")]
    NoAccount,
    #[error("you belong to no workspace; create one or accept an invitation")]
    NoWorkspace,
    #[error("you belong to several workspaces; name one of {} in the workspace header", names.join(", "))]
    ManyWorkspaces { names: Vec<String> },
    #[error("you have no access to the workspace `{workspace}`")]
    NotMember { workspace: String },
    #[error("the credentials could not be looked up")]
    Store(#[from] store::Error),
}

/// The part of a request that must change for it to succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The credentials are missing or wrong.
    Credentials,
    /// The caller is known but may not do this.
    Rights,
    /// The request does not say enough.
    Request,
    Server,
}

impl Denied {
    pub const fn blame(&self) -> Blame {
        match self {
            Self::Missing | Self::Unknown | Self::Expired => Blame::Credentials,
            Self::Scope { .. }
            | Self::LimitedToken
            | Self::Role { .. }
            | Self::ForModels
            | Self::NotAccountAdmin
            | Self::NotPerson
            | Self::AddressUnproven
            | Self::NoAccount
            | Self::NotMember { .. } => Blame::Rights,
            Self::NoWorkspace | Self::ManyWorkspaces { .. } => Blame::Request,
            Self::Store(_) => Blame::Server,
        }
    }
}
