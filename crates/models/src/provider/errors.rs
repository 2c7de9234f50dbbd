//! Why a provider cannot be called.

/// What is wrong with a connection, or with what a caller asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadProvider {
    #[error("the connection to {provider} lacks {what}")]
    Lacks { provider: &'static str, what: String },
    #[error("the connection to {provider} has {what}")]
    Wrong { provider: &'static str, what: String },
    /// No token was fetched yet, or none can be.
    #[error("the connection to {provider} has no access token at the moment")]
    NoToken { provider: &'static str },
    /// The name given by the caller or in the model's settings.
    #[error("`{0}` is no name of a model that can be asked for")]
    BadModel(String),
    /// The path given by the caller.
    #[error("a path that {0} is not passed on")]
    BadPath(&'static str),
    #[error("{provider} does not serve this path")]
    Unsupported { provider: &'static str },
}
