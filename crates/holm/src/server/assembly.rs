//! Assembly of the server's parts from the settings.

use crate::config::{Backend, Config, Egress, Meter, Region};
use crate::error::Error;
use crate::server::addresses::Urls;
use crate::server::dns::Dns;
use crate::server::machine::own_names;
use auth::Auth;
use auth::outside::Provider;
use control::Control;
use control::machine::{Builder, Edge, Machine};
use jobs::logs::Logs;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::Store;
use types::{KindName, World};

/// Parts of the control plane that only a process which runs workloads has.
#[derive(Clone)]
pub(crate) struct Local {
    pub(crate) machine: Option<Arc<dyn Machine>>,
    pub(crate) edge: Option<Arc<dyn Edge>>,
    pub(crate) builder: Option<Arc<dyn Builder>>,
}

pub(crate) async fn control(
    config: &Config,
    store: &Store,
    world: &World,
    urls: &Urls,
    auth: &Auth,
    local: Local,
    logs: Logs,
) -> Result<Control, Error> {
    let settings = control_settings(config, urls)?;
    let Local { machine, edge, builder } = local;
    let dns = Arc::new(Dns::open(&config.domains));
    let parts = control::Parts {
        store: store.clone(),
        auth: auth.clone(),
        world: world.clone(),
        settings,
        machine,
        edge,
        builder,
        logs,
        dns,
    };
    Control::new(parts)
        .await
        .map_err(|source| Error::Store { act: "start the interface".into(), source })
}

/// Opens the service that runs workflow jobs of a code host on Holm's runners.
pub(crate) fn runners(config: &Config, control: &Control) -> Result<jobs::runners::Runners, Error> {
    let opened = control::workloads::runners(control, config.runners.settings());
    opened
        .map_err(|error| Error::Start { act: "prepare runners".into(), message: error.to_string() })
}

pub(crate) async fn auth(
    config: &Config,
    store: &Store,
    world: &World,
    public_url: &str,
) -> Result<Auth, Error> {
    let settings = auth::Settings {
        issuer: public_url.to_owned(),
        feed_poll: config.store.feed_poll.0,
        outside: outside(config),
        limits: config.auth.limits(),
    };
    let auth = Auth::new(store.clone(), settings, world.clone()).await;
    auth.map_err(|source| Error::Store { act: "start authentication".into(), source })
}

/// Starts the store for what tasks and replicas print.
pub(crate) fn logs(config: &Config, store: &Store) -> Logs {
    Logs::start(store.clone(), config.logs.settings())
}

/// Returns the outside sign-in provider, if one is configured. The check of the settings makes sure
/// that issuer, id and secret are set together.
fn outside(config: &Config) -> Option<Provider> {
    Some(Provider {
        name: config.auth.oidc_name.clone(),
        issuer: config.auth.oidc_issuer.clone()?,
        client_id: config.auth.oidc_client_id.clone()?,
        client_secret: config.auth.oidc_client_secret.clone()?,
    })
}

fn control_settings(config: &Config, urls: &Urls) -> Result<control::Settings, Error> {
    let limits = &config.limits;
    Ok(control::Settings {
        public_url: urls.public.clone(),
        content_url: urls.content.clone(),
        own_names: own_names(config, urls),
        regions: config.placement.regions.iter().map(|one| region(config, one)).collect(),
        catalogue: catalogue(config)?,
        body_max: config.server.body_bytes_max,
        objects_bytes_max: limits.objects_bytes_max,
        bare_list_max: limits.bare_list_max.into(),
        list_bytes_max: limits.list_bytes_max,
        sandbox_drives_max: limits.sandbox_drives_max,
        answers_day_bytes_max: limits.answers_day_bytes_max,
        key_rate: control::Rate { per_second: limits.key_per_second, burst: limits.key_burst },
        workspace_rate: control::Rate {
            per_second: limits.workspace_per_second,
            burst: limits.workspace_burst,
        },
        trigger_rate: control::Rate {
            per_second: limits.trigger_per_second,
            burst: limits.trigger_burst,
        },
        quotas: quotas(config),
        bill: bill(&config.meter),
        bodies: config.server.bodies(),
        streams: control::StreamLimits {
            total: config.server.streams_max as u64,
            workspace: config.server.streams_workspace_max as u64,
            holder: config.server.streams_key_max as u64,
        },
        feed_poll: config.store.feed_poll.0,
        jobs: config.jobs.settings(config.node.workspace_share_percent),
        deployments: config.deployments.settings(config.node.workspace_share_percent),
        registry: config.registry.upkeep(),
        builds: config.builds.settings(),
        snapshots: config.snapshots.settings(),
        template_copies: config.objects.template_copies(config.snapshots.offload_after.0),
        s3: config.s3.settings(),
        log_searches: config.logs.searches(),
        egress: config
            .egress
            .own_addresses()
            .map_err(|message| Error::Start { act: "use egress.addresses".to_owned(), message })?,
        models: config.models.asking(),
    })
}

