//! Ids: one type each, so that they cannot be mistaken for one another, and each shows its kind.

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
            /// A new id: the prefix of its kind and 100 random bits.
            pub fn new(world: &World) -> Self {
                Self(format!(concat!($prefix, "_{}"), world.random_text(20)))
            }

            /// An id that was made before: from the store or from a caller. Unknown ids find nothing.
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
    /// The `sub` of a person.
    UserId, "usr"
);
id!(
    /// The `client_id` of a service account.
    ServiceAccountId, "sva"
);
id!(ApiKeyId, "key");
id!(InvitationId, "inv");
id!(
    /// A program that asks people for access by OAuth.
    ClientId, "cli"
);
id!(
    /// What a client was allowed once; access tokens name it.
    GrantId, "grt"
);
id!(
    /// Any resource of a workspace, whatever its kind.
    ResourceId, "res"
);
id!(BudgetId, "bud");
id!(
    /// One execution of a job. Its public name is another thing, which callers may choose.
    ExecutionId, "exe"
);
id!(
    /// One making of an image out of sources.
    BuildId, "bld"
);
id!(
    /// One call to an address that a user gave.
    DeliveryId, "dlv"
);
