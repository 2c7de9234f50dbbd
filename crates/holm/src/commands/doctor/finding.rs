//! What a check of this machine has found.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Health {
    Ok,
    /// Works, but not as well as it could.
    Warn,
    /// The server cannot run in this state.
    Fail,
}

/// Result of one check.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) health: Health,
    pub(super) says: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, says: impl Into<String>) -> Self {
        Self { check, health: Health::Ok, says: says.into(), remedy: None }
    }

    pub(super) fn warn(
        check: &'static str,
        says: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { check, health: Health::Warn, says: says.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn fail(
        check: &'static str,
        says: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { check, health: Health::Fail, says: says.into(), remedy: Some(remedy.into()) }
    }
}
