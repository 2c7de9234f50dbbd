//! The way of one request through the data plane: who may pass, where it goes, and its answer.

use crate::address::{Address, BadAddress, Endpoint};
use crate::answered::{self, Answered, drives, tunnels};
use crate::body::Body;
use crate::deployment::{Chooser, Counted, Deployed};
use crate::destination::{Decision, Destination, decide};
use crate::drives::Drives;
use crate::exchange::{Answer, Ask};
use crate::hold::{Hold, Time};
use crate::inner::Inner;
use crate::peer::Peer;
use crate::problem::Problem;
use crate::settings::ExchangeLimits;
use crate::standby::Visit;
use crate::timing::Timing;
use crate::traffic::Turn;
use crate::tunnels::Tunnels;
use crate::wire::{BodyFaults, BodyRules, BoxError, LastSent, RequestBody, Wire};
use crate::{headers, revocation, rewrite, socket, tool_lists};
use admission::Connection;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, SET_COOKIE, TRANSFER_ENCODING};
use http::request::Parts as Head;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Version};
use http_body::Body as HttpBody;
use http_body_util::{BodyExt, Limited};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use tokio::time::{Instant, timeout};

const CUT_OFF: &str = "the body of the request was cut off, or is not as HTTP wants it";

/// A request that has been let in, and its destination.
struct Admitted {
    head: Head,
    address: Address,
    peer: Option<Peer>,
    to: Destination,
    began: Instant,
}

