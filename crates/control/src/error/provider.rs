//! Failures in reaching the provider of a connection, and whose fault they are.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderFault {
    /// The fault is the connection's, so no provider was asked.
    #[error("the connection `{name}`{}{why}", spaced(.why))]
    Connection { name: String, why: String },
    #[error("the provider of the connection `{name}` cannot be reached: {why}")]
    Unreachable { name: String, why: String },
    #[error(
        "the provider refuses the credentials of the connection `{name}` with status {status}; change its `spec.secret`"
    )]
    Credentials { name: String, status: u16 },
    #[error("the provider of the connection `{name}` answered with status {status}")]
    Failed { name: String, status: u16 },
    #[error(
        "the provider of the connection `{name}` answered with something else than models: {why}"
    )]
    Unreadable { name: String, why: String },
}

fn spaced(why: &str) -> &'static str {
    if why.starts_with(':') { "" } else { " " }
}
