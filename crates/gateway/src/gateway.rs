//! The way of a request through the data plane.

use crate::address::Address;
use crate::body::{Body, BoxError, Outgoing};
use crate::cookies;
use crate::exchange::{Answer, GUEST_PORT, exchange};
use crate::guard::{Guard, Refused};
use crate::headers;
use crate::keeper::{EnterError, Keeper, Visit};
use crate::lasting::{Hold, Lasting};
use crate::machine::Machine;
use crate::origin::{self, Site};
use crate::preview;
use crate::problem::Problem;
use crate::routes::Routes;
use crate::settings::Settings;
use crate::socket;
use crate::timing::Timing;
use crate::wait_queue::{Limit, WaitError};
use crate::way::{Decided, Way, decide};
use crate::wire::Pulse;
use admission::{Connection, Pool, Recheck};
use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, REFERRER_POLICY, SET_COOKIE,
    TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts as Head;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, Version};
use http_body::Body as HttpBody;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::Instant;
use types::World;
use types::edge::{SandboxRoute, Serving};
use types::ids::ResourceId;

/// The data plane for sandboxes. Cheap to clone.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

/// What a gateway is made of.
pub struct Parts {
    pub settings: Settings,
    pub guard: Arc<dyn Guard>,
    pub machine: Arc<dyn Machine>,
    pub world: World,
}

pub(crate) struct Inner {
    pub(crate) settings: Arc<Settings>,
    pub(crate) guard: Arc<dyn Guard>,
    pub(crate) world: World,
    pub(crate) routes: Routes,
    pub(crate) recheck: Recheck,
    open: Pool<String>,
    keeper: Keeper,
    machine_name: String,
}

/// Who sent a request. Whoever accepts connections puts it into the extensions of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub address: IpAddr,
    /// It came over TLS.
    pub secure: bool,
    pub site: Site,
}

impl Gateway {
    /// Must be called within a runtime: it begins to look after instances.
    pub fn new(parts: Parts) -> Self {
        let settings = Arc::new(parts.settings);
        let machine_name = parts.machine.name().to_owned();
        let keeper = Keeper::new(Arc::clone(&settings), parts.machine);
        let (guard, world, routes) = (parts.guard, parts.world, Routes::default());
        let (recheck, open) =
            (Recheck::default(), Pool::new("open requests to sandboxes", settings.open));
        Self(Arc::new(Inner {
            settings,
            guard,
            world,
            routes,
            recheck,
            open,
            keeper,
            machine_name,
        }))
    }

    pub fn routes(&self) -> &Routes {
        &self.0.routes
    }

    pub fn keeper(&self) -> &Keeper {
        &self.0.keeper
    }

    /// Whether the request is for the data plane: by its host, or by its path.
    pub fn takes<B>(&self, request: &Request<B>) -> bool {
        let known = |host: &str| self.0.routes.serves_host(host);
        let address =
            Address::parse(request.uri(), request.headers(), &self.0.settings.domains, known);
        // A malformed address is for nobody; here it gets its answer.
        !matches!(address, Ok(None))
    }

    /// Answers the request: what goes wrong is an answer too.
    pub async fn serve<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        match self.0.answer(request).await {
            Ok(response) => response,
            Err(problem) => problem.response(self.0.world.now(), &self.0.settings.docs_url),
        }
    }
}

impl Inner {
    async fn answer<B>(self: &Arc<Self>, request: Request<B>) -> Result<Response<Body>, Problem>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let began = Instant::now();
        let (mut head, body) = request.into_parts();
        check_message(&head)?;
        let peer = self.peer(&head);
        let from = peer.unwrap_or(Peer::UNKNOWN);
        let way = match decide(self, &head, from).await? {
            Decided::Way(way) => way,
            Decided::Answer(response) => return Ok(response),
        };
        let mut hold = self.hold(&mut head, from, &way)?;
        let upgrade = upgrade(&mut head);
        let over = Arc::new(AtomicBool::new(false));
        let (body, pulse) = self.outgoing(&head, body, &over)?;
        self.rewrite_headers(&mut head, &way, peer);
        if let Some((_, protocol)) = &upgrade {
            head.headers.insert(UPGRADE, protocol.clone());
            head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        }
        let request = outgoing_request(head, &way, body);

