//! Numbers that must not be zero, and upper bounds of all.

use crate::config::Config;
use crate::config::error::{Wrong, wrong};

/// Lists settings with their names.
macro_rules! named {
    ($config:ident: $($section:ident $(. $name:ident)+,)*) => {
        vec![$((
            concat!(stringify!($section) $(, ".", stringify!($name))+),
            $config.$section$(.$name)+ as u64,
        ),)*]
    };
}

/// No number may be larger, bytes (4 TiB) and megabytes included: 2^20 of it still fit in an `i64`,
/// and each is a possible number of permits.
const COUNT_MAX: u64 = 1 << 42;
/// Connections to the database, each with a thread.
const STORE_CONNECTIONS_MAX: u64 = 1024;
/// Requests that wait for the database: the queue has its room from the start.
const STORE_WAITING_MAX: u64 = 1 << 20;
/// Processes that Linux can tell apart.
const PROCESSES_MAX: u64 = 1 << 22;
/// Terminals that Linux can have.
const TERMINALS_MAX: u64 = 1 << 20;
/// Files on ext4, which disks of limited size are, are smaller than 16 TiB.
const FILE_MB_MAX: u64 = (16 << 20) - 1;

pub(super) fn counts(config: &Config) -> Result<(), Wrong> {
    let mut all = counts_of_the_edge(config);
    all.extend(counts_of_work(config));
    all.extend(config.builder.counts());
    all.extend(config.models.counts().map(|(key, count)| (key, count as u64)));
    if let Some((key, _)) = all.iter().find(|(key, count)| *count < min(key)) {
        return wrong(key, format!("must be at least {}", min(key)));
    }
    all.extend(may_be_zero(config));
    match all.into_iter().find(|(key, count)| *count > max(key)) {
        Some((key, _)) => wrong(key, format!("must be at most {}", max(key))),
        None => Ok(()),
    }
}

/// Returns the least that anything can work with.
fn min(key: &str) -> u64 {
    match key {
        // What the first process of a sandbox and its threads need.
        "node.pids_max" => 4,
        "node.open_files_max" | "builder.memory_mb" => 16,
        // One of them is not for strangers.
        "gateway.requests_workspace_max" => 2,
        _ => 1,
    }
}

/// Returns the most that the kernel or the database can handle.
fn max(key: &str) -> u64 {
    match key {
        "store.connections" => STORE_CONNECTIONS_MAX,
        "store.waiting_max" => STORE_WAITING_MAX,
        "node.processes_max" | "node.pids_max" => PROCESSES_MAX,
        "node.terminals_max" => TERMINALS_MAX,
        "node.drive_mb" | "builder.disk_mb" => FILE_MB_MAX,
        _ => COUNT_MAX,
    }
}

/// Counts for which zero has a meaning of its own.
fn may_be_zero(config: &Config) -> Vec<(&'static str, u64)> {
    named! { config:
        node.memory_mb,
        node.processes_max,
        node.disk_mb,
        node.volume_mb,
        node.drive_mb,
        images.disk_mb,
        registry.disk_mb,
        registry.keep_tags,
        builder.kept_mb,
        objects.retries,
        gateway.body_bytes_max,
        egress.cached_names_max,
        models.output_tokens_max,
        models.cache_bytes_max,
        models.cache_workspace_bytes_max,
        models.cache_answer_bytes_max,
        models.journal_bytes_max,
        models.head_bytes_max,
    }
}

/// Counts that limit callers, the gateway and the database; none may be zero.
fn counts_of_the_edge(config: &Config) -> Vec<(&'static str, u64)> {
    named! { config:
        server.body_bytes_max,
        server.lingering_max,
        server.bodies_bytes_max,
        server.bodies_workspace_bytes_max,
        server.bodies_strangers_bytes_max,
        server.connections_max,
        store.connections,
        store.waiting_max,
        store.batch_max,
        store.log_pages,
        store.log_pages_max,
        store.recent_changes_max,
        server.connections_signed_in,
        server.connections_key_max,
        server.connections_client_max,
        server.streams_max,
        server.streams_workspace_max,
        server.streams_key_max,
        auth.client_guesses_max,
        auth.client_devices_max,
        auth.devices_max,
        domains.acme.orders_workspace_hour_max,
        gateway.requests_max,
        gateway.requests_workspace_max,
        gateway.requests_public_max,
        gateway.waiting_max,
        gateway.sessions_max,
        gateway.sessions_workspace_max,
        gateway.tool_lists_bytes_max,
        gateway.tool_lists_workspace_bytes_max,
        gateway.tool_list_bytes_max,
        gateway.tool_list_request_bytes_max,
    }
}

/// Counts for workloads, builds and stored data; none may be zero.
fn counts_of_work(config: &Config) -> Vec<(&'static str, u64)> {
    named! { config:
        node.instances_max,
        node.pids_max,
        node.memory_promises,
        node.terminals_max,
        images.image_mb_max,
        registry.blob_mb_max,
        registry.manifest_bytes_max,
        registry.tags_max,
        registry.uploads_max,
        registry.uploads_workspace_max,
        snapshots.pending_workspace_max,
        snapshots.takes_max,
        objects.parallel,
        objects.transfers_max,
        objects.transfers_workspace_max,
        egress.addresses_workspace_max,
        egress.connections_max,
        egress.connections_workspace_max,
        egress.questions_max,
        egress.questions_workspace_max,
        egress.names_max,
        egress.head_bytes_max,
        egress.events_max,
        egress.bodies_max,
        egress.bodies_workspace_max,
        egress.bodies_total_max,
        s3.requests_max,
        s3.requests_workspace_max,
        s3.heavy_max,
        s3.heavy_workspace_max,
        s3.put_mb_max,
        s3.uploads_max,
        builds.upload_mb_max,
        builds.uploads_max,
        builds.uploads_workspace_max,
        builds.sources_workspace_mb_max,
        builds.open_max,
        builds.open_workspace_max,
        builds.slots,
        builds.workspace_slots,
        builds.attempts_max,
        builds.template_versions_max,
        node.connections_max,
        node.connections_workspace_max,
        node.questions_per_s,
        node.tunnels_max,
        node.open_files_max,
        logs.task_bytes_max,
        deployments.replicas,
        deployments.replicas_max,
        deployments.concurrency,
        deployments.starting_max,
        deployments.launches_max,
        deployments.start_millicores,
        deployments.looks_max,
        logs.replica_day_bytes_max,
        logs.workspace_day_bytes_max,
        logs.searches_max,
        logs.searches_workspace_max,
        jobs.memory_mb,
        jobs.asked_day_bytes_max,
        runners.attempts_max,
        runners.runners_max,
        runners.open_max,
        runners.requests_max,
        meter.points_max,
        limits.objects_max,
        limits.objects_bytes_max,
        limits.bare_list_max,
        limits.list_bytes_max,
        limits.sandbox_drives_max,
        limits.answers_day_bytes_max,
        limits.key_per_second,
        limits.key_burst,
        limits.workspace_per_second,
        limits.workspace_burst,
        limits.trigger_per_second,
        limits.trigger_burst,
        callbacks.attempts_max,
        callbacks.concurrency,
        callbacks.workspace_concurrency,
    }
}
