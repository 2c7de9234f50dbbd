//! Output of workloads and builds.

use crate::time::BadTime;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay, skip_serializing_none};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Log lines by name of the requested workload. The name is present even if there are no lines.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct LogAnswer(pub BTreeMap<String, WorkloadLogs>);

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadLogs {
    /// Log lines, newest first.
    pub logs: Vec<LogLine>,
    pub total_count: i64,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogLine {
    pub timestamp: LogTime,
    pub message: String,
    pub severity: i64,
    pub trace_id: Option<String>,
}

/// The time at which a line was written, in nanoseconds since 1970-01-01T00:00:00Z. Published
/// clients require this precision.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Default,
    SerializeDisplay,
    DeserializeFromStr,
)]
pub struct LogTime(i64);

impl LogTime {
    pub const fn from_ns(ns: i64) -> Self {
        Self(ns)
    }
}

impl fmt::Display for LogTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every 64-bit number of nanoseconds is within its range.
        write!(f, "{:.9}", jiff::Timestamp::from_nanosecond(self.0.into()).unwrap_or_default())
    }
}

impl FromStr for LogTime {
    type Err = BadTime;

    fn from_str(text: &str) -> Result<Self, BadTime> {
        let time = text.parse::<jiff::Timestamp>().ok();
        let ns = time.and_then(|time| i64::try_from(time.as_nanosecond()).ok());
        ns.map(Self).ok_or_else(|| BadTime::of(text))
    }
}

impl JsonSchema for LogTime {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "LogTime".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_time_has_nine_digits_of_a_second() {
        assert_eq!(
            LogTime::from_ns(1_800_000_000_000_000_001).to_string(),
            "2027-01-15T08:00:00.000000001Z"
        );
    }

    proptest! {
        #[test]
        fn a_time_reads_back(ns in any::<i64>()) {
            let time = LogTime::from_ns(ns);
            prop_assert_eq!(time.to_string().parse::<LogTime>().unwrap(), time);
        }
    }
}
