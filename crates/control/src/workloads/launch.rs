//! How a sandbox becomes the launch of its instance.

use super::workload::{HOST, Workload, variables};
use crate::context::Context;
use crate::engine::{self, Held};
use crate::error::Error;
use crate::machine::Launch;
use crate::volumes;
use std::time::Duration;
use store::identity::workspaces::Workspace;
use types::Kind;
use types::egress::EgressRules;
use types::ids::ResourceId;
use types::instance::{DriveMount, InstanceName, KeptFor, Resize, VolumeMount, VolumeName};
use types::kinds::Sandbox;
use types::kinds::sandbox::{Placement, SandboxRuntime, State};
use types::parts::Generation;
use types::wire::WorkspaceRuntime;

/// The number of a sandbox's first launch.
pub(super) const FIRST: u32 = 1;

/// Returns the instance of the launch that a row asks for.
pub(crate) fn instance(id: &ResourceId, state: &State) -> InstanceName {
    match &state.placed {
        Some(placed) if placed.launch == state.launch => placed_instance(id, placed),
        _ => InstanceName::of_sandbox(id, state.launch),
    }
}

/// Returns the instance that was last seen to run. It is recorded, so that a newer release still
/// knows the name that an older one chose.
pub(super) fn placed_instance(id: &ResourceId, placed: &Placement) -> InstanceName {
    let without_kind = || InstanceName::of_sandbox_without_kind(id, placed.launch);
    placed.instance.clone().unwrap_or_else(without_kind)
}

/// Returns what to start for a stored sandbox.
pub(super) fn of_row(
    context: &Context,
    workspace: &Workspace,
    held: &Held<Sandbox>,
    (volumes, drives): (Vec<VolumeMount>, Vec<DriveMount>),
    egress: EgressRules,
) -> Result<Launch, Error> {
    let wish = engine::opened(context, held)?;
    let id = &held.row.id;
    let launch = of_wish(context, workspace, (id, instance(id, &held.state)), &wish, egress)?;
    let snapshot = held.state.snapshot.clone();
    let scratch = volumes::ephemeral(id, wish.spec.volumes.as_deref().unwrap_or_default())?;
    Ok(Launch { volumes, drives, snapshot, scratch, ..launch })
}

/// Returns the volume in which the machine keeps a sandbox's disk.
pub(super) fn root_of(id: &ResourceId) -> VolumeName {
    VolumeName::of(&KeptFor::Root(id.clone()))
}

/// Whether a new sandbox starts only after its row is written: volumes and outgoing addresses can be
/// used only after a row says who holds them.
pub(crate) fn waits_for_row(wish: &Sandbox) -> bool {
    let mounts = wish.spec.volumes.as_ref().is_some_and(|volumes| !volumes.is_empty());
    mounts || wish.spec.gateway().is_some()
}

/// Returns the size that a sandbox gets when it starts, anew if there is an earlier wish.
pub(crate) fn resize(
    id: &ResourceId,
    new: &Sandbox,
    old: Option<&Sandbox>,
) -> Result<Resize, Error> {
    let runtime = new.spec.runtime.clone().unwrap_or_default();
    let memory = |runtime: &SandboxRuntime| {
        let mb = runtime.memory.ok_or_else(|| engine::corrupt(id, "it has no memory"))?;
        engine::whole(id, mb)
    };
    let size_mb = runtime.storage_mb.map(|mb| engine::whole(id, mb)).transpose()?;
    Ok(Resize {
        memory_mb: memory(&runtime)?,
        memory_before_mb: match old {
            Some(old) => memory(&old.spec.runtime.clone().unwrap_or_default())?,
            None => 0,
        },
        disk: size_mb.map(|size_mb| (root_of(id), size_mb)),
    })
}

/// Returns what to start for a wish whose secrets are open.
pub(super) fn of_wish(
    context: &Context,
    workspace: &Workspace,
    (id, instance): (&ResourceId, InstanceName),
    wish: &Sandbox,
    egress: EgressRules,
) -> Result<Launch, Error> {
    let runtime = wish.spec.runtime.clone().unwrap_or_default();
    let runtime_settings = workspace.settings.runtime.as_ref();
    let keeps_logs = runtime_settings.is_none_or(WorkspaceRuntime::keeps_process_logs);
    let whole = |number: i64| engine::whole(id, number);
    Ok(Launch {
        instance,
        workspace: workspace.id.to_string(),
        again: false,
        hostname: wish.name().to_owned(),
        image: runtime.image.clone().unwrap_or_default(),
        granted: None,
        registries: runtime.docker_config.clone().map(|config| config.0),
        memory_mb: whole(runtime.memory.ok_or_else(|| engine::corrupt(id, "it has no memory"))?)?,
        storage_mb: runtime.storage_mb.map(whole).transpose()?,
        root: runtime.storage_mb.map(|_| root_of(id)),
        environment: environment(context, wish, runtime.generation, keeps_logs),
        keeps_logs,
        grace: Duration::from_secs(whole(wish.grace_s())?.into()),
        work: None,
        serves: None,
        scratch: Vec::new(),
        volumes: Vec::new(),
        drives: Vec::new(),
        egress,
        snapshot: None,
    })
}

/// Returns the environment: what the user set, followed by what every workload gets, which users
/// cannot override.
fn environment(
    context: &Context,
    wish: &Sandbox,
    generation: Option<Generation>,
    keeps_logs: bool,
) -> Vec<(String, String)> {
    let region = context.region(wish.spec.region.as_deref());
    let mut ours = wish.common_environment(context, region, generation);
    ours.push(("HOST", HOST.to_owned()));
    if !keeps_logs {
        ours.push(("SANDBOX_DISABLE_PROCESS_LOGGING", "true".to_owned()));
    }
    let theirs = wish.spec.runtime.iter().flat_map(|runtime| runtime.envs.iter().flatten());
    variables(theirs)
        .chain(ours.into_iter().map(|(name, value)| (name.to_owned(), value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_that_an_earlier_release_launched_is_known_by_its_name() {
        let id = ResourceId::known("res_ab3k9");
        let row = r#"{"launch": 3, "placed": {"machine": "here", "launch": 3}}"#;
        let mut state: State = serde_json::from_str(row).unwrap();
        assert_eq!(instance(&id, &state).as_str(), "ab3k9-3");
        state.launch += 1;
        assert_eq!(instance(&id, &state).as_str(), "sandbox-ab3k9-4");
        let launched = instance(&id, &state);
        state.placed =
            Some(Placement { machine: "here".into(), launch: 4, instance: Some(launched.clone()) });
        assert_eq!(instance(&id, &state), launched);
    }
}
