//! How long, how many, how large: every bound that a caller can run into.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Words that the interface leaves free: regions, types, ids.
pub const WORD_MAX: usize = 256;
/// Descriptions and other prose.
pub const TEXT_MAX: usize = 4096;
pub const URL_MAX: usize = 2048;
pub const PATH_MAX: usize = 1024;
/// The kernel's own bound for one argument or variable.
pub const ENV_VALUE_MAX: usize = 131_072;
pub const ENVS_MAX: usize = 512;
/// Policies, connections, ports, triggers: lists that people write by hand.
pub const LIST_MAX: usize = 100;
/// Domains and other patterns of the network rules.
pub const RULES_MAX: usize = 1000;
/// All of them of one workload: each connection is compared with them.
pub const RULES_ALL_MAX: usize = 4000;
/// Keys of a free map of texts.
pub const MAP_MAX: usize = 256;
pub const LABELS_MAX: usize = 64;
/// Tasks written into one cron trigger.
pub const TRIGGER_TASKS_MAX: usize = 1000;
pub const DRIVE_PERMISSIONS_MAX: usize = 3;
pub const SCHEDULE_HISTORY_MAX: i64 = 100;

pub const MEMORY_MB_MIN: i64 = 128;
pub const MEMORY_MB_MAX: i64 = 1_048_576;
/// 16 TiB.
pub const DISK_MB_MAX: i64 = 16_777_216;
pub const YEAR_S: i64 = 366 * 86_400;
/// Async invocations, and the triggers that make them.
pub const ASYNC_TIMEOUT_S_MAX: i64 = 900;
pub const RETRIES_MAX: i64 = 100;
pub const SCALE_MAX: i64 = 1000;
pub const CONCURRENCY_MAX: i64 = 100_000;
/// Counters and token limits: what a JavaScript client still reads exactly.
pub const COUNT_MAX: i64 = 9_007_199_254_740_991;

/// No control characters: what is shown in tables and written to logs.
pub const ONE_LINE: &str = r"^[^\x00-\x1f\x7f]*$";
/// Models that one model leads to, and what may be set of that.
pub const MODEL_TARGETS_MAX: usize = 16;
pub const MODEL_RETRIES_MAX: i64 = 5;
pub const MODEL_TIMEOUT_MS_MAX: i64 = 900_000;
pub const MODEL_CACHE_S_MAX: i64 = 86_400;
pub const MODEL_HOOKS_MAX: usize = 16;
/// Of a pattern that is ready to be looked for.
pub const MODEL_PATTERN_BYTES_MAX: usize = 1 << 18;
/// What may stand in a path of the API.
pub const PATH_SEGMENT: &str = r"^[A-Za-z0-9._-]*$";
pub const DNS_LABEL: &str = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$";

/// The schema of an optional map of texts, bounded.
pub fn text_map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["object", "null"],
        "additionalProperties": {"type": "string", "maxLength": ENV_VALUE_MAX},
        "propertyNames": {"maxLength": WORD_MAX},
        "maxProperties": MAP_MAX,
    })
}

/// The schema of optional labels.
pub fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["object", "null"],
        "additionalProperties": {"type": "string", "maxLength": WORD_MAX, "pattern": ONE_LINE},
        "propertyNames": {"minLength": 1, "maxLength": WORD_MAX, "pattern": ONE_LINE},
        "maxProperties": LABELS_MAX,
    })
}
