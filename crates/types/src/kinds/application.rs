//! Applications: long-running programs that everybody can reach.

use super::network::Network;
use crate::instance::{GUEST_PORT, REPLICA_GUEST_PORT};
use crate::parts::{
    CoreEvent, Deployment, Env, Head, Metadata, RevisionConfiguration, Status, fixed, keep, limits,
    names,
};
use crate::{Kind, KindName, ObjectMetadata, Problems, Reference, Timestamp, World};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

const MEMORY_MB_DEFAULT: i64 = 2048;
const PORT_DEFAULT: i64 = 8080;
/// The only extension there is: the application stands for a sandbox.
const BIND_TO_SANDBOX: &str = "ai.blaxel.experimental/bind-to-sandbox";

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Application {
    pub metadata: Metadata,
    pub spec: ApplicationSpec,
    #[serde(skip_deserializing)]
    pub events: Option<Vec<CoreEvent>>,
    #[serde(skip_deserializing)]
    pub status: Option<Status>,
    /// Generation that its instances run on.
    #[serde(skip_deserializing)]
    pub node_generation: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationSpec {
    #[schemars(extend("default" = true))]
    pub enabled: Option<bool>,
    #[schemars(length(max = limits::ENVS_MAX))]
    pub envs: Option<Vec<Env>>,
    /// Extensions by name. The only one is `ai.blaxel.experimental/bind-to-sandbox`.
    #[schemars(extend("maxProperties" = limits::LIST_MAX))]
    pub extensions: Option<BTreeMap<String, ApplicationExtension>>,
    #[schemars(length(max = limits::URL_MAX))]
    pub image: Option<String>,
    /// Memory in megabytes. The number of CPU cores is this divided by 2048.
    #[schemars(range(min = limits::MEMORY_MB_MIN, max = limits::MEMORY_MB_MAX))]
    pub memory: Option<i64>,
    /// Network access of the instances, as for sandboxes.
    pub network: Option<Network>,
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i64>,
    /// Older form of the extension that binds to a sandbox.
    #[schemars(extend("default" = false))]
    pub proxy: Option<bool>,
    #[schemars(length(max = limits::WORD_MAX))]
    pub region: Option<String>,
    pub revision: Option<RevisionConfiguration>,
    /// Earlier deployments. In a request, the first one supplies what the spec itself leaves out.
    #[schemars(length(max = limits::REVISIONS_LISTED_MAX))]
    pub revisions: Option<Vec<AppRevision>>,
    /// The snapshot that its instances start from, over the same image. Set by forks; it stays
    /// until the image changes.
    #[schemars(length(max = limits::WORD_MAX))]
    pub snapshot: Option<String>,
    #[schemars(length(max = limits::LIST_MAX))]
    pub urls: Option<Vec<AppUrl>>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppRevision {
    #[schemars(length(max = limits::URL_MAX))]
    pub image: String,
    pub created_at: Option<Timestamp>,
    #[schemars(length(max = limits::WORD_MAX))]
    pub created_by: Option<String>,
    #[schemars(length(max = limits::ENVS_MAX))]
    pub envs: Option<Vec<Env>>,
    #[schemars(length(max = limits::WORD_MAX))]
    pub id: Option<String>,
    #[schemars(range(min = limits::MEMORY_MB_MIN, max = limits::MEMORY_MB_MAX))]
    pub memory: Option<i64>,
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i64>,
    #[schemars(length(max = limits::WORD_MAX))]
    pub snapshot: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationExtension {
    /// Name of the sandbox that requests are sent to.
    #[schemars(length(max = 49))]
    pub sandbox: Option<String>,
}

/// A further address of an application, at a custom domain.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppUrl {
    /// Name of a verified custom domain.
    #[schemars(length(min = 1, max = 253))]
    pub domain: String,
    /// Label below the domain, for domains that stand for all their subdomains.
    #[schemars(length(max = 63))]
    pub subdomain: Option<String>,
}

impl Kind for Application {
    const NAME: KindName = KindName::Application;
    const HAS_REVISIONS: bool = true;

    head!();
    placed!();
    enabled!();
    deployment!();

    fn check(&self, problems: &mut Problems) {
        let spec = &self.spec;
        Env::check_all(spec.envs.as_deref(), "spec.envs", problems);
        let free = spec.port != Some(i64::from(REPLICA_GUEST_PORT));
        problems.require(free, "spec.port", "is the one port that the server has in instances");
        self.check_binding(problems);
        if let Some(network) = &spec.network {
            network.check_replicated(problems);
        }
        for (index, revision) in spec.revisions.iter().flatten().enumerate() {
            Env::check_all(
                revision.envs.as_deref(),
                &format!("spec.revisions[{index}].envs"),
                problems,
            );
        }
        for (index, url) in spec.urls.iter().flatten().enumerate() {
            let at = format!("spec.urls[{index}]");
            problems.require(
                names::is_dns_name(&url.domain),
                format!("{at}.domain"),
                "must be a domain name",
            );
            let subdomain = url.subdomain.as_deref().unwrap_or_default();
            let well = subdomain.is_empty() || names::is_dns_label(subdomain);
            problems.require(well, format!("{at}.subdomain"), "must be one label of a domain name");
        }
    }

    fn check_change(&self, old: &Self, problems: &mut Problems) {
        fixed(&self.spec.region, &old.spec.region, "spec.region", problems);
        Network::check_change(self.spec.network.as_ref(), old.spec.network.as_ref(), problems);
    }

    fn complete(&mut self, old: Option<&Self>, _world: &World) {
        self.metadata.keep_external_id(old.map(|old| &old.metadata));
        let spec = &mut self.spec;
        spec.enabled.get_or_insert(true);
        keep(&mut spec.region, old.map(|old| &old.spec.region));
        Network::keep(&mut spec.network, old.and_then(|old| old.spec.network.as_ref()));
        let given = spec
            .revisions
            .take()
            .and_then(|revisions| revisions.into_iter().next())
            .unwrap_or_default();
        spec.image = spec.image.take().or(Some(given.image).filter(|image| !image.is_empty()));
        spec.envs = spec.envs.take().or(given.envs);
        let same_image = old.filter(|old| old.spec.image == spec.image);
        keep(&mut spec.snapshot, same_image.map(|old| &old.spec.snapshot));
        spec.memory = spec.memory.or(given.memory).or(Some(MEMORY_MB_DEFAULT));
        spec.port = spec.port.or(given.port);
        // In a sandbox, the default port is the guest's, which nobody should expose by mistake.
        if self.bound_sandbox().is_none() {
            self.spec.port.get_or_insert(PORT_DEFAULT);
        }
    }

    fn secrets(&mut self, visit: &mut dyn FnMut(&str, &mut String)) {
        Env::visit_all(self.spec.envs.as_mut(), visit);
        if let Some(network) = &mut self.spec.network {
            network.secrets(visit);
        }
        for revision in self.spec.revisions.iter_mut().flatten() {
            Env::visit_all(revision.envs.as_mut(), visit);
        }
    }

    fn envs_mut(&mut self) -> Option<&mut Vec<Env>> {
        self.spec.envs.as_mut()
    }

    fn leave_out_write_only(&mut self) {
        if let Some(network) = &mut self.spec.network {
            network.leave_out_secrets();
        }
    }

    fn references(&self) -> Vec<Reference> {
        let domain = |(index, url): (usize, &AppUrl)| {
            let field = format!("spec.urls[{index}].domain");
            Reference { kind: KindName::CustomDomain, name: url.domain.clone(), field }
        };
        self.spec.urls.iter().flatten().enumerate().map(domain).collect()
    }

    revised!();
}

impl Application {
    /// Makes a wish; all read-only members are empty.
    pub fn new(metadata: Metadata, spec: ApplicationSpec) -> Self {
        Self { metadata, spec, events: None, status: None, node_generation: None }
    }

    /// Returns the sandbox that answers in place of replicas, whatever the revision.
    pub fn bound_sandbox(&self) -> Option<&str> {
        let extension = self.spec.extensions.as_ref()?.get(BIND_TO_SANDBOX)?;
        extension.sandbox.as_deref().filter(|sandbox| !sandbox.is_empty())
    }

    fn check_binding(&self, problems: &mut Problems) {
        let spec = &self.spec;
        for (name, extension) in spec.extensions.iter().flatten() {
            let at = format!("spec.extensions[{name}]");
            let known = name == BIND_TO_SANDBOX;
            problems.require(
                known,
                at.clone(),
                format!("is unknown; there is `{BIND_TO_SANDBOX}`"),
            );
            let named = extension.sandbox.as_ref().is_some_and(|sandbox| !sandbox.is_empty());
            problems.require(named || !known, format!("{at}.sandbox"), "must name a sandbox");
        }
        if self.bound_sandbox().is_none() {
            let proxy = spec.proxy == Some(true);
            let why = format!("does not say where to; name a sandbox in `{BIND_TO_SANDBOX}`");
            problems.require(!proxy, "spec.proxy", why);
            return;
        }
        let guest = i64::from(GUEST_PORT);
        let of_program = spec.port.is_some_and(|port| port != guest);
        let why = format!(
            "must be that of a program in the sandbox; {guest} is the interface of the sandbox itself, which is not for everybody"
        );
        problems.require(of_program, "spec.port", why);
        problems.require(
            spec.network.is_none(),
            "spec.network",
            "is that of the sandbox: set it there",
        );
        let canary = spec.revision.as_ref().and_then(|revision| revision.canary.as_deref());
        let no_canary = canary.is_none_or(str::is_empty);
        problems.require(
            no_canary,
            "spec.revision.canary",
            "goes with replicas, not with a sandbox",
        );
    }
}
