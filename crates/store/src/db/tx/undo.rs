//! What is done outside the database if a transaction is not kept.

/// Does what was added when it is dropped, unless the transaction was kept.
#[derive(Default)]
pub(in crate::db) struct Undo(Vec<Box<dyn FnOnce()>>);

impl Undo {
    pub(super) fn add(&mut self, act: impl FnOnce() + 'static) {
        self.0.push(Box::new(act));
    }

    /// Takes over what another transaction, which is committed together with this one, added.
    pub(in crate::db) fn join(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Forgets all of it: what the transaction did is durable.
    pub(in crate::db) fn keep(&mut self) {
        self.0.clear();
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        self.0.drain(..).rev().for_each(|act| act());
    }
}
