//! One request and its answer.

use super::body::{self, Body};
use super::failure::Failure;
use super::headers;
use super::passing::Passing;
use super::progress::{Asked, Leash, Progress, UnderWay};
use super::refusal::Refusal;
use super::shared::Shared;
use super::target::{Target, To};
use super::tasks::Tasks;
use super::upgrade::Upgrade;
use super::upstream::{Lent, Need, Return, Upstreams};
use crate::client::Client;
use crate::events::Note;
use crate::inject::{self, Injector, Report};
use crate::policy::Policy;
use admission::{Heads, Lingering};
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use std::sync::Arc;
use tokio::time::timeout;
use types::egress::EgressDecision;
use types::kinds::network::ProxyTarget;
use types::parts::hosts::Host;

/// Handles the requests of one connection.
pub(super) struct Exchange {
    shared: Arc<Shared>,
    client: Arc<Client>,
    upstreams: Arc<Upstreams>,
    heads: Heads,
    progress: Arc<Progress>,
    tasks: Tasks,
}

/// A request that is ready to be sent, except for what depends on the connection it is sent on.
struct Outgoing {
    method: Method,
    path: PathAndQuery,
    headers: HeaderMap,
    body: Body,
    /// Whether it may be sent twice, because it changes nothing and has no body.
    is_repeatable: bool,
    upgrade: Option<Upgrade>,
    version: Version,
}

impl Outgoing {
    fn need(&self, target: &Target) -> Need {
        match (&self.upgrade, target.is_tls, self.version) {
            (Some(upgrade), ..) if upgrade.may_be_two() => Need::WebSocket,
            (Some(_), ..) => Need::One,
            (None, false, Version::HTTP_2) => Need::Two,
            (None, false, _) => Need::One,
            (None, true, _) => Need::Any,
        }
    }
}

impl Exchange {
    pub(super) fn new(
        shared: Arc<Shared>,
        client: Arc<Client>,
        progress: Arc<Progress>,
        tasks: Tasks,
    ) -> Self {
        let upstreams = Arc::new(Upstreams::new(shared.limits.upstreams_max, tasks.clone()));
        Self { shared, client, upstreams, heads: Heads::default(), progress, tasks }
    }

    pub(super) async fn answer(
        &self,
        request: Request<Lingering<Incoming>>,
        to: Option<&To>,
        scheme: Scheme,
    ) -> Response<Body> {
        let under_way = self.progress.begin();
        let beyond = |bytes| self.shared.heads.take(&self.client.owner, bytes);
        let _head = match self.heads.take(request.uri(), request.headers(), beyond) {
            Ok(head) => head,
            Err(refused) => return Refusal::from(refused).answer(),
        };
        let (mut parts, body) = request.into_parts();
        let upgrade = Upgrade::take(&mut parts, &self.shared.world);
        let target = match Target::of(&parts, to, &scheme) {
            Ok(target) => target,
            Err(refusal) => return refusal.answer(),
        };
        let asked = (parts.method.to_string(), parts.uri.path().to_owned());
        let names = match to {
            Some(to) if to.host == target.host => to.names.clone(),
            _ => self.client.known_as(&target.host, self.shared.world.uptime_ms()),
        };
        match self.pass(parts, (body, upgrade), (&target, names), under_way).await {
            Ok(response) => response,
            Err(refusal) => {
                if let Some(note) = refusal.note(&target.host, target.port) {
                    self.tell(note, asked);
                }
                refusal.answer()
            }
        }
    }

    fn tell(&self, note: Note, (method, path): (String, String)) {
        let note = Note { method: Some(method), path: Some(path), ..note };
        self.shared.events.note(&self.client.instance, note);
    }

