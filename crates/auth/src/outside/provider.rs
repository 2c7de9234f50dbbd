//! Which provider people may sign in through.

use std::fmt;

/// The outside provider, with the data of our registration there.
#[derive(Clone)]
pub struct Provider {
    /// Name for the button "Sign in with …".
    pub name: String,
    pub issuer: String,
    pub client_id: String,
    pub client_secret: String,
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}
