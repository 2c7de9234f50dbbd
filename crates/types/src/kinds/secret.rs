//! Secrets of a workspace, used in network rules as `{{SECRET:name}}`. Answers never contain their
//! values.

use crate::parts::{Head, Sensitive, limits, visit_sensitive};
use crate::{Kind, KindName, ObjectMetadata, Problems, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Secret {
    #[schemars(length(min = 1, max = 128), regex(pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]*$"))]
    pub name: String,
    /// Required when writing; omitted from every answer.
    #[schemars(length(max = limits::ENV_VALUE_MAX))]
    pub value: Option<Sensitive<String>>,
    #[serde(skip_deserializing)]
    pub created_at: Option<Timestamp>,
    #[serde(skip_deserializing)]
    pub updated_at: Option<Timestamp>,
}

impl Head for Secret {
    fn name(&self) -> &str {
        &self.name
    }

    fn set_name(&mut self, name: String) {
        self.name = name;
    }
}

impl Kind for Secret {
    const NAME: KindName = KindName::Secret;
    const NAME_AT: &'static [&'static str] = &["name"];

    type State = ();

    fn head(&self) -> &dyn Head {
        self
    }

    fn head_mut(&mut self) -> &mut dyn Head {
        self
    }

    fn check(&self, problems: &mut Problems) {
        let given = self.value.as_ref().is_some_and(|Sensitive(value)| !value.is_empty());
        problems.require(given, "value", "is required");
    }

    fn secrets(&mut self, visit: &mut dyn FnMut(&str, &mut String)) {
        visit_sensitive(self.value.as_mut(), "value", visit);
    }

    fn show(&mut self, stamp: &ObjectMetadata, _state: &(), _now: Timestamp) {
        self.value = None;
        self.created_at = Some(stamp.created_at);
        self.updated_at = Some(stamp.updated_at);
    }
}