    async fn pass(
        &self,
        mut parts: Parts,
        (incoming, upgrade): (Lingering<Incoming>, Option<Upgrade>),
        (target, names): (&Target, Vec<Host>),
        under_way: UnderWay,
    ) -> Result<Response<Body>, Refusal> {
        let policy = self.client.policy();
        let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str).to_owned();
        let (host, method) = (target.host.clone(), parts.method.clone());
        let asked = Asked { host, names, method, path };
        if let Some(rule) = asked.rule_against(&policy) {
            return Err(Refusal::Blocked { rule });
        }
        let routes = routes(&policy, &asked)?;
        let leash = Leash::new(
            Arc::clone(&self.client),
            Arc::clone(&policy),
            asked,
            Arc::clone(&self.progress),
        );
        headers::remove_hop(&mut parts.headers);
        let rule = rule_of(&routes);
        let mut injector = Injector::new(routes, &self.shared.world);
        injector.head(&mut parts);
        let body = self.body(&mut parts, incoming, &mut injector, &leash).await?;
        let Report { injected, echoes } = injector.finish();
        let told = (parts.method.to_string(), leash.asked().path.clone());
        let outgoing = self.outgoing(parts, body, upgrade)?;
        let mut response = self.ask(target, outgoing, leash, under_way).await?;
        if !injected.is_empty() {
            let host = target.host.to_string();
            let note = Note::new(EgressDecision::Injected, host, target.port);
            self.tell(Note { rule, injected, ..note }, told);
        }
        response.headers_mut().extend(echoes);
        Ok(response)
    }

    /// Returns the body to send: as it arrives, or collected, with something injected.
    async fn body(
        &self,
        parts: &mut Parts,
        incoming: Lingering<Incoming>,
        injector: &mut Injector<'_>,
        leash: &Leash,
    ) -> Result<Body, Refusal> {
        let limits = &self.shared.limits;
        let length = incoming.size_hint().exact();
        let passing = Passing::request(incoming, leash.clone(), limits.idle_timeout);
        if !injector.wants_body(parts, length) {
            return Ok(passing.boxed_unsync());
        }
        let Client { instance, owner, .. } = &*self.client;
        let read = async {
            let slot = self.shared.bodies.take(instance, owner).await;
            let slot = slot.map_err(|error| error.to_string())?;
            let limit = usize::try_from(inject::BODY_BYTES_MAX).unwrap_or(usize::MAX);
            let whole = Limited::new(passing, limit).collect().await;
            whole.map(|whole| (whole.to_bytes(), slot)).map_err(|error| error.to_string())
        };
        let read = timeout(limits.answer_timeout, Box::pin(read)).await;
        let read = read.unwrap_or_else(|_| Err("it took too long".to_owned()));
        let (bytes, slot) = read.map_err(Refusal::Body)?;
        let bytes: Bytes = injector.body(parts, bytes);
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
        Ok(body::held(bytes, slot))
    }

    fn outgoing(
        &self,
        parts: Parts,
        body: Body,
        upgrade: Option<Upgrade>,
    ) -> Result<Outgoing, Refusal> {
        let Parts { method, uri, mut headers, version, .. } = parts;
        let path = uri.into_parts().path_and_query;
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        // Hyper has told the program to continue when the body was asked for.
        headers.remove(header::EXPECT);
        let id = inject::uuid(self.shared.world.random_bytes(), 4);
        let id = HeaderValue::try_from(id)
            .map_err(|_| Refusal::BadRequest("it cannot be given a number"))?;
        headers.insert(inject::REQUEST_ID, id);
        let changes_nothing = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&method);
        let is_repeatable = changes_nothing && body.is_end_stream() && upgrade.is_none();
        Ok(Outgoing { method, path, headers, body, is_repeatable, upgrade, version })
    }

    async fn ask(
        &self,
        target: &Target,
        mut outgoing: Outgoing,
        leash: Leash,
        under_way: UnderWay,
    ) -> Result<Response<Body>, Refusal> {
        let need = outgoing.need(target);
        let upgrade = outgoing.upgrade.take();
        let sending = Box::pin(self.send(target, outgoing, need, (upgrade.as_ref(), &leash)));
        let (response, lent) = self.answered(target, &leash, sending).await?;
        let is_begun = match &upgrade {
            Some(upgrade) => upgrade.is_begun(&response),
            None if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                Err("it switched to a protocol that nobody asked for")
            }
            None => Ok(false),
        };
        let broken =
            |error: &str| Failure::Broken { host: target.host.clone(), error: error.into() };
        match (upgrade, is_begun.map_err(broken)?) {
            (Some(upgrade), true) => {
                let idle_timeout = self.shared.limits.idle_timeout;
                let used = (lent, leash, under_way);
                Ok(upgrade.begin(response, used, idle_timeout, &self.tasks))
            }
            _ => Ok(self.passed_back(response, lent, leash, under_way)),
        }
    }

    /// Waits for an answer, as long as something moves and the rules let the request pass.
    async fn answered<T>(
        &self,
        target: &Target,
        leash: &Leash,
        sending: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let limit = self.shared.limits.answer_timeout;
        let answered = tokio::select! {
            // First, so that no answer is passed back after a change of rules.
            biased;
            rule = leash.forbidden() => return Err(Refusal::Blocked { rule }),
            answered = leash.progress().while_moving(limit, sending) => answered,
        };
        answered.unwrap_or_else(|| {
            self.upstreams.forget(target);
            Err(Failure::TooSlow { host: target.host.clone() }.into())
        })
    }

    fn passed_back(
        &self,
        response: Response<Incoming>,
        lent: Lent,
        leash: Leash,
        under_way: UnderWay,
    ) -> Response<Body> {
        let (mut parts, incoming) = response.into_parts();
        headers::clean_answer(&mut parts.headers);
        let connection = Return::new(Arc::clone(&self.upstreams), lent);
        let idle_timeout = self.shared.limits.idle_timeout;
        let body = Passing::answer(incoming, leash, idle_timeout, under_way, Some(connection));
        let mut response = Response::new(body.boxed_unsync());
        *response.status_mut() = parts.status;
        *response.headers_mut() = parts.headers;
        response
    }

    /// Sends a request, and again if a connection turns out to have ended before it was used.
    async fn send(
        &self,
        target: &Target,
        outgoing: Outgoing,
        need: Need,
        (upgrade, leash): (Option<&Upgrade>, &Leash),
    ) -> Result<(Response<Incoming>, Lent), Refusal> {
        let Outgoing { method, path, headers, body, is_repeatable, .. } = outgoing;
        let mut lent = self.lend(target, need, leash).await?;
        let prepare = |lent: &Lent, headers: HeaderMap, body: Body| {
            prepare(target, (&method, &path), headers, body, lent.is_two(), upgrade)
        };
        let spare = (lent.is_used && is_repeatable).then(|| headers.clone());
        let failed = |error| Failure::Broken { host: target.host.clone(), error };
        let request =
            prepare(&lent, headers.clone(), body).map_err(|error| failed(error.into()))?;
        let mut error = match lent.send(request).await {
            Ok(response) => return Ok((response, lent)),
            Err(error) => error,
        };
        self.upstreams.forget(target);
        let again = match (error.take_message(), spare) {
            (Some(request), _) if lent.is_used => Some((request.into_body(), headers)),
            (None, Some(headers)) => Some((body::empty(), headers)),
            _ => None,
        };
        let Some((body, headers)) = again else {
            return Err(failed(error.into_error().into()).into());
        };
        drop(lent);
        let mut lent = self.lend(target, need, leash).await?;
        let request = prepare(&lent, headers, body).map_err(|error| failed(error.into()))?;
        match lent.send(request).await {
            Ok(response) => Ok((response, lent)),
            Err(error) => Err(failed(error.into_error().into()).into()),
        }
    }

    /// Returns a connection for a request. Waiting for it may take long, and the request is sent
    /// only if the rules of now would have made the same of it.
    async fn lend(&self, target: &Target, need: Need, leash: &Leash) -> Result<Lent, Refusal> {
        let lent = self.upstreams.lend(&self.shared, &self.client, target, need).await?;
        match leash.rule_against_sending() {
            Some(rule) => Err(Refusal::Blocked { rule }),
            None => Ok(lent),
        }
    }
}

