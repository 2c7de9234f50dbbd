//! Gives each request for a deployment to a replica, and waits where there is none.
//!
//! A replica may be gone by the time a request gets there, because its revision was replaced or
//! scaled down. Then another is chosen: as long as nothing was sent, nothing is lost.

use crate::affinity::{self, Affinity};
use crate::body::Body;
use crate::choice;
use crate::context::Context;
use crate::demands::Waiting;
use crate::destination::Destination;
use crate::exchange::{Answer, Ask, Failed, exchange};
use crate::problem::Problem;
use crate::sessions::{Found, SessionId};
use crate::standby::{EnterError, Phase, Standby, Visit};
use crate::stats::Answered;
use crate::timing::Timing;
use crate::tool_lists::{ListRequest, ListStore, Listen, Outdated};
use crate::traffic::{Traffic, Turn};
use crate::wait_queue::Limit;
use crate::wire::Unanswered;
use http::request::Parts as Head;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use types::edge::{Replica, Serving, Target, WorkloadRoute};
use types::ids::ResourceId;

/// For a workload that began to stand for a sandbox after the request was let in.
pub(crate) const STANDS_FOR: &str = "stands for a sandbox from now on";

/// A request to a deployment.
pub(crate) struct Deployed {
    traffic: Arc<Traffic>,
    affinity: Affinity,
    /// Where it falls among the weights, once that has been drawn.
    point: Option<u32>,
    /// Replicas that could not be reached.
    tried: Vec<Arc<str>>,
    /// The revision that was chosen last.
    revision: Option<String>,
    /// Set if it is a `tools/list`.
    asks_list: Option<(ListRequest, Outdated)>,
    /// The session whose tools this request may change.
    changes: Option<SessionId>,
}

/// Counts a request to a deployment when it is dropped: also that of a caller who leaves before
/// there is an answer.
pub(crate) struct Counted<'c> {
    pub(crate) context: &'c Context,
    pub(crate) began: Instant,
    pub(crate) deployed: Option<Box<Deployed>>,
    pub(crate) status: Option<StatusCode>,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if let Some(deployed) = &self.deployed {
            deployed.record(self.context, self.began.elapsed(), self.status);
        }
    }
}

/// Where the session of a request is.
enum Session<'t> {
    /// It has no session, or one that this server does not know.
    Any,
    At(&'t Target, &'t Replica),
    Lost,
}

impl Deployed {
    /// `None` means there are no replicas to choose among, as for a sandbox.
    pub(crate) fn of(
        context: &Context,
        head: &Head,
        workload: &WorkloadRoute,
    ) -> Result<Option<Box<Self>>, Problem> {
        if workload.port.is_none() {
            return Ok(None);
        }
        let traffic = context.routes.traffic(&workload.id).ok_or(Problem::NoWorkload)?;
        let affinity = Affinity::of(head, workload);
        let point = affinity.thread;
        let changes = affinity.session.filter(|_| head.method != Method::GET);
        Ok(Some(Box::new(Self {
            traffic,
            affinity,
            point,
            tried: Vec::new(),
            revision: None,
            asks_list: None,
            changes,
        })))
    }

    /// Returns the cookie that keeps the caller with the chosen revision.
    pub(crate) fn cookie(&self, to: &Destination, secure: bool) -> Option<HeaderValue> {
        let revision = self.revision.as_deref()?;
        self.affinity.cookie(revision, to.workload.sticky_s, to.root.as_deref(), secure)
    }

    /// Counts the request, which was answered after `took`, or whose caller has left by then.
    pub(crate) fn record(&self, context: &Context, took: Duration, status: Option<StatusCode>) {
        let at = context.world.now();
        let is_error = status.is_some_and(|status| status.is_server_error());
        let answered = Answered { at, took, is_error };
        let kept = context.settings.request_history;
        self.traffic.stats.record(self.revision.as_deref(), answered, kept);
    }