impl Inner {
    pub(crate) async fn answer<B>(
        &self,
        request: Request<B>,
        address: Option<Result<Address, BadAddress>>,
    ) -> Result<Response<Body>, Problem>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let began = Instant::now();
        let (head, body) = request.into_parts();
        check_message(&head)?;
        let address = address.ok_or(Problem::NoRoute)??;
        let peer = self.peer(&head);
        if let Endpoint::Model { .. } = &address.endpoint {
            // Boxed, so that requests to workloads do not carry its state.
            return Ok(Box::pin(self.serve_model(head, body, address)).await);
        }
        let to = match decide(&self.context, &head, &address, peer.unwrap_or(Peer::UNKNOWN)).await?
        {
            Decision::Forward(to) => to,
            Decision::Respond(response) => return Ok(response),
        };
        let deployed = Deployed::of(&self.context, &head, &to.workload)?;
        let mut counted = Counted { context: &self.context, began, deployed, status: None };
        let admitted = Admitted { head, address, peer, to, began };
        let answer = self.pass(admitted, body, counted.deployed.as_deref_mut()).await;
        counted.status = Some(answer.as_ref().map_or_else(Problem::status, Response::status));
        answer
    }

    /// Passes the request on, and its answer back.
    async fn pass<B>(
        &self,
        admitted: Admitted,
        body: B,
        mut deployed: Option<&mut Deployed>,
    ) -> Result<Response<Body>, Problem>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let Admitted { mut head, address, peer, to, began } = admitted;
        let from = peer.unwrap_or(Peer::UNKNOWN);
        let kind = to.workload.kind;
        let limits = self.context.settings.exchange_limits(&to.workload);
        let mut hold = self.hold(&mut head, address, from, &to)?;
        hold.time = limits.time.map(|limit| Time::new(began, limit));
        if to.may_be_answered_here() {
            if let Some(asked) = self.drives(&head, &to) {
                return self.answer_here(asked, body, to, began, hold).await;
            }
            if let Some(asked) = self.tunnels(&head, &to) {
                return self.answer_here(asked, body, to, began, hold).await;
            }
        }
        let (client, protocol) = upgrade(&mut head).unzip();
        let faults = Arc::default();
        let (body, last_sent) = self.request_body(&head, body, &to, &faults)?;
        let settings = &self.context.settings;
        let (body, read) = tool_lists::read(settings, (&head, &to), &mut hold, body).await?;
        let request = rewrite::request(&self.context, head, &to, peer, protocol, body);
        let ask = Ask { port: to.port, request, last_sent, idle: limits.idle };

        let mut timing = Timing::default();
        if let (Some(deployed), Some(read)) = (deployed.as_deref_mut(), read)
            && let Some(mut response) = self.chooser().listed(deployed, &to, &ask.request, &read)
        {
            rewrite::response_headers(response.headers_mut(), to, timing);
            return Ok(response);
        }
        let answered = async {
            let forwarded = match deployed.as_deref_mut() {
                None => self.ask_sandbox(&to, ask, began, &mut timing).await,
                Some(deployed) => self.ask_deployment(deployed, &to, ask, began, &mut timing).await,
            };
            forwarded.map_err(|problem| self.fault_of_body(&faults).unwrap_or(problem))
        };
        let (answer, turn) = tokio::select! {
            biased;
            answer = answered => answer?,
            end = hold.end() => return Err(end.into_problem(kind)),
        };
        hold.turn = turn;
        let mut response = self.response(answer, client, hold, limits)?;
        let cookie = deployed.and_then(|deployed| deployed.cookie(&to, from.secure));
        rewrite::response_headers(response.headers_mut(), to, timing);
        if let Some(cookie) = cookie {
            response.headers_mut().append(SET_COOKIE, cookie);
        }
        Ok(response)
    }

    /// Takes everything that an admitted request holds for as long as it goes on.
    fn hold(
        &self,
        head: &mut Head,
        address: Address,
        peer: Peer,
        to: &Destination,
    ) -> Result<Hold, Problem> {
        let workspace = &to.workload.workspace_name;
        let permit = self.open.take(workspace, 1).map_err(Problem::Crowded)?;
        let of_stranger = match to.pass.is_stranger() {
            true => Some(self.open_public.take(workspace, 1).map_err(Problem::Crowded)?),
            false => None,
        };
        let connection = head.extensions.remove::<Connection>();
        if let (Some(connection), Some(caller)) = (&connection, &to.pass.caller) {
            connection.signed_in(&caller.holder);
        }
        let busy = connection.map(|connection| connection.begin());
        let right = revocation::right(&self.context, head, address, peer, to);
        Ok(Hold { _of_stranger: of_stranger, ..Hold::new(right, busy, permit) })
    }

    fn drives(
        &self,
        head: &Head,
        to: &Destination,
    ) -> Option<(drives::DriveRequest, Arc<dyn Drives>)> {
        let asked = drives::DriveRequest::read(&head.method, to.target.path())?;
        Some((asked, self.context.drives.get()?.upgrade()?))
    }

    fn tunnels(
        &self,
        head: &Head,
        to: &Destination,
    ) -> Option<(tunnels::TunnelRequest, Arc<dyn Tunnels>)> {
        let asked = tunnels::TunnelRequest::read(&head.method, to.target.path())?;
        Some((asked, self.context.tunnels.get()?.upgrade()?))
    }

    /// Answers in place of a sandbox.
    async fn answer_here<A: Answered, B>(
        &self,
        (asked, by): (A, Arc<A::By>),
        body: B,
        to: Destination,
        began: Instant,
        mut hold: Hold,
    ) -> Result<Response<Body>, Problem>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (kind, id, mut timing) = (to.workload.kind, to.workload.id.clone(), Timing::default());
        let limits = self.context.settings.exchange_limits(&to.workload);
        let answered = async {
            let body = Limited::new(body, A::BODY_BYTES_MAX).collect();
            let body = timeout(limits.idle, body).await.map_err(|_| Problem::SlowBody)?;
            let body = body.map_err(|error| answered::unread(&error, A::BODY_BYTES_MAX))?;
            let mut visit = None;
            if asked.needs_instance() {
                visit = Some(self.visit(&to.workload, began, &mut timing).await?);
            }
            let answer = asked.answer(&by, &id, &body.to_bytes()).await;
            drop(visit);
            Ok::<_, Problem>(answer)
        };
        let mut response = tokio::select! {
            biased;
            response = Box::pin(answered) => response?,
            end = hold.end() => return Err(end.into_problem(kind)),
        };
        rewrite::response_headers(response.headers_mut(), to, timing);
        Ok(response)
    }

    fn peer(&self, head: &Head) -> Option<Peer> {
        let mut peer = *head.extensions.get::<Peer>()?;
        if self.context.settings.trust_forwarded {
            let proto = head.headers.get(headers::FORWARDED_PROTO).map(HeaderValue::as_bytes);
            peer.secure = proto.map_or(peer.secure, |proto| proto.eq_ignore_ascii_case(b"https"));
        }
        Some(peer)
    }

    /// Returns what is wrong with a body that was sent on, if an exchange broke off because of it.
    fn fault_of_body(&self, faults: &BodyFaults) -> Option<Problem> {
        if faults.is_too_large() {
            return Some(Problem::TooLarge(self.context.settings.body_max));
        }
        faults.is_broken().then_some(Problem::BadRequest(CUT_OFF))
    }

    /// Returns the body to send on. What turns out to be wrong with it is noted in `faults`.
    fn request_body<B>(
        &self,
        head: &Head,
        body: B,
        to: &Destination,
        faults: &Arc<BodyFaults>,
    ) -> Result<(RequestBody, Option<LastSent>), Problem>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let max = self.context.settings.body_max;
        let length = head
            .headers
            .get(CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if max > 0 && length.is_some_and(|length| length > max) {
            return Err(Problem::TooLarge(max));
        }
        if body.is_end_stream() {
            return Ok((RequestBody::empty(), None));
        }
        let last_sent = LastSent::now();
        let rules = BodyRules {
            left: (max > 0).then_some(max),
            set: to.preview.as_ref().map(|preview| Arc::clone(&preview.request_headers)),
            faults: Arc::clone(faults),
        };
        Ok((RequestBody::streamed(body, last_sent.clone(), rules), Some(last_sent)))
    }

    /// Asks the replica that is chosen for the request.
    pub(crate) async fn ask_deployment(
        &self,
        deployed: &mut Deployed,
        to: &Destination,
        ask: Ask,
        began: Instant,
        timing: &mut Timing,
    ) -> Result<(Answer, Option<Turn>), Problem> {
        // Boxed, so that requests to sandboxes do not carry its state.
        let asked = Box::pin(self.chooser().ask(deployed, to, ask, began, timing)).await;
        asked.map(|(answer, turn)| (answer, Some(turn)))
    }

    fn chooser(&self) -> Chooser<'_> {
        let (context, standby, machine) = (&*self.context, &self.standby, &*self.machine_name);
        Chooser { context, standby, machine }
    }

    fn response(
        &self,
        answer: Answer,
        client: Option<OnUpgrade>,
        hold: Hold,
        limits: ExchangeLimits,
    ) -> Result<Response<Body>, Problem> {
        match (answer, client) {
            (Answer::Whole(response), _)
                if !is_plainly_chunked(response.headers(), &["chunked", "identity"]) =>
            {
                Err(Problem::Coded)
            }
            (Answer::Whole(mut response), _) => {
                headers::remove_hop(response.headers_mut());
                // The HTTP version between us and the workload is not the one between us and the
                // caller.
                *response.version_mut() = Version::default();
                response.body_mut().keep(hold);
                Ok(response)
            }
            (Answer::Switched { response, wire, visit }, Some(client)) => {
                self.switch(client, (wire, visit), hold, limits);
                Ok(rewrite::switched(response))
            }
            (Answer::Switched { .. }, None) => Err(Problem::Unasked),
        }
    }

    /// Relays bytes in both directions once the client has received the answer that switches
    /// protocols.
    fn switch(
        &self,
        client: OnUpgrade,
        (wire, visit): (Box<Wire>, Visit),
        mut hold: Hold,
        limits: ExchangeLimits,
    ) {
        let (standby, settings) = (self.standby.clone(), Arc::clone(&self.context.settings));
        // Only workloads with a time limit have their idle sockets ended; any other socket may stay
        // open idle, and merely lets its instance sleep.
        let idle_max = limits.time.map(|_| limits.idle);
        tokio::spawn(async move {
            match (client.await, wire.into_stream().await) {
                (Ok(client), Ok(workload)) => {
                    let client = TokioIo::new(client);
                    tokio::select! {
                        () = socket::relay(standby, visit, (&settings, idle_max), client, workload) => {}
                        () = hold.ends() => {}
                    }
                }
                (Err(error), _) | (_, Err(error)) => {
                    tracing::debug!(%error, "a switch of protocols failed")
                }
            }
        });
    }
}

