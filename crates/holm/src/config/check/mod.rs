//! Checks of the settings that their types cannot express.

mod addresses;
mod counts;
mod limits;
mod regions;
mod spans;
mod work;

use super::error::{Wrong, wrong, wrong_beside};
use super::{Config, Role, Server};
use addresses::{is_host, origin, web_address};

/// Returns values that are valid but most likely a mistake.
pub(super) fn doubts(config: &Config) -> Vec<Wrong> {
    let mut doubts = regions::doubts(config);
    doubts.extend(config.objects.doubt());
    doubts.extend(work::doubt(config));
    doubts
}

pub(super) fn check(config: &Config) -> Result<(), Wrong> {
    server(config)?;
    spans::spans(config)?;
    counts::counts(config)?;
    data(config)?;
    store(config)?;
    auth(config)?;
    first_start(config)?;
    domains(config)?;
    work::node(config)?;
    let share_percent = config.node.workspace_share_percent;
    let jobs = config.jobs.settings(share_percent);
    jobs.check()
        .map_err(|bad| Wrong { beside: bad.beside, ..Wrong::new(bad.setting, bad.right) })?;
    work::deployments(config)?;
    work::builds(config)?;
    work::builder(config)?;
    work::callbacks(config)?;
    config.objects.check()?;
    config.egress.check()?;
    config.models.check()?;
    limits::limits(config)?;
    work::registry(config)?;
    work::runners(config)?;
    regions::regions(config)?;
    observability(config)
}

/// More would only cost memory: each thread serves as many connections as come.
const THREADS_MAX: usize = 1024;

/// Longer than a workload on this machine takes for an answer that is worth waiting for awake.
const BUSY_POLL_US_MAX: u32 = 1000;

fn server(config: &Config) -> Result<(), Wrong> {
    let server = &config.server;
    if server.threads > THREADS_MAX {
        return wrong("server.threads", "must be at most 1024");
    }
    if server.busy_poll_us > BUSY_POLL_US_MAX {
        return wrong("server.busy_poll_us", "must be at most 1000");
    }
    if !server.public_url.is_empty() {
        origin("server.public_url", &server.public_url)?;
    }
    if let Some(url) = &server.content_url {
        origin("server.content_url", url)?;
    }
    roles(&server.roles)?;
    content(server)?;
    if server.tls_certificate.is_some() != server.tls_key.is_some() {
        let (key, other) = match server.tls_key {
            None => ("server.tls_key", "server.tls_certificate"),
            Some(_) => ("server.tls_certificate", "server.tls_key"),
        };
        return wrong_beside(
            key,
            other,
            "is missing: server.tls_certificate and server.tls_key go together",
        );
    }
    if server.connections_signed_in >= server.connections_max {
        return wrong_beside(
            "server.connections_signed_in",
            "server.connections_max",
            "must be less than server.connections_max: nobody could sign in",
        );
    }
    Ok(())
}

fn roles(roles: &[Role]) -> Result<(), Wrong> {
    const KEY: &str = "server.roles";
    if roles.is_empty() {
        return wrong(KEY, "is empty: name at least one of api, gateway, node");
    }
    let twice = |role: &Role| roles.iter().filter(|other| *other == role).count() > 1;
    match roles.iter().any(twice) {
        true => wrong(KEY, "names a role twice"),
        false => Ok(()),
    }
}

/// Checks where workloads' content is. An IP address or `localhost` has no hosts below it, so its
/// whole origin must differ from that of the server's own pages.
fn content(server: &Server) -> Result<(), Wrong> {
    const LISTEN: &str = "server.listen";
    const CONTENT_LISTEN: &str = "server.content_listen";
    let mut server = server.clone();
    server.normalise();
    let (own, at) = (server.listen, server.content_listen());
    if server.needs_content_port() && at.is_none() {
        let message = "is missing, and there is no port after that of server.listen";
        return wrong_beside(CONTENT_LISTEN, LISTEN, message);
    }
    if server.needs_content_port() && own.port() != 0 && at == Some(own) {
        let message = "is server.listen: content needs an address of its own";
        return wrong_beside(CONTENT_LISTEN, LISTEN, message);
    }
    // Ports that the machine chooses are known once the server listens.
    let port = at.map_or(0, |at| at.port());
    let is_known = (own.port() != 0 || !server.public_url.is_empty())
        && (port != 0 || server.content_url.is_some());
    let url = server.content_origin(own, port);
    if !is_known || types::hosts::has_hosts(&url) || url != server.public_origin(own) {
        return Ok(());
    }
    let beside = if server.public_url.is_empty() { LISTEN } else { "server.public_url" };
    let key = server.content_url.as_ref().map_or(CONTENT_LISTEN, |_| "server.content_url");
    wrong_beside(
        key,
        beside,
        format!(
            "puts content at {url}, where the server's own pages are: give another port, or a name that hosts can be below"
        ),
    )
}