/// The methods that hosts answer with the request itself, which some take in any case.
const SHOW: [&str; 2] = ["TRACE", "TRACK"];

/// Returns the rules that add something. A request that an upstream may echo back unchanged gets
/// nothing added.
fn routes<'a>(policy: &'a Policy, asked: &Asked) -> Result<Vec<&'a ProxyTarget>, Refusal> {
    let routes: Vec<&ProxyTarget> = asked.routes(policy).collect();
    let is_shown = SHOW.iter().any(|method| asked.method.as_str().eq_ignore_ascii_case(method));
    match asked.method {
        Method::CONNECT => Err(Refusal::Method("a connection within a connection is not made")),
        _ if is_shown && !routes.is_empty() => {
            Err(Refusal::Method("this method would show what is added to requests to this host"))
        }
        _ => Ok(routes),
    }
}

fn rule_of(routes: &[&ProxyTarget]) -> String {
    let destinations = routes.iter().filter_map(|route| route.destinations.as_ref()).flatten();
    // For people: the first few are enough to recognize the rule.
    let destinations: Vec<&str> = destinations.map(String::as_str).take(8).collect();
    format!("routing: {}", destinations.join(", "))
}

/// Builds a request for the HTTP version of the connection it is sent on.
fn prepare(
    target: &Target,
    (method, path): (&Method, &PathAndQuery),
    mut headers: HeaderMap,
    body: Body,
    is_two: bool,
    upgrade: Option<&Upgrade>,
) -> http::Result<Request<Body>> {
    let (uri, version) = if is_two {
        headers.remove(header::HOST);
        let scheme = if target.is_tls { Scheme::HTTPS } else { Scheme::HTTP };
        let uri = Uri::builder().scheme(scheme).authority(target.authority.as_str());
        (uri.path_and_query(path.clone()).build()?, Version::HTTP_2)
    } else {
        headers.insert(header::HOST, HeaderValue::try_from(target.authority.as_str())?);
        headers::join_cookies(&mut headers);
        (Uri::from(path.clone()), Version::HTTP_11)
    };
    if is_two && upgrade.is_none() {
        // It only says that trailers are welcome, and gRPC insists on it.
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    let mut request = Request::new(body);
    *request.method_mut() = method.clone();
    *request.uri_mut() = uri;
    *request.version_mut() = version;
    *request.headers_mut() = headers;
    if let Some(upgrade) = upgrade {
        upgrade.ask(&mut request)?;
    }
    Ok(request)
}