        let mut timing = Timing::default();
        let upgrades = is_guest_upgrade(&request, way.port);
        let answered = async {
            let visit = self.visit(&way.sandbox, began, &mut timing).await?;
            let instance = upgrades.then(|| visit.instance().to_owned());
            let answer = exchange(visit, way.port, request, pulse, &mut timing).await;
            let mut answer = answer.map_err(|unanswered| {
                if over.load(Ordering::Relaxed) {
                    Problem::TooLarge(self.settings.body_max)
                } else {
                    unanswered.into()
                }
            })?;
            if let (Some(instance), Answer::Whole(response)) = (instance, &mut answer) {
                self.keeper.give_what_it_wants(&instance, response.headers_mut()).await;
            }
            Ok::<_, Problem>(answer)
        };
        let answer = tokio::select! {
            biased;
            answer = answered => answer?,
            () = hold.lasting.outlived() => return Err(Refused::Unknown.into()),
        };
        let mut response = self.response(answer, upgrade.map(|(client, _)| client), hold)?;
        decorate(response.headers_mut(), way, timing);
        Ok(response)
    }

    /// Takes the place of a request that was let in, for as long as it goes on.
    fn hold(self: &Arc<Self>, head: &mut Head, peer: Peer, way: &Way) -> Result<Hold, Problem> {
        let place = self.open.take(&way.sandbox.workspace_name, 1).map_err(Problem::Crowded)?;
        let connection = head.extensions.remove::<Connection>();
        if let (Some(connection), Some(caller)) = (&connection, &way.pass.caller) {
            connection.signed_in(&caller.holder);
        }
        let busy = connection.map(|connection| connection.begin());
        Ok(Hold { lasting: Lasting::new(self, head, peer, way), busy, _place: place })
    }

    fn response(
        &self,
        answer: Answer,
        upgrade: Option<OnUpgrade>,
        hold: Hold,
    ) -> Result<Response<Body>, Problem> {
        match (answer, upgrade) {
            (Answer::Whole(mut response), _) => {
                headers::remove_hop(response.headers_mut());
                // How the workload speaks to us is not how we speak to the caller.
                *response.version_mut() = Version::default();
                response.body_mut().rest_on(hold);
                Ok(response)
            }
            (Answer::Switched { response, wire, visit }, Some(client)) => {
                self.switch(client, wire, visit, hold);
                Ok(switched(response))
            }
            (Answer::Switched { .. }, None) => Err(Problem::Unasked),
        }
    }

    fn peer(&self, head: &Head) -> Option<Peer> {
        let mut peer = *head.extensions.get::<Peer>()?;
        if self.settings.trust_forwarded {
            let proto = head.headers.get(headers::FORWARDED_PROTO).map(HeaderValue::as_bytes);
            peer.secure = proto.map_or(peer.secure, |proto| proto.eq_ignore_ascii_case(b"https"));
        }
        Some(peer)
    }

    /// Waits until the sandbox has an instance, and until that is awake.
    async fn visit(
        &self,
        sandbox: &SandboxRoute,
        began: Instant,
        timing: &mut Timing,
    ) -> Result<Visit, Problem> {
        let until = began + self.settings.wait_timeout;
        let mut left = None;
        loop {
            let instance = self.instance(&sandbox.id, until, left.as_deref()).await?;
            let found = Instant::now();
            timing.queue = found - began;
            match self.keeper.enter_until(&instance, until).await {
                Ok(visit) => {
                    timing.wake = found.elapsed();
                    return Ok(visit);
                }
                // Another may have taken its place.
                Err(EnterError::Gone) if left.as_ref() != Some(&instance) => left = Some(instance),
                Err(error) => return Err(Problem::NotReady(error)),
            }
        }
    }

    /// The instance of a sandbox, once there is one other than the one that has `left`.
    async fn instance(
        &self,
        id: &ResourceId,
        until: Instant,
        left: Option<&str>,
    ) -> Result<String, Problem> {
        let look = || match self.routes.sandbox_by_id(id) {
            None => Some(Err(Problem::NoWorkload)),
            Some(route) => match &route.serving {
                Serving::Starting => None,
                Serving::Off { why } => Some(Err(Problem::Unavailable(why.clone()))),
                Serving::By { machine, .. } if *machine != self.machine_name => {
                    Some(Err(Problem::Unavailable(
                        "runs on a machine that this server does not reach".into(),
                    )))
                }
                Serving::By { instance, .. } if left == Some(instance) => {
                    Some(Err(Problem::NotReady(EnterError::Gone)))
                }
                Serving::By { instance, .. } => Some(Ok(instance.clone())),
            },
        };
        if let Some(answer) = look() {
            return answer;
        }
        let limit = Limit { waiting: self.settings.waiting_max, until };
        self.routes.waiting.wait(id.as_str(), limit, look).await.unwrap_or_else(|error| {
            Err(Problem::NotReady(match error {
                WaitError::Full => EnterError::Crowded,
                WaitError::TimedOut => EnterError::TimedOut,
            }))
        })
    }

    fn outgoing<B>(
        &self,
        head: &Head,
        body: B,
        over: &Arc<AtomicBool>,
    ) -> Result<(Outgoing, Option<Pulse>), Problem>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let max = self.settings.body_max;
        let length = head
            .headers
            .get(CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if max > 0 && length.is_some_and(|length| length > max) {
            return Err(Problem::TooLarge(max));
        }
        if body.is_end_stream() {
            return Ok((Outgoing::empty(), None));
        }
        let pulse = Pulse::new();
        let left = (max > 0).then(|| (max, Arc::clone(over)));
        Ok((Outgoing::streamed(body, pulse.clone(), left), Some(pulse)))
    }

    fn rewrite_headers(&self, head: &mut Head, way: &Way, peer: Option<Peer>) {
        let all = &mut head.headers;
        if let Some(host) =
            head.uri.authority().and_then(|host| HeaderValue::try_from(host.as_str()).ok())
        {
            all.insert(HOST, host);
        }
        headers::remove_hop(all);
        headers::remove_ours(all, way.preview.as_ref().map(|preview| &preview.request_headers));
        // Answered here, by beginning to read the body.
        all.remove(EXPECT);
        if way.pass.strips_authorization {
            all.remove(AUTHORIZATION);
        }
        cookies::to_workload(all);
        preview::clean_referer(all);
        headers::forwarded(all, peer, self.settings.trust_forwarded);
        if !all.contains_key(headers::REQUEST_ID)
            && let Ok(id) = HeaderValue::try_from(self.world.random_text(20))
        {
            all.insert(headers::REQUEST_ID, id);
        }
        headers::introduce(all, way);
    }

    fn switch(
        &self,
        client: OnUpgrade,
        wire: Box<crate::wire::Wire>,
        visit: Visit,
        mut hold: Hold,
    ) {
        let (keeper, settings) = (self.keeper.clone(), Arc::clone(&self.settings));
        tokio::spawn(async move {
            match (client.await, wire.into_stream().await) {
                (Ok(client), Ok(workload)) => tokio::select! {
                    () = socket::relay(keeper, visit, &settings, TokioIo::new(client), workload) => {}
                    () = hold.ends() => {}
                },
                (Err(error), _) | (_, Err(error)) => {
                    tracing::debug!(%error, "a change of protocols failed")
                }
            }
        });
    }
}

