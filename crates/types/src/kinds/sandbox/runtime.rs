//! What a sandbox runs, and with how much memory and disk.

use crate::parts::{Env, Generation, Port, Sensitive, SkipBuild, TextMap, duration, limits};
use crate::{Problems, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

const GRACE_S_MAX: i64 = 3600;
const EXTRA_ARGS: [&str; 3] = ["iptables", "nfs", "tun"];
/// Longest part of an unknown name that a message repeats, in characters.
const EXTRA_ARG_SHOWN_MAX: usize = 80;

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxRuntime {
    #[schemars(length(max = limits::ENVS_MAX))]
    pub envs: Option<Vec<Env>>,
    /// Time at which the sandbox is deleted.
    pub expires: Option<Timestamp>,
    /// `enabled` or `disabled` for each of `iptables`, `nfs` and `tun`.
    #[schemars(schema_with = "limits::text_map")]
    pub extra_args: Option<TextMap>,
    pub generation: Option<Generation>,
    #[schemars(length(max = limits::URL_MAX))]
    pub image: Option<String>,
    /// Memory in megabytes. The number of CPU cores is this divided by 2048.
    #[schemars(range(min = limits::MEMORY_MB_MIN, max = limits::MEMORY_MB_MAX))]
    pub memory: Option<i64>,
    #[schemars(length(max = limits::LIST_MAX))]
    pub ports: Option<Vec<Port>>,
    pub snapshot_enabled: Option<bool>,
    /// Size in megabytes of a disk for written files. Without it they are kept in memory.
    #[schemars(range(min = 1, max = limits::DISK_MB_MAX))]
    pub storage_mb: Option<i64>,
    #[schemars(range(min = 0, max = GRACE_S_MAX))]
    pub termination_grace_period_seconds: Option<i64>,
    /// Longest lifetime, such as `24h`. An empty text removes the limit.
    #[schemars(length(max = limits::WORD_MAX))]
    pub ttl: Option<String>,
    /// Credentials of an outside registry: the text of a Docker configuration file.
    #[schemars(length(max = limits::ENV_VALUE_MAX))]
    pub docker_config: Option<Sensitive<String>>,
    pub skip_build: Option<SkipBuild>,
}

impl SandboxRuntime {
    pub(super) fn check(&self, problems: &mut Problems) {
        Env::check_all(self.envs.as_deref(), "spec.runtime.envs", problems);
        for (index, _) in self.envs.iter().flatten().enumerate().filter(|(_, env)| env.is_port()) {
            let message =
                "is reserved: a sandbox serves several ports; declare them in `spec.runtime.ports`";
            problems.add(format!("spec.runtime.envs[{index}].name"), message);
        }
        Port::check_all(self.ports.as_deref(), problems);
        duration::check(self.ttl.as_deref(), "spec.runtime.ttl", problems);
        check_extra_args(self.extra_args.as_ref(), problems);
    }
}

fn check_extra_args(given: Option<&TextMap>, problems: &mut Problems) {
    const AT: &str = "spec.runtime.extraArgs";
    for (name, value) in given.into_iter().flatten() {
        // The name comes from the caller and goes into a message.
        let field =
            format!("{AT}.{}", name.escape_debug().take(EXTRA_ARG_SHOWN_MAX).collect::<String>());
        if !EXTRA_ARGS.contains(&name.as_str()) {
            problems.add(field, format!("is not known: there are {}", EXTRA_ARGS.join(", ")));
        } else {
            problems.require(
                matches!(value.as_str(), "enabled" | "disabled"),
                field,
                "must be `enabled` or `disabled`",
            );
        }
    }
    let on = |name: &str| {
        given.and_then(|given| given.get(name)).is_some_and(|value| value == "enabled")
    };
    let message = "cannot be enabled together with `iptables`: leave one of them out";
    problems.require(!(on("nfs") && on("iptables")), format!("{AT}.nfs"), message);
}
