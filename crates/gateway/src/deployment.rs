//! Requests to deployments: each is given to a replica, and waits where there is none.
//!
//! A replica may be gone by the time a request gets there, because its revision was replaced or had
//! too many. Then another is chosen: as long as nothing was sent, nothing is lost.

use crate::choice;
use crate::context::Context;
use crate::demands::Waiting;
use crate::destination::Destination;
use crate::exchange::{Answer, Ask, Failed, exchange};
use crate::problem::Problem;
use crate::standby::{EnterError, Standby, Visit};
use crate::stats::Answered;
use crate::stay::{self, Stay};
use crate::timing::Timing;
use crate::traffic::{Traffic, Turn};
use crate::wait_queue::Limit;
use http::request::Parts as Head;
use http::{HeaderValue, StatusCode};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use types::edge::{Replica, Serving, Target, WorkloadRoute};
use types::ids::ResourceId;

/// Said of what became so after the request was let in.
pub(crate) const STANDS_FOR: &str = "stands for a sandbox from now on";

/// A request to a deployment.
pub(crate) struct Deployed {
    traffic: Arc<Traffic>,
    stay: Stay,
    /// Where it falls among the weights, once that was asked.
    point: Option<u32>,
    /// Replicas that could not be reached.
    tried: Vec<Arc<str>>,
    /// The revision that was chosen last.
    revision: Option<String>,
}

impl Deployed {
    /// `None`: there is nothing to choose, as for a sandbox.
    pub(crate) fn of(
        context: &Context,
        head: &Head,
        workload: &WorkloadRoute,
    ) -> Result<Option<Box<Self>>, Problem> {
        if workload.port.is_none() {
            return Ok(None);
        }
        let traffic = context.routes.traffic(&workload.id).ok_or(Problem::NoWorkload)?;
        let stay = Stay::of(head, workload);
        let point = stay.thread;
        Ok(Some(Box::new(Self { traffic, stay, point, tried: Vec::new(), revision: None })))
    }

    /// What keeps the caller with the revision that was chosen.
    pub(crate) fn cookie(&self, to: &Destination, secure: bool) -> Option<HeaderValue> {
        let revision = self.revision.as_deref()?;
        self.stay.cookie(revision, to.workload.sticky_s, to.root.as_deref(), secure)
    }

    /// Counts the request, which was answered after `took`.
    pub(crate) fn record(&self, context: &Context, took: Duration, status: StatusCode) {
        let at = context.world.now();
        let answered = Answered { at, took, is_error: status.is_server_error() };
        let kept = context.settings.request_history;
        self.traffic.stats.record(self.revision.as_deref(), answered, kept);
    }

    fn target<'t>(&mut self, targets: &'t [Target]) -> Option<&'t Target> {
        let point = *self.point.get_or_insert_with(|| self.traffic.next_point());
        choice::target(targets, self.stay.revision.as_deref(), point)
    }

    /// The replica that has the session of the request.
    fn bound<'t>(&self, targets: &'t [Target]) -> Option<(&'t Target, &'t Replica)> {
        let instance = self.traffic.sessions.find(self.stay.session?)?;
        let mut all = targets
            .iter()
            .flat_map(|target| target.replicas.iter().map(move |replica| (target, replica)));
        all.find(|(_, replica)| *replica.instance == *instance)
    }

    fn has_tried(&self, replica: &Replica) -> bool {
        self.tried.iter().any(|tried| **tried == *replica.instance)
    }
}

/// Gives requests to replicas.
pub(crate) struct Chooser<'g> {
    pub(crate) context: &'g Context,
    pub(crate) standby: &'g Standby,
    pub(crate) machine: &'g str,
}

