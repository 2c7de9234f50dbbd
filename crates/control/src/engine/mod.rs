//! The operations that all kinds of resources share: create, get, replace, remove, list, and keep
//! revisions.
//!
//! A kind takes part by implementing [`Managed`]; a kind that needs nothing beyond its
//! [`Kind`](types::Kind) does so in one line. All functions here run inside one store transaction,
//! so an object is never half made.

mod corrupt;
mod held;
mod list;
mod managed;
mod new_revisions;
mod pending;
mod revisions;
mod secrets;
mod verbs;

pub(crate) use corrupt::{corrupt, whole};
pub use held::Held;
pub use list::{Among, Listing, Page, everywhere, list, list_all, list_among, require_parent};
pub(crate) use list::{all, for_each};
pub use managed::{Draft, Managed, Paging, ShowsSecrets};
pub(crate) use new_revisions::{add_revision, redeploy};
pub(crate) use pending::{Pending, apply_built, create_unbuilt, pend};
pub(crate) use revisions::wish_of;
pub use revisions::{earlier, revisions};
pub use secrets::{MASK, Secrets};
pub use verbs::{
    Checked, Shown, change_state, create, create_checked, get, opened, present, remove, replace,
    require_version,
};
pub(crate) use verbs::{replace_held, require_references, write_over};
