//! Every limit on length, number and size that a caller can run into.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Free words of the interface: regions, types, ids.
pub const WORD_MAX: usize = 256;
/// Descriptions and other prose.
pub const TEXT_MAX: usize = 4096;
pub const URL_MAX: usize = 2048;
pub const PATH_MAX: usize = 1024;
/// Longest name of a file or folder, in bytes: what file systems allow.
pub const FILE_NAME_MAX: usize = 255;
/// Longest value of a variable; the kernel's own limit for one argument or variable.
pub const ENV_VALUE_MAX: usize = 131_072;
pub const ENVS_MAX: usize = 512;
/// Longest hand-written list: policies, connections, ports, triggers.
pub const LIST_MAX: usize = 100;
/// Most domains and other patterns in one list of network rules.
pub const RULES_MAX: usize = 1000;
/// Most patterns in all lists of one workload: each connection is compared with them.
pub const RULES_ALL_MAX: usize = 4000;
/// Most keys in a free map of texts.
pub const MAP_MAX: usize = 256;
pub const LABELS_MAX: usize = 64;
/// Most tasks in one cron trigger.
pub const TRIGGER_TASKS_MAX: usize = 1000;
/// Newest revisions that are kept of one object.
pub const REVISIONS_KEPT_MAX: i64 = 5;
/// Most revisions that an object has, and so the most that a body may list, because clients send
/// back what they have read: those kept, and older ones that are active, a canary, or serve until
/// the active one is ready.
pub const REVISIONS_LISTED_MAX: i64 = REVISIONS_KEPT_MAX + 3;
pub const DRIVE_PERMISSIONS_MAX: usize = 3;
pub const SCHEDULE_HISTORY_MAX: i64 = 100;

pub const MEMORY_MB_MIN: i64 = 128;
pub const MEMORY_MB_MAX: i64 = 1_048_576;
/// 16 TiB.
pub const DISK_MB_MAX: i64 = 16_777_216;
pub const YEAR_S: i64 = 366 * 86_400;
/// Longest time-out of asynchronous calls and of the triggers that make them.
pub const ASYNC_TIMEOUT_S_MAX: i64 = 900;
pub const RETRIES_MAX: i64 = 100;
pub const SCALE_MAX: i64 = 1000;
pub const CONCURRENCY_MAX: i64 = 100_000;
/// Highest counter and token limit: what a JavaScript client still reads exactly.
pub const COUNT_MAX: i64 = 9_007_199_254_740_991;

/// Text without control characters and line separators, for what is shown in tables and written to
/// logs.
pub const ONE_LINE: &str = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$";
/// Most targets or fallbacks of one model. The next lines limit its other settings.
pub const MODEL_TARGETS_MAX: usize = 16;
pub const MODEL_RETRIES_MAX: i64 = 5;
pub const MODEL_TIMEOUT_MS_MAX: i64 = 900_000;
pub const MODEL_CACHE_S_MAX: i64 = 86_400;
pub const MODEL_HOOKS_MAX: usize = 16;
/// Largest compiled pattern of a model's hook, in bytes.
pub const MODEL_PATTERN_BYTES_MAX: usize = 1 << 18;
/// What may be one segment of an API path. None begins with a dot: clients take `..` in an address
/// for a step up, and would delete what is above.
pub const PATH_SEGMENT: &str = r"^([A-Za-z0-9_-][A-Za-z0-9._-]*)?$";
/// A name for people that is also one segment of an API path.
pub const FREE_SEGMENT: &str =
    r"^([^\x00-\x20\x7f-\x9f\u2028\u2029./\\][^\x00-\x1f\x7f-\x9f\u2028\u2029/\\]*)?$";
pub const DNS_LABEL: &str = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$";
/// The name of an image, with folders.
pub const IMAGE_NAME: &str = "^[a-z0-9]([a-z0-9._/-]*[a-z0-9])?$";
/// A caller's own id of an object.
pub const EXTERNAL_ID: &str = "^[A-Za-z0-9-]*$";

/// Returns the schema of an optional, bounded map of texts.
pub fn text_map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["object", "null"],
        "additionalProperties": {"type": "string", "maxLength": ENV_VALUE_MAX},
        "propertyNames": {"maxLength": WORD_MAX},
        "maxProperties": MAP_MAX,
    })
}

/// Returns the schema of optional labels.
pub fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["object", "null"],
        "additionalProperties": {"type": "string", "maxLength": WORD_MAX, "pattern": ONE_LINE},
        "propertyNames": {"minLength": 1, "maxLength": WORD_MAX, "pattern": ONE_LINE},
        "maxProperties": LABELS_MAX,
    })
}
