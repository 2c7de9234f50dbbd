//! Values that must not reach a log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Replaces a secret value in an answer. Sent back, it means the value that is stored.
pub const MASK: &str = "***";

// On the wire this is the value itself; `Debug` only shows that there is one. This is not a doc
// comment, because that would become the description of every secret.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, transparent)]
pub struct Sensitive<T>(pub T);

impl<T> fmt::Debug for Sensitive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}
