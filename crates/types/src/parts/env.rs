//! Environment variables of a workload.

use super::{MASK, limits, names};
use crate::Problems;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeSet;
use std::fmt;

/// Most bytes of a name with its value. The kernel counts the sign between both and a zero byte at
/// the end as well.
const BYTES_MAX: usize = limits::ENV_VALUE_MAX - 2;

/// Variables that the platform itself sets in every workload.
const RESERVED: [&str; 26] = [
    "HOST",
    "BL_SERVER_HOST",
    "BL_SERVER_PORT",
    "BL_WORKSPACE",
    "BL_WORKSPACE_ID",
    "BL_NAME",
    "BL_TYPE",
    "BL_REGION",
    "BL_ENV",
    "BL_CLOUD",
    "BL_GENERATION",
    "BL_CLIENT_CREDENTIALS",
    "BL_RUN_INTERNAL_HOST",
    "BL_RUN_INTERNAL_HOSTNAME",
    "BL_ENABLE_OPENTELEMETRY",
    "BL_DEBUG_TELEMETRY",
    "BL_LOG_LEVEL",
    "BL_EXECUTION_DATA_URL",
    "BL_TASK_KEY",
    "BL_EXECUTION_KEY",
    "BL_EXECUTION_ID",
    "BL_TASK_PREFIX",
    "BL_EXECUTION_PREFIX",
    "BL_DISABLE_KEEPALIVE",
    "BL_NETWORKING_CONFIG",
    "TASK_INDEX",
];

#[skip_serializing_none]
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Env {
    #[schemars(length(max = limits::WORD_MAX))]
    pub name: Option<String>,
    #[schemars(length(max = limits::ENV_VALUE_MAX))]
    pub value: Option<String>,
    /// True if the value is stored encrypted and shown masked.
    pub secret: Option<bool>,
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env")
            .field("name", &self.name)
            .field("secret", &self.secret)
            .finish_non_exhaustive()
    }
}

impl Env {
    /// Returns true for the variable with the port to serve, which published examples set. The
    /// platform's own value overrides it.
    pub fn is_port(&self) -> bool {
        self.name.as_deref() == Some("PORT")
    }

    pub fn check_all(envs: Option<&[Self]>, at: &str, problems: &mut Problems) {
        let mut seen = BTreeSet::new();
        for (index, env) in envs.unwrap_or_default().iter().enumerate() {
            let at = format!("{at}[{index}]");
            let name = env.name.as_deref().unwrap_or_default();
            check_name(name, &format!("{at}.name"), problems);
            problems.require(
                name.is_empty() || seen.insert(name),
                format!("{at}.name"),
                "is set twice",
            );
            let value = env.value.as_deref().unwrap_or_default();
            check_value(name, value, &format!("{at}.value"), problems);
        }
    }

    /// Passes the secret values to a visitor.
    pub fn visit_all(envs: Option<&mut Vec<Self>>, visit: &mut dyn FnMut(&str, &mut String)) {
        for env in envs.into_iter().flatten().filter(|env| env.secret == Some(true)) {
            let name = env.secret_name();
            if let Some(value) = &mut env.value {
                visit(&name, value);
            }
        }
    }

    /// The name under which its value is visited if it is secret.
    fn secret_name(&self) -> String {
        format!("envs.{}", self.name.as_deref().unwrap_or_default())
    }

    /// Marks a variable as secret if its value is the mask and a secret of its name is stored. Some
    /// clients send back the value that they were shown without the mark.
    pub fn mark_masked(&mut self, is_stored: impl Fn(&str) -> bool) {
        if self.value.as_deref() == Some(MASK) && is_stored(&self.secret_name()) {
            self.secret = Some(true);
        }
    }
}

/// Checks the name of a variable that a user sets.
pub fn check_name(name: &str, field: &str, problems: &mut Problems) {
    if name.is_empty() {
        problems.add(field, "is required");
    } else if !names::is_variable(name) {
        problems.add(field, "must be letters, digits and `_`, and not begin with a digit");
    } else if is_reserved(name) {
        problems.add(field, "is reserved: the platform sets it");
    }
}

/// Checks that a program can be started with a variable of this value.
pub fn check_value(name: &str, value: &str, field: &str, problems: &mut Problems) {
    problems.require(!value.contains('\0'), field, "must not hold a zero byte");
    problems.require(
        name.len() + value.len() <= BYTES_MAX,
        field,
        format!("must be shorter: with its name, {BYTES_MAX} bytes at most"),
    );
}

fn is_reserved(name: &str) -> bool {
    let service = name.starts_with("BL_AGENT_") || name.starts_with("BL_FUNCTION_");
    RESERVED.contains(&name) || (service && name.ends_with("_SERVICE_NAME"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_would_refuse_is_a_problem() {
        let is_taken = |length| {
            let (name, value) = (Some("LONG".to_owned()), Some("é".repeat(length / 2)));
            let mut problems = Problems::default();
            Env::check_all(Some(&[Env { name, value, ..Env::default() }]), "envs", &mut problems);
            problems.is_empty()
        };
        let longest = BYTES_MAX - "LONG".len();
        assert_eq!([is_taken(longest), is_taken(longest + 2)], [true, false]);
    }
}
