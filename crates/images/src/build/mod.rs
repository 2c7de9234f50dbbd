//! Builds images from untrusted Dockerfiles.
//!
//! ```text
//! lines ─▶ instruction ─▶ dockerfile (stages, and which of them are needed)
//! sources (zip, tar, ignore, project) ─▶ a folder in the scratch of the store
//! Build::apply:  config          instructions that change no file
//!                items, copy     COPY and ADD, in a tree that cannot be left (rootfs)
//!                archive         what ADD unpacks
//!                run             what a RUN needs; its runner hands back what was written
//! layers, cache                  the layer that a step wrote, and the cache of earlier steps
//! ```
//!
//! Nothing is executed here: a RUN becomes an order for a caller that has instances. No file system
//! is mounted at a path, and all work in progress is in the scratch of the store, so that a killed
//! process leaves nothing behind.

mod archive;
mod binds;
mod budget;
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
mod places;
mod project;
mod rootfs;
mod run;
mod scope;
pub(crate) mod sources;
mod stage;
#[cfg(test)]
mod step_tests;
mod supplies;
mod transfer;
mod users;
mod words;
mod writing;
pub(crate) mod zip;

pub use cache::KeptStep;
pub use config::{Document, Happened, Process};
pub use dockerfile::{Base, Dockerfile, Plan, Stage};
pub use instruction::{Instruction, Step};
pub use lines::Statement;
pub use making::{Build, Limits, Order, Outcome, Site};
pub use project::{Given, Languages, Project};
pub use run::{Mount, RunOrder, What};
pub use sources::SourceLimits;
pub use stage::State;
pub use supplies::{Download, Supplies, Supply};

use crate::error::Error;

/// The reason why a Dockerfile cannot be built, and its line.
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

/// The reason why a step fails.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The author of the sources can fix it.
    #[error("{0}")]
    Sources(String),
    #[error(transparent)]
    Store(Error),
}

/// Counts a refused archive or tree as a fault of the sources too.
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
