//! What is metered of resources: whose usage it is, and what happened. The meter makes sums and bills of it.

use crate::engine::Desk;
use crate::error::Error;
use crate::fleet::{Fact, Happened};
use jobs::{AttemptId, Hooks};
use meter::{Owner, Stamp, UsageFact};
use parking_lot::Mutex;
use std::collections::HashMap;
use store::Tx;
use store::executions::Execution;
use store::identity::workspaces;
use types::Timestamp;
use types::ids::{AccountId, ResourceId, WorkspaceId};
use types::usage::Dimension;

/// Says whose usage an instance is, in the transaction that gives it to a resource.
pub(crate) fn own_instance(
    desk: &Desk,
    tx: &mut Tx<'_>,
    instance: &str,
    dimension: Dimension,
    of: (&str, &ResourceId),
    machine: &str,
) -> Result<(), Error> {
    let owner = Owner { machine: Some(machine.to_owned()), ..owner(desk, dimension, of) };
    Ok(meter::register(tx, instance, &owner)?)
}

/// Registers what tasks use with whoever has the job, as this machine takes them.
pub(crate) struct TaskLives {
    machine: String,
    /// Neither ever changes, and each task would have to look it up.
    workspaces: Mutex<HashMap<WorkspaceId, (AccountId, String)>>,
}

impl TaskLives {
    /// Without a machine nothing is taken here.
    pub(crate) fn of(machine: Option<&str>) -> Self {
        Self { machine: machine.unwrap_or_default().to_owned(), workspaces: Mutex::default() }
    }

    fn workspace(&self, tx: &mut Tx<'_>, id: &WorkspaceId) -> Result<Option<(AccountId, String)>, store::Error> {
        if let Some(known) = self.workspaces.lock().get(id) {
            return Ok(Some(known.clone()));
        }
        let Some(found) = workspaces::find(tx, id)? else { return Ok(None) };
        let known = (found.account, found.name);
        self.workspaces.lock().insert(id.clone(), known.clone());
        Ok(Some(known))
    }
}

impl Hooks for TaskLives {
    fn claimed(&self, tx: &mut Tx<'_>, attempt: &AttemptId, execution: &Execution) -> Result<(), store::Error> {
        let Some((account, workspace)) = self.workspace(tx, &execution.workspace)? else { return Ok(()) };
        let owner = Owner {
            account,
            workspace,
            dimension: Dimension::JobRuntime,
            name: execution.job.clone(),
            uuid: execution.job_id.to_string(),
            machine: Some(self.machine.clone()),
        };
        meter::register(tx, &attempt.to_string(), &owner)
    }
}

/// Notes that a resource serves from now on, or no more: for what is paid by the time in which it does.
pub(crate) fn serve(
    desk: &Desk,
    tx: &mut Tx<'_>,
    dimension: Dimension,
    of: (&str, &ResourceId),
    serves: bool,
) -> Result<(), Error> {
    let subject = of.1.as_str();
    meter::register(tx, subject, &owner(desk, dimension, of))?;
    let fact = UsageFact {
        id: format!("{subject}-{}", desk.world().random_text(20)),
        subject: subject.to_owned(),
        number: 0,
        at: desk.world().now(),
        stamp: None,
        happened: if serves { meter::Happened::Activated } else { meter::Happened::Deactivated },
    };
    meter::take_in(tx, &[fact])?;
    Ok(())
}

fn owner(desk: &Desk, dimension: Dimension, (name, id): (&str, &ResourceId)) -> Owner {
    Owner {
        account: desk.member.account.clone(),
        workspace: desk.member.workspace_name.clone(),
        dimension,
        name: name.to_owned(),
        uuid: id.to_string(),
        machine: None,
    }
}

/// A fact of a machine in the words of the meter. Of an end that the machine did not see, it is only known that it came
/// after `proven`, the last time at which this server said that the machine is up; nobody pays for what is not proven.
pub(crate) fn of_machine(fact: &Fact, proven: Option<Timestamp>) -> UsageFact {
    let stamp = fact.stamp.as_ref();
    let stamp = stamp.map(|stamp| Stamp { boot: meter::boot(&stamp.boot), mono_ms: stamp.uptime_ms });
    let (happened, unseen) = match &fact.happened {
        Happened::Started { memory_mb } => (meter::Happened::Started { memory_mb: *memory_mb }, false),
        Happened::Slept => (meter::Happened::Paused, false),
        Happened::Woke => (meter::Happened::Resumed, false),
        Happened::Ended { seen, .. } => (meter::Happened::Stopped, !seen),
        Happened::Retired => (meter::Happened::Stopped, false),
    };
    let proven = proven.filter(|proven| unseen && *proven < fact.at);
    UsageFact {
        id: fact.id.clone(),
        subject: fact.instance.clone(),
        number: fact.number,
        at: proven.unwrap_or(fact.at),
        stamp: stamp.filter(|_| proven.is_none()),
        happened,
    }
}

/// Tells of facts that were taken in, after the commit. What contradicts a known fact somebody must look into.
pub(crate) fn report(taken: &meter::Taken) {
    for id in &taken.conflicts {
        tracing::error!(id, "a fact of usage came again with another content; the first one stands");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(seen: bool) -> Fact {
        Fact {
            id: "1".into(),
            number: 7,
            at: Timestamp::from_ms(9_000),
            stamp: Some(crate::fleet::Stamp { boot: "b".into(), uptime_ms: 500 }),
            instance: "ab3k9-1".into(),
            happened: Happened::Ended { how: "ended".into(), out_of_memory: false, seen },
        }
    }

    #[test]
    fn an_end_that_nobody_saw_is_no_later_than_the_last_proof() {
        let proven = Some(Timestamp::from_ms(4_000));
        assert_eq!(of_machine(&ended(true), proven).at, Timestamp::from_ms(9_000));
        assert!(of_machine(&ended(true), proven).stamp.is_some());
        assert_eq!(of_machine(&ended(false), proven).at, Timestamp::from_ms(4_000));
        assert_eq!(of_machine(&ended(false), proven).stamp, None);
        assert_eq!(of_machine(&ended(false), None).at, Timestamp::from_ms(9_000));
    }
}
