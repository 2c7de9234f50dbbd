//! Values that must not reach a log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

// On the wire the value itself; in `Debug` only that there is one. A doc comment would describe
// every secret.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, transparent)]
pub struct Sensitive<T>(pub T);

impl<T> fmt::Debug for Sensitive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}
