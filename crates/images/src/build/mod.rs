//! Images out of Dockerfiles that nobody trusts.
//!
//! ```text
//! lines ─▶ instruction ─▶ dockerfile (stages, and which are needed)
//! sources (zip, tar, ignore, project) ─▶ a folder, in the scratch of the store
//! Build::apply:  config          what changes no file
//!                items, copy     COPY and ADD, in a tree that cannot be left (rootfs)
//!                run             what a RUN needs; whoever runs it hands back what was written
//! layers, cache                  what a step wrote, and the steps that were done before
//! ```
//!
//! Nothing here runs anything: a RUN is an order for whoever has instances. Nothing is mounted at a
//! place, and all work in progress is in the scratch of the store, so that a kill leaves nothing.

mod cache;
mod config;
mod copy;
mod dockerfile;
mod ignore;
mod instruction;
mod items;
mod layers;
mod lines;
mod making;
mod pattern;
mod project;
mod rootfs;
mod run;
mod scope;
pub(crate) mod sources;
mod stage;
mod transfer;
mod users;
mod words;
mod writing;
pub(crate) mod zip;

pub use config::{Document, Happened, Process};
pub use dockerfile::{Base, Dockerfile, Plan, Stage};
pub use instruction::{Instruction, Step};
pub use lines::Statement;
pub use making::{Build, Limits, Order, Outcome, Site};
pub use project::{Given, Languages, Project};
pub use run::{Mount, RunOrder, What};
pub use sources::SourceLimits;
pub use stage::State;
pub use transfer::{Download, Supplies, Supply};

use crate::error::Error;

/// Why a Dockerfile cannot be built, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Dockerfile, line {line}: {why}")]
pub struct Mistake {
    pub line: usize,
    pub why: String,
}

impl Mistake {
    fn new(line: usize, why: impl Into<String>) -> Self {
        Self { line, why: why.into() }
    }
}

/// Why a step cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It is for whoever wrote it to mend.
    #[error("{0}")]
    Sources(String),
    #[error(transparent)]
    Store(Error),
}

/// What an archive or a tree is refused for is its owner's to mend as well.
impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Limit { .. } | Error::Hostile { .. } => Self::Sources(error.to_string()),
            other => Self::Store(other),
        }
    }
}

impl From<rustix::io::Errno> for Fault {
    fn from(error: rustix::io::Errno) -> Self {
        Error::from(error).into()
    }
}
