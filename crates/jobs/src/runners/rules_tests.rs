//! Tests the rules with a small model of a code host and its runners: whatever is lost, late or
//! duplicated, each workflow job is run once and nothing is left over.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use types::ids::{ExecutionId, ResourceId, WorkspaceId};

const JOBS: i64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Truth {
    Queued,
    Running,
    Completed,
}

/// What happens. `which` picks whom it happens to.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A webhook arrives; it may arrive again.
    Deliver {
        which: usize,
        again: bool,
    },
    Lose {
        which: usize,
    },
    /// An idle runner picks up the workflow job that has waited longest.
    PickUp {
        which: usize,
    },
    Complete {
        which: usize,
    },
    Cancel {
        which: usize,
    },
    /// A server makes a runner: completely, or it crashes after the claim or after the
    /// registration.
    Make {
        which: usize,
        crash: Option<bool>,
    },
    Fail {
        which: usize,
    },
    Look {
        which: usize,
    },
    /// An idle runner ends by itself.
    Die {
        which: usize,
    },
    Leave {
        which: usize,
    },
    Pass {
        seconds: i64,
    },
    Poll,
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0..16usize;
    prop_oneof![
        4 => (which.clone(), any::<bool>()).prop_map(|(which, again)| Step::Deliver { which, again }),
        1 => which.clone().prop_map(|which| Step::Lose { which }),
        4 => which.clone().prop_map(|which| Step::PickUp { which }),
        2 => which.clone().prop_map(|which| Step::Complete { which }),
        1 => which.clone().prop_map(|which| Step::Cancel { which }),
        4 => which.clone().prop_map(|which| Step::Make { which, crash: None }),
        1 => (which.clone(), any::<bool>()).prop_map(|(which, late)| Step::Make { which, crash: Some(late) }),
        1 => which.clone().prop_map(|which| Step::Fail { which }),
        2 => which.clone().prop_map(|which| Step::Look { which }),
        1 => which.clone().prop_map(|which| Step::Die { which }),
        2 => which.prop_map(|which| Step::Leave { which }),
        2 => (1..200i64).prop_map(|seconds| Step::Pass { seconds }),
        1 => Just(Step::Poll),
    ]
}

/// A model of the code host, and what we know of it.
struct Model {
    now: Timestamp,
    settings: Settings,
    truth: BTreeMap<i64, (Truth, Option<String>)>,
    /// Registered runners, and whether each is busy.
    registered: BTreeMap<String, bool>,
    mail: Vec<(i64, Sighting)>,
    rows: BTreeMap<i64, WorkflowJob>,
    leaving: BTreeMap<String, Runner>,
    /// When each runner's program started, and whether it has ended.
    programs: BTreeMap<String, (Timestamp, bool)>,
    /// Workflow jobs that were reported as completed: nothing may be started for them.
    over: BTreeSet<i64>,
}

fn pick<T: Clone>(items: Vec<T>, which: usize) -> Option<T> {
    (!items.is_empty()).then(|| items[which % items.len()].clone())
}

impl Model {
    fn new() -> Self {
        let settings = Settings { attempts_max: i64::MAX, ..Settings::default() };
        let queued = |id| (id, (Truth::Queued, None));
        Self {
            now: Timestamp::from_ms(1_800_000_000_000),
            settings,
            truth: (0..JOBS).map(queued).collect(),
            registered: BTreeMap::new(),
            mail: (0..JOBS).map(|id| (id, Sighting::Queued)).collect(),
            rows: BTreeMap::new(),
            leaving: BTreeMap::new(),
            programs: BTreeMap::new(),
            over: BTreeSet::new(),
        }
    }

    fn act(&mut self, step: Step) {
        match step {
            Step::Deliver { which, again } => {
                let Some((id, sighting)) = pick(self.mail.clone(), which) else { return };
                if !again {
                    self.mail.retain(|mail| *mail != (id, sighting.clone()));
                }
                self.sight(id, &sighting);
            }
            Step::Lose { which } => {
                let Some(lost) = pick(self.mail.clone(), which) else { return };
                self.mail.retain(|mail| *mail != lost);
            }
            Step::PickUp { which } => self.pick_up(which),
            Step::Complete { which } => self.complete(which, Truth::Running),
            Step::Cancel { which } => self.complete(which, Truth::Queued),
            Step::Make { which, crash } => self.make(which, crash),
            Step::Fail { which } => self.fail(which),
            Step::Look { which } => self.look(which),
            Step::Die { which } => self.die(which),
            Step::Leave { which } => self.leave(which),
            Step::Pass { seconds } => self.now = self.now.plus_s(seconds),
            Step::Poll => self.poll(),
        }
    }