impl Chooser<'_> {
    /// Asks a replica, once there is one, and waits for the head of its answer.
    pub(crate) async fn ask(
        &self,
        deployed: &mut Deployed,
        to: &Destination,
        mut ask: Ask,
        began: Instant,
        timing: &mut Timing,
    ) -> Result<(Answer, Turn), Problem> {
        let until = began + self.context.settings.wait_timeout;
        loop {
            let turn = self.turn(deployed, &to.workload, until).await?;
            let found = Instant::now();
            timing.queue = found - began;
            let entered = self.enter(deployed, &turn, &to.workload.id, until).await?;
            let Some(visit) = entered else { continue };
            timing.wake = found.elapsed();
            let Failed { why, unsent } = match exchange(visit, ask, timing).await {
                Ok(answer) => {
                    self.note_session(deployed, to, &turn, &answer);
                    return Ok((answer, turn));
                }
                Err(failed) => failed,
            };
            deployed.tried.push(Arc::clone(&turn.instance));
            let again = Instant::now() < until && self.may_try_another(deployed, to, &turn);
            match unsent.filter(|_| again) {
                Some(unsent) => ask = *unsent,
                None => return Err(Problem::Unanswered { kind: to.workload.kind, why }),
            }
        }
    }

    /// `None`: the replica is gone, or about to go.
    async fn enter(
        &self,
        deployed: &mut Deployed,
        turn: &Turn,
        workload: &ResourceId,
        until: Instant,
    ) -> Result<Option<Visit>, Problem> {
        match self.standby.enter_known(&turn.instance, until).await {
            // Whoever retires a replica takes it from the route first and then looks whether it has
            // requests. So a visit that finds it in the route is one that will be seen.
            Ok(visit) if self.is_served_by(workload, &turn.instance) => return Ok(Some(visit)),
            Ok(_) => {}
            Err(EnterError::Gone) => deployed.tried.push(Arc::clone(&turn.instance)),
            Err(error) => return Err(Problem::NotReady(error)),
        }
        Ok(None)
    }

    fn is_served_by(&self, workload: &ResourceId, instance: &str) -> bool {
        let route = self.context.routes.workload_by_id(workload);
        route.is_some_and(|route| match &route.serving {
            Serving::To(targets) => {
                let mut replicas = targets.iter().flat_map(|target| &target.replicas);
                replicas.any(|replica| replica.instance == instance)
            }
            Serving::Starting | Serving::Sandbox(_) | Serving::Off { .. } => false,
        })
    }

    /// Waits until there is a replica for the request.
    async fn turn(
        &self,
        deployed: &mut Deployed,
        workload: &WorkloadRoute,
        until: Instant,
    ) -> Result<Turn, Problem> {
        let Context { routes, settings, .. } = self.context;
        let mut waiting = None;
        let mut look = || match routes.workload_by_id(&workload.id) {
            None => Some(Err(Problem::NoWorkload)),
            Some(route) => self.choose(deployed, &route, &mut waiting),
        };
        let turn = match look() {
            Some(turn) => turn,
            None => {
                let limit = Limit { waiting: settings.waiting_max, until };
                // Boxed, so that requests that need not wait carry no queue with them.
                let answer = Box::pin(routes.waiting.wait(workload.id.as_str(), limit, look)).await;
                answer.unwrap_or_else(|error| Err(Problem::NotReady(error.into())))
            }
        }?;
        deployed.revision = Some(turn.revision.clone());
        Ok(turn)
    }

    /// `None`: there will be a replica; `waiting` asks for it.
    fn choose(
        &self,
        deployed: &mut Deployed,
        route: &WorkloadRoute,
        waiting: &mut Option<Waiting>,
    ) -> Option<Result<Turn, Problem>> {
        let unavailable =
            |why: &str| Some(Err(Problem::Unavailable { kind: route.kind, why: why.into() }));
        let targets = match &route.serving {
            Serving::Starting => {
                *waiting = None;
                return None;
            }
            Serving::Off { why } => return unavailable(why),
            Serving::Sandbox(_) => return unavailable(STANDS_FOR),
            Serving::To(targets) => targets,
        };
        let can_be_tried = |deployed: &Deployed, replica: &Replica| {
            replica.machine == self.machine && !deployed.has_tried(replica)
        };
        if let Some((target, replica)) = deployed.bound(targets)
            && can_be_tried(deployed, replica)
        {
            let taken = deployed.traffic.take(&target.revision, std::iter::once(replica));
            return taken.map(|(turn, _)| Ok(turn));
        }
        let target = deployed.target(targets)?;
        let here = target.replicas.iter().filter(|replica| can_be_tried(deployed, replica));
        if let Some((turn, before)) = deployed.traffic.take(&target.revision, here) {
            if choice::wants_more(route.scale, targets, before) {
                let requests = deployed.traffic.requests(target);
                self.context.routes.demands.add(&route.id, &target.revision, requests);
            }
            return Some(Ok(turn));
        }
        let elsewhere = |replica: &Replica| replica.machine != self.machine;
        if !target.replicas.is_empty() && target.replicas.iter().all(elsewhere) {
            return unavailable("runs on a machine that this server does not reach");
        }
        if !waiting.as_ref().is_some_and(|waiting| waiting.is_for(&target.revision)) {
            *waiting = Some(self.context.routes.demands.wait(&route.id, &target.revision));
        }
        None
    }

    /// Whether a request that a replica did not take may be taken by another: there is one, or the
    /// replica is gone, so that there will be.
    fn may_try_another(&self, deployed: &mut Deployed, to: &Destination, turn: &Turn) -> bool {
        if self.standby.look(&turn.instance).is_none() {
            return true;
        }
        let Some(route) = self.context.routes.workload_by_id(&to.workload.id) else { return false };
        let Serving::To(targets) = &route.serving else { return false };
        deployed.target(targets).is_some_and(|target| {
            let mut here = target.replicas.iter().filter(|replica| replica.machine == self.machine);
            here.any(|replica| !deployed.has_tried(replica))
        })
    }

    /// Remembers which replica has the session that an answer opens, and forgets one that has ended.
    fn note_session(&self, deployed: &Deployed, to: &Destination, turn: &Turn, answer: &Answer) {
        let (Answer::Whole(response) | Answer::Switched { response, .. }) = answer;
        let WorkloadRoute { kind, workspace_name, .. } = &*to.workload;
        let sessions = &deployed.traffic.sessions;
        match deployed.stay.session.filter(|_| deployed.stay.ends_session) {
            Some(ended) if response.status().is_success() => sessions.unbind(ended),
            _ => {
                if let Some(opened) = stay::session(response.headers(), *kind) {
                    sessions.bind(&self.context.sessions, workspace_name, opened, &turn.instance);
                }
            }
        }
    }
}
