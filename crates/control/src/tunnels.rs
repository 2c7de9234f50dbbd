//! Tunnels (WireGuard) of sandboxes. The settings of a tunnel, with its key, are kept sealed; the
//! tunnel itself is made anew for each instance and at each start of this program.
//!
//! A tunnel would bypass rules that inspect what leaves a sandbox, so a sandbox has either such
//! rules or a tunnel.

use crate::control::Control;
use crate::engine::Held;
use crate::error::Error;
use crate::run_to_end::{Interrupted, run_to_end};
use crate::tunnel_maker::{TunnelFault, TunnelMaker};
use crate::workloads::{launch, rows};
use std::sync::Arc;
use store::{Tx, settings};
use types::ids::ResourceId;
use types::instance::InstanceName;
use types::kinds::Network;
use types::kinds::Sandbox;
use types::tunnel::{TunnelRefusal, TunnelSettings};

/// Prefix of the names under which settings are kept; the sandbox's id follows.
const PREFIX: &str = "tunnels/";
/// How many names are read at once.
const PAGE: i64 = 500;

const LISTS: &str = "this sandbox has lists of domains, or everything of it goes through the proxy: a tunnel would lead past \
                     them. Take these rules away first";

fn name_of(id: &ResourceId) -> String {
    format!("{PREFIX}{id}")
}

/// Gives a sandbox that runs or sleeps a tunnel, which replaces the one that it may have. `config`
/// is the text that its user sent.
pub async fn set(
    control: &Control,
    sandbox: &ResourceId,
    config: String,
) -> Result<(), TunnelRefusal> {
    let wanted = TunnelSettings::read(&config)?;
    let (control, id) = (control.clone(), sandbox.clone());
    run_to_end(async move { set_now(&control, &id, config, wanted).await })
        .await
        .unwrap_or_else(interrupted)
}

async fn set_now(
    control: &Control,
    id: &ResourceId,
    config: String,
    wanted: TunnelSettings,
) -> Result<(), TunnelRefusal> {
    let maker = maker(control).ok_or_else(no_tunnels)?;
    let _lock = control.workloads.lock(id).await;
    let of = id.clone();
    let read = move |tx: &mut Tx<'_>| Ok(rows::find::<Sandbox>(tx, &of)?.map(allowed));
    let instance = control.store.read(read).await.map_err(failed)?.ok_or_else(gone)??;
    maker.set(&instance, wanted).await.map_err(refusal)?;
    let (of, keyring) = (id.clone(), control.store.keyring());
    let write = move |tx: &mut Tx<'_>| {
        let Some(held) = rows::lock::<Sandbox>(tx, &of)? else { return Ok(Err(gone())) };
        // Checked again with the row locked: its rules may have changed meanwhile.
        if let Err(refusal) = allowed(held) {
            return Ok(Err(refusal));
        }
        let name = name_of(&of);
        let sealed = keyring.read().seal(&format!("settings/{name}"), &config)?;
        settings::set(tx, &name, &sealed)?;
        Ok::<_, Error>(Ok(()))
    };
    let written = control.store.write(write).await.map_err(failed).and_then(|written| written);
    if written.is_err() {
        if let Err(fault) = maker.remove(&instance).await {
            tracing::error!(%fault, sandbox = %id, "a tunnel that is kept nowhere could not be removed");
        }
        // The settings of an earlier one may be kept, or those of this one if the database has
        // written them without an answer.
        let (of, id) = (control.clone(), id.clone());
        control.workloads.tasks.spawn(async move { restore(&of, &id).await });
    }
    written
}

/// Removes the tunnel of a sandbox.
pub async fn remove(control: &Control, sandbox: &ResourceId) -> Result<(), TunnelRefusal> {
    let (control, id) = (control.clone(), sandbox.clone());
    run_to_end(async move { remove_now(&control, &id).await }).await.unwrap_or_else(interrupted)
}

async fn remove_now(control: &Control, id: &ResourceId) -> Result<(), TunnelRefusal> {
    let maker = maker(control).ok_or_else(no_tunnels)?;
    let _lock = control.workloads.lock(id).await;
    let of = id.clone();
    let read = move |tx: &mut Tx<'_>| {
        let Some(held) = rows::find::<Sandbox>(tx, &of)? else { return Ok(Err(gone())) };
        if settings::get(tx, &name_of(&of))?.is_none() {
            return Ok(Err(TunnelRefusal::Missing));
        }
        Ok::<_, Error>(Ok(launch::instance(&of, &held.state)))
    };
    let instance = control.store.read(read).await.map_err(failed)??;
    let removed = maker.remove(&instance).await;
    // As long as the machine has it, its settings stay, so that it can be removed again.
    if !matches!(removed, Ok(()) | Err(TunnelFault::Gone)) {
        return removed.map_err(refusal);
    }
    let of = id.clone();
    control.store.write(move |tx| release(tx, &of)).await.map_err(failed)?;
    removed.map_err(refusal)
}

/// Returns the instance that gets the tunnel, if the rules of its sandbox allow one.
fn allowed(held: Held<Sandbox>) -> Result<InstanceName, TunnelRefusal> {
    match held.wish.spec.network.as_ref().is_some_and(looks) {
        true => Err(TunnelRefusal::Rules(LISTS.to_owned())),
        false => Ok(launch::instance(&held.row.id, &held.state)),
    }
}

/// Checks whether the rules inspect everything that leaves.
fn looks(network: &Network) -> bool {
    let rules = network.rules();
    rules.has_lists() || rules.proxy_only
}

