//! Applications: long-running programs that everybody may reach.

use crate::parts::{
    CoreEvent, Env, Head, Lifecycle, Metadata, Needs, RevisionConfiguration, Status, fixed, keep,
    limits, names,
};
use crate::{Kind, KindName, Problems, Reference, Stamp, Timestamp, World};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

const MEMORY_MB_DEFAULT: i64 = 2048;
const PORT_DEFAULT: i64 = 8080;
/// Revisions kept, and so as many as a body may list.
const REVISIONS_MAX: usize = 5;

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
    /// What its instances run on.
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
    /// Extensions by name.
    #[schemars(extend("maxProperties" = limits::LIST_MAX))]
    pub extensions: Option<BTreeMap<String, ApplicationExtension>>,
    #[schemars(length(max = limits::URL_MAX))]
    pub image: Option<String>,
    /// Megabytes. CPU cores are this divided by 2048.
    #[schemars(range(min = limits::MEMORY_MB_MIN, max = limits::MEMORY_MB_MAX))]
    pub memory: Option<i64>,
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i64>,
    /// The older form of the extension that binds to a sandbox.
    #[schemars(extend("default" = false))]
    pub proxy: Option<bool>,
    #[schemars(length(max = limits::WORD_MAX))]
    pub region: Option<String>,
    pub revision: Option<RevisionConfiguration>,
    /// What was deployed before. In a body, the first gives what the spec itself leaves out.
    #[schemars(length(max = REVISIONS_MAX))]
    pub revisions: Option<Vec<AppRevision>>,
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
    /// The sandbox to which requests go.
    #[schemars(length(max = 49))]
    pub sandbox: Option<String>,
}

/// An address of its own.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppUrl {
    /// A verified custom domain.
    #[schemars(length(min = 1, max = 253))]
    pub domain: String,
    /// For domains that stand for all their hosts.
    #[schemars(length(max = 63))]
    pub subdomain: Option<String>,
}

/// What the server knows of an application.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
    #[serde(default)]
    pub node_generation: Option<String>,
}

impl Kind for Application {
    const NAME: KindName = KindName::Application;
    const HAS_REVISIONS: bool = true;

    type State = State;

    head!();
    placed!();
    enabled!();

    fn check(&self, problems: &mut Problems) {
        let spec = &self.spec;
        Env::check_all(spec.envs.as_deref(), "spec.envs", problems);
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
    }

    fn complete(&mut self, old: Option<&Self>, _world: &World) {
        self.metadata.keep_external_id(old.map(|old| &old.metadata));
        let spec = &mut self.spec;
        spec.enabled.get_or_insert(true);
        keep(&mut spec.region, old.map(|old| &old.spec.region));
        let given = spec
            .revisions
            .take()
            .and_then(|revisions| revisions.into_iter().next())
            .unwrap_or_default();
        spec.image = spec.image.take().or(Some(given.image).filter(|image| !image.is_empty()));
        spec.envs = spec.envs.take().or(given.envs);
        spec.memory = spec.memory.or(given.memory).or(Some(MEMORY_MB_DEFAULT));
        spec.port = spec.port.or(given.port).or(Some(PORT_DEFAULT));
    }

    fn secrets(&mut self, visit: &mut dyn FnMut(&str, &mut String)) {
        Env::visit_all(self.spec.envs.as_mut(), visit);
        for revision in self.spec.revisions.iter_mut().flatten() {
            Env::visit_all(revision.envs.as_mut(), visit);
        }
    }

    fn references(&self) -> Vec<Reference> {
        let domain = |(index, url): (usize, &AppUrl)| {
            let field = format!("spec.urls[{index}].domain");
            Reference { kind: KindName::CustomDomain, name: url.domain.clone(), field }
        };
        self.spec.urls.iter().flatten().enumerate().map(domain).collect()
    }

    fn revision_mut(&mut self) -> Option<&mut RevisionConfiguration> {
        Some(self.spec.revision.get_or_insert_default())
    }

    fn lighten(&mut self) {
        self.events = None;
    }

    fn next_state(&self, old: Option<(&Self, &State)>, now: Timestamp) -> State {
        let changed = old.is_none_or(|(old, _)| old.spec != self.spec);
        let state = old.map(|(_, state)| state.clone());
        let lifecycle = Lifecycle::next(
            state.as_ref().map(|state| &state.lifecycle),
            changed,
            self.enabled(),
            Needs::Machine,
            now,
        );
        State { lifecycle, ..state.unwrap_or_default() }
    }

    fn status(state: &State) -> Option<Status> {
        state.lifecycle.status()
    }

    fn show(&mut self, stamp: &Stamp, state: &State, _now: Timestamp) {
        self.metadata.stamp(stamp);
        self.events = Some(state.lifecycle.shown_events());
        self.status = state.lifecycle.shown_status();
        self.node_generation.clone_from(&state.node_generation);
    }
}
