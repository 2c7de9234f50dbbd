//! Secrets of a workspace: written by name, never read back.

use crate::engine::{Managed, Paging};
use types::kinds::Secret;

impl Managed for Secret {
    const PAGING: Paging = Paging::Bare;
}
