//! An attempt at one model: reserves what it may use, asks it, and asks again where that can help.

use super::ModelProblem;
use super::Room;
use super::account::Account;
use super::breaker::Admission;
use super::call::Call;
use super::failed::{self, Counted, Failed};
use super::failure;
use super::hooks::Stopped;
use super::plan::Reached;
use super::prepared::Prepared;
use super::request::ModelRequest;
use super::served::Served;
use super::settings::AnswerTimeouts;
use super::upstream::{Answer, Broken, is_redirect};
use crate::problem::Problem;
use ::models::dialect::Dialect;
use ::models::ledger::Hold;
use ::models::operation::Operation;
use ::models::prices::Price;
use ::models::provider::{Provider, Way};
use ::models::tokens::{TOKENS_MAX, UsageReader, input_bound};
use ::models::translate::has_proofs;
use admission::Refused;
use bytes::Bytes;
use http::Method;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use types::kinds::model::{ModelFailure, ModelHookTime, ModelRouting};
use types::kinds::policy::LimitPer;
use types::models::{LimitMeasure, ModelCall, ModelLimit, ModelOutcome, TokenUsage};

const UNWATCHED: &str = "it looks at answers, and those on this path cannot be looked at";
/// Largest error of a provider that is read, in bytes.
const ERROR_MAX: usize = 256 << 10;

/// The status in the log of a request that ends before its answer begins, because the caller hangs
/// up.
const UNANSWERED: u16 = 499;

/// An attempt whose provider has begun to answer.
pub(crate) struct Begun<'m> {
    pub(crate) prepared: Prepared,
    pub(crate) head: http::response::Parts,
    pub(crate) answer: Answer,
    /// The first piece, if the attempt waited for it.
    pub(crate) first: Option<Bytes>,
    pub(crate) account: Account,
    /// Told once the answer has proved to be one.
    pub(crate) admission: Admission<'m>,
}

/// Why a model that was asked once gave no answer.
struct NoAnswer {
    failed: Failed,
    failure: ModelFailure,
    /// How long the provider wants to be left alone.
    wait: Option<Duration>,
    /// Whether the provider may have done what was asked all the same.
    may_be_done: bool,
}

/// The most that a model may use for this call.
struct Most {
    input: u64,
    output: u64,
    cost: u64,
    /// Whether the provider may read more than the body.
    is_open: bool,
}

