//! A request for a model, from its arrival to its answer.

use super::Room;
use super::account::{Account, AskedBody};
use super::answer_head::{CACHE, dress, response};
use super::cache::{self, Cached, Key};
use super::caller::{self, Shown};
use super::failed::{Counted, Failed};
use super::hooks::{HooksAsk, Stopped};
use super::plan::{Plan, mix};
use super::prepared::Sent;
use super::request::{BadBody, ModelRequest, point, word};
use super::served::Served;
use super::{ModelProblem, Models, Pieces, dialect_of};
use crate::address::{Address, Endpoint};
use crate::body::Body;
use crate::guard::{Caller, Refused};
use crate::headers;
use crate::hold::Hold;
use crate::inner::Inner;
use crate::origin;
use crate::problem::Problem;
use crate::revocation;
use crate::wire::BoxError;
use ::models::operation::Operation;
use ::models::provider::Way;
use admission::{Connection, Permit};
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts as Head;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use serde_json::json;
use std::pin::pin;
use std::sync::Arc;
use tokio::time::{Instant, timeout};
use types::KindName;
use types::kinds::model::{ModelFailure, ModelHookTime};
use types::models::{ModelCall, ModelOutcome, TokenUsage};

const END_USER: HeaderName = HeaderName::from_static("x-holm-end-user");
const TAG: HeaderName = HeaderName::from_static("x-holm-tag");
/// What else a provider has, such as files, belongs to everybody who uses its connection.
const KEY_FOR_ANSWERS: &str = "a key for models alone asks for answers, embeddings and lists of models, and for nothing else that a provider has";
/// Headers of requests that change what is answered.
const DECIDING: [&str; 5] = [
    "anthropic-version",
    "anthropic-beta",
    "openai-beta",
    // Azure's.
    "x-ms-model-mesh-model-name",
    "extra-parameters",
];

/// A call that failed and was given its limits back. It is counted if no model is asked after it.
type Uncounted = Option<(Box<ModelCall>, ModelFailure)>;

/// A request that was let in and read.
pub(crate) struct Call<'c> {
    pub(crate) models: &'c Arc<Models>,
    pub(crate) served: &'c Arc<Served>,
    pub(crate) caller: &'c Caller,
    pub(crate) asked: ModelRequest,
    pub(crate) sent: Sent,
    pub(crate) began: Instant,
    pub(crate) end_user: Option<String>,
    pub(crate) tag: Option<String>,
    pub(crate) tried: Vec<(String, ModelFailure)>,
    /// The memory that its body takes.
    pub(crate) room: Arc<Room>,
    permit: Arc<Permit<String>>,
    thread: Option<u64>,
}

