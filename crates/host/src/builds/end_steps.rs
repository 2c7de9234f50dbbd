//! Ends steps of builds that nobody waits for any more. What they wrote is lost.

use crate::settings::OpenError;
use control::machine::MachineFault;
use node::Node;
use types::ids::BuildId;
use types::instance::{InstanceName, RunsFor};

/// Ends the steps that an earlier run of this program has started.
pub(crate) fn clear_away(node: &Node) -> Result<(), OpenError> {
    let is_step = |id: &InstanceName| matches!(id.runs_for(), Some(RunsFor::Build(_)));
    for view in node.list().into_iter().filter(|view| is_step(&view.id)) {
        match node.destroy(&view.id) {
            Ok(()) | Err(node::Error::Missing(_)) => {}
            Err(error) => return Err(OpenError::Builds(Box::new(error))),
        }
    }
    Ok(())
}

/// Ends the steps of one build.
pub(super) fn end_steps(node: &Node, build: &BuildId) -> Result<(), MachineFault> {
    let own = |id: &InstanceName| matches!(id.runs_for(), Some(RunsFor::Build(step)) if step.build == *build);
    for view in node.list().into_iter().filter(|view| own(&view.id)) {
        match node.destroy(&view.id) {
            Ok(()) | Err(node::Error::Missing(_)) => {}
            Err(error) => return Err(MachineFault(types::chain(&error))),
        }
    }
    Ok(())
}
