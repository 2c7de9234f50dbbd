//! Executions in two workspaces, and the check of their outcome.

use super::tasks::{Act, IMAGE, RETRIES, TIMEOUT_S, Task};
use super::witness::Instances;
use crate::client::{Answer, Client};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const WORKSPACES: [&str; 2] = ["main", "second"];
/// Most executions in progress; more are started as some end.
const OPEN_MAX: usize = 6;
const TASKS_MAX: usize = 15;
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Size of the largest page.
const PAGE: usize = 200;
/// More than all attempts of an execution print.
const LINES: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Job {
    /// Its tasks are retried, and have files on a disk of their own.
    Steady,
    /// Its tasks run into their timeout.
    Hasty,
}

struct Execution {
    workspace: &'static str,
    job: Job,
    /// Chosen by the caller, so that starting it can be repeated.
    id: String,
    tasks: Vec<Task>,
    /// True once the server has confirmed that it exists.
    is_acknowledged: bool,
    /// Its final state, which must not change.
    end: Option<Value>,
}

pub(crate) struct Load {
    client: Client,
    chances: fastrand::Rng,
    executions: Vec<Execution>,
}

impl Job {
    fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Hasty => "hasty",
        }
    }

    fn body(self) -> Value {
        let runtime = |more: Value| {
            let mut runtime = json!({"image": IMAGE, "memory": 128, "maxConcurrentTasks": 6});
            runtime.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            runtime
        };
        let scratch =
            json!([{"name": "scratch", "mountPath": "/scratch", "type": "ephemeral", "sizeMb": 8}]);
        let spec = match self {
            Self::Steady => {
                json!({"runtime": runtime(json!({"maxRetries": RETRIES, "timeout": 300})), "volumes": scratch})
            }
            Self::Hasty => {
                json!({"runtime": runtime(json!({"maxRetries": 0, "timeout": TIMEOUT_S}))})
            }
        };
        json!({"metadata": {"name": self.name()}, "spec": spec})
    }
}

impl Execution {
    fn path(&self) -> String {
        format!("/jobs/{}/executions/{}", self.job.name(), self.id)
    }

    fn client(&self, client: &Client) -> Client {
        client.in_workspace(self.workspace)
    }

    /// Starts it, perhaps again. Returns `false` if the server does not say whether it exists.
    fn start(&mut self, client: &Client) -> bool {
        let tasks: Vec<_> = self.tasks.iter().map(Task::body).collect();
        let wish = json!({"executionId": self.id, "tasks": tasks});
        let path = format!("/jobs/{}/executions", self.job.name());
        self.is_acknowledged = match self.client(client).ask("POST", &path, Some(&wish), None) {
            // It existed already because an earlier answer was lost.
            Answer::Done { .. } | Answer::Refused { status: 409, .. } => true,
            Answer::Refused { status: 500.., .. } | Answer::Lost => false,
            refused @ Answer::Refused { .. } => {
                panic!("a right execution was refused: {refused:?}")
            }
        };
        self.is_acknowledged
    }

    /// Returns whether it has ended. From then on it must not change.
    fn look(&mut self, client: &Client) -> bool {
        let Answer::Done { body, .. } = self.client(client).ask("GET", &self.path(), None, None)
        else {
            return false;
        };
        let is_over =
            ["succeeded", "failed", "cancelled"].iter().any(|status| body["status"] == *status);
        match &self.end {
            Some(end) => assert_eq!(*end, body, "it changed after its end"),
            None if is_over => self.end = Some(body),
            None => {}
        }
        is_over
    }
}

impl Load {
    /// Makes a second workspace, and both jobs in each workspace.
    pub(crate) fn prepare(client: &Client, chances: fastrand::Rng) -> Self {
        client.post("/workspaces", &json!({"name": WORKSPACES[1]}));
        for workspace in WORKSPACES {
            for job in [Job::Steady, Job::Hasty] {
                client.in_workspace(workspace).post("/jobs", &job.body());
            }
        }
        Self { client: client.clone(), chances, executions: Vec::new() }
    }

    /// Continues with the restarted server.
    pub(crate) fn turn_to(&mut self, client: &Client) {
        self.client = client.clone();
    }

