//! Sends requests to sandboxes: to the one instance of each, once it exists and is awake.

use crate::context::Context;
use crate::deployment::STANDS_FOR;
use crate::destination::Destination;
use crate::exchange::{Answer, Ask, Failed, exchange};
use crate::inner::Inner;
use crate::problem::Problem;
use crate::standby::{EnterError, Visit};
use crate::timing::Timing;
use crate::traffic::Turn;
use crate::turned_off::unavailable;
use crate::wait_queue::Limit;
use http::Method;
use std::sync::Arc;
use tokio::time::Instant;
use types::edge::{Serving, WorkloadRoute};
use types::instance::GUEST_PORT;

impl Inner {
    /// Asks the one instance of a workload, once it is awake.
    pub(crate) async fn ask_sandbox(
        &self,
        to: &Destination,
        ask: Ask,
        began: Instant,
        timing: &mut Timing,
    ) -> Result<(Answer, Option<Turn>), Problem> {
        let visit = self.visit(&to.workload, began, timing).await?;
        let upgrades = is_guest_upgrade(&ask);
        let instance = upgrades.then(|| Arc::clone(visit.instance()));
        let answer = exchange(visit, ask, timing).await;
        let mut answer =
            answer.map_err(|Failed { why, .. }| self.context.unanswered(&to.workload, why))?;
        if let (Some(instance), Answer::Whole(response)) = (instance, &mut answer) {
            let given = self.standby.give_wanted_program(&instance, response.headers_mut());
            Box::pin(given).await;
        }
        Ok((answer, None))
    }

    /// Waits until the workload has an instance, and until that instance is awake.
    pub(crate) async fn visit(
        &self,
        workload: &WorkloadRoute,
        began: Instant,
        timing: &mut Timing,
    ) -> Result<Visit, Problem> {
        let until = began + self.context.settings.wait_timeout;
        let mut gone = None;
        loop {
            let instance = self.instance(workload, until, gone.as_deref()).await?;
            let found = Instant::now();
            timing.queue = found - began;
            match self.standby.enter_until(&instance, until).await {
                Ok(visit) => {
                    timing.wake = found.elapsed();
                    return Ok(visit);
                }
                // Another instance may have taken its place.
                Err(EnterError::Gone) if gone.as_ref() != Some(&instance) => gone = Some(instance),
                Err(error) => return Err(Problem::NotReady(error)),
            }
        }
    }

    /// Returns the instance of a workload, once there is one other than `gone`.
    async fn instance(
        &self,
        workload: &WorkloadRoute,
        until: Instant,
        gone: Option<&str>,
    ) -> Result<String, Problem> {
        let Context { routes, settings, .. } = &*self.context;
        let look = || match routes.workload_by_id(&workload.id) {
            None => Some(Err(Problem::NoWorkload)),
            Some(route) => self.instance_of(&route, gone),
        };
        if let Some(answer) = look() {
            return answer;
        }
        let limit = Limit { waiting: settings.waiting_max, until };
        // Boxed, so that requests that need not wait do not carry the queue's state.
        let answer = Box::pin(routes.waiting.wait(workload.id.as_str(), limit, look)).await;
        answer.unwrap_or_else(|error| Err(Problem::NotReady(error.into())))
    }

    /// `None` means there will be one.
    fn instance_of(
        &self,
        route: &WorkloadRoute,
        gone: Option<&str>,
    ) -> Option<Result<String, Problem>> {
        match &route.serving {
            Serving::Starting => None,
            Serving::Off { why } => Some(Err(unavailable(route, why))),
            Serving::Sandbox(_) => Some(Err(unavailable(route, STANDS_FOR))),
            Serving::To(targets) => {
                let replica = targets.first()?.replicas.first()?;
                Some(if replica.machine != self.machine_name {
                    Err(unavailable(route, "runs on a machine that this server does not reach"))
                } else if gone == Some(&replica.instance) {
                    Err(Problem::NotReady(EnterError::Gone))
                } else {
                    Ok(replica.instance.clone())
                })
            }
        }
    }
}

/// Returns whether the request asks the guest to replace itself with a newer program.
fn is_guest_upgrade(Ask { port, request, .. }: &Ask) -> bool {
    let path = request.uri().path();
    *port == GUEST_PORT
        && request.method() == Method::POST
        && path.strip_suffix('/').unwrap_or(path) == "/upgrade"
}
