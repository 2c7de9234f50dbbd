//! What kinds that run as instances have in common.

use super::images;
use crate::context::Context;
use crate::machine::{Launch, LaunchFault, Machine};
use store::Store;
use types::kinds::{Agent, Application, Function, Job, Sandbox};
use types::parts::{Env, Generation};
use types::usage::Dimension;
use types::{Kind, KindName};

/// The address that programs inside should bind to.
pub(crate) const HOST: &str = "0.0.0.0";

/// Returns the variables that a user set, in order, as an instance gets them.
pub(crate) fn variables<'e>(
    envs: impl IntoIterator<Item = &'e Env>,
) -> impl Iterator<Item = (String, String)> {
    let variable = |env: &Env| Some((env.name.clone()?, env.value.clone().unwrap_or_default()));
    envs.into_iter().filter_map(variable)
}

/// Completes a message about something that runs in containers, which is not what `mk3` asks for.
pub(super) fn in_containers(message: &str, generation: Option<Generation>) -> String {
    match generation {
        None | Some(Generation::Mk2) => message.to_owned(),
        Some(Generation::Mk3) => {
            format!("{message}: this server has no microVMs, which mk3 asks for")
        }
    }
}

/// A kind that runs as instances.
pub(crate) trait Workload: Kind {
    /// The dimension in which the time of its instances is metered. `None` if it has no price.
    const DIMENSION: Option<Dimension>;

    /// Returns the environment that every instance gets, whatever else its kind adds.
    fn common_environment(
        &self,
        context: &Context,
        region: String,
        generation: Option<Generation>,
    ) -> Vec<(&'static str, String)> {
        vec![
            ("BL_WORKSPACE", context.member.workspace_name.clone()),
            ("BL_WORKSPACE_ID", context.member.workspace.to_string()),
            ("BL_NAME", self.name().to_owned()),
            ("BL_TYPE", Self::NAME.name().to_owned()),
            ("BL_REGION", region),
            ("BL_ENV", "prod".to_owned()),
            ("BL_CLOUD", "true".to_owned()),
            ("BL_GENERATION", generation.unwrap_or_default().name().to_owned()),
        ]
    }
}

impl Workload for Sandbox {
    const DIMENSION: Option<Dimension> = Some(Dimension::SandboxRuntime);
}

/// A job runs as its tasks.
impl Workload for Job {
    const DIMENSION: Option<Dimension> = Some(Dimension::JobRuntime);
}

impl Workload for Agent {
    const DIMENSION: Option<Dimension> = Some(Dimension::AgentRuntime);
}

impl Workload for Function {
    const DIMENSION: Option<Dimension> = Some(Dimension::McpServerRuntime);
}

/// The published interface has no billing dimension for applications.
impl Workload for Application {
    const DIMENSION: Option<Dimension> = None;
}

/// The dimensions of all workloads, for those that are known only by their kind.
const DIMENSIONS: [(KindName, Option<Dimension>); 5] = [
    (Sandbox::NAME, Sandbox::DIMENSION),
    (Job::NAME, Job::DIMENSION),
    (Agent::NAME, Agent::DIMENSION),
    (Function::NAME, Function::DIMENSION),
    (Application::NAME, Application::DIMENSION),
];

/// Returns whether the time of a kind's instances has a price.
pub(crate) fn has_price(kind: KindName) -> bool {
    DIMENSIONS.iter().any(|(of, dimension)| *of == kind && dimension.is_some())
}

/// Starts an instance, after making sure that its workspace may use the image.
pub(super) async fn start(
    store: &Store,
    machine: &dyn Machine,
    mut launch: Launch,
) -> Result<(), LaunchFault> {
    images::entitle(store, machine, &mut launch).await?;
    machine.launch(launch).await
}