    fn idle(&self) -> Vec<String> {
        let alive = |name: &String| self.programs.get(name).is_some_and(|(_, ended)| !ended);
        self.registered
            .iter()
            .filter(|(name, busy)| !**busy && alive(name))
            .map(|(name, _)| name.clone())
            .collect()
    }

    fn pick_up(&mut self, which: usize) {
        let queued =
            self.truth.iter().find(|(_, (truth, _))| *truth == Truth::Queued).map(|(id, _)| *id);
        let (Some(runner), Some(id)) = (pick(self.idle(), which), queued) else { return };
        self.registered.insert(runner.clone(), true);
        self.truth.insert(id, (Truth::Running, Some(runner.clone())));
        self.mail.push((id, Sighting::InProgress { runner: Some(runner) }));
    }

    fn complete(&mut self, which: usize, from: Truth) {
        let of =
            self.truth.iter().filter(|(_, (truth, _))| *truth == from).map(|(id, _)| *id).collect();
        let Some(id) = pick(of, which) else { return };
        let runner = self.truth[&id].1.clone();
        if let Some(runner) = &runner {
            self.registered.remove(runner);
            self.programs.entry(runner.clone()).and_modify(|program| program.1 = true);
        }
        self.truth.insert(id, (Truth::Completed, runner.clone()));
        self.mail.push((id, Sighting::Completed { runner }));
    }

    fn row(&self, which: usize) -> Option<WorkflowJob> {
        pick(self.rows.values().cloned().collect(), which)
    }

    fn make(&mut self, which: usize, crash: Option<bool>) {
        let Some(mut job) = self.row(which) else { return };
        let Some(name) = claim(&mut job, &self.settings, self.now) else { return };
        assert!(!self.over.contains(&job.id), "a runner is begun for a workflow job that is over");
        self.rows.insert(job.id, job.clone());
        if crash == Some(false) {
            return;
        }
        assert_eq!(self.registered.insert(name.clone(), false), None, "a name is used twice");
        if crash == Some(true) {
            return;
        }
        let execution = ExecutionId::known(format!("exe_{name}"));
        let runner = Runner { name: name.clone(), id: job.serial, execution };
        started(&mut job, runner, &self.settings, self.now);
        self.programs.insert(name, (self.now, false));
        self.rows.insert(job.id, job);
    }

    fn fail(&mut self, which: usize) {
        let Some(mut job) = self.row(which) else { return };
        if let Phase::Starting { name } = job.phase.clone() {
            failed(&mut job, &name, self.now, self.now.plus_s(10));
            self.rows.insert(job.id, job);
        }
    }

    fn progress(&self, runner: &Runner) -> Progress {
        match self.programs.get(&runner.name) {
            Some((since, false)) => Progress::Running { since: *since },
            _ => Progress::Ended,
        }
    }

    fn look(&mut self, which: usize) {
        let Some(mut job) = self.row(which) else { return };
        let (Phase::Waiting(runner) | Phase::PickedUp(runner)) = job.phase.clone() else { return };
        let (verdict, changes) = look(&mut job, self.progress(&runner), &self.settings, self.now);
        self.save(job.clone(), changes);
        if let Verdict::Remove(runner) = verdict {
            if self.registered.get(&runner.name) == Some(&true) {
                return;
            }
            self.registered.remove(&runner.name);
            if removed(&mut job, &runner, &self.settings, self.now) {
                self.programs.entry(runner.name).and_modify(|program| program.1 = true);
            }
            self.rows.insert(job.id, job);
        }
    }

    fn die(&mut self, which: usize) {
        let Some(runner) = pick(self.idle(), which) else { return };
        self.programs.entry(runner).and_modify(|program| program.1 = true);
    }

