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

/// Libraries that log what callers do, as often as they like: of HTTP/2, connections that it ends; of
/// MCP, each request and its mistakes, which the callers are told.
const ABOUT_CALLERS: [&str; 2] = ["h2", "rmcp"];

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
        let mut targets: Targets = parts.join(",").parse().ok()?;
        if parts.iter().all(|part| part.contains('=')) {
            targets = targets.with_default(LEVEL);
        }
        let warns_only = matches!(targets.default_level(), Some(LevelFilter::WARN | LEVEL));
        for library in ABOUT_CALLERS {
            if warns_only && !parts.iter().any(|part| part.starts_with(library)) {
                targets = targets.with_target(library, LevelFilter::ERROR);
            }
        }
        Some(targets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    /// Checks whether there are warnings of HTTP/2, and of MCP.
    #[track_caller]
    fn check(level: &str, wanted: (bool, bool)) {
        let log = Log { format: LogFormat::Text, level: level.to_owned(), refusals_per_second: 1 };
        let targets = log.targets().unwrap();
        let warns = |of| targets.would_enable(of, &Level::WARN);
        assert_eq!((warns("h2::proto::streams"), warns("rmcp::service")), wanted);
    }

    #[test]
    fn what_callers_do_to_libraries_is_logged_only_if_asked_for() {
        check("info", (false, false));
        check("warn", (false, false));
        check("store=debug", (false, false));
        check("off", (false, false));
        check("debug", (true, true));
        check("info,h2=warn", (true, false));
        check("h2::proto=warn", (true, false));
        check("info,rmcp=warn", (false, true));
    }
}