/// Deletes what is kept for a sandbox that is gone.
pub(crate) fn release(tx: &mut Tx<'_>, id: &ResourceId) -> Result<(), Error> {
    Ok(settings::remove(tx, &name_of(id))?)
}

/// Restores a sandbox's tunnel if an instance of it runs here without it.
pub(crate) async fn restore(control: &Control, id: &ResourceId) {
    if let Some(maker) = maker(control)
        && let Err(refusal) = restore_by(control, &*maker, id).await
    {
        tracing::warn!(%refusal, sandbox = %id, "a sandbox stays without its tunnel");
    }
}

async fn restore_by(
    control: &Control,
    maker: &dyn TunnelMaker,
    id: &ResourceId,
) -> Result<(), TunnelRefusal> {
    let _lock = control.workloads.lock(id).await;
    let (of, keyring) = (id.clone(), control.store.keyring());
    let read = move |tx: &mut Tx<'_>| {
        let name = name_of(&of);
        let Some(sealed) = settings::get(tx, &name)? else { return Ok(None) };
        let Some(held) = rows::find::<Sandbox>(tx, &of)? else { return Ok(None) };
        let config = keyring.read().open(&format!("settings/{name}"), &sealed)?;
        Ok::<_, Error>(allowed(held).ok().map(|instance| (instance, config)))
    };
    let kept = control.store.read(read).await.map_err(failed)?;
    let Some((instance, config)) = kept else { return Ok(()) };
    let here = control.machine().is_some_and(|machine| machine.runs(&instance));
    if !here || maker.has(&instance) {
        return Ok(());
    }
    maker.set(&instance, TunnelSettings::read(&config)?).await.map_err(refusal)
}

/// Restores all tunnels at a start of this program: running instances lost theirs with the last
/// run.
pub(crate) async fn restore_all(control: Control) {
    if maker(&control).is_none() {
        return;
    }
    let mut after = String::new();
    loop {
        let from = after.clone();
        let page = control.store.read(move |tx| settings::names(tx, PREFIX, &from, PAGE)).await;
        let names = match page {
            Ok(names) => names,
            Err(error) => {
                tracing::error!(%error, "tunnels could not be read; they come back with the next launch");
                return;
            }
        };
        let Some(last) = names.last() else { return };
        after.clone_from(last);
        for id in names.iter().filter_map(|name| name.strip_prefix(PREFIX)) {
            restore(&control, &ResourceId::known(id)).await;
        }
    }
}

fn maker(control: &Control) -> Option<Arc<dyn TunnelMaker>> {
    control.machine()?.tunnels()
}

fn interrupted(interrupted: Interrupted) -> Result<(), TunnelRefusal> {
    Err(TunnelRefusal::Failed(interrupted.to_string()))
}

fn refusal(fault: TunnelFault) -> TunnelRefusal {
    match fault {
        TunnelFault::Rules(why) => TunnelRefusal::Rules(why),
        TunnelFault::Unfit(why) => TunnelRefusal::Failed(why),
        TunnelFault::Gone => gone(),
        TunnelFault::Broken(why) => {
            tracing::error!(why, "a tunnel could not be made or removed");
            TunnelRefusal::Failed("the machine failed; its log says why".into())
        }
    }
}

fn failed(error: Error) -> TunnelRefusal {
    tracing::error!(%error, "the settings of a tunnel could not be read or written");
    match error {
        Error::Store(full @ store::Error::Full(_)) => {
            TunnelRefusal::Full(full.for_callers().into())
        }
        Error::Store(away) if away.is_away() => TunnelRefusal::Away(away.for_callers().into()),
        _ => TunnelRefusal::Failed("the server failed; its log says why".into()),
    }
}

fn gone() -> TunnelRefusal {
    TunnelRefusal::Failed("the sandbox is gone".into())
}

fn no_tunnels() -> TunnelRefusal {
    TunnelRefusal::Failed("the machine of this sandbox makes no tunnels".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_full_or_absent_database_is_told_apart_from_a_failure() {
        let full = failed(store::Error::Full("x".into()).into());
        assert_eq!(full, TunnelRefusal::Full("the disk of the database is full".into()));
        let away = failed(store::Error::Unreachable(None).into());
        assert!(matches!(away, TunnelRefusal::Away(_)), "{away}");
        let broken = failed(store::Error::Database("x".into()).into());
        assert!(matches!(broken, TunnelRefusal::Failed(_)), "{broken}");
    }

    #[test]
    fn a_tunnel_goes_with_rules_that_look_at_nothing() {
        let of = |network: serde_json::Value| looks(&serde_json::from_value(network).unwrap());
        let target = json!({"destinations": ["api.example.com"], "headers": {"a": "b"}});
        for open in [
            json!({}),
            json!({"allowedDomains": [], "proxy": {}}),
            json!({"proxy": {"routing": [target], "bypass": ["x.example.com"]}}),
            json!({"firewall": {"rulesets": ["default"]}}),
        ] {
            assert!(!of(open.clone()), "{open}");
        }
        for closed in [
            json!({"allowedDomains": ["a.example.com"]}),
            json!({"forbiddenDomains": ["a.example.com"]}),
            json!({"proxy": {"allowedDomains": ["a.example.com"]}}),
            json!({"proxy": {"forbiddenDomains": ["a.example.com"]}}),
            json!({"firewall": {"rulesets": ["default", "proxy"]}}),
        ] {
            assert!(of(closed.clone()), "{closed}");
        }
    }
}