    fn leave(&mut self, which: usize) {
        let Some(runner) = pick(self.leaving.values().cloned().collect(), which) else { return };
        if self.registered.get(&runner.name) != Some(&true) {
            self.registered.remove(&runner.name);
            self.programs.entry(runner.name.clone()).and_modify(|program| program.1 = true);
            self.leaving.remove(&runner.name);
        }
    }

    fn poll(&mut self) {
        let known: BTreeSet<String> = self.held().into_iter().collect();
        self.registered.retain(|name, busy| known.contains(name) || *busy);
        for (id, (truth, runner)) in self.truth.clone() {
            let sighting = match truth {
                Truth::Queued => Sighting::Queued,
                Truth::Running => Sighting::InProgress { runner },
                Truth::Completed => Sighting::Completed { runner },
            };
            self.sight(id, &sighting);
        }
    }

    fn sight(&mut self, id: i64, sighting: &Sighting) {
        let now = self.now;
        let mut job = self.rows.get(&id).cloned().unwrap_or_else(|| WorkflowJob {
            workspace: WorkspaceId::known("wsp_a"),
            id,
            run_id: 1,
            job: ResourceId::known("res_a"),
            repository: "me/repo".into(),
            phase: Phase::Wanted,
            since: now,
            attempts: 0,
            serial: 0,
            due_at: Some(now),
            created_at: now,
        });
        let named = |job: &&WorkflowJob| {
            runner_name(job).is_some_and(|name| Some(name) == sighting.runner())
        };
        let holder = match self.rows.values().find(named) {
            Some(other) if other.id != id => Holder::Other(other.clone()),
            Some(_) => Holder::NoOther,
            None => {
                let leaving = sighting.runner().and_then(|name| self.leaving.get(name));
                leaving.cloned().map_or(Holder::NoOther, Holder::Leaving)
            }
        };
        let before = job.phase.clone();
        let changes = sight(&mut job, holder, sighting, now);
        assert!(before != Phase::Done || job.phase == Phase::Done, "what is done stays done");
        if matches!(sighting, Sighting::Completed { .. }) {
            assert_eq!(job.phase, Phase::Done);
            self.over.insert(id);
        }
        self.save(job, changes);
    }

    fn save(&mut self, job: WorkflowJob, changes: Changes) {
        if let Some(name) = changes.stays {
            assert!(self.leaving.remove(&name).is_some());
        }
        for runner in changes.leave.into_iter().chain(changes.part) {
            assert_eq!(self.leaving.insert(runner.name.clone(), runner), None);
        }
        self.rows.insert(job.id, job);
        if let Some(other) = changes.other {
            self.rows.insert(other.id, other);
        }
    }

    /// Returns the names of all runners that are in a row or leaving.
    fn held(&self) -> Vec<String> {
        let rows = self.rows.values().filter_map(runner_name).map(str::to_owned);
        rows.chain(self.leaving.keys().cloned()).collect()
    }

    fn check(&self) {
        let held = self.held();
        let different: BTreeSet<&String> = held.iter().collect();
        assert_eq!(different.len(), held.len(), "a runner is in two places: {held:?}");
        for job in self.rows.values() {
            assert_eq!(
                job.due_at.is_none(),
                matches!(job.phase, Phase::Done | Phase::Lost),
                "{job:?}"
            );
        }
        let alive = self.programs.iter().filter(|(_, (_, ended))| !ended).map(|(name, _)| name);
        for name in alive {
            assert!(different.contains(name), "nobody would ever end {name}");
        }
    }

    /// Runs without mishaps until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..20 {
            self.poll();
            for which in 0..usize::try_from(JOBS).unwrap() {
                self.make(which, None);
                self.pick_up(0);
                self.complete(0, Truth::Running);
                self.look(which);
                self.leave(0);
                self.check();
            }
            self.now = self.now.plus_s(400);
        }
    }
}

