//! What several kinds have in common.

use std::collections::BTreeMap;

mod event;
mod metadata;
mod revision;

pub use event::{CoreEvent, Lifecycle, Status};
pub use metadata::Metadata;
pub use revision::{Deploy, RevisionConfiguration};

/// Free key and value pairs for organising and filtering.
pub type Labels = BTreeMap<String, String>;
