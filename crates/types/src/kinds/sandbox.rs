//! Sandboxes: machines that a caller starts, uses and leaves alone, and that sleep when idle.

mod lifecycle;
mod runtime;

use super::network::Network;
use crate::drive_mounts::MountedDrive;
use crate::egress::EgressRules;
use crate::ids::ResourceId;
use crate::instance::InstanceName;
use crate::parts::{
    CoreEvent, Env, Generation, Head, Lifecycle, Metadata, Needs, Sensitive, Status, TextMap,
    VolumeAttachment, duration, fixed, keep, limits, visit_sensitive,
};
use crate::{Kind, KindName, Naming, ObjectMetadata, Problems, Reference, Timestamp, World};
pub use lifecycle::{ExpirationAction, ExpirationPolicy, ExpirationType, SandboxLifecycle};
pub use runtime::SandboxRuntime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

const IMAGE_DEFAULT: &str = "blaxel/base-image:latest";
const MEMORY_MB_DEFAULT: i64 = 4096;
const PERSISTENT_VOLUMES_MAX: usize = 1;
const RETENTION_S_DEFAULT: i64 = 300;
/// Type of the events about a sandbox's network.
const NETWORK: &str = "network";

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sandbox {
    pub metadata: Metadata,
    pub spec: SandboxSpec,
    /// Problems of the underlying infrastructure.
    #[serde(skip_deserializing)]
    pub errors: Option<Vec<SandboxInfrastructureError>>,
    #[serde(skip_deserializing)]
    pub archive: Option<SandboxArchive>,
    #[serde(skip_deserializing)]
    pub events: Option<Vec<CoreEvent>>,
    /// Seconds until the sandbox is deleted, if it has an end.
    #[serde(skip_deserializing)]
    pub expires_in: Option<i64>,
    #[serde(skip_deserializing)]
    pub last_used_at: Option<Timestamp>,
    #[serde(skip_deserializing)]
    pub node_generation: Option<String>,
    #[serde(skip_deserializing)]
    pub state: Option<Activity>,
    #[serde(skip_deserializing)]
    pub status: Option<Status>,
}

/// The archived files of a sandbox. Memory and processes are not archived.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxArchive {
    #[schemars(extend("readOnly" = true))]
    pub created_at: Option<Timestamp>,
    /// Generation that the sandbox ran on.
    #[schemars(extend("readOnly" = true))]
    pub generation: Option<String>,
    #[schemars(extend("readOnly" = true))]
    pub restore_started_at: Option<Timestamp>,
    /// Size in bytes.
    #[schemars(extend("readOnly" = true))]
    pub size: Option<u64>,
    #[schemars(extend("readOnly" = true))]
    pub started_at: Option<Timestamp>,
}

/// Whether a sandbox runs or sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Activity {
    Running,
    Standby,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxSpec {
    #[schemars(extend("default" = true))]
    pub enabled: Option<bool>,
    pub lifecycle: Option<SandboxLifecycle>,
    pub network: Option<Network>,
    #[schemars(length(max = limits::WORD_MAX))]
    pub region: Option<String>,
    pub runtime: Option<SandboxRuntime>,
    #[schemars(length(max = limits::LIST_MAX))]
    pub volumes: Option<Vec<VolumeAttachment>>,
    #[schemars(length(max = limits::WORD_MAX))]
    pub vpc: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxInfrastructureError {
    pub code: Option<String>,
    /// True if the sandbox cannot continue.
    pub fatal: Option<bool>,
    pub instance: Option<String>,
    pub message: Option<String>,
    pub time: Option<Timestamp>,
}

/// What the server knows about a sandbox beside its wish.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
    #[serde(default)]
    pub errors: Vec<SandboxInfrastructureError>,
    #[serde(default)]
    pub activity: Option<Activity>,
    /// Time of the last resume or suspend.
    #[serde(default)]
    pub last_used_at: Option<Timestamp>,
    #[serde(default)]
    pub node_generation: Option<String>,
    /// Number of the launch that the wish asks for. Rises when the instance has to be created anew.
    #[serde(default)]
    pub launch: u32,
    /// The launch that was last seen running.
    #[serde(default)]
    pub placed: Option<Placement>,
    /// Row of the snapshot that its instances start from, over the same image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<ResourceId>,
    /// True if its disk must be discarded before the next instance: a restore starts from another
    /// one, and another image with an empty one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh_disk: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<SandboxArchive>,
    /// Drives that are mounted, or about to be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drives: Vec<DriveAttachment>,
    /// How many times its egress rules have changed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rules: u32,
    /// Value of [`State::rules`] that its instance has applied.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rules_kept: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl State {
    /// Returns true if the sandbox is archived, or on its way there or back.
    pub fn is_away(&self) -> bool {
        let status = self.lifecycle.status();
        matches!(status, Some(Status::Archiving | Status::Archived | Status::Unarchiving))
    }

    /// Returns true if its time was over: only its record is left.
    pub fn has_ended(&self) -> bool {
        self.lifecycle.status() == Some(Status::Terminated)
    }

    /// Records that the rules have changed and that the instance has yet to be told.
    pub fn change_rules(&mut self, why: &str, now: Timestamp) {
        self.rules += 1;
        // A sandbox that was never deployed has no status for the event to repeat, and the last
        // event of a terminated one tells when it ended.
        let last = self.lifecycle.events.last().map(|last| last.status);
        if let Some(status) = last.filter(|status| *status != Status::Terminated) {
            self.lifecycle.record(NETWORK, status, why, now);
        }
    }
}

