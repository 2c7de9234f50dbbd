//! Tests the rules against a model that has only a list of tasks and counts anew after each event.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use store::executions::Counts;
use types::ids::{ExecutionId, ResourceId, WorkspaceId};

const POLICY: RetryPolicy = RetryPolicy {
    retries_max: 2,
    losses_max: 1,
    first: Duration::from_secs(1),
    longest: Duration::from_secs(8),
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_ms(second * 1000)
}

fn execution(total: i64, parallelism: i64) -> Execution {
    Execution {
        id: ExecutionId::known("exe_1"),
        workspace: WorkspaceId::known("wsp_1"),
        kind: types::KindName::Job,
        job_id: ResourceId::known("res_1"),
        job: "nightly".into(),
        machine: None,
        name: "one".into(),
        phase: Phase::Open,
        total,
        next: 0,
        parallelism,
        memory_mb: 1,
        retries_max: POLICY.retries_max,
        counts: Counts::default(),
        ready_at: Some(AT_ONCE),
        turn: 0,
        created_at: at(0),
        updated_at: at(0),
        started_at: None,
        ended_at: None,
    }
}

fn task(execution: &Execution, index: i64) -> Task {
    Task {
        execution: execution.id.clone(),
        index,
        state: State::Running,
        attempt: 1,
        holder: "here".into(),
        failures: 0,
        losses: 0,
        claimed_at: at(0),
        started_at: None,
        ended_at: None,
        failure: None,
    }
}

fn end_at(second: i64, outcome: Outcome) -> WorkEnd {
    WorkEnd { started_at: Some(at(second)), ended_at: at(second), outcome }
}

#[derive(Debug, Clone)]
enum Event {
    Claim(i64),
    End(usize, Outcome),
    Cancel,
}

fn event() -> impl Strategy<Value = Event> {
    let failure = prop_oneof![
        Just(Outcome::Exited(1)),
        Just(Outcome::TimedOut),
        Just(Outcome::NotStarted("no".into())),
        Just(Outcome::NoImage("no".into())),
        Just(Outcome::Lost("gone".into())),
    ];
    let outcome = prop_oneof![2 => Just(Outcome::SUCCESS), 3 => failure];
    prop_oneof![
        8 => (0..4_i64).prop_map(Event::Claim),
        16 => (any::<prop::sample::Index>(), outcome).prop_map(|(index, outcome)| Event::End(index.index(64), outcome)),
        1 => Just(Event::Cancel),
    ]
}

/// The whole state: the execution as the rules make it, and the tasks that have rows.
struct Case {
    execution: Execution,
    rows: Vec<Task>,
    cancelled: bool,
    ends: usize,
    second: i64,
    /// The tasks whose last attempt found no image.
    without_image: BTreeSet<i64>,
    /// How often such tasks were claimed again.
    not_tried: i64,
}

impl Case {
    fn count(&self, of: impl Fn(State) -> bool) -> i64 {
        self.rows.iter().filter(|task| of(task.state)).count() as i64
    }

    fn earliest(&self) -> Option<Timestamp> {
        self.rows
            .iter()
            .filter_map(|task| if let State::Waiting(at) = task.state { Some(at) } else { None })
            .min()
    }

    fn apply(&mut self, event: &Event) {
        self.second += 1;
        let now = at(self.second);
        match event {
            Event::Claim(count) => self.claim(*count, now),
            Event::End(index, outcome) => self.end(*index, outcome, now),
            Event::Cancel => {
                for task in
                    self.rows.iter_mut().filter(|task| matches!(task.state, State::Waiting(_)))
                {
                    task.state = State::Cancelled;
                }
                self.cancelled |= !self.execution.phase.has_ended();
                cancelled(&mut self.execution, now);
            }
        }
        let earliest = self.earliest();
        if !self.execution.phase.has_ended() && concluded(&mut self.execution, earliest, now) {
            self.ends += 1;
        }
    }