fn runner_name(job: &WorkflowJob) -> Option<&str> {
    match &job.phase {
        Phase::Starting { name } => Some(name),
        Phase::Waiting(runner) | Phase::PickedUp(runner) => Some(&runner.name),
        Phase::Wanted | Phase::Done | Phase::Lost => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn whatever_is_lost_late_or_doubled_each_workflow_job_is_run_once(steps in prop::collection::vec(step(), 0..60)) {
        let mut model = Model::new();
        for step in steps {
            model.act(step);
            model.check();
        }
        model.settle();
        let phases: Vec<_> = model.rows.values().map(|job| job.phase.clone()).collect();
        prop_assert!(phases.iter().all(|phase| *phase == Phase::Done), "{:?}", phases);
        prop_assert!(model.truth.values().all(|(truth, _)| *truth == Truth::Completed), "{:?}", model.truth);
        prop_assert!(model.registered.is_empty(), "idle runners are left: {:?}", model.registered);
        prop_assert!(model.leaving.is_empty(), "{:?}", model.leaving);
        prop_assert!(model.programs.values().all(|(_, ended)| *ended), "{:?}", model.programs);
    }
}

fn job(phase: Phase) -> WorkflowJob {
    let mut model = Model::new();
    model.sight(0, &Sighting::Queued);
    WorkflowJob { phase, ..model.rows[&0].clone() }
}

fn runner(name: &str) -> Runner {
    Runner { name: name.into(), id: 1, execution: ExecutionId::known("exe_a") }
}

#[test]
fn runners_are_changed_when_one_picks_up_anothers_workflow_job() {
    let now = Timestamp::from_ms(1_800_000_000_000);
    let mut first = job(Phase::Waiting(runner("x")));
    let second = WorkflowJob { id: 1, ..job(Phase::Waiting(runner("y"))) };
    let sighting = Sighting::InProgress { runner: Some("y".into()) };
    let changes = sight(&mut first, Holder::Other(second), &sighting, now);
    assert_eq!(first.phase, Phase::PickedUp(runner("y")));
    assert_eq!(changes.other.unwrap().phase, Phase::Waiting(runner("x")));
    assert!(changes.leave.is_empty() && changes.part.is_empty());
}

#[test]
fn a_runner_of_somebody_else_leaves_ours_without_work() {
    let now = Timestamp::from_ms(1_800_000_000_000);
    let mut first = job(Phase::Waiting(runner("x")));
    let changes = sight(
        &mut first,
        Holder::NoOther,
        &Sighting::InProgress { runner: Some("theirs".into()) },
        now,
    );
    assert_eq!((first.phase, changes.leave), (Phase::Done, vec![runner("x")]));
}

#[test]
fn after_too_many_attempts_or_a_day_nothing_more_is_begun() {
    let now = Timestamp::from_ms(1_800_000_000_000);
    let settings = Settings { attempts_max: 2, ..Settings::default() };
    let mut first = job(Phase::Waiting(runner("x")));
    look(&mut first, Progress::Ended, &settings, now);
    assert_eq!(
        (&first.phase, first.attempts, first.due_at),
        (&Phase::Wanted, 1, Some(now.plus_s(VAIN_FIRST_S)))
    );
    first.phase = Phase::Waiting(runner("y"));
    look(&mut first, Progress::Ended, &settings, now);
    assert_eq!((&first.phase, first.due_at), (&Phase::Lost, None));
    let mut old = job(Phase::Wanted);
    assert_eq!(claim(&mut old, &settings, now.plus_s(WANTED_MAX_S + 1)), None);
    assert_eq!(old.phase, Phase::Lost);
}

#[test]
fn a_runner_that_no_machine_has_room_for_is_waited_for_longer() {
    let now = Timestamp::from_ms(1_800_000_000_000);
    let settings = Settings::default();
    #[track_caller]
    fn check(settings: &Settings, now: Timestamp, progress: Progress, removed: bool) {
        let mut waiting = job(Phase::Waiting(runner("x")));
        let (verdict, _) = look(&mut waiting, progress, settings, now);
        assert_eq!(verdict != Verdict::Keep, removed);
    }
    let since = now.plus_s(500);
    check(&settings, now.plus_s(settings.pickup_s + 1), Progress::Queued, false);
    check(&settings, now.plus_s(settings.queued_max_s), Progress::Queued, true);
    check(&settings, since.plus_s(settings.pickup_s - 1), Progress::Running { since }, false);
    check(&settings, since.plus_s(settings.pickup_s), Progress::Running { since }, true);
}