impl Peer {
    const UNKNOWN: Self = Self {
        address: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        secure: false,
        site: Site::Management,
    };
}

/// Whether the guest is asked to put a newer program in its place.
fn is_guest_upgrade(request: &Request<Outgoing>, port: u16) -> bool {
    let path = request.uri().path();
    port == GUEST_PORT
        && request.method() == Method::POST
        && path.strip_suffix('/').unwrap_or(path) == "/upgrade"
}

/// What this edge and a workload could read in two ways is read by neither.
fn check_message(head: &Head) -> Result<(), Problem> {
    if head.method == Method::CONNECT {
        return Err(Problem::BadRequest(
            "`CONNECT` leads nowhere here: send requests to the address of the sandbox",
        ));
    }
    if head.headers.contains_key(CONTENT_LENGTH) && head.headers.contains_key(TRANSFER_ENCODING) {
        return Err(Problem::BadRequest(
            "a message has either `Content-Length` or `Transfer-Encoding`",
        ));
    }
    Ok(())
}

/// The connection of a client that wants to change its protocol, and to which.
fn upgrade(head: &mut Head) -> Option<(OnUpgrade, HeaderValue)> {
    let client = head.extensions.remove::<OnUpgrade>()?;
    Some((client, headers::upgrade(&head.headers, head.version)?))
}

fn outgoing_request(head: Head, way: &Way, body: Outgoing) -> Request<Outgoing> {
    let sized = body.is_empty() || head.headers.contains_key(CONTENT_LENGTH);
    let mut request = Request::new(body);
    *request.method_mut() = head.method;
    *request.uri_mut() = Uri::from(way.target.clone());
    *request.headers_mut() = head.headers;
    if !sized {
        // Said outright, as for methods that rarely have a body none would be sent.
        request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    request
}

fn switched(mut response: Response<Body>) -> Response<Body> {
    let protocol = response.headers_mut().remove(UPGRADE);
    headers::remove_hop(response.headers_mut());
    if let Some(protocol) = protocol {
        response.headers_mut().insert(UPGRADE, protocol);
    }
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    response
}

fn decorate(all: &mut HeaderMap, way: Way, timing: Timing) {
    // Only what the edge itself says is from the platform.
    all.remove(headers::SOURCE);
    if let Some(preview) = &way.preview {
        headers::set_all(all, &preview.response_headers);
    }
    cookies::from_workload(all, way.root.as_deref());
    origin::confine(all, way.root.is_some());
    if let Some(cookie) = way.pass.cookie {
        all.append(SET_COOKIE, cookie);
        // The address of this answer holds a token.
        all.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    }
    if let Some(timing) = timing.header() {
        all.append(headers::SERVER_TIMING, timing);
    }
}