    /// Starts executions while there are few, and asks again where no answer came.
    pub(crate) fn grow_until(&mut self, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            let client = self.client.clone();
            let mut open = 0;
            for execution in self.executions.iter_mut().filter(|execution| execution.end.is_none())
            {
                let is_there = execution.is_acknowledged || execution.start(&client);
                open += usize::from(!is_there || !execution.look(&client));
            }
            if open < OPEN_MAX {
                let execution = self.invent();
                self.executions.push(execution);
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn invent(&mut self) -> Execution {
        let number = self.executions.len();
        let (job, count) = match self.chances.u8(..4) {
            0 => (Job::Hasty, 2),
            _ => (Job::Steady, self.chances.usize(1..TASKS_MAX)),
        };
        let task = |index| {
            let act = match job {
                Job::Steady => self.chances.choice(Act::STEADY).expect("there are some"),
                Job::Hasty => Act::Hang,
            };
            Task { act, token: format!("token-{number}-{index}-{:x}", self.chances.u64(..)) }
        };
        let tasks = (0..count).map(task).collect();
        let workspace = WORKSPACES[number % WORKSPACES.len()];
        let id = format!("run-{number}-{:x}", self.chances.u32(..));
        Execution { workspace, job, id, tasks, is_acknowledged: false, end: None }
    }

    pub(crate) fn await_the_end(&mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let client = self.client.clone();
        for execution in &mut self.executions {
            while !((execution.is_acknowledged || execution.start(&client))
                && execution.look(&client))
            {
                let found = execution.client(&client).get(&execution.path());
                assert!(
                    Instant::now() < deadline,
                    "{} of {} is not over: {found}",
                    execution.id,
                    execution.workspace
                );
                thread::sleep(LOOK_EVERY);
            }
        }
    }

    /// Checks every execution against what was requested and observed.
    pub(crate) fn check(&mut self, instances: &Instances) {
        let client = self.client.clone();
        for execution in &mut self.executions {
            assert!(execution.look(&client), "{} began again", execution.id);
            let tasks =
                all_tasks(&execution.client(&client), &execution.path(), execution.tasks.len());
            check_stats(execution, &tasks);
            let printed = lines(&execution.client(&client), execution);
            for (index, (wanted, found)) in execution.tasks.iter().zip(&tasks).enumerate() {
                let (at, status) =
                    (format!("{} {index}", execution.id), found["status"].as_str().unwrap());
                assert!(wanted.act.may_end(status), "{at} is to {:?}: {found}", wanted.act);
                let is_told = status != "succeeded" || printed.contains(&wanted.token);
                assert!(is_told, "{at} succeeded and its output is lost; there is {printed:?}");
            }
        }
        let mut wanted: Vec<_> =
            self.executions.iter().map(|execution| execution.tasks.len()).collect();
        wanted.sort_unstable();
        assert_eq!(
            instances.tasks(),
            wanted,
            "the tasks that had instances are not those of the executions"
        );
    }
}

/// Returns every task of an execution, each of which must be listed exactly once.
fn all_tasks(client: &Client, path: &str, total: usize) -> Vec<Value> {
    let (mut tasks, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let page = client.get(&format!("{path}/tasks?limit={PAGE}&cursor={cursor}"));
        for task in page["data"].as_array().unwrap() {
            let index: usize = task["metadata"]["name"].as_str().unwrap().parse().unwrap();
            assert!(
                tasks.insert(index, task.clone()).is_none(),
                "task {index} of {path} is there twice"
            );
        }
        match page["meta"]["nextCursor"].as_str() {
            Some(next) if !next.is_empty() => next.clone_into(&mut cursor),
            _ => break,
        }
    }
    assert!(tasks.keys().copied().eq(0..total), "{path} has tasks {:?}", tasks.keys());
    tasks.into_values().collect()
}

/// Returns the output of an execution's tasks, which must not contain anything else.
fn lines(client: &Client, execution: &Execution) -> BTreeSet<String> {
    let job = execution.job.name();
    let path = format!(
        "/observability/logs?resourceType=jobs&workloadIds={job}&executionId={}",
        execution.id
    );
    let answer = client.get(&format!("{path}&limit={LINES}"));
    let logs = answer[job]["logs"].as_array().unwrap().iter();
    let lines: BTreeSet<String> =
        logs.map(|line| line["message"].as_str().unwrap().to_owned()).collect();
    let tokens: BTreeSet<String> = execution.tasks.iter().map(|task| task.token.clone()).collect();
    assert!(lines.is_subset(&tokens), "{} printed {lines:?}", execution.id);
    lines
}

/// Checks that an execution's statistics match its tasks.
fn check_stats(execution: &Execution, tasks: &[Value]) {
    let end = execution.end.as_ref().expect("it is over");
    let count = |status: &str| tasks.iter().filter(|task| task["status"] == status).count();
    let (succeeded, failed) = (count("succeeded"), count("failed"));
    let told =
        |name: &str| end["stats"][name].as_u64().map_or(0, |count| usize::try_from(count).unwrap());
    let counts = ["total", "success", "failure", "cancelled", "running"].map(told);
    assert_eq!(counts, [tasks.len(), succeeded, failed, 0, 0], "{}: {end}", execution.id);
    assert_eq!(succeeded + failed, tasks.len(), "{}: {tasks:?}", execution.id);
    let status = if failed == 0 { "succeeded" } else { "failed" };
    assert_eq!(end["status"], status, "{}", execution.id);
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks: usize = self.executions.iter().map(|execution| execution.tasks.len()).sum();
        write!(f, "{} executions with {tasks} tasks", self.executions.len())
    }
}
