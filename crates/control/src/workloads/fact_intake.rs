//! Intake of the machine's facts: they are written into the rows that they are about, and counted
//! as usage.
//!
//! The machine is told to forget a fact only after the rows are committed, so a kill in between
//! delivers it again. Writing it twice changes nothing.

use super::reconcile::outcome;
use super::{published, rows, soon};
use crate::billing;
use crate::control::Control;
use crate::error::Error;
use crate::machine::Machine;
use crate::usage;
use meter::UsageFact;
use std::collections::BTreeMap;
use std::time::Duration;
use store::Tx;
use types::KindName;
use types::ids::ResourceId;
use types::instance::{Exit, Fact, Happened, RunsFor};
use types::kinds::Sandbox;
use types::kinds::sandbox::{Activity, State};
use types::parts::Status;

/// How long facts are gathered for one transaction: tasks make hundreds in a second.
const GATHERING: Duration = Duration::from_millis(20);
/// How often the machine is noted as up: bounds the usage lost with a machine, and how late usage
/// is known.
const PROOF_EVERY: Duration = Duration::from_secs(1);

pub(super) async fn run(control: Control) {
    let Some(machine) = control.machine().cloned() else { return };
    let write = async {
        // A server that starts needs the processors for that first: it may have found thousands of
        // instances, and the machine keeps what it says of them.
        published::ready(&control).await;
        write_all(&control, &*machine).await;
    };
    tokio::join!(prove(&control, &*machine), write);
}

async fn write_all(control: &Control, machine: &dyn Machine) {
    loop {
        match write_down(control, machine).await {
            Ok(()) => tokio::time::sleep(GATHERING).await,
            Err(error) => later(&error).await,
        }
    }
}

async fn later(error: &Error) {
    tracing::error!(%error, "what happened to instances could not be written down; it is tried again");
    tokio::time::sleep(rows::RETRY_AFTER).await;
}

/// Keeps noting that the machine is up. Usage of its instances is only billed up to the last note.
async fn prove(control: &Control, machine: &dyn Machine) {
    loop {
        let (name, at, stamp) =
            (machine.name().to_owned(), control.world.now(), machine.give_sign());
        if let Err(error) = control.store.write(move |tx| meter::alive(tx, &name, at, stamp)).await
        {
            tracing::error!(%error, "that this machine is up could not be written down; usage waits for it");
        }
        tokio::time::sleep(PROOF_EVERY).await;
    }
}

async fn write_down(control: &Control, machine: &dyn Machine) -> Result<(), Error> {
    let facts = machine.facts().await;
    let Some(last) = facts.last().map(|fact| fact.number) else { return Ok(()) };
    match write(control, facts.clone()).await {
        // All of them were undone, although most of them may be as they should be.
        Err(error) if !rows::may_pass(&error) => write_each(control, facts).await?,
        written => written?,
    }
    if let Err(fault) = machine.let_go(last).await {
        tracing::warn!(%fault, "facts that are written down could not be let go of; they come again");
    }
    Ok(())
}

/// Writes facts one by one. The machine hands them over in order, so one that cannot be written is
/// set aside: it would hold up all later ones.
async fn write_each(control: &Control, facts: Vec<Fact>) -> Result<(), Error> {
    for fact in facts {
        match write(control, vec![fact.clone()]).await {
            Err(error) if !rows::may_pass(&error) => {
                tracing::error!(%error, ?fact, "a fact cannot be written down; it is left out");
            }
            written => written?,
        }
    }
    Ok(())
}

async fn write(control: &Control, facts: Vec<Fact>) -> Result<(), Error> {
    let instances: Vec<_> = facts.iter().map(|fact| fact.instance.clone()).collect();
    let used: Vec<UsageFact> = facts.iter().map(UsageFact::of_instance).collect();
    let by_sandbox = sort(facts);
    let stopped = disks_stopped(&by_sandbox);
    let taken = control.store.write(move |tx| {
        fold(tx, &by_sandbox)?;
        let mut paid = Vec::with_capacity(used.len());
        for (instance, fact) in instances.iter().zip(&used) {
            if usage::is_metered(tx, instance)? {
                paid.push(fact.clone());
            }
        }
        Ok::<_, Error>(meter::take_in(tx, &paid)?)
    });
    billing::count(&taken.await?);
    for id in stopped {
        soon::reconcile(control, KindName::Sandbox, id);
    }
    Ok(())
}

/// Returns the sandboxes that their machine ended to be started anew. If the server ends before
/// that, its next start looks at all sandboxes.
fn disks_stopped(facts: &BySandbox) -> Vec<ResourceId> {
    let stopped = |fact: &Fact| fact.happened == Happened::Exited(Exit::DiskStopped);
    let ids = facts.iter().filter(|(_, facts)| facts.iter().any(|(_, fact)| stopped(fact)));
    ids.map(|(id, _)| id.clone()).collect()
}

type BySandbox = BTreeMap<ResourceId, Vec<(u32, Fact)>>;

fn sort(facts: Vec<Fact>) -> BySandbox {
    let mut sorted = BySandbox::new();
    for fact in facts {
        if let Some(RunsFor::Sandbox { id, launch }) = fact.instance.runs_for() {
            sorted.entry(id).or_default().push((launch, fact));
        }
    }
    sorted
}

fn fold(tx: &mut Tx<'_>, facts: &BySandbox) -> Result<(), Error> {
    for (id, facts) in facts {
        let held = match rows::lock::<Sandbox>(tx, id) {
            Err(error) if !rows::may_pass(&error) => {
                tracing::error!(%error, %id, "a sandbox cannot be read; its usage is counted all the same");
                continue;
            }
            held => held?,
        };
        let Some(held) = held else { continue };
        let mut state = held.state.clone();
        for (number, fact) in facts {
            // The sandbox has moved on to another instance; this one is about to be removed.
            if state.launch == *number {
                note(&mut state, fact);
            }
        }
        if state != held.state {
            rows::put_state(tx, held, state)?;
        }
    }
    Ok(())
}

/// Applies one fact to the state.
fn note(state: &mut State, fact: &Fact) {
    let serves = matches!(
        state.lifecycle.status(),
        Some(Status::Deployed | Status::Deploying | Status::Deactivated)
    );
    // A machine tells again of what it finds at its start, when nothing falls asleep or wakes.
    let is_new = |activity| serves && state.activity != Some(activity);
    match fact.happened {
        Happened::Paused if is_new(Activity::Standby) => {
            state.activity = Some(Activity::Standby);
            state.last_used_at = Some(fact.at);
        }
        Happened::Resumed if is_new(Activity::Running) => {
            state.activity = Some(Activity::Running);
            state.last_used_at = Some(fact.at);
        }
        // Reconciliation starts others anew.
        Happened::Exited(exit) if serves && !exit.starts_anew() => {
            let code = match exit {
                Exit::OutOfMemory => "OUT_OF_MEMORY",
                _ => "INSTANCE_ENDED",
            };
            let message = format!("the sandbox {exit}");
            outcome::failed(state, code, &message, &fact.instance, fact.at);
        }
        _ => {}
    }
}