/// Checks the data folder. No text would be the current folder, so that a server started elsewhere
/// would begin anew; so would one in a folder of the name `~`, which only shells replace.
fn data(config: &Config) -> Result<(), Wrong> {
    const KEY: &str = "data.folder";
    let folder = &config.data.folder;
    if folder.as_os_str().is_empty() {
        return wrong(KEY, "is empty: name a folder, such as ./data or /var/lib/holm");
    }
    match folder.starts_with("~") {
        true => wrong(
            KEY,
            format!(
                "is `{}`, and nobody replaces the `~`: write the whole path, such as /var/lib/holm",
                folder.display()
            ),
        ),
        false => Ok(()),
    }
}

fn store(config: &Config) -> Result<(), Wrong> {
    match &config.store.url {
        Some(url) if !url.starts_with("postgres://") && !url.starts_with("postgresql://") => wrong(
            "store.url",
            "must start with postgres://, or be empty for SQLite in the data folder",
        ),
        Some(url) => store::database_servers(url)
            .map(drop)
            .or_else(|error| wrong("store.url", format!("cannot be used: {error}"))),
        None if config.store.log_pages_max < config.store.log_pages => wrong_beside(
            "store.log_pages_max",
            "store.log_pages",
            "must be at least store.log_pages, from which on pages are moved",
        ),
        None => Ok(()),
    }
}

/// Longest name of the first account. Display names of workspaces may be as long.
const ACCOUNT_NAME_MAX: usize = 63;

/// Checks what the first start makes: it takes the names as they are.
fn first_start(config: &Config) -> Result<(), Wrong> {
    let first = &config.first_start;
    if auth::people::check_email(&first.admin_email).is_err() {
        let message = format!(
            "is `{}`: it must be an e-mail address such as admin@example.org",
            first.admin_email
        );
        return wrong("first_start.admin_email", message);
    }
    let account = &first.account;
    let is_short = (1..=ACCOUNT_NAME_MAX).contains(&account.chars().count());
    if !is_short || account.trim().is_empty() || account.contains(char::is_control) {
        return wrong(
            "first_start.account",
            format!("must have 1 to {ACCOUNT_NAME_MAX} characters on one line, such as Main"),
        );
    }
    match auth::workspaces::broken_rule(&first.workspace) {
        Some(rule) => {
            wrong("first_start.workspace", format!("is `{}`: a name {rule}", first.workspace))
        }
        None => Ok(()),
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
    match (missing, parts.iter().find(|(_, value)| value.is_some())) {
        (Some((key, _)), Some((other, _))) => {
            wrong_beside(key, other, "is missing: the three oidc settings go together")
        }
        _ => auth
            .oidc_issuer
            .as_ref()
            .map_or(Ok(()), |issuer| web_address("auth.oidc_issuer", issuer)),
    }
}

fn domains(config: &Config) -> Result<(), Wrong> {
    if let Some(text) = config.gateway.domains.iter().find(|text| !is_host(text)) {
        let message =
            format!("has `{text}`: name hosts alone, without `*`, such as holm.example.org");
        return wrong("gateway.domains", message);
    }
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

fn observability(config: &Config) -> Result<(), Wrong> {
    if config.log.targets().is_none() {
        return wrong(
            "log.level",
            format!(
                "is `{}`: write error, warn, info, debug, trace or off, or a list such as info,store=debug",
                config.log.level
            ),
        );
    }
    if !(0.0..=1.0).contains(&config.telemetry.sample_ratio) {
        return wrong("telemetry.sample_ratio", "must be between 0.0 and 1.0");
    }
    config
        .telemetry
        .otlp_endpoint
        .as_ref()
        .map_or(Ok(()), |url| web_address("telemetry.otlp_endpoint", url))
}
