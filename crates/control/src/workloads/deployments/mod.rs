//! Agents, MCP servers and applications: revisions, each with as many replicas as requests want.
//!
//! ```text
//! row ─────────┐
//! demands ─────┼─▶ reconcile ─▶ plan ─▶ outcome: the row says which revision serves, and what failed
//! loads, time ─┘                    ├─▶ route: the edge knows the replicas that take requests
//!                                   └─▶ replica: one task each, from its launch to its end
//! ```
//!
//! Every look at a deployment holds its lock. What a look starts (a launch, an end) continues
//! without the lock, and asks for another look when it is done ([`soon`]). The row says which
//! revisions were ready, the machine says which replicas exist. Everything else is known only to
//! this run of the program ([`live`]); the next run learns it anew, and probes the replicas it
//! finds before it publishes them.

mod deployable;
mod launch;
pub(crate) mod live;
mod outcome;
mod plan;
mod reconcile;
mod replica;
mod route;
mod soon;

use super::followed::{Followed, Look, Reader};
use super::{cron, published};
use crate::control::Control;
use crate::engine::Held;
use crate::error::Error;
use deployable::Deployable;
use std::time::Duration;
use store::Tx;
use tokio::time::Instant;
use types::ids::ResourceId;
use types::kinds::{Agent, Application, Function};

/// How often deployments are checked for a look that is due.
const LOOK_EVERY: Duration = Duration::from_millis(250);

fn look<K: Deployable>(
    reader: &mut Reader<'_>,
    tx: &mut Tx<'_>,
    held: &Held<K>,
) -> Result<Look, Error> {
    let route = route::route(reader, tx, held)?;
    // What runs is known only to the holder of the lock, so it always differs.
    Ok(Look { route, due: None, differs: reader.control.machine().is_some() })
}

fn look_soon<K: Deployable>(control: &Control, id: ResourceId) {
    soon::look(control, K::NAME, id);
}

macro_rules! followed {
    ($kind:ty $(, $triggered:ident)?) => {
        impl Followed for $kind {
            const ROUTED: bool = true;
            const RUNS: bool = true;
            const WITHOUT_SLOT: Option<fn(&Control, ResourceId)> = Some(look_soon::<Self>);

            fn look(
                reader: &mut Reader<'_>,
                tx: &mut Tx<'_>,
                held: Held<Self>,
            ) -> Result<Look, Error> {
                let look = look(reader, tx, &held)?;
                $(let look = Look { due: $triggered::due(reader.control, tx, &held)?, ..look };)?
                Ok(look)
            }

            $(async fn act_when_due(control: &Control, id: &ResourceId) -> Result<(), Error> {
                $triggered::fire::<Self>(control, id).await
            })?

            async fn reconcile(control: &Control, id: &ResourceId) -> Result<(), Error> {
                reconcile::reconcile::<Self>(control, id).await
            }
        }
    };
}

followed!(Agent, cron);
followed!(Application);
followed!(Function, cron);

/// Answers the demands of the edge, and looks at deployments when they are due.
pub(super) async fn run(control: Control) {
    tokio::join!(answer_demands(&control), look_when_due(&control));
}

async fn answer_demands(control: &Control) {
    let Some(edge) = control.edge.clone() else { return };
    // Before this it is not known which replicas exist.
    published::ready(control).await;
    loop {
        for demand in edge.demands().await {
            let (id, now) = (demand.workload, Instant::now());
            let all = &control.workloads.deployments;
            if let Some(kind) = all.demand(&id, demand.revision, demand.requests, now) {
                soon::look(control, kind, id);
            }
        }
    }
}

async fn look_when_due(control: &Control) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for (id, kind) in control.workloads.deployments.due(Instant::now()) {
            soon::look(control, kind, id);
        }
    }
}