    fn claim(&mut self, count: i64, now: Timestamp) {
        let count = count.min(claimable(&self.execution));
        let due = |task: &&mut Task| matches!(task.state, State::Waiting(at) if at <= now);
        let (mut again, mut given_back) = (0, 0);
        for task in self.rows.iter_mut().filter(due).take(count as usize) {
            (task.state, task.attempt) = (State::Running, task.attempt + 1);
            again += 1;
            given_back += i64::from(task_runner::was_given_back(task));
            self.not_tried += i64::from(self.without_image.contains(&task.index));
        }
        let new = (count - again).min(fresh(&self.execution));
        let first = self.execution.next;
        self.rows.extend((first..first + new).map(|index| task(&self.execution, index)));
        if new + again > 0 {
            claimed(&mut self.execution, new, (again, given_back), now);
        }
    }

    fn end(&mut self, index: usize, outcome: &Outcome, now: Timestamp) {
        let running: Vec<_> =
            (0..self.rows.len()).filter(|at| self.rows[*at].state == State::Running).collect();
        let Some(index) = running.get(index % running.len().max(1)).copied() else { return };
        let end = WorkEnd { started_at: None, ended_at: now, outcome: outcome.clone() };
        self.rows[index] = after(&self.rows[index], &end, (self.execution.phase, true), POLICY, 0);
        ended(&mut self.execution, self.rows[index].state, now);
        match outcome {
            Outcome::NoImage(_) => self.without_image.insert(self.rows[index].index),
            _ => self.without_image.remove(&self.rows[index].index),
        };
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let (execution, counts) = (&self.execution, self.execution.counts);
        let unclaimed = execution.total - self.rows.len() as i64;
        prop_assert_eq!(execution.next, self.rows.len() as i64);
        prop_assert_eq!(counts.running, self.count(|state| state == State::Running));
        prop_assert_eq!(counts.waiting, self.count(|state| matches!(state, State::Waiting(_))));
        prop_assert_eq!(counts.succeeded, self.count(|state| state == State::Succeeded));
        prop_assert_eq!(counts.failed, self.count(|state| state == State::Failed));
        let never = if self.cancelled { unclaimed } else { 0 };
        prop_assert_eq!(counts.cancelled, self.count(|state| state == State::Cancelled) + never);
        let again = self.rows.iter().map(|task| task.attempt - 1).sum::<i64>();
        prop_assert_eq!(counts.retried, again - self.not_tried);
        prop_assert!(counts.running <= execution.parallelism);
        prop_assert_eq!(execution.phase.has_ended(), execution.ended_at.is_some());
        prop_assert_eq!(self.ends, usize::from(execution.ended_at.is_some()));
        let open = counts.running + counts.waiting + if self.cancelled { 0 } else { unclaimed };
        prop_assert_eq!(execution.phase.has_ended(), open == 0);
        prop_assert_eq!(execution.ready_at.is_some(), claimable(execution) > 0);
        prop_assert!(self.rows.iter().all(|task| task.failures <= POLICY.retries_max + 1));
        prop_assert!(self.rows.iter().all(|task| task.losses <= POLICY.losses_max + 1));
        if let Some(wanted) = execution.ended_at.map(|_| self.wanted_end()) {
            prop_assert_eq!(execution.phase, wanted);
        }
        Ok(())
    }

    fn wanted_end(&self) -> Phase {
        match (self.cancelled, self.count(|state| state == State::Failed)) {
            (true, _) => Phase::Cancelled,
            (false, 0) => Phase::Succeeded,
            (false, _) => Phase::Failed,
        }
    }
}

