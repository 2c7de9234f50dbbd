//! What several kinds have in common.

use std::collections::BTreeMap;

mod event;
mod metadata;

pub use event::{CoreEvent, Lifecycle, Status};
pub use metadata::Metadata;

/// Free key and value pairs for organising and filtering.
pub type Labels = BTreeMap<String, String>;