/// A drive attached to a sandbox. The attachment outlives the instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveAttachment {
    pub drive: ResourceId,
    #[serde(flatten)]
    pub mounted: MountedDrive,
}

/// The machine and launch with which a sandbox runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    pub machine: String,
    pub launch: u32,
    /// Absent in rows of releases that did not put the kind into instance names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<InstanceName>,
}

impl Kind for Sandbox {
    const NAME: KindName = KindName::Sandbox;
    const NAMING: Naming = Naming::Server { prefix: "sandbox" };

    type State = State;

    head!();
    placed!();
    enabled!();

    fn check(&self, problems: &mut Problems) {
        let spec = &self.spec;
        let none = SandboxRuntime::default();
        let runtime = spec.runtime.as_ref().unwrap_or(&none);
        runtime.check(problems);
        let volumes = spec.volumes.as_deref().unwrap_or_default();
        VolumeAttachment::check_all(volumes, PERSISTENT_VOLUMES_MAX, problems);
        let at_root = volumes.iter().any(|volume| volume.mount_path.as_deref() == Some("/"));
        let one_root = runtime.storage_mb.is_none() || !at_root;
        problems.require(
            one_root,
            "spec.runtime.storageMb",
            "cannot be combined with a volume at `/`",
        );
        if let Some(lifecycle) = &spec.lifecycle {
            lifecycle.check(problems);
        }
        if let Some(network) = &spec.network {
            network.check(problems);
        }
    }

    fn check_change(&self, before: &Self, problems: &mut Problems) {
        let (new, old) = (&self.spec, &before.spec);
        fixed(&new.region, &old.region, "spec.region", problems);
        fixed(&new.vpc, &old.vpc, "spec.vpc", problems);
        Network::check_change(new.network.as_ref(), old.network.as_ref(), problems);
        Generation::check_change(new.generation(), old.generation(), problems);
        let message = "cannot be changed after creation";
        // Clients without a notion of absent lists send an empty one back.
        let same_volumes = new.volumes.as_deref().unwrap_or_default()
            == old.volumes.as_deref().unwrap_or_default();
        problems.require(same_volumes, "spec.volumes", message);
        problems.require(new.extra_args() == old.extra_args(), "spec.runtime.extraArgs", message);
        problems.require(new.gateway() == old.gateway(), "spec.network.egress.gateway", message);
        let disk =
            |spec: &SandboxSpec| spec.runtime.as_ref().and_then(|runtime| runtime.storage_mb);
        let shrinks = disk(new).zip(disk(old)).is_some_and(|(new, old)| new < old);
        // With another image the disk starts anew, at any size.
        problems.require(
            !shrinks || self.image() != before.image(),
            "spec.runtime.storageMb",
            "cannot shrink: the disk keeps its files",
        );
    }

