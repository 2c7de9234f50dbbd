//! Times that must not be zero.

use crate::config::Config;
use crate::config::error::{Wrong, wrong};
use std::time::Duration;

pub(super) fn spans(config: &Config) -> Result<(), Wrong> {
    let server = &config.server;
    for (key, span) in [
        ("server.header_timeout", server.header_timeout),
        ("server.request_timeout", server.request_timeout),
        ("server.answer_stall", server.answer_stall),
        ("store.feed_poll", config.store.feed_poll),
        ("gateway.wait_timeout", config.gateway.wait_timeout),
        ("gateway.connect_timeout", config.gateway.connect_timeout),
        ("gateway.answer_idle", config.gateway.answer_idle),
        ("gateway.socket_idle", config.gateway.socket_idle),
        ("gateway.agent_idle", config.gateway.agent_idle),
        ("gateway.agent_time", config.gateway.agent_time),
        ("gateway.demand_repeat", config.gateway.demand_repeat),
        ("snapshots.tidy_every", config.snapshots.tidy_every),
        ("snapshots.fork_within", config.snapshots.fork_within),
        ("snapshots.offload_after", config.snapshots.offload_after),
        ("objects.timeout", config.objects.timeout),
        ("objects.tidy_every", config.objects.tidy_every),
        ("egress.hello_timeout", config.egress.hello_timeout),
        ("egress.connect_timeout", config.egress.connect_timeout),
        ("egress.answer_timeout", config.egress.answer_timeout),
        ("egress.launch_wait", config.egress.launch_wait),
        ("egress.idle", config.egress.idle),
        ("egress.nameserver_timeout", config.egress.nameserver_timeout),
        ("s3.upload_life", config.s3.upload_life),
        ("s3.stall", config.s3.stall),
        ("builds.upload_valid", config.builds.upload_valid),
        ("builds.upload_timeout", config.builds.upload_timeout),
        ("builds.upload_idle", config.builds.upload_idle),
        ("builds.wait_max", config.builds.wait_max),
        ("builds.timeout", config.builds.timeout),
        ("builds.backoff", config.builds.backoff),
        ("deployments.start_timeout", config.deployments.start_timeout),
        ("deployments.restart_pause", config.deployments.restart_pause),
        ("callbacks.timeout", config.callbacks.timeout),
        ("registry.upload_keep", config.registry.upload_keep),
        ("registry.untagged_keep", config.registry.untagged_keep),
        ("registry.stall", config.registry.stall),
        ("registry.tidy_every", config.registry.tidy_every),
        ("callbacks.pause", config.callbacks.pause),
        ("callbacks.pause_max", config.callbacks.pause_max),
        ("meter.budget_every", config.meter.budget_every),
        ("meter.roll_every", config.meter.roll_every),
        ("meter.pack_every", config.meter.pack_every),
    ]
    .into_iter()
    .chain(config.models.spans())
    {
        if span.0 < Duration::from_millis(100) {
            return wrong(key, "must be at least 100ms");
        }
    }
    Ok(())
}