/// Refuses messages that this edge and a workload could read in two different ways.
fn check_message(head: &Head) -> Result<(), Problem> {
    if head.method == Method::CONNECT {
        return Err(Problem::BadRequest(
            "`CONNECT` leads nowhere here: send requests to the address of the workload",
        ));
    }
    if head.headers.contains_key(CONTENT_LENGTH) && head.headers.contains_key(TRANSFER_ENCODING) {
        return Err(Problem::BadRequest(
            "a message has either `Content-Length` or `Transfer-Encoding`",
        ));
    }
    if !is_plainly_chunked(&head.headers, &["chunked"]) {
        return Err(Problem::BadRequest(
            "`Transfer-Encoding` can only be `chunked`: compress by `Content-Encoding`",
        ));
    }
    Ok(())
}

/// Returns whether the body of a message, once its chunks are put together, is what was meant:
/// whether `Transfer-Encoding` is one of `known`, or missing. The HTTP library reads chunks, and
/// ignores every coding before that.
fn is_plainly_chunked(headers: &HeaderMap, known: &[&str]) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_known = |coding: &HeaderValue| {
        known.iter().any(|known| coding.as_bytes().eq_ignore_ascii_case(known.as_bytes()))
    };
    codings.next().is_none_or(is_known) && codings.next().is_none()
}

/// Returns the connection of a client that wants to switch protocols, and the protocol it wants.
fn upgrade(head: &mut Head) -> Option<(OnUpgrade, HeaderValue)> {
    let client = head.extensions.remove::<OnUpgrade>()?;
    Some((client, headers::upgrade(&head.headers, head.version)?))
}
