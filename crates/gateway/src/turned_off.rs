//! Sandboxes that serve nothing any more, although they are there.

use crate::problem::Problem;
use types::KindName;
use types::edge::{Serving, WorkloadRoute};

/// Returns why requests to a sandbox that are in progress have to end, if they have to: it must
/// sleep, or be archived. Those to a deployment may go on, because its replicas wait for them.
pub(crate) fn turned_off(route: &WorkloadRoute) -> Option<Problem> {
    match &route.serving {
        Serving::Off { why } if route.kind == KindName::Sandbox => Some(unavailable(route, why)),
        _ => None,
    }
}

pub(crate) fn unavailable(route: &WorkloadRoute, why: &str) -> Problem {
    Problem::Unavailable { kind: route.kind, why: why.into() }
}