fn bill(meter: &Meter) -> control::Bill {
    control::Bill {
        first_prices: meter
            .prices
            .iter()
            .map(|(name, price)| (name.clone(), price.0.clone()))
            .collect(),
        budget_every: meter.budget_every.0,
        roll_every: meter.roll_every.0,
        pack_every: meter.pack_every.0,
        budgets_max: meter.budgets_max.into(),
        points_max: meter.points_max,
    }
}

/// Reads the operator's catalogue. If it lists no sandbox images or no MCP servers, those of the
/// project are used.
fn catalogue(config: &Config) -> Result<control::Catalogue, Error> {
    let mut catalogue = catalogue_file(config)?;
    let refused = |message: String| Error::Start { act: "read the hub".into(), message };
    if catalogue.servers.is_empty() {
        catalogue.servers = super::hub::servers().map_err(|error| refused(error.to_string()))?;
    }
    catalogue.check().map_err(refused)?;
    if catalogue.sandboxes.is_empty() {
        let hub = super::hub::definitions();
        catalogue.sandboxes = hub.map_err(|error| Error::Start {
            act: "read the recipes".into(),
            message: error.to_string(),
        })?;
    }
    Ok(catalogue)
}

fn catalogue_file(config: &Config) -> Result<control::Catalogue, Error> {
    let Some(file) = &config.catalogue.file else { return Ok(control::Catalogue::default()) };
    let act = || format!("read the catalogue {} (catalogue.file)", file.display());
    let text = std::fs::read_to_string(file).map_err(Error::io(act()))?;
    serde_norway::from_str(&text)
        .map_err(|error| Error::Start { act: act(), message: error.to_string() })
}

fn quotas(config: &Config) -> BTreeMap<KindName, i64> {
    let limits = &config.limits;
    let quota = |kind: KindName| {
        limits.quotas.get(kind.plural()).copied().unwrap_or(limits.objects_max).into()
    };
    KindName::ALL.iter().map(|kind| (*kind, quota(*kind))).collect()
}

/// Describes a region. All servers of an installation are taken to have the same settings of
/// machines.
fn region(config: &Config, region: &Region) -> types::wire::Region {
    let told = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    types::wire::Region {
        name: Some(region.name.clone()),
        location: Some(region.name.clone()),
        country: told(&region.country),
        continent: told(&region.continent),
        allowed: Some("true".to_owned()),
        drives_available: Some(config.node.backend == Backend::Direct),
        proxy_available: Some(config.node.egress != Egress::Nothing),
        egress_available: Some(!config.egress.addresses.is_empty()),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_says_what_its_machines_can_do() {
        let mut config = crate::config::load(None, std::iter::empty(), &[]).unwrap();
        let told = |config: &Config| {
            let region = region(config, &config.placement.regions[0]);
            [region.drives_available, region.proxy_available, region.egress_available]
        };
        assert_eq!(told(&config), [Some(true), Some(true), Some(false)]);
        config.node.backend = Backend::Runc;
        config.node.egress = Egress::Nothing;
        config.egress.addresses = vec!["192.0.2.1".to_owned()];
        assert_eq!(told(&config), [Some(false), Some(false), Some(true)]);
    }

    /// The documentation is the only description of this file that operators have, so its example
    /// must work.
    #[test]
    fn the_catalogue_of_the_documents_can_be_read() {
        let page = include_str!("../../../../docs/configuration.md");
        let (_, section) = page.split_once("## The catalogue").unwrap();
        let example =
            section.split("```").nth(1).and_then(|block| block.strip_prefix("yaml")).unwrap();
        let catalogue: control::Catalogue = serde_norway::from_str(example).unwrap();
        assert_eq!(catalogue.templates[0].name.as_deref(), Some("starter"));
        assert_eq!(catalogue.sandboxes[0].memory, Some(4096));
        assert_eq!(catalogue.servers[0].name.as_deref(), Some("search"));
        assert!(catalogue.changelog.len() == 1 && catalogue.features["reports"]);
        assert_eq!(
            catalogue.public_ips["local"].ipv4_cidrs.as_deref(),
            Some(["192.0.2.0/28".to_owned()].as_slice())
        );
        // A new section of the catalogue would have to be documented and counted here.
        let parts: std::collections::BTreeMap<String, serde_json::Value> =
            serde_norway::from_str(example).unwrap();
        assert_eq!(parts.len(), 6);
    }
}