impl Inner {
    /// Answers a request for a model. Errors are reported in the dialect of the caller's client.
    pub(crate) async fn serve_model<B>(
        &self,
        head: Head,
        body: B,
        address: Address,
    ) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let dialect = dialect_of(address.split(&head.uri).1);
        match self.model(head, body, &address).await {
            Ok(response) => response,
            Err(problem) => {
                let mut response = problem.response_in(
                    dialect,
                    self.context.world.now(),
                    &self.context.settings.docs_url,
                );
                origin::confine(response.headers_mut(), true);
                response
            }
        }
    }

    async fn model<B>(
        &self,
        mut head: Head,
        body: B,
        address: &Address,
    ) -> Result<Response<Body>, Problem>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let began = Instant::now();
        let Endpoint::Model { workspace, name } = &address.endpoint else {
            return Err(Problem::NoRoute);
        };
        let shown = Shown::of(&head);
        let place = (workspace.as_str(), name.as_str());
        let (caller, served) = caller::admit(&self.context, shown.as_ref(), place).await?;
        if let Some(why) = &served.route.off {
            return Err(Problem::Unavailable { kind: KindName::Model, why: why.clone() });
        }
        let mut hold = self.hold_model(&mut head, shown, &caller, &served)?;
        let permit = Arc::clone(&hold.permit);
        // Boxed right here, so that this large future is not copied once more.
        let answered = Box::pin(async {
            let (body, room) = self.model_body(&head, body, &served).await?;
            let rest = address.split(&head.uri).1;
            let headers = std::mem::take(&mut head.headers);
            let of = (&head.method, headers, rest, head.uri.query());
            self.read_call(of, (body, room, permit), (&caller, &served), began)?.answer(self).await
        });
        let mut response = tokio::select! {
            biased;
            response = answered => response?,
            end = hold.end() => return Err(end.into_problem(KindName::Model)),
        };
        response.body_mut().keep(hold);
        Ok(response)
    }

    fn hold_model(
        &self,
        head: &mut Head,
        shown: Option<Shown>,
        caller: &Caller,
        served: &Arc<Served>,
    ) -> Result<Hold, Problem> {
        let permit = self.open.take(&served.route.workspace_name, 1).map_err(Problem::Crowded)?;
        let connection = head.extensions.remove::<Connection>();
        if let Some(connection) = &connection {
            connection.signed_in(&caller.holder);
        }
        let busy = connection.map(|connection| connection.begin());
        let right = revocation::right_to_model(&self.context, shown, &served.route);
        Ok(Hold::new(right, busy, permit))
    }

    /// Reads the whole body, if it is not too long and arrives in time.
    async fn model_body<B>(
        &self,
        head: &Head,
        body: B,
        served: &Served,
    ) -> Result<(Bytes, Room), Problem>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let settings = &self.models.settings;
        let too_large = || Problem::TooLarge(settings.body_max as u64);
        let length = head.headers.get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > settings.body_max as u64) {
            return Err(too_large());
        }
        let mut room = Room::new(&self.models.bodies, &served.route.workspace_name);
        let read = async {
            let mut body = pin!(body);
            let (mut first, mut whole) = (Bytes::new(), BytesMut::new());
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|_| ModelProblem::CutBody)?;
                let Ok(data) = frame.into_data() else { continue };
                room.grow(data.len()).map_err(Problem::Crowded)?;
                if first.is_empty() && whole.is_empty() {
                    first = data;
                } else {
                    if whole.is_empty() {
                        // If its length is known, as in most cases, the rest is copied only once.
                        let more = length.and_then(|length| usize::try_from(length).ok());
                        whole.reserve(more.unwrap_or(0).min(first.len().saturating_mul(64)));
                        whole.extend_from_slice(&first);
                    }
                    whole.extend_from_slice(&data);
                }
                if first.len().max(whole.len()) > settings.body_max {
                    return Err(too_large());
                }
            }
            Ok(if whole.is_empty() { first } else { whole.freeze() })
        };
        let read = timeout(settings.body_time, read).await;
        let body = read.map_err(|_| Problem::from(ModelProblem::SlowBody))??;
        Ok((body, room))
    }

    fn read_call<'c>(
        &'c self,
        (method, headers, rest, query): (&Method, HeaderMap, &str, Option<&str>),
        (body, room, permit): (Bytes, Room, Arc<Permit<String>>),
        (caller, served): (&'c Caller, &'c Arc<Served>),
        began: Instant,
    ) -> Result<Call<'c>, Problem> {
        let is_post = method == Method::POST;
        let needs_post = !matches!(Operation::of(rest), Operation::Models | Operation::Other);
        if needs_post && !is_post {
            return Err(ModelProblem::Method.into());
        }
        let asked = ModelRequest::read(rest, body).map_err(ModelProblem::from)?;
        if caller.models.is_some() && asked.operation == Operation::Other {
            return Err(Refused::Forbidden { why: KEY_FOR_ANSWERS.into() }.into());
        }
        let text = |name: &HeaderName| headers.get(name).and_then(|text| text.to_str().ok());
        let end_user = text(&END_USER).and_then(word).or_else(|| asked.end_user.clone());
        let tag = text(&TAG).and_then(word).or_else(|| asked.tag.clone());
        let thread = [headers::THREAD, headers::NEUTRAL_THREAD];
        let thread = thread.iter().find_map(text).map(|text| point(text.as_bytes()));
        let parts = self.models.parts.get().ok_or(ModelProblem::NotReady)?;
        let sent = Sent::new(method.clone(), headers, rest, query, &parts.installation)?;
        let (tried, room) = (Vec::new(), Arc::new(room));
        Ok(Call {
            models: &self.models,
            served,
            caller,
            asked,
            sent,
            began,
            end_user,
            tag,
            tried,
            room,
            permit,
            thread,
        })
    }
}

