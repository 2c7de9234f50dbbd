//! What instances were told of their rules.

use parking_lot::Mutex;
use std::collections::HashMap;
use types::ids::ResourceId;

/// The launch number and rules number that this run of the program has told the instance of each
/// sandbox.
#[derive(Default)]
pub(crate) struct Told(Mutex<HashMap<ResourceId, (u32, u32)>>);

impl Told {
    pub(crate) fn has(&self, id: &ResourceId, told: (u32, u32)) -> bool {
        self.0.lock().get(id) == Some(&told)
    }

    pub(crate) fn note(&self, id: &ResourceId, told: (u32, u32)) {
        self.0.lock().insert(id.clone(), told);
    }

    pub(crate) fn forget(&self, id: &ResourceId) {
        self.0.lock().remove(id);
    }
}
