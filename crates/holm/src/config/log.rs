//! The server's own log: its form, and what is written to it.

use serde::Deserialize;
use tracing_subscriber::filter::{LevelFilter, Targets};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Log {
    pub(crate) format: LogFormat,
    pub(crate) level: String,
    pub(crate) refusals_per_second: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Level of the parts of the program that a list does not name, the default of `log.level`.
const LEVEL: LevelFilter = LevelFilter::INFO;

impl Log {
    /// Returns what is logged, or nothing if `level` is wrong. The parser takes a lone word for the
    /// name of a module and an empty one for the level `error`, and either would silence the rest.
    pub(crate) fn targets(&self) -> Option<Targets> {
        let parts: Vec<&str> = self.level.split(',').map(str::trim).collect();
        let usable = |part: &str| match part.split_once('=') {
            _ if part.is_empty() || part.contains(char::is_whitespace) => false,
            Some((module, level)) => !module.is_empty() && !level.is_empty(),
            None => part.parse::<LevelFilter>().is_ok(),
        };
        if !parts.iter().all(|part| usable(part)) {
            return None;
        }
        let targets: Targets = parts.join(",").parse().ok()?;
        let only_modules = parts.iter().all(|part| part.contains('='));
        Some(if only_modules { targets.with_default(LEVEL) } else { targets })
    }
}
