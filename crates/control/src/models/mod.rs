//! Models as rows ask for them: who answers, with which credentials, under which limits.
//!
//! ```text
//! route    a row with its connection and policies → what the edge is told
//! access   access tokens of connections that have none by themselves
//! ask      which models a connection reaches, as its provider says
//! log      lines about requests, where a model has its log on
//! ```

pub(crate) mod access;
pub(crate) mod access_tokens;
mod ask;
pub mod ledger;
mod listed;
mod log;
pub(crate) mod route;
pub mod usage;

pub use ask::{list, one};
pub(crate) use log::run as run_log;

use crate::settings::Models;

/// What only this run of the program knows about models.
pub(crate) struct Shared {
    pub(crate) access: access_tokens::AccessTokens,
    listed: listed::Listed,
}

impl Shared {
    pub(crate) fn new(settings: &Models) -> Self {
        Self {
            access: access_tokens::AccessTokens::new(settings),
            listed: listed::Listed::new(settings),
        }
    }
}
