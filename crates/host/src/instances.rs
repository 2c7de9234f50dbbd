//! Instances as `control` sees them.

use control::machine::Seen;
use node::{State, View};

pub(crate) fn seen(view: &View) -> Seen {
    Seen { instance: view.id.clone(), runs: runs(&view.state) }
}

pub(crate) fn runs(state: &State) -> bool {
    matches!(state, State::Running { .. } | State::Paused { .. })
}
