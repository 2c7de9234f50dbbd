//! How the data plane learns of routes: in the same process, by a call.

use api::fleet::Edge;
use gateway::Gateway;
use types::edge::RouteChange;

pub(super) struct Local(pub(super) Gateway);

impl Edge for Local {
    fn tell(&self, change: RouteChange) {
        self.0.routes().apply(change);
    }
}
