//! Rules that change while a sandbox runs.
//!
//! A row counts the changes of its rules, and the one that its instance was told of. Where the two
//! differ, whoever follows the rows tells the machine; a caller who changed them waits for that. So a
//! kill in between is mended at the next start.

use crate::context::Context;
use crate::control::Control;
use crate::engine::{self, Held, Secrets, Shown};
use crate::error::Error;
use crate::machine::Machine;
use crate::workloads;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use store::Tx;
use types::egress::EgressRules;
use types::ids::ResourceId;
use types::instance::InstanceName;
use types::kinds::Sandbox;

/// What is in an instance may keep the machine waiting, and must not keep others so.
const TELLING_MAX: Duration = Duration::from_secs(10);
/// After a machine could not do it.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What this run of the program has told the instances of sandboxes: launch and rules, by number.
#[derive(Default)]
pub(crate) struct Told(Mutex<HashMap<ResourceId, (u32, u32)>>);

impl Told {
    pub(crate) fn has(&self, id: &ResourceId, told: (u32, u32)) -> bool {
        self.0.lock().get(id) == Some(&told)
    }

    pub(crate) fn note(&self, id: &ResourceId, told: (u32, u32)) {
        self.0.lock().insert(id.clone(), told);
    }

    pub(crate) fn forget(&self, id: &ResourceId) {
        self.0.lock().remove(id);
    }
}

/// Replaces the wish of a sandbox. When this answers, its instance keeps to the rules of the new one.
pub async fn replace(
    context: &Context,
    name: String,
    wish: Sandbox,
    seen: Option<i64>,
) -> Result<Shown<Sandbox>, Error> {
    let of = context.clone();
    let work = move |tx: &mut Tx<'_>| {
        engine::require_version::<Sandbox>(&of, tx, &[], &name, seen)?;
        let shown = engine::replace(&of, tx, &[], &name, wish.clone())?;
        let held = Held::<Sandbox>::get(&of, tx, &[], &name)?;
        let differs = held.state.rules != held.state.rules_kept;
        let version = held.row.version;
        Ok::<_, Error>((shown, differs.then_some((held.row.id, version))))
    };
    let control = &context.control;
    let (mut shown, told) = control.store.write(work).await?;
    if let Some((id, version)) = told
        && control.machine().is_some()
    {
        workloads::obey(control, &id).await?;
        shown = after(context, shown, &id, version).await?;
    }
    Ok(shown)
}

/// The answer, with the row as telling the machine has left it: its version is what the next change
/// has to name. Secrets that are shown once are in the answer of before.
async fn after(
    context: &Context,
    before: Shown<Sandbox>,
    id: &ResourceId,
    version: i64,
) -> Result<Shown<Sandbox>, Error> {
    let (of, id) = (context.clone(), id.clone());
    let read = move |tx: &mut Tx<'_>| {
        let Some(held) = workloads::rows::find::<Sandbox>(tx, &id)? else { return Ok(None) };
        let object = engine::present(&of, tx, &held, &Secrets::Masked)?;
        Ok::<_, Error>(Some((object, held.row.version)))
    };
    let Some((now, its)) = context.control.store.read(read).await? else { return Ok(before) };
    if its == version {
        return Ok(before);
    }
    let (events, status, errors) = (now.events, now.status, now.errors);
    let object = Sandbox { events, status, errors, ..before.object };
    Ok(Shown { object, version: its })
}

/// Has an instance keep to rules.
pub(crate) async fn tell(
    machine: &dyn Machine,
    instance: &InstanceName,
    rules: EgressRules,
) -> Result<(), Error> {
    let told = tokio::time::timeout(TELLING_MAX, machine.set_egress(instance, rules)).await;
    let fault = match told {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(fault)) => fault.to_string(),
        Err(_) => "the machine did not do it in time".to_owned(),
    };
    tracing::error!(fault, %instance, "an instance could not be told its rules of egress");
    Err(Error::Egress(fault))
}

/// Has an instance that an earlier run of this program has launched keep to its rules again. Until
/// then the machine lets nothing out that rules could forbid.
pub(crate) async fn tell_again(machine: &dyn Machine, instance: &InstanceName, rules: EgressRules) {
    while rules != EgressRules::default()
        && machine.runs(instance)
        && tell(machine, instance, rules.clone()).await.is_err()
    {
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

/// As [`tell_again`], beside everything else.
pub(crate) fn keep_to(
    control: &Control,
    machine: Arc<dyn Machine>,
    instance: InstanceName,
    rules: EgressRules,
) {
    let ending = control.workloads.ending();
    let told = async move { tell_again(&*machine, &instance, rules).await };
    control.workloads.tasks.spawn(async move { ending.run_until_cancelled(told).await });
}

/// Whether a row asks for rules at all.
pub(crate) fn has_rules(wish: &Sandbox) -> bool {
    wish.spec.rules() != EgressRules::default()
        || wish.spec.gateway().is_some()
        || wish.spec.vpc().is_some()
}
