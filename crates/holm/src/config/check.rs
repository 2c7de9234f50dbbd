//! Checks of the settings that their types cannot express.

use super::{Config, Node, Role};
use std::time::Duration;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// A value that cannot be used, with a message that says what would be right.
pub(super) struct Wrong {
    pub(super) key: &'static str,
    pub(super) message: String,
}

const REGIONS: &str = "placement.regions";

fn wrong(key: &'static str, message: impl Into<String>) -> Result<(), Wrong> {
    Err(Wrong { key, message: message.into() })
}

pub(super) fn check(config: &Config) -> Result<(), Wrong> {
    server(config)?;
    counts(config)?;
    store(config)?;
    auth(config)?;
    domains(config)?;
    node(config)?;
    config.jobs.settings().check().or_else(|(key, right)| wrong(key, right))?;
    deployments(config)?;
    builds(config)?;
    builder(config)?;
    config.objects.check()?;
    config.egress.check()?;
    config.models.check()?;
    registry(config)?;
    runners(config)?;
    regions(config)?;
    observability(config)
}

fn server(config: &Config) -> Result<(), Wrong> {
    let server = &config.server;
    if !server.public_url.is_empty() {
        web_address("server.public_url", &server.public_url)?;
    }
    if let Some(url) = &server.content_url {
        content_url(url, &server.public_url)?;
    }
    if server.roles.is_empty() {
        return wrong("server.roles", "is empty: name at least one of api, gateway, node");
    }
    let twice = |role: &Role| server.roles.iter().filter(|other| *other == role).count() > 1;
    if server.roles.iter().any(twice) {
        return wrong("server.roles", "names a role twice");
    }
    if server.tls_certificate.is_some() != server.tls_key.is_some() {
        let key =
            if server.tls_key.is_none() { "server.tls_key" } else { "server.tls_certificate" };
        return wrong(key, "is missing: server.tls_certificate and server.tls_key go together");
    }
    if server.connections_signed_in >= server.connections_max {
        return wrong(
            "server.connections_signed_in",
            "must be less than server.connections_max: nobody could sign in",
        );
    }
    for (key, span) in [
        ("server.header_timeout", server.header_timeout),
        ("server.request_timeout", server.request_timeout),
        ("server.answer_stall", server.answer_stall),
        ("store.feed_poll", config.store.feed_poll),
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

/// Checks the address of workloads' content. An IP address or `localhost` has no hosts below it, so
/// its whole origin must differ from that of the server's own pages.
fn content_url(url: &str, public_url: &str) -> Result<(), Wrong> {
    const KEY: &str = "server.content_url";
    web_address(KEY, url)?;
    let parse = |text: &str| reqwest::Url::parse(text).ok();
    let Some(content) = parse(url) else { return Ok(()) };
    if content.path() != "/" {
        return wrong(KEY, "must have no path: content has an origin of its own");
    }
    let same = parse(public_url).is_some_and(|own| own.origin() == content.origin());
    if same && !types::hosts::has_hosts(url) {
        return wrong(
            KEY,
            "is the origin of server.public_url: give another port, or a name that hosts can be below",
        );
    }
    Ok(())
}

fn counts(config: &Config) -> Result<(), Wrong> {
    let all = counts_of_the_edge(config).into_iter().chain(counts_of_work(config));
    match all.chain(config.builder.counts()).find(|(_, count)| *count == 0) {
        Some((key, _)) => wrong(key, "must be at least 1"),
        None => Ok(()),
    }
}

/// Counts that limit callers, the gateway and the database; none may be zero.
fn counts_of_the_edge(config: &Config) -> Vec<(&'static str, u64)> {
    vec![
        ("server.body_bytes_max", config.server.body_bytes_max as u64),
        ("server.lingering_max", config.server.lingering_max as u64),
        ("server.bodies_bytes_max", config.server.bodies_bytes_max as u64),
        ("server.bodies_workspace_bytes_max", config.server.bodies_workspace_bytes_max as u64),
        ("server.bodies_strangers_bytes_max", config.server.bodies_strangers_bytes_max as u64),
        ("server.connections_max", config.server.connections_max as u64),
        ("store.connections", config.store.connections as u64),
        ("store.waiting_max", config.store.waiting_max as u64),
        ("store.batch_max", config.store.batch_max as u64),
        ("store.log_pages", config.store.log_pages.into()),
        ("store.log_pages_max", config.store.log_pages_max.into()),
        ("store.recent_changes_max", config.store.recent_changes_max as u64),
        ("server.connections_signed_in", config.server.connections_signed_in as u64),
        ("server.connections_key_max", config.server.connections_key_max as u64),
        ("server.connections_client_max", config.server.connections_client_max as u64),
        ("server.streams_max", config.server.streams_max as u64),
        ("server.streams_workspace_max", config.server.streams_workspace_max as u64),
        ("server.streams_key_max", config.server.streams_key_max as u64),
        ("auth.client_guesses_max", config.auth.client_guesses_max.into()),
        ("auth.client_devices_max", config.auth.client_devices_max.into()),
        ("auth.devices_max", config.auth.devices_max.into()),
        ("gateway.requests_max", config.gateway.requests_max as u64),
        ("gateway.requests_workspace_max", config.gateway.requests_workspace_max as u64),
        ("gateway.requests_public_max", config.gateway.requests_public_max as u64),
        ("gateway.waiting_max", config.gateway.waiting_max as u64),
        ("gateway.sessions_max", config.gateway.sessions_max as u64),
        ("gateway.sessions_workspace_max", config.gateway.sessions_workspace_max as u64),
        ("gateway.tool_lists_bytes_max", config.gateway.tool_lists_bytes_max as u64),
        (
            "gateway.tool_lists_workspace_bytes_max",
            config.gateway.tool_lists_workspace_bytes_max as u64,
        ),
        ("gateway.tool_list_bytes_max", config.gateway.tool_list_bytes_max as u64),
        ("gateway.tool_list_request_bytes_max", config.gateway.tool_list_request_bytes_max),
    ]
}

/// Counts for workloads, builds and stored data; none may be zero.
fn counts_of_work(config: &Config) -> Vec<(&'static str, u64)> {
    vec![
        ("node.instances_max", config.node.instances_max.into()),
        ("node.pids_max", config.node.pids_max.into()),
        ("node.memory_promises", config.node.memory_promises.into()),
        ("node.terminals_max", config.node.terminals_max.into()),
        ("images.image_mb_max", config.images.image_mb_max),
        ("registry.blob_mb_max", config.registry.blob_mb_max),
        ("registry.manifest_bytes_max", config.registry.manifest_bytes_max as u64),
        ("registry.tags_max", config.registry.tags_max as u64),
        ("registry.uploads_max", config.registry.uploads_max),
        ("registry.uploads_workspace_max", config.registry.uploads_workspace_max),
        ("snapshots.pending_workspace_max", config.snapshots.pending_workspace_max.into()),
        ("snapshots.takes_max", config.snapshots.takes_max.into()),
        ("objects.parallel", config.objects.parallel as u64),
        ("objects.transfers_max", config.objects.transfers_max as u64),
        ("objects.transfers_workspace_max", config.objects.transfers_workspace_max as u64),
        ("egress.addresses_workspace_max", config.egress.addresses_workspace_max as u64),
        ("egress.connections_max", config.egress.connections_max as u64),
        ("egress.connections_workspace_max", config.egress.connections_workspace_max as u64),
        ("egress.questions_max", config.egress.questions_max as u64),
        ("egress.questions_workspace_max", config.egress.questions_workspace_max as u64),
        ("egress.names_max", config.egress.names_max as u64),
        ("egress.head_bytes_max", config.egress.head_bytes_max as u64),
        ("egress.events_max", config.egress.events_max as u64),
        ("egress.bodies_max", config.egress.bodies_max as u64),
        ("egress.bodies_workspace_max", config.egress.bodies_workspace_max as u64),
        ("egress.bodies_total_max", config.egress.bodies_total_max as u64),
        ("s3.requests_max", config.s3.requests_max.into()),
        ("s3.requests_workspace_max", config.s3.requests_workspace_max.into()),
        ("s3.put_mb_max", config.s3.put_mb_max.into()),
        ("s3.uploads_max", config.s3.uploads_max.into()),
        ("builds.upload_mb_max", config.builds.upload_mb_max.into()),
        ("builds.uploads_max", config.builds.uploads_max.into()),
        ("builds.uploads_workspace_max", config.builds.uploads_workspace_max.into()),
        ("builds.sources_workspace_mb_max", config.builds.sources_workspace_mb_max.into()),
        ("builds.open_max", config.builds.open_max.into()),
        ("builds.open_workspace_max", config.builds.open_workspace_max.into()),
        ("builds.slots", config.builds.slots.into()),
        ("builds.workspace_slots", config.builds.workspace_slots.into()),
        ("builds.attempts_max", config.builds.attempts_max.into()),
        ("builds.template_versions_max", config.builds.template_versions_max.into()),
        ("node.connections_max", config.node.connections_max.into()),
        ("node.tunnels_max", config.node.tunnels_max.into()),
        ("node.open_files_max", config.node.open_files_max),
        ("logs.task_bytes_max", config.logs.task_bytes_max),
        ("deployments.replicas", config.deployments.replicas.into()),
        ("deployments.replicas_max", config.deployments.replicas_max.into()),
        ("deployments.concurrency", config.deployments.concurrency.into()),
        ("deployments.starting_max", config.deployments.starting_max.into()),
        ("deployments.launches_max", config.deployments.launches_max as u64),
        ("deployments.start_millicores", config.deployments.start_millicores.into()),
        ("deployments.looks_max", config.deployments.looks_max as u64),
        ("logs.replica_day_bytes_max", config.logs.replica_day_bytes_max),
        ("runners.attempts_max", config.runners.attempts_max.into()),
        ("runners.runners_max", config.runners.runners_max.into()),
        ("runners.open_max", config.runners.open_max.into()),
        ("runners.requests_max", config.runners.requests_max as u64),
        ("meter.points_max", config.meter.points_max as u64),
        ("limits.bare_list_max", config.limits.bare_list_max.into()),
        ("limits.sandbox_drives_max", config.limits.sandbox_drives_max as u64),
        ("limits.key_per_second", config.limits.key_per_second.into()),
        ("limits.key_burst", config.limits.key_burst.into()),
        ("limits.workspace_per_second", config.limits.workspace_per_second.into()),
        ("limits.workspace_burst", config.limits.workspace_burst.into()),
        ("limits.trigger_per_second", config.limits.trigger_per_second.into()),
        ("limits.trigger_burst", config.limits.trigger_burst.into()),
        ("callbacks.attempts_max", config.callbacks.attempts_max.into()),
        ("callbacks.concurrency", config.callbacks.concurrency as u64),
        ("callbacks.workspace_concurrency", config.callbacks.workspace_concurrency as u64),
    ]
}

fn store(config: &Config) -> Result<(), Wrong> {
    match &config.store.url {
        Some(url) if !url.starts_with("postgres://") && !url.starts_with("postgresql://") => wrong(
            "store.url",
            "must start with postgres://, or be empty for SQLite in the data folder",
        ),
        _ => Ok(()),
    }
}

fn auth(config: &Config) -> Result<(), Wrong> {
    let auth = &config.auth;
    let parts = [
        ("auth.oidc_issuer", &auth.oidc_issuer),
        ("auth.oidc_client_id", &auth.oidc_client_id),
        ("auth.oidc_client_secret", &auth.oidc_client_secret),
    ];
    let missing = parts.iter().find(|(_, value)| value.is_none());
    match (missing, parts.iter().any(|(_, value)| value.is_some())) {
        (Some((key, _)), true) => wrong(key, "is missing: the three oidc settings go together"),
        _ => auth
            .oidc_issuer
            .as_ref()
            .map_or(Ok(()), |issuer| web_address("auth.oidc_issuer", issuer)),
    }
}

fn domains(config: &Config) -> Result<(), Wrong> {
    let (domains, acme) = (&config.domains, &config.domains.acme);
    let plain = config.server.tls_certificate.is_none();
    if domains.certificates.is_some() && plain {
        return wrong(
            "domains.certificates",
            "needs server.tls_certificate: without it the server speaks plain HTTP",
        );
    }
    let Some(directory) = &acme.directory else { return Ok(()) };
    web_address("domains.acme.directory", directory)?;
    if plain {
        return wrong(
            "domains.acme.directory",
            "needs server.tls_certificate: the server's own name has to have one",
        );
    }
    if !acme.agree {
        return wrong(
            "domains.acme.agree",
            "must be true: without agreeing to its terms, an authority makes nothing",
        );
    }
    match &acme.contact {
        Some(contact) if !contact.contains('@') => {
            wrong("domains.acme.contact", "must be an e-mail address")
        }
        _ => Ok(()),
    }
}

fn node(config: &Config) -> Result<(), Wrong> {
    if let Err(error) = config.node.subnet.parse::<node::Subnet>() {
        return wrong("node.subnet", error.to_string());
    }
    if !(1..=100).contains(&config.node.workspace_share_percent) {
        return wrong("node.workspace_share_percent", "must be between 1 and 100");
    }
    user_ids(&config.node)?;
    match (config.server.roles.contains(&Role::Node), config.server.roles.contains(&Role::Gateway))
    {
        (true, false) => {
            wrong("server.roles", "has node without gateway: requests could not reach what runs")
        }
        _ => Ok(()),
    }
}

/// Checks that all instances have user ids. Ids must be below 2^32 - 1 (the last one means "none"),
/// and ids below those of the first instance belong to users of this machine.
fn user_ids(node: &Node) -> Result<(), Wrong> {
    const KEY: &str = "node.first_uid";
    let each = u64::from(node::IDS_PER_INSTANCE);
    let first = u64::from(node.first_uid);
    if first < each {
        return wrong(
            KEY,
            format!("must be at least {each}: ids below belong to the users of this machine"),
        );
    }
    let instances = u64::from(node.instances_max) + u64::from(node.ready);
    let room = (u64::from(u32::MAX) - first) / each;
    if instances > room {
        return wrong(
            KEY,
            format!(
                "is {first}, which leaves ids for {room} sandboxes of {each} each below 2^32; node.instances_max and \
                 node.ready ask for {instances}: lower one of the three"
            ),
        );
    }
    Ok(())
}

fn deployments(config: &Config) -> Result<(), Wrong> {
    let deployments = &config.deployments;
    if deployments.replicas > deployments.replicas_max {
        return wrong("deployments.replicas", "must be at most deployments.replicas_max");
    }
    if deployments.restart_pause_max.0 < deployments.restart_pause.0 {
        return wrong(
            "deployments.restart_pause_max",
            "must be at least deployments.restart_pause, which is the first of the pauses",
        );
    }
    Ok(())
}

fn builder(config: &Config) -> Result<(), Wrong> {
    for (key, image) in config.builder.images() {
        if image.parse::<images::Reference>().is_err() {
            let message = format!("has `{image}`, which is no name of an image such as holm/base");
            return wrong(key, message);
        }
    }
    let hosts = [
        ("builder.inside", &config.builder.inside),
        ("images.inside", &config.images.inside),
        ("callbacks.inside", &config.callbacks.inside),
    ];
    for (key, list) in hosts {
        if let Some(text) = list.iter().find(|text| !is_host(text)) {
            let message =
                format!("has `{text}`: name hosts alone, such as packages.lan or 10.0.0.7");
            return wrong(key, message);
        }
    }
    Ok(())
}

fn registry(config: &Config) -> Result<(), Wrong> {
    // The registry reserves room in steps, and each workspace needs several of them.
    const LEAST_MB: u64 = 16;
    match config.registry.disk_mb {
        1..LEAST_MB => {
            wrong("registry.disk_mb", "must be at least 16, or 0 for a quarter of what is free")
        }
        _ => Ok(()),
    }
}

/// True for a host name or an IP address without scheme, port or path, which is what hosts are
/// compared with.
fn is_host(text: &str) -> bool {
    let has_more = |c: char| matches!(c, '/' | '?' | '#' | '@') || c.is_whitespace();
    let is_address = text.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
    is_address || (!text.is_empty() && !text.contains(has_more) && !text.contains(':'))
}

fn builds(config: &Config) -> Result<(), Wrong> {
    let builds = &config.builds;
    // A build renews its lease when a quarter of it has passed, in a loop that runs once a second.
    if builds.lease.0 < Duration::from_secs(30) {
        return wrong("builds.lease", "must be at least 30s");
    }
    if builds.sources_workspace_mb_max < builds.upload_mb_max {
        return wrong(
            "builds.sources_workspace_mb_max",
            "must be at least builds.upload_mb_max: no upload of that size could begin",
        );
    }
    Ok(())
}

fn runners(config: &Config) -> Result<(), Wrong> {
    let runners = &config.runners;
    web_address("runners.api_url", &runners.api_url)?;
    let least = [("runners.pickup", runners.pickup, 10), ("runners.poll", runners.poll, 10)];
    for (key, span, seconds) in
        least.into_iter().chain([("runners.answer_timeout", runners.answer_timeout, 1)])
    {
        if span.0 < Duration::from_secs(seconds) {
            return wrong(key, format!("must be at least {seconds}s"));
        }
    }
    Ok(())
}

fn regions(config: &Config) -> Result<(), Wrong> {
    let regions = &config.placement.regions;
    if regions.is_empty() {
        return wrong(REGIONS, "is empty: name at least one region");
    }
    for (at, region) in regions.iter().enumerate() {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if region.name.is_empty() || !region.name.chars().all(plain) {
            return wrong(
                REGIONS,
                format!(
                    "has the name `{}`: use lower-case letters, digits and hyphens",
                    region.name
                ),
            );
        }
        if regions.iter().take(at).any(|other| other.name == region.name) {
            return wrong(REGIONS, format!("has `{}` twice", region.name));
        }
    }
    Ok(())
}

/// Returns values that are valid but most likely a mistake.
pub(super) fn doubts(config: &Config) -> Vec<Wrong> {
    let regions = config.placement.regions.iter().filter(|region| is_elsewhere(&region.name));
    let message = |name: &str| {
        format!(
            "has `{name}`, which looks like a region of the hosted service: published clients with HTTP/2 send requests \
             for such regions, with their credentials, there and not here; choose a name of your own, such as `berlin`"
        )
    };
    regions.map(|region| Wrong { key: REGIONS, message: message(&region.name) }).collect()
}

/// True if a region is named `auto` or looks like `us-pdx-1`, as those of the hosted service do.
fn is_elsewhere(region: &str) -> bool {
    let letters = |part: &str, count| {
        part.len() == count && part.bytes().all(|byte| byte.is_ascii_lowercase())
    };
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match region.split('-').collect::<Vec<_>>().as_slice() {
        ["auto"] => true,
        [area, city, number] => letters(area, 2) && letters(city, 3) && is_number(number),
        _ => false,
    }
}

fn observability(config: &Config) -> Result<(), Wrong> {
    log_level(&config.log.level)?;
    if !(0.0..=1.0).contains(&config.telemetry.sample_ratio) {
        return wrong("telemetry.sample_ratio", "must be between 0.0 and 1.0");
    }
    config
        .telemetry
        .otlp_endpoint
        .as_ref()
        .map_or(Ok(()), |url| web_address("telemetry.otlp_endpoint", url))
}

/// Checks the log level. The parser takes a lone word for the name of a module, so that a misspelt
/// level would silence everything else.
fn log_level(text: &str) -> Result<(), Wrong> {
    let lone_words_are_levels = text
        .split(',')
        .filter(|part| !part.contains('='))
        .all(|part| part.trim().parse::<LevelFilter>().is_ok());
    if lone_words_are_levels && text.parse::<Targets>().is_ok() {
        return Ok(());
    }
    wrong(
        "log.level",
        format!(
            "is `{text}`: write error, warn, info, debug or trace, or a list such as info,store=debug"
        ),
    )
}

fn web_address(key: &'static str, text: &str) -> Result<(), Wrong> {
    match reqwest::Url::parse(text) {
        Ok(url)
            if matches!(url.scheme(), "http" | "https")
                && url.query().is_none()
                && url.fragment().is_none() =>
        {
            Ok(())
        }
        _ => wrong(
            key,
            format!("is `{text}`: it must be an address such as https://holm.example.org"),
        ),
    }
}
