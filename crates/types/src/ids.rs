//! Ids, one type each, so that they cannot be confused; the prefix of each shows its kind.

use crate::World;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        #[schemars(transparent)]
        pub struct $name(String);

        impl $name {
            /// Makes a new id: the prefix of its kind and 100 random bits.
            pub fn new(world: &World) -> Self {
                Self(format!(concat!($prefix, "_{}"), world.random_text(20)))
            }

            /// Wraps an existing id, from the store or from a caller. An unknown id finds nothing.
            pub fn known(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(AccountId, "acc");
id!(WorkspaceId, "wsp");
id!(
    /// A person, as in the `sub` claim of a token.
    UserId, "usr"
);
id!(
    /// A service account; also its `client_id`.
    ServiceAccountId, "sva"
);
id!(ApiKeyId, "key");
id!(InvitationId, "inv");
id!(
    /// A program that asks people for access through OAuth.
    ClientId, "cli"
);
id!(
    /// An access that was granted to a client; access tokens name it.
    GrantId, "grt"
);
id!(
    /// Any resource of a workspace, whatever its kind.
    ResourceId, "res"
);
id!(BudgetId, "bud");
id!(
    /// One execution of a job. Its public name is separate, and callers may choose that.
    ExecutionId, "exe"
);
id!(
    /// One build of an image from sources.
    BuildId, "bld"
);
id!(
    /// One call to an address that a user gave.
    DeliveryId, "dlv"
);