impl Call<'_> {
    /// Asks one model. `is_last` tells whether no other model is asked after such a failure.
    pub(crate) async fn attempt<'m>(
        &self,
        reached: &'m Reached,
        is_last: impl Fn(ModelFailure) -> bool,
    ) -> Result<Begun<'m>, Failed> {
        let (settings, model) = (&self.models.settings, &reached.model);
        let failed = |problem: ModelProblem| Failed::of(model, problem.into());
        let provider = match &model.provider {
            Some(Ok(provider)) => provider,
            Some(Err(bad)) => return Err(failed(ModelProblem::Connection(bad.clone()))),
            None => return Err(failed(ModelProblem::NoProvider)),
        };
        let admission = model.state.breaker.admit(Instant::now(), settings);
        let admission = admission.map_err(|left| failed(ModelProblem::Resting { left }))?;
        self.must_be_watched(reached).map_err(|stopped| Failed::last(model, stopped.into()))?;
        let looked = self.looked_at_by(reached).await.map_err(|stopped| failed(stopped.into()))?;
        let asked = looked.as_ref().unwrap_or(&self.asked);
        let prepared = {
            let values = self.room_for_values(provider, asked);
            let _values =
                values.map_err(|refused| Failed::last(model, Problem::Crowded(refused)))?;
            let now = self.models.world.now();
            Prepared::new(model, provider, asked, &self.sent, now).map_err(failed)?
        };
        let account =
            self.reserve(reached, &prepared, asked).await.map_err(|refused| match refused {
                // Another model may have something left, or a price.
                refused @ (ModelProblem::OverLimit(_) | ModelProblem::Unpriced(_))
                    if !self.is_own_limit(&refused) =>
                {
                    Failed::of(model, refused.into()).by(ModelFailure::RateLimit)
                }
                refused => Failed::last(model, refused.into()),
            })?;
        model.state.budget.earn(settings.retry_percent);
        let routing = merged(self.all_of(reached));
        self.ask_repeatedly(model, (prepared, account), &routing, admission, is_last).await
    }

    /// Refuses what has answers that no hook could look at, if one has to.
    fn must_be_watched(&self, reached: &Reached) -> Result<(), ModelProblem> {
        let cannot_be = self.asked.operation == Operation::Other && !self.asked.is_count();
        if cannot_be && self.looks_at_answers(reached) {
            return Err(Stopped::Failed { number: 0, why: UNWATCHED.to_owned() }.into());
        }
        if self.asked.is_stream {
            self.all_of(reached).try_for_each(|model| model.hooks.must_see_streams())?;
        }
        Ok(())
    }

    /// Asks until the model has begun to answer, or asking it again would not help.
    async fn ask_repeatedly<'m>(
        &self,
        model: &'m Arc<Served>,
        (prepared, mut account): (Prepared, Account),
        routing: &ModelRouting,
        mut admission: Admission<'m>,
        is_last: impl Fn(ModelFailure) -> bool,
    ) -> Result<Begun<'m>, Failed> {
        let settings = &self.models.settings;
        let timeouts = settings.answer_timeouts(routing);
        let mut left = u32::try_from(routing.retries.unwrap_or(1)).unwrap_or(0);
        let mut pause = settings.retry_pause;
        loop {
            let no_answer = match self.ask(model, &prepared, timeouts, &mut account).await {
                Ok((head, answer, first)) => {
                    return Ok(Begun { prepared, head, answer, first, account, admission });
                }
                Err(no_answer) => no_answer,
            };
            let NoAnswer { failed, failure, wait, may_be_done } = no_answer;
            let is_over = may_be_done && self.makes_something();
            let is_last = is_over || is_last(failure);
            let now = Instant::now();
            if failure::is_its_own(failure) {
                admission.failed(now, settings);
            } else {
                admission.went_well();
            }
            let wait = wait.unwrap_or_else(|| self.jitter(pause));
            let repeats = left > 0
                && !is_over
                && failure::may_pass(failure)
                && wait <= settings.retry_after_max
                // Another model answers sooner than one that wants to be left alone.
                && (failure != ModelFailure::RateLimit || is_last);
            let again = match repeats && model.state.budget.spend() {
                true => model.state.breaker.admit(now, settings).ok(),
                false => None,
            };
            let Some(again) = again else {
                let counted = given_up(account, failure, is_last);
                let failed = failed.by((!is_over).then_some(failure));
                return Err(failed.with(prepared).counted(counted));
            };
            admission = again;
            metrics::counter!("holm_model_retries_total").increment(1);
            (left, pause) = (left - 1, pause * 2);
            tokio::time::sleep(wait).await;
        }
    }

    /// Counts a call that failed and was given its limits back, because no other model was asked
    /// after it.
    pub(crate) async fn count_failed(&self, call: ModelCall, why: ModelFailure) {
        let Some(parts) = self.models.parts.get() else { return };
        match parts.ledger.reserve(Vec::new(), call.clone()).await {
            Ok(reservation) => {
                let request = self.asked_body(&self.asked.body);
                let models = Arc::clone(self.models);
                let mut account = Account::new(models, call, None, request, self.began);
                account.reserved(reservation);
                account.settle(ModelOutcome::Failed(why));
            }
            Err(refused) => tracing::warn!(%refused, "a call that failed is not counted"),
        }
    }

    /// Returns the model that was asked for, those that it leads through, and the one that is
    /// asked: the limits and hooks of all of them apply.
    pub(crate) fn all_of<'a>(
        &'a self,
        reached: &'a Reached,
    ) -> impl DoubleEndedIterator<Item = &'a Arc<Served>> {
        let other = Some(&reached.model).filter(|model| model.route.id != self.served.route.id);
        std::iter::once(self.served).chain(&reached.through).chain(other)
    }

    /// Runs the hooks of models that are asked in place of the original one.
    async fn looked_at_by(&self, reached: &Reached) -> Result<Option<ModelRequest>, Stopped> {
        let when = ModelHookTime::Before;
        let others: Vec<_> =
            self.all_of(reached).skip(1).filter(|model| model.hooks.any(when)).collect();
        if others.is_empty() {
            return Ok(None);
        }
        self.must_be_open()?;
        let mut body = self.asked.body.clone();
        for model in others {
            body = model.hooks.look(when, body, self.hooks_ask()).await?;
        }
        let read = ModelRequest::read(&self.sent.path, body);
        read.map(Some).map_err(|bad| Stopped::Failed { number: 0, why: bad.to_string() })
    }

    /// Asks once. For a stream, waits for the first byte, because until then other models can be
    /// asked.
    async fn ask(
        &self,
        model: &Arc<Served>,
        prepared: &Prepared,
        timeouts: AnswerTimeouts,
        account: &mut Account,
    ) -> Result<(http::response::Parts, Answer, Option<Bytes>), NoAnswer> {
        let broken = |broken| NoAnswer {
            failure: failure::of_broken(&broken),
            may_be_done: !matches!(broken, Broken::Unreachable(_)),
            wait: None,
            failed: Failed::of(model, ModelProblem::Broken(broken).into()),
        };
        let owner = &self.served.route.workspace_name;
        // From here on the provider may be at work: a caller who hangs up pays for what was asked.
        account.read_with(self.reader(prepared));
        let asked = self.models.client.ask(prepared.outgoing.clone(), owner, timeouts).await;
        let asked = asked.inspect_err(|broken| account.broken(broken));
        let (head, mut answer) = asked.map_err(broken)?.into_parts();
        if head.status.is_success() {
            let first = match self.asked.is_stream {
                true => answer.piece().await.transpose(),
                false => Ok(None),
            };
            let first = first.inspect_err(|broken| account.broken(broken)).map_err(broken)?;
            return Ok((head, answer, first));
        }
        account.read_with(None);
        let (pieces, is_all) = answer.collect(ERROR_MAX).await.map_err(broken)?;
        let body = super::Pieces::from_iter(pieces).whole();
        let body = failed::without_credential(&prepared.outgoing.headers, body);
        let failure = failure::of_status(head.status, &body);
        let wait = failure::retry_after(&head.headers, self.models.world.now());
        let problem = match failure {
            _ if is_redirect(&head) => Some(ModelProblem::Redirect),
            // The provider's message about credentials may contain a part of them.
            ModelFailure::Credentials => Some(ModelProblem::Credentials),
            _ if !is_all => Some(ModelProblem::LongAnswer(ERROR_MAX)),
            _ => None,
        };
        let failed = match problem {
            Some(problem) => Failed::of(model, problem.into()),
            None => Failed::answered(model, head, body),
        };
        Err(NoAnswer { failed, failure, wait, may_be_done: failure::may_be_done(failure) })
    }

    /// Returns the reader that finds the usage in an answer as it passes.
    fn reader(&self, prepared: &Prepared) -> Option<UsageReader> {
        let dialect = prepared.spoken?;
        let operation = match (self.asked.operation, prepared.translation.is_some()) {
            (Operation::Chat(_) | Operation::GeminiStream, true) => Operation::Chat(dialect),
            (Operation::Embeddings(_), true) => Operation::Embeddings(dialect),
            (operation, _) => operation,
        };
        Some(UsageReader::new(dialect, operation, self.asked.is_stream))
    }

    /// Reserves the most that the call may need of each limit that applies to it.
    async fn reserve(
        &self,
        reached: &Reached,
        prepared: &Prepared,
        asked: &ModelRequest,
    ) -> Result<Account, ModelProblem> {
        let parts = self.models.parts.get().ok_or(ModelProblem::NotReady)?;
        let provider = reached.model.route.provider.as_ref().ok_or(ModelProblem::NoProvider)?;
        let listed = parts.prices.find(provider.kind, &prepared.model).copied();
        let has_tiers = matches!(prepared.spoken, Some(Dialect::OpenAi | Dialect::Responses));
        let is_faster = asked.has_priority && has_tiers;
        let price = if is_faster { listed.map(Price::of_priority) } else { listed };
        let most = self.most(asked, price.as_ref());
        let usage = TokenUsage {
            input: most.input,
            output: most.output,
            estimated: true,
            ..TokenUsage::default()
        };
        let call = ModelCall {
            at: self.models.world.now(),
            workspace: self.served.route.workspace.clone(),
            model: self.served.route.name.clone(),
            model_id: self.served.route.id.clone(),
            provider: provider.kind,
            provider_model: prepared.model.clone(),
            key: self.caller.holder.clone(),
            end_user: self.end_user.clone(),
            tag: self.tag.clone(),
            usage,
            cost: most.cost,
            prices: parts.prices.version().to_owned(),
            outcome: ModelOutcome::Interrupted,
        };
        let holds = self.holds(reached, &most);
        let is_money = holds.iter().any(|hold| hold.limit.measure == LimitMeasure::Cost);
        if is_money && price.is_none() && self.costs() && !self.models.settings.unpriced {
            return Err(ModelProblem::Unpriced(prepared.model.clone()));
        }
        if self.costs() && !self.is_counted() && holds.iter().any(|hold| is_of_use(&hold.limit)) {
            return Err(ModelProblem::Uncounted);
        }
        let is_limited = !holds.is_empty();
        let reservation = parts.ledger.reserve(holds, call.clone()).await?;
        let request = self.asked_body(&asked.body);
        let models = Arc::clone(self.models);
        let mut account = Account::new(models, call, price, request, self.began);
        account.reserved(reservation);
        account.log(self.entry(UNANSWERED, None));
        if is_limited && most.is_open && price.is_some() {
            account.read_at_most(most.input);
        }
        Ok(account)
    }

    /// Returns whether the request costs anything: reads and token counts are free.
    fn costs(&self) -> bool {
        match self.asked.operation {
            Operation::Other => self.sent.method == Method::POST && !self.asked.is_count(),
            Operation::Models => false,
            _ => true,
        }
    }

    /// Returns whether the provider may keep something that the request makes, such as a file or a
    /// batch: then nobody may be asked twice.
    fn makes_something(&self) -> bool {
        let is_other = self.asked.operation == Operation::Other && !self.asked.is_count();
        is_other && !self.sent.method.is_idempotent()
    }

    /// Returns whether the tokens that the request uses can be counted.
    const fn is_counted(&self) -> bool {
        self.asked.dialect().is_some() && !self.asked.is_background
    }

    /// Reserves memory for parsing a body into values, which a translation or the opening of proofs
    /// of thoughts needs.
    fn room_for_values(&self, provider: &Provider, asked: &ModelRequest) -> Result<Room, Refused> {
        let reads = matches!(provider.native(asked.operation), Way::Translates(_))
            || (asked.is_chat() && has_proofs(&asked.body));
        let json: &[u8] = if reads { &asked.body } else { &[] };
        Room::of_values(&self.models.bodies, &self.served.route.workspace_name, json)
    }

    fn most(&self, asked: &ModelRequest, price: Option<&Price>) -> Most {
        if !self.is_counted() || !self.costs() {
            return Most { input: 0, output: 0, cost: 0, is_open: false };
        }
        let bound = input_bound(&asked.body);
        let input = bound.min(price.map_or(TOKENS_MAX, |price| price.context));
        let output = match self.asked.is_chat() {
            true => {
                // No model writes more than it can, however much it is allowed.
                let able = price.map(|price| price.max_output).filter(|able| *able > 0);
                let usual = able.unwrap_or(self.models.settings.output_max);
                let most = asked.max_output.unwrap_or(usual).min(able.unwrap_or(TOKENS_MAX));
                most.saturating_mul(asked.choices)
            }
            false => 0,
        };
        let output = output.min(TOKENS_MAX);
        let cost = price.map_or(0, |price| price.most(input, Some(output)));
        Most { input, output, cost, is_open: bound == u64::MAX }
    }

    /// Returns the limits of all models that the call goes through, and those of the key.
    fn holds(&self, reached: &Reached, most: &Most) -> Vec<Hold> {
        let mut holds: Vec<Hold> = Vec::new();
        let mut add = |limit: &Arc<ModelLimit>, subject: &str| {
            let is_same = |hold: &Hold| {
                hold.limit.id == limit.id
                    && hold.limit.measure == limit.measure
                    && hold.subject == subject
            };
            if !holds.iter().any(is_same) {
                let most = match limit.measure {
                    LimitMeasure::Cost => most.cost,
                    LimitMeasure::Requests => 1,
                    LimitMeasure::InputTokens => most.input,
                    LimitMeasure::OutputTokens => most.output,
                    LimitMeasure::TotalTokens => most.input.saturating_add(most.output),
                };
                let most = i64::try_from(most).unwrap_or(i64::MAX);
                holds.push(Hold { limit: Arc::clone(limit), subject: subject.to_owned(), most });
            }
        };
        let nobody = String::new();
        for served in self.all_of(reached) {
            let route = &served.route;
            for limit in &served.limits {
                let subject = match limit.per {
                    LimitPer::Model => route.id.as_str(),
                    LimitPer::Workspace => route.workspace.as_str(),
                    LimitPer::Key => &self.caller.holder,
                    LimitPer::EndUser => self.end_user.as_ref().unwrap_or(&nobody),
                };
                add(limit, subject);
            }
        }
        for limit in self.caller.models.iter().flat_map(|right| &right.limits) {
            add(&Arc::new(limit.clone()), &self.caller.holder);
        }
        holds
    }

    /// Returns whether every other model would be under the same limit.
    fn is_own_limit(&self, refused: &ModelProblem) -> bool {
        let ModelProblem::OverLimit(over) = refused else { return false };
        let of_key = self.caller.models.iter().flat_map(|right| &right.limits);
        self.served.route.limits.iter().chain(of_key).any(|limit| limit.id == over.limit)
    }

    /// Returns at least half of the pause, at random, so that callers who failed together do not
    /// come back together.
    fn jitter(&self, pause: Duration) -> Duration {
        let [chance] = self.models.world.random_bytes::<1>();
        pause.mul_f64(0.5 + f64::from(chance) / 510.0)
    }
}

/// Returns how a model that failed is counted. Other models are asked next, unless this was the
/// last. What this one may have done is charged all the same.
fn given_up(account: Account, failure: ModelFailure, is_last: bool) -> Counted {
    if is_last || account.is_at_work() {
        return Counted::Ends(Box::new(account), ModelOutcome::Failed(failure));
    }
    account.give_back().map_or(Counted::Nothing, |call| Counted::GivenBack(Box::new(call)))
}

/// Returns whether it limits how much is used, and not how often.
const fn is_of_use(limit: &ModelLimit) -> bool {
    !matches!(limit.measure, LimitMeasure::Requests)
}

/// Merges the routing of all models on the way. What a model leaves open is taken from those that
/// led to it.
fn merged<'a>(all: impl DoubleEndedIterator<Item = &'a Arc<Served>>) -> ModelRouting {
    all.rev().fold(ModelRouting::default(), |own, served| {
        let asked = &served.route.routing;
        ModelRouting {
            retries: own.retries.or(asked.retries),
            first_token_timeout_ms: own.first_token_timeout_ms.or(asked.first_token_timeout_ms),
            token_timeout_ms: own.token_timeout_ms.or(asked.token_timeout_ms),
            ..own
        }
    })
}