proptest! {
    #[test]
    fn counts_always_add_up_and_an_execution_ends_once(
        total in 1..9_i64,
        parallelism in 1..9_i64,
        events in prop::collection::vec(event(), 0..120),
    ) {
        let parallelism = parallelism.min(total);
        let execution = execution(total, parallelism);
        let mut case = Case {
            execution,
            rows: Vec::new(),
            cancelled: false,
            ends: 0,
            second: 0,
            without_image: BTreeSet::new(),
            not_tried: 0,
        };
        for event in &events {
            case.apply(event);
            case.check()?;
        }
        // Whatever happened before, an execution that is left alone comes to its end.
        for _ in 0..1000 {
            case.second += 10;
            case.apply(&Event::Claim(3));
            case.apply(&Event::End(0, Outcome::SUCCESS));
            case.check()?;
        }
        prop_assert!(case.execution.phase.has_ended());
    }
}

#[test]
fn pauses_double_up_to_the_longest_and_half_of_each_is_jitter() {
    let pauses = |jitter| [1, 2, 3, 4, 5, 60, i64::MAX].map(|count| POLICY.pause_ms(count, jitter));
    assert_eq!(pauses(0), [500, 1000, 2000, 4000, 4000, 4000, 4000]);
    assert_eq!(pauses(u16::MAX), [1000, 2000, 4000, 8000, 8000, 8000, 8000]);
}

#[test]
fn a_failure_uses_up_retries_and_a_loss_does_not() {
    let one = task(&execution(1, 1), 0);
    let end = |task: &Task, failure: Outcome| {
        after(task, &end_at(5, failure), (Phase::Open, false), POLICY, 0)
    };
    let lost = end(&one, Outcome::Lost("gone".into()));
    assert_eq!(
        (lost.failures, lost.losses, lost.state),
        (0, 1, State::Waiting(at(5).plus_ms(500)))
    );
    assert_eq!(end(&lost, Outcome::Lost("gone".into())).state, State::Failed);
    let first = end(&lost, Outcome::Exited(1));
    let second = end(&first, Outcome::OutOfMemory);
    assert_eq!((first.failures, second.state), (1, State::Waiting(at(5).plus_ms(1000))));
    assert_eq!(end(&second, Outcome::TimedOut).state, State::Failed);
    assert_eq!(end(&one, Outcome::NotStarted("no such program".into())).state, State::Failed);
}

#[test]
fn a_missing_image_counts_only_where_no_machine_may_have_it() {
    let one = task(&execution(1, 1), 0);
    let end = |elsewhere| {
        let no_image = end_at(5, Outcome::NoImage("no such image".into()));
        let after = after(&one, &no_image, (Phase::Open, elsewhere), POLICY, 0);
        (after.failures, after.losses, after.state)
    };
    assert_eq!(end(true), (0, 0, State::Waiting(at(5))));
    assert_eq!(end(false), (1, 0, State::Failed));
}

#[test]
fn while_cancelling_a_failure_stays_one_and_a_loss_is_a_cancellation() {
    let one = task(&execution(1, 1), 0);
    let end =
        |outcome| after(&one, &end_at(5, outcome), (Phase::Cancelling, true), POLICY, 0).state;
    assert_eq!(end(Outcome::SUCCESS), State::Succeeded);
    assert_eq!(end(Outcome::Exited(1)), State::Failed);
    assert_eq!(end(Outcome::Lost("gone".into())), State::Cancelled);
}

#[test]
fn callers_read_how_far_an_execution_is() {
    let mut one = execution(2, 1);
    assert_eq!(status(&one), JobExecutionStatus::Queued);
    claimed(&mut one, 1, (0, 0), at(1));
    assert_eq!(status(&one), JobExecutionStatus::Running);
    ended(&mut one, State::Waiting(at(9)), at(2));
    assert_eq!(status(&one), JobExecutionStatus::Pending);
    cancelled(&mut one, at(3));
    assert_eq!(status(&one), JobExecutionStatus::Cancelling);
    assert!(concluded(&mut one, None, at(4)));
    assert_eq!(status(&one), JobExecutionStatus::Cancelled);
    assert_eq!((one.counts.cancelled, one.ready_at), (2, None));
}
