//! From a sandbox to the instance that it needs.

use super::workload::Workload;
use crate::context::Context;
use crate::engine::{self, Held};
use crate::error::Error;
use crate::machine::Launch;
use std::time::Duration;
use store::identity::workspaces::Workspace;
use types::Kind;
use types::ids::ResourceId;
use types::kinds::Sandbox;
use types::parts::Generation;
use types::wire::WorkspaceRuntime;

/// The number of a sandbox's first launch.
pub(super) const FIRST: u32 = 1;
/// What the sandbox API binds to, and what programs inside should.
const HOST: &str = "0.0.0.0";

/// The name of an instance: the sandbox and the number of the launch. No two instances ever have
/// the same.
pub(super) fn instance(id: &ResourceId, launch: u32) -> String {
    format!("{}-{launch}", stem(id))
}

/// The sandbox and the launch that an instance belongs to.
pub(super) fn of_instance(instance: &str) -> Option<(ResourceId, u32)> {
    // The stem of a sandbox has no hyphen; that tells its instances from those of tasks.
    let (stem, launch) = instance.split_once('-')?;
    Some((ResourceId::known(format!("res_{stem}")), launch.parse().ok()?))
}

fn stem(id: &ResourceId) -> &str {
    id.as_str().trim_start_matches("res_")
}

/// What to start for a stored sandbox.
pub(super) fn of_row(
    context: &Context,
    workspace: &Workspace,
    held: &Held<Sandbox>,
) -> Result<Launch, Error> {
    let wish = engine::opened(context, held)?;
    of_wish(context, workspace, &held.row.id, held.state.launch, &wish)
}

/// What to start for a wish whose secrets are open.
pub(super) fn of_wish(
    context: &Context,
    workspace: &Workspace,
    id: &ResourceId,
    launch: u32,
    wish: &Sandbox,
) -> Result<Launch, Error> {
    let runtime = wish.spec.runtime.clone().unwrap_or_default();
    let runtime_settings = workspace.settings.runtime.as_ref();
    let keeps_logs = runtime_settings.is_none_or(WorkspaceRuntime::keeps_process_logs);
    let whole = |number: i64| engine::whole(id, number);
    Ok(Launch {
        instance: instance(id, launch),
        workspace: workspace.id.to_string(),
        again: false,
        hostname: wish.name().to_owned(),
        image: runtime.image.clone().unwrap_or_default(),
        granted: None,
        registries: runtime.docker_config.clone().map(|config| config.0),
        memory_mb: whole(runtime.memory.ok_or_else(|| engine::corrupt(id, "it has no memory"))?)?,
        storage_mb: runtime.storage_mb.map(whole).transpose()?,
        environment: environment(context, wish, runtime.generation),
        keeps_logs,
        grace: Duration::from_secs(whole(wish.grace_s())?.into()),
        work: None,
        scratch: Vec::new(),
    })
}

/// What every workload finds in its environment, and under it what the user set. Users cannot set
/// the former.
fn environment(
    context: &Context,
    wish: &Sandbox,
    generation: Option<Generation>,
) -> Vec<(String, String)> {
    let region = context.region(wish.spec.region.as_deref());
    let mut ours = wish.common_environment(context, region, generation);
    ours.push(("HOST", HOST.to_owned()));
    let theirs = wish.spec.runtime.iter().flat_map(|runtime| runtime.envs.iter().flatten());
    let theirs =
        theirs.filter_map(|env| Some((env.name.clone()?, env.value.clone().unwrap_or_default())));
    theirs.chain(ours.into_iter().map(|(name, value)| (name.to_owned(), value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_names_its_sandbox_and_its_launch() {
        let id = ResourceId::known("res_ab3k9");
        assert_eq!(of_instance(&instance(&id, 12)), Some((id, 12)));
        assert_eq!(of_instance("nothing"), None);
        assert_eq!(of_instance("some-thing"), None);
        assert_eq!(of_instance("task-ab3k9-1-2"), None);
    }
}
