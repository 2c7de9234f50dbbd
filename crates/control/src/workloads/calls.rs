//! Makes calls to workloads that nobody waits for, as the attempts of the queue.
//!
//! The answer of a workload is stored before the attempt counts as ended. If this server is stopped
//! in between, the call is made again: a workload may see a call twice, but always at least once.

use crate::machine::Edge;
use jobs::{Assignment, Call, CallAnswer};
use std::time::Duration;
use store::executions;
use store::{Store, Tx};
use types::World;
use types::instance::{Outcome, WorkEnd};

/// Answers with this status or above are failures, and the call is repeated as often as allowed.
const FAILED_FROM: u16 = 500;

pub(super) struct Making<'m> {
    pub(super) store: &'m Store,
    pub(super) edge: Option<&'m dyn Edge>,
}

impl Making<'_> {
    pub(super) async fn make(&self, attempt: &Assignment, call: &Call, world: &World) -> WorkEnd {
        let started_at = Some(world.now());
        let outcome = match self.answer(attempt, call).await {
            Ok(answer) => self.keep(attempt, &answer).await,
            Err(outcome) => outcome,
        };
        WorkEnd { outcome, started_at, ended_at: world.now() }
    }

    async fn answer(&self, attempt: &Assignment, call: &Call) -> Result<CallAnswer, Outcome> {
        let lost = |why: &str| Outcome::Lost(why.to_owned());
        let edge = self.edge.ok_or_else(|| lost("this server routes no requests"))?;
        let answered = edge.call(&attempt.order.execution.job_id, call);
        let answered = match attempt.order.plan.timeout_s {
            None => answered.await,
            Some(seconds) => {
                let most = Duration::from_secs(seconds.into());
                tokio::time::timeout(most, answered).await.map_err(|_| Outcome::TimedOut)?
            }
        };
        answered.map_err(|fault| Outcome::Lost(fault.0))
    }

    async fn keep(&self, attempt: &Assignment, answer: &CallAnswer) -> Outcome {
        let (id, text) = (attempt.order.execution.id.clone(), crate::json::text(answer));
        let kept = move |tx: &mut Tx<'_>| executions::put_answer(tx, &id, &text);
        match self.store.write(kept).await {
            Ok(()) if answer.status < FAILED_FROM => Outcome::SUCCESS,
            Ok(()) => Outcome::Exited(answer.status.into()),
            Err(error) => {
                tracing::error!(%error, "the answer to a call could not be kept");
                Outcome::Lost("its answer could not be kept".to_owned())
            }
        }
    }
}