    fn complete(&mut self, old: Option<&Self>, _world: &World) {
        self.metadata.keep_external_id(old.map(|old| &old.metadata));
        let (spec, old) = (&mut self.spec, old.map(|old| &old.spec));
        spec.enabled.get_or_insert(true);
        keep(&mut spec.region, old.map(|old| &old.region));
        keep(&mut spec.vpc, old.map(|old| &old.vpc));
        keep(&mut spec.volumes, old.map(|old| &old.volumes));
        Network::keep(&mut spec.network, old.and_then(|old| old.network.as_ref()));
        let runtime = spec.runtime.get_or_insert_default();
        let old = old.and_then(|old| old.runtime.as_ref());
        keep(&mut runtime.extra_args, old.map(|old| &old.extra_args));
        keep(&mut runtime.generation, old.map(|old| &old.generation));
        let image = runtime.image.take().filter(|image| !image.is_empty());
        runtime.image = image.or_else(|| Some(IMAGE_DEFAULT.into()));
        // Left out, it would hide the files that are on the disk.
        if old.is_some_and(|old| old.image == runtime.image) {
            keep(&mut runtime.storage_mb, old.map(|old| &old.storage_mb));
        }
        runtime.memory.get_or_insert(MEMORY_MB_DEFAULT);
        runtime.ttl = runtime.ttl.take().filter(|ttl| !ttl.is_empty());
    }

    fn secrets(&mut self, visit: &mut dyn FnMut(&str, &mut String)) {
        self.spec.secrets(visit);
    }

    fn envs_mut(&mut self) -> Option<&mut Vec<Env>> {
        self.spec.runtime.as_mut()?.envs.as_mut()
    }

    fn leave_out_write_only(&mut self) {
        if let Some(network) = &mut self.spec.network {
            network.leave_out_secrets();
        }
    }

    fn references(&self) -> Vec<Reference> {
        let mut references = VolumeAttachment::references(self.spec.volumes.as_deref());
        references.extend(self.spec.gateway().map(|name| Reference {
            kind: KindName::EgressGateway,
            name: name.to_owned(),
            field: "spec.network.egress.gateway".into(),
        }));
        references.extend(self.spec.vpc().map(|name| Reference {
            kind: KindName::Vpc,
            name: name.to_owned(),
            field: "spec.vpc".into(),
        }));
        references
    }

    fn lighten(&mut self) {
        self.events = None;
    }

    fn next_state(&self, old: Option<(&Self, &State)>, now: Timestamp) -> State {
        // One that failed is tried again with other credentials for its image.
        let retries = |old: &Self, state: &State| {
            state.lifecycle.status() == Some(Status::Failed)
                && old.docker_config() != self.docker_config()
        };
        let anew = old.is_none_or(|(old, state)| self.restarts(old) || retries(old, state));
        let changed = anew || old.is_some_and(|(old, _)| old.enabled() != self.enabled());
        let mut state = old.map(|(_, state)| state.clone()).unwrap_or_default();
        let ruled = old.is_some_and(|(old, _)| old.spec.rules() != self.spec.rules());
        if state.is_away() || state.has_ended() {
            // Changes that need an instance are refused meanwhile.
            if ruled {
                state.change_rules(&self.ruled(), now);
            }
            return state;
        }
        if old.is_some_and(|(old, _)| old.image() != self.image()) {
            state.snapshot = None;
        }
        state.fresh_disk |= old.is_some_and(|(old, _)| self.wants_another_disk(old));
        let before = old.map(|(_, state)| &state.lifecycle);
        state.lifecycle = Lifecycle::next(before, changed, self.enabled(), Needs::Machine, now);
        state.launch += u32::from(anew);
        if ruled {
            state.change_rules(&self.ruled(), now);
        }
        if changed {
            state.errors.clear();
        }
        state
    }

    fn status(state: &State) -> Option<Status> {
        state.lifecycle.status()
    }

    fn show(&mut self, stamp: &ObjectMetadata, state: &State, now: Timestamp) {
        self.metadata.stamp(stamp);
        let end = self.expires_at(stamp.created_at, state.last_used_at);
        self.expires_in = end.map(|end| (end.since(now) / 1000).max(0));
        self.errors = Some(state.errors.clone()).filter(|errors| !errors.is_empty());
        self.events = Some(state.lifecycle.shown_events());
        self.status = state.lifecycle.shown_status();
        self.last_used_at = state.last_used_at;
        self.node_generation.clone_from(&state.node_generation);
        self.state = state.activity;
        self.archive.clone_from(&state.archive);
    }
}

impl SandboxSpec {
    /// Does the work of [`Kind::secrets`].
    pub(super) fn secrets(&mut self, visit: &mut dyn FnMut(&str, &mut String)) {
        if let Some(runtime) = &mut self.runtime {
            Env::visit_all(runtime.envs.as_mut(), visit);
            visit_sensitive(runtime.docker_config.as_mut(), "dockerConfig", visit);
        }
        if let Some(network) = &mut self.network {
            network.secrets(visit);
        }
    }
}

