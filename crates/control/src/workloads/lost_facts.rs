//! Has the machine tell again what the database does not know any more.
//!
//! A machine forgets facts once they are written down. After a restore, or a failover to a standby
//! that lagged behind, the last of them are missing: an instance that had ended or fallen asleep
//! would be charged as if it ran on.

use super::rows;
use crate::control::Control;
use crate::error::Error;
use crate::machine::Machine;
use std::collections::BTreeSet;
use types::instance::InstanceName;

/// What may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// Ends only: a machine that was just found has told of whatever lives on.
    Ends,
    Any,
}

/// Asks the machine in the background.
pub(super) fn look(control: &Control, lost: Lost) {
    let Some(machine) = control.machine().cloned() else { return };
    let of = control.clone();
    control.workloads.tasks.spawn(async move {
        while let Err(error) = ask(&of, &*machine, lost).await {
            tracing::error!(%error, "whether facts of instances are lost could not be found out; it is tried again");
            tokio::time::sleep(rows::RETRY_AFTER).await;
        }
    });
}

async fn ask(control: &Control, machine: &dyn Machine, lost: Lost) -> Result<(), Error> {
    let name = machine.name().to_owned();
    let on = control.store.read(move |tx| store::usage::on_machine(tx, &name)).await?;
    let mut asked: BTreeSet<_> =
        on.iter().filter_map(|subject| InstanceName::new(subject).ok()).collect();
    match lost {
        Lost::Ends => asked.retain(|instance| !machine.runs(instance)),
        Lost::Any => asked.extend(machine.instances().into_iter().map(|seen| seen.instance)),
    }
    if asked.is_empty() {
        return Ok(());
    }
    if let Err(fault) = machine.say_again(asked.into_iter().collect()).await {
        tracing::error!(%fault, "the machine cannot tell again what became of its instances");
    }
    Ok(())
}
