//! A request for embeddings and its answer, in a form that belongs to no dialect.

use crate::dialect::{Dialect, Unsayable};
use serde_json::Number;

/// A request in a neutral form that belongs to no dialect.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Asked {
    pub(super) inputs: Vec<String>,
    pub(super) purpose: Option<Purpose>,
    pub(super) dimensions: Option<u64>,
    pub(super) form: Form,
    /// Whether a single input was sent by itself rather than as a list of one.
    pub(super) is_one: bool,
}

/// The form in which the caller wants the numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Form {
    #[default]
    Floats,
    /// 32-bit floats, little-endian.
    Base64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Query,
    Document,
    Classification,
    Clustering,
}

/// An answer in a neutral form.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Answered {
    pub(super) vectors: Vec<Vec<Number>>,
    pub(super) input_tokens: Option<u64>,
}

/// The error for a dialect that has no embeddings.
pub(super) fn has_none(dialect: Dialect) -> Unsayable {
    Unsayable::new("body", format!("embeddings cannot be asked for as {}", dialect.name()))
}
