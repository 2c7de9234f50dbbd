//! Snapshots of sandboxes.

use crate::engine::{Managed, Paging};
use types::kinds::Snapshot;

impl Managed for Snapshot {
    const PAGING: Paging = Paging::Bare;
}