impl Call<'_> {
    async fn answer(mut self, inner: &Inner) -> Result<Response<Body>, Problem> {
        let mut failed = match self.answered(inner).await {
            Ok(response) => return Ok(response),
            Err(failed) => failed,
        };
        let counted = std::mem::replace(&mut failed.counted, Counted::Nothing);
        let told = failed.response();
        self.tell_failed(counted, &told);
        told.map(|(response, _)| response)
    }

    async fn answered(&mut self, inner: &Inner) -> Result<Response<Body>, Failed> {
        if self.asked.operation == Operation::Models && !self.lists_models() {
            return Ok(self.own_list());
        }
        let served = self.served;
        let refused = |problem| Failed::last(served, problem);
        if served.hooks.any(ModelHookTime::Before) {
            self.asked = self.looked_at().await.map_err(|problem| refused(problem.into()))?;
        }
        let key = self.cache_key();
        if let Some(cached) = key.as_ref().and_then(|key| self.models.cache.get(key)) {
            return self.cached(&cached).await.map_err(refused);
        }
        self.ask_in_turn(inner, key).await
    }

    /// Runs the hooks of the model that was asked for.
    async fn looked_at(&self) -> Result<ModelRequest, ModelProblem> {
        self.must_be_open()?;
        let body = self.asked.body.clone();
        let body = self.served.hooks.look(ModelHookTime::Before, body, self.hooks_ask()).await?;
        Ok(ModelRequest::read(&self.sent.path, body)?)
    }

    /// Asks one model after the other, until one answers.
    async fn ask_in_turn(
        &mut self,
        inner: &Inner,
        key: Option<Key>,
    ) -> Result<Response<Body>, Failed> {
        let mut plan = Plan::new(&inner.context.routes, self.served, self.point());
        let (mut last, mut uncounted) = (None::<Failed>, Uncounted::None);
        for left in (0..self.models.settings.attempts_max).rev() {
            let failure = last.as_ref().and_then(|failed| failed.failure);
            let Some(reached) = plan.next(failure) else { break };
            if let (Some(failed), Some(why)) = (last.take(), failure) {
                self.tried.push((failed.name(), why));
                uncounted = passed_over(failed.counted, why, uncounted);
            }
            let is_last = |failure| left == 0 || !plan.has_next(failure);
            let answered = match self.attempt(&reached, is_last).await {
                Ok(begun) => self.respond(&reached, begun, key).await,
                Err(failed) => Err(failed),
            };
            let failed = match answered {
                Ok(response) => return Ok(response),
                Err(failed) => last.insert(failed),
            };
            if failed.failure.is_none() {
                break;
            }
        }
        let nobody = || Failed::last(self.served, ModelProblem::NoProvider.into());
        let mut failed = last.unwrap_or_else(nobody);
        match std::mem::replace(&mut failed.counted, Counted::Nothing) {
            Counted::Nothing => {}
            counted @ Counted::Ends(..) => return Err(failed.counted(counted)),
            Counted::GivenBack(call) => uncounted = failed.failure.map(|why| (call, why)),
        }
        if let Some((call, why)) = uncounted {
            self.count_failed(*call, why).await;
        }
        Err(failed)
    }

    /// Checks that hooks can read everything in the body that the provider could read.
    pub(crate) fn must_be_open(&self) -> Result<(), Stopped> {
        let hidden = |why: &str| {
            let why = Some(why.to_owned());
            Err(Stopped::Blocked { number: 0, what: "the request", why })
        };
        let is = |name: &HeaderName, text: &str| {
            let value = self.sent.headers.get(name).map(HeaderValue::as_bytes);
            value.is_some_and(|value| value.to_ascii_lowercase().starts_with(text.as_bytes()))
        };
        let is_plain =
            !self.sent.headers.contains_key(CONTENT_ENCODING) || is(&CONTENT_ENCODING, "identity");
        if !is_plain {
            return hidden("it is compressed");
        }
        // Files pass as they are. Some parsers would read JSON in UTF-16 too.
        let body = &self.asked.body;
        let is_text = memchr::memchr(0, body).is_none() && std::str::from_utf8(body).is_ok();
        match is_text || is(&CONTENT_TYPE, "multipart/") {
            true => Ok(()),
            false => hidden("it is no text in UTF-8"),
        }
    }

    pub(crate) fn hooks_ask(&self) -> HooksAsk<'_> {
        HooksAsk {
            client: &self.models.client,
            looks: &self.models.looks,
            bodies: &self.models.bodies,
            owner: &self.served.route.workspace_name,
            time: self.models.settings.hook_timeout,
        }
    }

    /// Returns where the request falls among the weights of targets.
    fn point(&self) -> u64 {
        let turn = || mix(self.served.state.next_turn());
        if self.served.route.routing.sticky != Some(true) {
            return turn();
        }
        let user = || self.end_user.as_ref().map(|user| point(user.as_bytes()));
        let bound = self.thread.or_else(user).or_else(|| self.asked.conversation());
        bound.map_or_else(turn, mix)
    }

    fn lists_models(&self) -> bool {
        let provider = self.served.provider.as_ref().and_then(|provider| provider.as_ref().ok());
        provider.is_some_and(|provider| provider.native(Operation::Models) == Way::Passes)
    }

    /// Lists only the model itself. For models that stand for others, and for those whose provider
    /// has no list in this dialect.
    fn own_list(&self) -> Response<Body> {
        let of = json!({
            "id": self.served.route.name,
            "object": "model",
            "created": 0,
            "owned_by": self.served.route.workspace_name,
        });
        let body = json!({"object": "list", "data": [of]}).to_string();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        dress(&mut headers, self.served, false);
        response(StatusCode::OK, headers, Body::own(body))
    }

    fn cache_key(&self) -> Option<Key> {
        self.served.route.cache.as_ref()?;
        if !self.asked.is_chat() && !matches!(self.asked.operation, Operation::Embeddings(_)) {
            return None;
        }
        let query = self.sent.query.as_deref().unwrap_or_default();
        let target = format!("{}?{query}#{}", self.sent.path, self.served.version);
        let deciding = DECIDING.map(|name| self.sent.headers.get(name).map(HeaderValue::as_bytes));
        let body = [&self.asked.body];
        Some(cache::key(&self.served.route, &target, &deciding, body.into_iter()))
    }

    /// Gives a cached answer. Nobody is asked and nothing is charged, but the call is counted.
    async fn cached(&self, cached: &Cached) -> Result<Response<Body>, Problem> {
        let parts = self.models.parts.get().ok_or(ModelProblem::NotReady)?;
        let call = ModelCall {
            at: self.models.world.now(),
            workspace: self.served.route.workspace.clone(),
            model: self.served.route.name.clone(),
            model_id: self.served.route.id.clone(),
            provider: cached.provider,
            provider_model: cached.provider_model.clone(),
            key: self.caller.holder.clone(),
            end_user: self.end_user.clone(),
            tag: self.tag.clone(),
            usage: TokenUsage::default(),
            cost: 0,
            prices: parts.prices.version().to_owned(),
            outcome: ModelOutcome::Cached,
        };
        let reservation = parts.ledger.reserve(Vec::new(), call.clone()).await;
        let reservation = reservation.map_err(ModelProblem::from)?;
        let request = self.asked_body(&self.asked.body);
        let mut account = Account::new(Arc::clone(self.models), call, None, request, self.began);
        account.reserved(reservation);
        account.log(self.entry(StatusCode::OK.as_u16(), Some(&cached.headers)));
        cached.pieces.iter().for_each(|piece| account.sent(piece));
        account.settle(ModelOutcome::Cached);
        let mut headers = cached.headers.clone();
        headers.insert(CACHE, HeaderValue::from_static("hit"));
        let body = Body::pieces(Pieces::from_iter(cached.pieces.iter().cloned()), None);
        Ok(response(StatusCode::OK, headers, body))
    }

    /// The body, for the account of a call of the model.
    pub(crate) fn asked_body(&self, body: &Bytes) -> AskedBody {
        AskedBody::new(body, &self.room, &self.permit)
    }
}

/// Settles a model that failed, when another one is asked after it.
fn passed_over(counted: Counted, why: ModelFailure, uncounted: Uncounted) -> Uncounted {
    match counted {
        Counted::Nothing => uncounted,
        Counted::Ends(mut account, outcome) => {
            // The line of the request belongs to the model that is asked last.
            account.log(None);
            account.settle(outcome);
            None
        }
        Counted::GivenBack(call) => Some((call, why)),
    }
}

/// A body that is not JSON is for the caller to fix.
impl From<BadBody> for Problem {
    fn from(bad: BadBody) -> Self {
        Self::Model(bad.into())
    }
}
