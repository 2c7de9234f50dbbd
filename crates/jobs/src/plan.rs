//! What was decided when an execution was started: later changes of the job do not affect it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use store::executions::{self, Execution};
use store::{Error, Tx};
use types::ids::ExecutionId;
use types::instance::Scratch;
use types::parts::Sensitive;

/// How each task of an execution is run. Stored sealed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub image: String,
    /// Registry credentials, as the text of a client's configuration file.
    pub registries: Option<Sensitive<String>>,
    pub storage_mb: Option<u32>,
    /// All variables that are the same for all tasks.
    pub environment: Sensitive<Vec<(String, String)>>,
    /// Empty folders that each task gets.
    pub scratch: Vec<Scratch>,
    pub keeps_logs: bool,
    /// What a task may reach over the network.
    #[serde(default)]
    pub network: Option<types::kinds::Network>,
    /// Time limit of a task.
    pub timeout_s: Option<u32>,
    /// What the caller asked for, in the caller's words, to be shown.
    pub memory_override: Option<i64>,
    pub env_override: Vec<String>,
    /// The request to a workload, if the execution is a call and runs nothing of its own.
    #[serde(default)]
    pub call: Option<Sensitive<Call>>,
}

/// A request to a workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub method: String,
    /// Path and query, as the workload reads them.
    pub target: String,
    pub headers: Vec<(String, String)>,
    /// The body in base64.
    pub body: String,
}

/// A workload's answer to a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallAnswer {
    pub status: u16,
    /// The beginning of the body, as much as is kept.
    pub body: String,
    /// Length of the whole body.
    pub length: u64,
}

/// Everything that is needed to run the tasks of an execution.
pub struct Order {
    pub execution: Execution,
    pub plan: Plan,
    /// `{"tasks":[…]}`, which each task may fetch.
    pub data: Bytes,
    /// Where the arguments of each task are in `data`.
    places: Vec<Range<usize>>,
}

/// One attempt, ready to be run.
#[derive(Clone)]
pub struct Assignment {
    pub order: std::sync::Arc<Order>,
    /// The index of the task.
    pub index: u32,
}

impl Assignment {
    /// Returns the arguments of the task, a JSON object.
    pub fn arguments(&self) -> &str {
        self.order.arguments(self.index)
    }
}

const OPENING: &str = "{\"tasks\":[";
const CLOSING: &str = "]}";
const NO_ARGUMENTS: &str = "{}";

impl Order {
    fn new(execution: Execution, plan: Plan, lines: &str) -> Self {
        let mut data = String::with_capacity(OPENING.len() + lines.len() + CLOSING.len());
        data.push_str(OPENING);
        let mut places = Vec::new();
        for line in lines.lines() {
            if !places.is_empty() {
                data.push(',');
            }
            places.push(data.len()..data.len() + line.len());
            data.push_str(line);
        }
        data.push_str(CLOSING);
        Self { execution, plan, data: data.into(), places }
    }

    fn arguments(&self, index: u32) -> &str {
        let place = usize::try_from(index).ok().and_then(|index| self.places.get(index).cloned());
        let text = place
            .and_then(|place| self.data.get(place))
            .and_then(|text| std::str::from_utf8(text).ok());
        text.unwrap_or(NO_ARGUMENTS)
    }
}

/// Returns an order in the form in which it is stored.
pub(crate) fn stored(
    keyring: &store::Keyring,
    id: &ExecutionId,
    plan: &Plan,
    tasks: &[String],
) -> Result<executions::Order, Error> {
    #[expect(clippy::expect_used, reason = "its maps have text keys only")]
    let text = serde_json::to_string(plan).expect("a plan is JSON");
    Ok(executions::Order {
        plan: keyring.seal(&executions::context(id), &text)?,
        arguments: tasks.join("\n"),
    })
}

/// Returns the plan of an execution, or `None` if it is no longer kept.
pub fn plan(
    tx: &mut Tx<'_>,
    keyring: &store::Keyring,
    id: &ExecutionId,
) -> Result<Option<Plan>, Error> {
    let Some(sealed) = executions::plan(tx, id)? else { return Ok(None) };
    open(keyring, id, &sealed).map(Some)
}

/// Returns the order of an execution, or `None` if it is no longer kept.
pub(crate) fn order(
    tx: &mut Tx<'_>,
    keyring: &store::Keyring,
    id: &ExecutionId,
) -> Result<Option<Order>, Error> {
    let (Some(execution), Some(order)) =
        (executions::find_by_id(tx, id)?, executions::order(tx, id)?)
    else {
        return Ok(None);
    };
    let plan = open(keyring, id, &order.plan)?;
    Ok(Some(Order::new(execution, plan, &order.arguments)))
}

fn open(keyring: &store::Keyring, id: &ExecutionId, sealed: &str) -> Result<Plan, Error> {
    let text = keyring.open(&executions::context(id), sealed)?;
    serde_json::from_str(&text).map_err(|error| {
        // The text of the error would repeat parts of the plan, and with them secrets.
        let why = format!("the plan cannot be read at column {}", error.column());
        Error::corrupt("execution_orders", id.to_string(), why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use std::sync::Arc;
    use store::executions::{Counts, Phase};
    use types::Timestamp;
    use types::ids::{ResourceId, WorkspaceId};

    fn execution(total: i64) -> Execution {
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
            parallelism: 1,
            memory_mb: 1,
            retries_max: 0,
            counts: Counts::default(),
            ready_at: None,
            turn: 0,
            created_at: Timestamp::from_ms(0),
            updated_at: Timestamp::from_ms(0),
            started_at: None,
            ended_at: None,
        }
    }

    proptest! {
        #[test]
        fn each_task_finds_its_own_arguments(texts in prop::collection::vec(any::<String>(), 1..9)) {
            let tasks: Vec<Value> = texts.iter().map(|text| json!({"text": text, "list": [text, 1]})).collect();
            let lines: Vec<String> = tasks.iter().map(Value::to_string).collect();
            let order = Arc::new(Order::new(execution(tasks.len() as i64), Plan::default(), &lines.join("\n")));
            let data: Value = serde_json::from_slice(&order.data).unwrap();
            prop_assert_eq!(&data["tasks"], &Value::Array(tasks.clone()));
            for (index, task) in tasks.iter().enumerate() {
                let assignment = Assignment { order: order.clone(), index: index as u32 };
                prop_assert_eq!(&serde_json::from_str::<Value>(assignment.arguments()).unwrap(), task);
            }
        }
    }

    #[test]
    fn a_plan_hides_its_secrets() {
        let plan = Plan {
            environment: Sensitive(vec![("PASSWORD".into(), "hunter2".into())]),
            registries: Some(Sensitive("hunter2".into())),
            ..Plan::default()
        };
        assert!(!format!("{plan:?}").contains("hunter2"));
    }
}