impl Sandbox {
    /// Makes a wish; all read-only members are empty.
    pub fn new(metadata: Metadata, spec: SandboxSpec) -> Self {
        Self {
            metadata,
            spec,
            errors: None,
            archive: None,
            events: None,
            expires_in: None,
            last_used_at: None,
            node_generation: None,
            state: None,
            status: None,
        }
    }

    /// Returns the event message about changed rules.
    fn ruled(&self) -> String {
        let rules = self.spec.rules();
        format!(
            "its rules have changed: {} allowed, {} forbidden, {} bypassed, {} with something to inject{}",
            rules.allowed_domains.len(),
            rules.forbidden_domains.len(),
            rules.bypass.len(),
            rules.routing.len(),
            if rules.proxy_only { ", only through the proxy" } else { "" }
        )
    }

    /// Returns when the sandbox is to be deleted, if its spec says so: the earliest of all its
    /// conditions.
    pub fn expires_at(
        &self,
        created_at: Timestamp,
        last_used_at: Option<Timestamp>,
    ) -> Option<Timestamp> {
        let runtime = self.spec.runtime.as_ref();
        let ttl = runtime
            .and_then(|runtime| runtime.ttl.as_deref())
            .and_then(|ttl| duration::parse_s(ttl).ok());
        let policies = self
            .spec
            .lifecycle
            .as_ref()
            .and_then(|lifecycle| lifecycle.expiration_policies.as_deref());
        let ends = policies
            .unwrap_or_default()
            .iter()
            .filter_map(|policy| policy.ends(created_at, last_used_at));
        let ends = ends.chain(ttl.map(|ttl| created_at.plus_s(ttl)));
        ends.chain(runtime.and_then(|runtime| runtime.expires)).min()
    }

    /// Returns true if the change from `old` needs a new instance. Changes to its end, to what may
    /// reach it and to how its image is fetched do not.
    pub fn restarts(&self, old: &Self) -> bool {
        let lasting = |spec: &SandboxSpec| {
            let runtime = spec.runtime.clone().unwrap_or_default();
            (runtime.image, runtime.memory, runtime.storage_mb, runtime.envs.unwrap_or_default())
        };
        lasting(&self.spec) != lasting(&old.spec)
    }

    /// Returns true if no file of a disk that the sandbox has, or had, may be there after the change
    /// from `old`.
    fn wants_another_disk(&self, old: &Self) -> bool {
        let has_disk =
            |spec: &SandboxSpec| spec.runtime.as_ref().is_some_and(|it| it.storage_mb.is_some());
        if has_disk(&old.spec) { self.image() != old.image() } else { has_disk(&self.spec) }
    }

    fn docker_config(&self) -> Option<&Sensitive<String>> {
        self.spec.runtime.as_ref()?.docker_config.as_ref()
    }

    pub fn image(&self) -> &str {
        self.spec.runtime.as_ref().and_then(|runtime| runtime.image.as_deref()).unwrap_or_default()
    }

    /// Returns how long the record is kept after the end, in seconds.
    pub fn retention_s(&self) -> i64 {
        let told = self
            .spec
            .lifecycle
            .as_ref()
            .and_then(|lifecycle| lifecycle.terminated_retention.as_deref());
        told.and_then(|text| duration::parse_s(text).ok()).unwrap_or(RETENTION_S_DEFAULT)
    }

    /// Returns the grace period of its first process at the end, in seconds.
    pub fn grace_s(&self) -> i64 {
        self.spec
            .runtime
            .as_ref()
            .and_then(|runtime| runtime.termination_grace_period_seconds)
            .unwrap_or(0)
    }
}

impl SandboxSpec {
    fn generation(&self) -> Option<Generation> {
        self.runtime.as_ref()?.generation
    }

    fn extra_args(&self) -> Option<&TextMap> {
        self.runtime.as_ref()?.extra_args.as_ref()
    }

    /// Returns the gateway from whose addresses its traffic leaves.
    pub fn gateway(&self) -> Option<&str> {
        self.network.as_ref()?.gateway()
    }

    /// Returns the VPC that it names. Without one it belongs to the workspace's own VPC.
    pub fn vpc(&self) -> Option<&str> {
        self.vpc.as_deref().filter(|vpc| !vpc.is_empty())
    }

    /// Returns the egress rules for the machine, as far as the wish determines them.
    pub fn rules(&self) -> EgressRules {
        self.network.as_ref().map(Network::rules).unwrap_or_default()
    }
}
