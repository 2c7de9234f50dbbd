//! Checks of what runs workloads, builds and keeps images.

use super::addresses::{is_host, web_address};
use crate::config::error::{Wrong, wrong, wrong_beside};
use crate::config::{Config, Node, Role};
use std::time::Duration;

pub(super) fn node(config: &Config) -> Result<(), Wrong> {
    subnet(&config.node)?;
    if !(1..=100).contains(&config.node.workspace_share_percent) {
        return wrong("node.workspace_share_percent", "must be between 1 and 100");
    }
    user_ids(&config.node)?;
    let roles = &config.server.roles;
    match (roles.contains(&Role::Node), roles.contains(&Role::Gateway)) {
        (true, false) => {
            wrong("server.roles", "has node without gateway: requests could not reach what runs")
        }
        (false, true) => wrong(
            "server.roles",
            "has gateway without node: it leads only to what runs in the same process, so name both",
        ),
        // Not to start is better than only seeming to serve.
        _ if !roles.contains(&Role::Api) => wrong(
            "server.roles",
            "has no api: a server without it comes with a later release; name api, alone or with gateway and node",
        ),
        _ => Ok(()),
    }
}

const SUBNET: &str = "node.subnet";
/// What no machine passes on, or uses for itself: "this network", loopback, the links to instances
/// and metadata services, multicast, and what is reserved.
const NOT_FOR_INSTANCES: [&str; 5] =
    ["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4"];

/// Checks that instances can have addresses of the subnet.
fn subnet(node: &Node) -> Result<(), Wrong> {
    let subnet = match node.subnet.parse::<node::Subnet>() {
        Ok(subnet) => subnet,
        Err(error) => return wrong(SUBNET, error.to_string()),
    };
    if subnet.slots() == 0 {
        return wrong(
            SUBNET,
            format!("is {subnet}, which has no address for a sandbox: use /30 or a larger one"),
        );
    }
    let overlaps = |range: &&&str| range.parse().is_ok_and(|range| subnet.overlaps(range));
    match NOT_FOR_INSTANCES.iter().find(overlaps) {
        Some(range) => wrong(
            SUBNET,
            format!(
                "is {subnet}, and sandboxes cannot have the addresses of {range} in it: use private ones, such as 10.89.0.0/16"
            ),
        ),
        None => Ok(()),
    }
}

/// Returns a doubt if the subnet has fewer addresses than there may be instances. Then some launches
/// are refused, and all else works.
pub(super) fn doubt(config: &Config) -> Option<Wrong> {
    let node = &config.node;
    let subnet = node.subnet.parse::<node::Subnet>().ok()?;
    let (slots, ready) = (u64::from(subnet.slots()), u64::from(node.ready));
    let wanted = u64::from(node.instances_max) + ready;
    let message = format!(
        "is {subnet}, which has addresses for {slots} sandboxes; node.instances_max and node.ready ask for {wanted}: \
         what is more will be refused, so use a larger subnet or lower one of the others"
    );
    let is_short = wanted > slots && config.server.roles.contains(&Role::Node);
    is_short.then(|| Wrong { beside: Some("node.instances_max"), ..Wrong::new(SUBNET, message) })
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
        return wrong_beside(
            KEY,
            "node.instances_max",
            format!(
                "is {first}, which leaves ids for {room} sandboxes of {each} each below 2^32; node.instances_max and \
                 node.ready ask for {instances}: lower one of the three"
            ),
        );
    }
    Ok(())
}

pub(super) fn deployments(config: &Config) -> Result<(), Wrong> {
    let deployments = &config.deployments;
    if deployments.replicas > deployments.replicas_max {
        return wrong_beside(
            "deployments.replicas",
            "deployments.replicas_max",
            "must be at most deployments.replicas_max",
        );
    }
    if deployments.restart_pause_max.0 < deployments.restart_pause.0 {
        return wrong_beside(
            "deployments.restart_pause_max",
            "deployments.restart_pause",
            "must be at least deployments.restart_pause, which is the first of the pauses",
        );
    }
    Ok(())
}

pub(super) fn builder(config: &Config) -> Result<(), Wrong> {
    for (key, image) in config.builder.images() {
        if image.parse::<images::Reference>().is_err() {
            let message = format!("has `{image}`, which is no name of an image such as holm/base");
            return wrong(key, message);
        }
    }
    let hosts =
        [("builder.inside", &config.builder.inside), ("images.inside", &config.images.inside)];
    for (key, list) in hosts {
        if let Some(text) = list.iter().find(|text| !is_host(text)) {
            let message = format!(
                "has `{text}`: name hosts alone, without `*`, such as packages.lan or 10.0.0.7"
            );
            return wrong(key, message);
        }
    }
    Ok(())
}

/// Checks the hosts of callbacks. A trigger that leads to `localhost` or to an internal address as a
/// number is refused whatever is listed.
pub(super) fn callbacks(config: &Config) -> Result<(), Wrong> {
    const KEY: &str = "callbacks.inside";
    let inside = &config.callbacks.inside;
    if let Some(text) = inside.iter().find(|text| !is_host(text)) {
        let message = format!("has `{text}`: name hosts alone, without `*`, such as hooks.lan");
        return wrong(KEY, message);
    }
    match inside.iter().find(|text| !is_name_of_another(text)) {
        Some(text) => wrong(
            KEY,
            format!(
                "has `{text}`: callbacks never go to localhost or to an internal address written as a number; name the host, such as hooks.lan"
            ),
        ),
        None => Ok(()),
    }
}

/// True for a host with a name, however an address may be spelled, other than this machine.
fn is_name_of_another(host: &str) -> bool {
    let host = host.trim_end_matches('.');
    let url = reqwest::Url::parse(&format!("http://{host}/")).ok();
    let is_name = url.is_some_and(|url| url.domain().is_some());
    is_name && !host.eq_ignore_ascii_case("localhost")
}

pub(super) fn registry(config: &Config) -> Result<(), Wrong> {
    // The registry reserves room in steps, and each workspace needs several of them.
    const LEAST_MB: u64 = 16;
    match config.registry.disk_mb {
        1..LEAST_MB => {
            wrong("registry.disk_mb", "must be at least 16, or 0 for a quarter of what is free")
        }
        _ => Ok(()),
    }
}

pub(super) fn builds(config: &Config) -> Result<(), Wrong> {
    let builds = &config.builds;
    // A build renews its lease when a quarter of it has passed, in a loop that runs once a second.
    if builds.lease.0 < Duration::from_secs(30) {
        return wrong("builds.lease", "must be at least 30s");
    }
    if builds.sources_workspace_mb_max < builds.upload_mb_max {
        return wrong_beside(
            "builds.sources_workspace_mb_max",
            "builds.upload_mb_max",
            "must be at least builds.upload_mb_max: no upload of that size could begin",
        );
    }
    Ok(())
}

pub(super) fn runners(config: &Config) -> Result<(), Wrong> {
    let runners = &config.runners;
    web_address("runners.api_url", &runners.api_url)?;
    let is_label = |label: &&String| !label.is_empty() && !label.contains([' ', '\t', '\n', ',']);
    if let Some(label) = runners.labels.iter().find(|label| !is_label(label)) {
        return wrong("runners.labels", format!("has `{label}`: a label is one word, such as x64"));
    }
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
