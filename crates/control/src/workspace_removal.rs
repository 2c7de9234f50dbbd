//! What happens to everything in a workspace before the workspace is deleted.

use crate::context::Context;
use crate::engine::{self, Held, Managed};
use crate::error::Error;
use std::cmp::Reverse;
use store::Tx;
use types::{KindName, with_kind};

/// Gives back what the objects of a workspace hold, so that nothing is billed or shared any more
/// once their rows are deleted in the same transaction. It does not matter what uses what, because
/// all of it goes.
pub fn release_all(context: &Context, tx: &mut Tx<'_>) -> Result<(), Error> {
    let mut kinds = KindName::ALL.to_vec();
    // An object may still need what contains it.
    kinds.sort_by_key(|kind| Reverse(kind.parents().len()));
    kinds.into_iter().try_for_each(|kind| with_kind!(kind, release(context, tx)))
}

fn release<K: Managed>(context: &Context, tx: &mut Tx<'_>) -> Result<(), Error> {
    engine::for_each(context, tx, |tx, held: Held<K>| K::release(context, tx, &held))
}