    fn target<'t>(&mut self, targets: &'t [Target]) -> Option<&'t Target> {
        let point = *self.point.get_or_insert_with(|| self.traffic.next_point());
        choice::target(targets, self.affinity.revision.as_deref(), point)
    }

    /// Finds the replica that has the session of the request.
    fn session<'t>(&self, targets: &'t [Target]) -> Session<'t> {
        let found = self.affinity.session.and_then(|session| self.traffic.sessions.find(session));
        let instance = match found {
            None => return Session::Any,
            Some(Found::Lost) => return Session::Lost,
            Some(Found::At(instance)) => instance,
        };
        let mut all = targets
            .iter()
            .flat_map(|target| target.replicas.iter().map(move |replica| (target, replica)));
        let bound = all.find(|(_, replica)| *replica.instance == *instance);
        bound.map_or(Session::Lost, |(target, replica)| Session::At(target, replica))
    }

    /// Returns whether the server knows which replica has its session, or had it.
    fn is_in_session(&self) -> bool {
        self.affinity.session.is_some_and(|session| self.traffic.sessions.find(session).is_some())
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
    /// Sends the request to a replica, once there is one, and waits for the head of the answer.
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
                Ok(mut answer) => {
                    self.note_session(deployed, to, &turn, &answer);
                    self.note_list(deployed, to, &turn, &mut answer);
                    return Ok((answer, turn));
                }
                Err(failed) => failed,
            };
            deployed.tried.push(Arc::clone(&turn.instance));
            let in_session = deployed.is_in_session();
            let again =
                !in_session && Instant::now() < until && self.may_try_another(deployed, to, &turn);
            match unsent {
                Some(unsent) if again => ask = *unsent,
                // The replica did nothing with it, and no other replica knows the session.
                Some(_) if in_session && self.has_ended(&turn, &why) => {
                    return Err(Problem::SessionLost);
                }
                _ => return Err(self.context.unanswered(&to.workload, why)),
            }
        }
    }

    /// Visits the chosen replica. `None` means that it is gone, or about to go.
    async fn enter(
        &self,
        deployed: &mut Deployed,
        turn: &Turn,
        workload: &ResourceId,
        until: Instant,
    ) -> Result<Option<Visit>, Problem> {
        match self.standby.enter_known(&turn.instance, until).await {
            // Retiring a replica first takes it from the route and then checks for requests. So if
            // the replica is still in the route now, our visit will be seen.
            Ok(visit) if self.is_served_by(workload, &turn.instance) => return Ok(Some(visit)),
            Ok(_) => {}
            Err(EnterError::Gone) => deployed.tried.push(Arc::clone(&turn.instance)),
            Err(error) => return Err(Problem::NotReady(error)),
        }
        Ok(None)
    }

    fn is_served_by(&self, workload: &ResourceId, instance: &str) -> bool {
        let route = self.context.routes.workload_by_id(workload);
        route.is_some_and(|route| {
            let mut replicas = route.serving.targets().iter().flat_map(|target| &target.replicas);
            replicas.any(|replica| replica.instance == instance)
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
        let mut turn = match look() {
            Some(turn) => turn,
            None => {
                let limit = Limit { waiting: settings.waiting_max, until };
                // Boxed, so that requests that need not wait do not carry the queue's state.
                let answer = Box::pin(routes.waiting.wait(workload.id.as_str(), limit, look)).await;
                answer.unwrap_or_else(|error| Err(Problem::NotReady(error.into())))
            }
        }?;
        deployed.revision = Some(turn.revision.clone());
        turn.changes = deployed.changes;
        Ok(turn)
    }

    /// Chooses a replica. `None` means there will be one; `waiting` asks for it.
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
        match deployed.session(targets) {
            Session::Any => {}
            Session::At(target, replica) if can_be_tried(deployed, replica) => {
                let taken = deployed.traffic.take(&target.revision, std::iter::once(replica));
                return taken.map(|(turn, _)| Ok(turn));
            }
            // No other replica knows the session, and this one takes no requests.
            Session::At(..) | Session::Lost => return Some(Err(Problem::SessionLost)),
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

    /// Returns whether another replica may take a request that this one did not take: there is
    /// another, or this one is gone, so that it will be replaced.
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

    /// Answers the request with this body if it is a `tools/list` that a sleeping server has
    /// answered before. The server sleeps on.
    pub(crate) fn listed<B>(
        &self,
        deployed: &mut Deployed,
        to: &Destination,
        request: &Request<B>,
        body: &[u8],
    ) -> Option<Response<Body>> {
        let asked = ListRequest::of(request, deployed.affinity.session, body)?;
        deployed.changes = None;
        let found = self.find_list(deployed, to, &asked);
        if found.is_none() {
            let outdated = deployed.traffic.tool_lists.ask(&asked);
            deployed.asks_list = Some((asked, outdated));
        }
        found
    }

    fn find_list(
        &self,
        deployed: &mut Deployed,
        to: &Destination,
        asked: &ListRequest,
    ) -> Option<Response<Body>> {
        let route = self.context.routes.workload_by_id(&to.workload.id)?;
        let Serving::To(targets) = &route.serving else { return None };
        let sleeps = |replica: &Replica| {
            let phase = self.standby.look(&replica.instance).map(|look| look.phase);
            let here = replica.machine == self.machine;
            here && matches!(phase, Some(Phase::Pausing | Phase::Paused))
        };
        let target = match deployed.session(targets) {
            Session::At(target, replica) => Some(target).filter(|_| sleeps(replica)),
            Session::Any if asked.is_in_session() => None,
            Session::Any => {
                let target = deployed.target(targets);
                target.filter(|target| target.replicas.iter().all(sleeps))
            }
            Session::Lost => None,
        };
        let revision = target?.revision.clone();
        let found = deployed.traffic.tool_lists.find(&revision, asked)?;
        deployed.revision = Some(revision);
        Some(found.map(Body::own))
    }

    /// Has the answer copied, if it is one to `tools/list`.
    fn note_list(
        &self,
        deployed: &mut Deployed,
        to: &Destination,
        turn: &Turn,
        answer: &mut Answer,
    ) {
        let (Some(asked), Answer::Whole(response)) = (deployed.asks_list.take(), answer) else {
            return;
        };
        let store = ListStore {
            traffic: Arc::clone(&deployed.traffic),
            pool: self.context.tool_lists.clone(),
            owner: to.workload.workspace_name.clone(),
            bytes_max: self.context.settings.tool_list_bytes_max,
        };
        if let Some(listen) = Listen::to(response, store, &turn.revision, asked) {
            response.body_mut().copy_to(listen);
        }
    }

    /// Returns whether a replica that took no connection has ended, or its program has.
    fn has_ended(&self, turn: &Turn, why: &Unanswered) -> bool {
        matches!(why, Unanswered::NotListening(_)) || self.standby.look(&turn.instance).is_none()
    }

    /// Remembers which replica has the session that an answer opens, and forgets a session that has
    /// ended.
    fn note_session(&self, deployed: &Deployed, to: &Destination, turn: &Turn, answer: &Answer) {
        let (Answer::Whole(response) | Answer::Switched { response, .. }) = answer;
        let WorkloadRoute { kind, workspace_name, .. } = &*to.workload;
        let sessions = &deployed.traffic.sessions;
        match deployed.affinity.session.filter(|_| deployed.affinity.ends_session) {
            Some(ended) if response.status().is_success() => sessions.unbind(ended),
            _ => {
                if let Some(opened) = affinity::session(response.headers(), *kind) {
                    sessions.bind(&self.context.sessions, workspace_name, opened, &turn.instance);
                }
            }
        }
    }
}
