//! Schedules of a sandbox: commands that are started in it at set times.

use crate::parts::{
    Cron, Head, Sensitive, TextMap, check_env_name, check_env_value, duration, limits, visit_map,
};
use crate::{Kind, KindName, Naming, ObjectMetadata, Problems, Timestamp, World};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

const TIMEOUT_S_DEFAULT: i64 = 600;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "SandboxScheduleEntry")]
pub struct Schedule {
    #[schemars(length(max = 64), regex(pattern = limits::PATH_SEGMENT))]
    pub id: Option<String>,
    pub input: Option<SandboxScheduleInput>,
    /// Number of executions whose outcome is kept.
    #[schemars(range(min = 1, max = limits::SCHEDULE_HISTORY_MAX))]
    pub max_executions: Option<i64>,
    #[serde(rename = "type")]
    pub kind: Option<ScheduleType>,
    /// A cron line, a time, or a length of time, depending on `type`.
    #[schemars(length(max = limits::WORD_MAX))]
    pub value: Option<String>,
    #[serde(skip_deserializing)]
    pub created_at: Option<Timestamp>,
    /// Name of the sandbox that it belongs to.
    #[serde(skip_deserializing)]
    pub sandbox: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleType {
    Cron,
    At,
    Sleep,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxScheduleInput {
    #[schemars(length(max = limits::ENV_VALUE_MAX))]
    pub command: Option<String>,
    /// Stored encrypted and shown masked.
    #[schemars(schema_with = "limits::text_map")]
    pub env: Option<Sensitive<TextMap>>,
    /// True if the sandbox stays awake while the command runs.
    pub keep_alive: Option<bool>,
    #[schemars(length(max = limits::WORD_MAX), regex(pattern = limits::ONE_LINE))]
    pub name: Option<String>,
    /// Time limit in seconds; 0 means no limit.
    #[schemars(range(min = 0, max = limits::YEAR_S))]
    pub timeout: Option<i64>,
    #[schemars(length(max = limits::PATH_MAX))]
    pub working_dir: Option<String>,
}

impl Head for Schedule {
    fn name(&self) -> &str {
        self.id.as_deref().unwrap_or_default()
    }

    fn set_name(&mut self, name: String) {
        self.id = Some(name);
    }
}

impl Kind for Schedule {
    const NAME: KindName = KindName::Schedule;
    const NAMING: Naming = Naming::Server { prefix: "schedule" };
    const NAME_AT: &'static [&'static str] = &["id"];

    /// Time from which it counts: when it last fired, or got the value that it has now.
    type State = Option<Timestamp>;

    fn head(&self) -> &dyn Head {
        self
    }

    fn head_mut(&mut self) -> &mut dyn Head {
        self
    }

    fn check(&self, problems: &mut Problems) {
        self.check_value(problems);
        let none = SandboxScheduleInput::default();
        let input = self.input.as_ref().unwrap_or(&none);
        let command = input.command.as_deref().unwrap_or_default();
        problems.require(!command.is_empty(), "input.command", "is required");
        problems.require(!command.contains('\0'), "input.command", "must not hold a zero byte");
        for (name, value) in input.env.iter().flat_map(|Sensitive(env)| env) {
            check_env_name(name, "input.env", problems);
            check_env_value(name, value, &format!("input.env.{name}"), problems);
        }
    }

    /// Fills in defaults. A delay counts from now, and is stored as the time at which it ends.
    fn complete(&mut self, _old: Option<&Self>, world: &World) {
        let delay = self.value.as_deref().and_then(|value| duration::parse_s(value).ok());
        if let (Some(ScheduleType::Sleep), Some(delay)) = (self.kind, delay) {
            self.kind = Some(ScheduleType::At);
            self.value = Some(world.now().plus_s(delay).to_string());
        }
        self.max_executions.get_or_insert(limits::SCHEDULE_HISTORY_MAX);
        if let Some(input) = &mut self.input {
            input.keep_alive.get_or_insert(true);
            input.timeout.get_or_insert(TIMEOUT_S_DEFAULT);
        }
    }

    fn secrets(&mut self, visit: &mut dyn FnMut(&str, &mut String)) {
        let env = self.input.as_mut().and_then(|input| input.env.as_mut());
        visit_map(env.map(|Sensitive(env)| env), "input.env", visit);
    }

    /// A recurring schedule with another value starts over from the change.
    fn next_state(
        &self,
        old: Option<(&Self, &Option<Timestamp>)>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let (old, state) = old?;
        if (old.kind, &old.value) == (self.kind, &self.value) {
            return *state;
        }
        Some(now).filter(|_| self.kind == Some(ScheduleType::Cron))
    }

    fn show(&mut self, stamp: &ObjectMetadata, _state: &Option<Timestamp>, _now: Timestamp) {
        self.created_at = Some(stamp.created_at);
        self.sandbox = stamp.parents.last().cloned();
    }
}

impl Schedule {
    fn check_value(&self, problems: &mut Problems) {
        let Some(kind) = self.kind else {
            return problems.add("type", "is required");
        };
        let value = self.value.as_deref().unwrap_or_default();
        let wrong = match kind {
            ScheduleType::Cron => Cron::parse(value).err().map(|error| error.to_string()),
            ScheduleType::Sleep => duration::parse_s(value).err().map(|error| error.to_string()),
            ScheduleType::At => value
                .parse::<Timestamp>()
                .err()
                .map(|_| "must be an RFC 3339 time such as `2026-04-16T09:30:00Z`".into()),
        };
        if let Some(message) = wrong {
            problems.add("value", message);
        }
    }

    /// Returns when the schedule is next due, given `time`, when it last fired, was changed or
    /// was created; `None` if it never is again. A one-time schedule that has not fired stays due.
    pub fn next_after(&self, time: Timestamp, fired: bool) -> Option<Timestamp> {
        let value = self.value.as_deref()?;
        match self.kind? {
            ScheduleType::Cron => Cron::parse(value).ok()?.next_after(time),
            ScheduleType::At => value.parse().ok().filter(|_| !fired),
            ScheduleType::Sleep => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_with_which_no_program_can_be_started_is_a_problem() {
        let is_taken = |bytes| {
            let env = Some(Sensitive(TextMap::from([("MODE".to_owned(), "x".repeat(bytes))])));
            let command = Some("true".to_owned());
            let input = SandboxScheduleInput { command, env, ..SandboxScheduleInput::default() };
            let (kind, value) = (Some(ScheduleType::Cron), Some("* * * * *".to_owned()));
            let schedule = Schedule {
                id: None,
                input: Some(input),
                max_executions: None,
                kind,
                value,
                created_at: None,
                sandbox: None,
            };
            let mut problems = Problems::default();
            schedule.check(&mut problems);
            problems.is_empty()
        };
        assert_eq!([is_taken(131_066), is_taken(131_067)], [true, false]);
    }
}
