//! Errors about rows whose contents no rule would have let in.

use crate::error::Error;
use types::ids::ResourceId;

pub(crate) fn corrupt(id: &ResourceId, why: impl ToString) -> Error {
    Error::Store(store::Error::corrupt("resources", id.to_string(), why))
}

/// Converts a size or a time of a stored wish.
pub(crate) fn whole(id: &ResourceId, number: i64) -> Result<u32, Error> {
    u32::try_from(number).map_err(|_| corrupt(id, format!("{number} is no size and no time")))
}
