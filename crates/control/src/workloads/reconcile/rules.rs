//! Telling the instance of a sandbox the rules that its row asks for.

use super::case::Case;
use super::outcome::change;
use crate::control::Control;
use crate::egress;
use crate::engine::Held;
use crate::error::Error;
use crate::machine::Machine;
use crate::workloads::launch;
use types::ids::ResourceId;
use types::kinds::Sandbox;

/// Makes the instance of a sandbox keep the rules that its row asks for, if the instance exists.
/// Does nothing if this run of the program has told it the same rules already.
pub(super) async fn tell(
    control: &Control,
    machine: &dyn Machine,
    id: &ResourceId,
    case: &mut Case,
) -> Result<(), Error> {
    let (number, rules) = (case.held.state.launch, case.held.state.rules);
    let changed = rules != case.held.state.rules_kept;
    let instance = launch::instance(id, &case.held.state);
    let known = control.workloads.told.has(id, (number, rules));
    let has_rules = egress::has_rules(&case.held.wish);
    if !machine.runs(&instance) || !(changed || has_rules && !known) {
        return Ok(());
    }
    match &case.rules {
        Ok(rules) => egress::tell(machine, &instance, rules.clone()).await?,
        Err(why) => {
            // Only a wish accepted by an earlier release gets here. The instance goes on as it was.
            tracing::error!(why, %instance, "its traffic cannot leave as its wish says");
            return Ok(());
        }
    }
    control.workloads.told.note(id, (number, rules));
    if changed && let Some(held) = kept(control, id, number, rules).await? {
        case.held = held;
    }
    Ok(())
}

/// Notes that an instance keeps the rules with this number.
pub(super) async fn kept(
    control: &Control,
    id: &ResourceId,
    number: u32,
    rules: u32,
) -> Result<Option<Held<Sandbox>>, Error> {
    change(control, id, number, move |_, state, _| {
        state.rules_kept = rules;
        true
    })
    .await
}
