//! The edge's own errors for requests for models: whose fault it is, and what to do.

use super::decode::BadCoding;
use super::hooks::Stopped;
use super::request::BadBody;
use super::upstream::Broken;
use ::models::chat::Fault;
use ::models::dialect::{Dialect, Unreadable, Unsayable};
use ::models::ledger::{self, OverLimit};
use ::models::operation::Operation;
use ::models::provider::BadProvider;
use ::models::translate::fault_body;
use std::time::Duration;
use types::kinds::model::ModelFailure;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ModelProblem {
    #[error(transparent)]
    BadBody(#[from] BadBody),
    #[error("the body of the request did not come in time")]
    SlowBody,
    #[error("the body of the request ended before its end")]
    CutBody,
    #[error("this is asked for by `POST`")]
    Method,
    #[error("the request cannot be put into the words of the provider: {0}")]
    Unsayable(#[from] Unsayable),
    #[error("the provider of the model does not serve this")]
    Unsupported,
    /// The caller's path or name of a model.
    #[error("{0}")]
    Unpassable(BadProvider),
    #[error("the model has neither a provider nor a target that can be asked")]
    NoProvider,
    #[error("the connection of the model cannot be used: {0}")]
    Connection(BadProvider),
    #[error("the provider refuses the credentials of the model's connection")]
    Credentials,
    #[error(transparent)]
    OverLimit(OverLimit),
    #[error("{0}")]
    Limits(String),
    #[error("there is a limit of money, and no price for `{0}`")]
    Unpriced(String),
    #[error("there is a limit of tokens or money, and what this path uses cannot be counted")]
    Uncounted,
    #[error(transparent)]
    Stopped(#[from] Stopped),
    #[error("the model failed several times and is left alone for a while")]
    Resting { left: Duration },
    #[error("{0}")]
    Broken(#[from] Broken),
    #[error("the provider wants to send the request elsewhere, which is not followed")]
    Redirect,
    #[error("{0}")]
    Unreadable(#[from] Unreadable),
    #[error("the provider's answer cannot be read: {0}")]
    BadCoding(#[from] BadCoding),
    #[error("the provider's answer cannot be read: {0}")]
    BadAnswer(&'static str),
    #[error("the provider's answer is longer than {0} bytes")]
    LongAnswer(usize),
    #[error("models are not served yet: the server starts")]
    NotReady,
    #[error("a model of this installation asks it: the address of a connection leads back here")]
    Loop,
}

impl From<ledger::Refused> for ModelProblem {
    fn from(refused: ledger::Refused) -> Self {
        match refused {
            ledger::Refused::OverLimit(over) => Self::OverLimit(over),
            refused @ ledger::Refused::Unavailable(_) => Self::Limits(refused.to_string()),
        }
    }
}

impl ModelProblem {
    /// Returns the failure that other models may be asked after. `None` means no other model would
    /// do better.
    pub(crate) const fn failure(&self) -> Option<ModelFailure> {
        match self {
            Self::Broken(broken) => Some(super::failure::of_broken(broken)),
            Self::Connection(_) | Self::Credentials => Some(ModelFailure::Credentials),
            Self::Resting { .. } => Some(ModelFailure::Unreachable),
            Self::Redirect
            | Self::Unreadable(_)
            | Self::BadCoding(_)
            | Self::BadAnswer(_)
            | Self::LongAnswer(_) => Some(ModelFailure::ServerError),
            Self::Unsayable(_) | Self::Unsupported | Self::Unpassable(_) => {
                Some(ModelFailure::BadRequest)
            }
            _ => None,
        }
    }
}

/// Returns the dialect in which the caller of this path reads errors. `None` means the edge's own
/// format.
pub(crate) fn dialect_of(path: &str) -> Option<Dialect> {
    match Operation::of(path) {
        Operation::Chat(dialect) | Operation::Embeddings(dialect) => Some(dialect),
        Operation::GeminiStream => Some(Dialect::Gemini),
        Operation::Models => Some(Dialect::OpenAi),
        Operation::Other => None,
    }
}

pub(crate) fn fault(dialect: Dialect, status: u16, code: &str, message: String) -> Vec<u8> {
    let code = Some(code.to_owned());
    fault_body(dialect, &Fault { status, code, message, ..Fault::default() })
}
