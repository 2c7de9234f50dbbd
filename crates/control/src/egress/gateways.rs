//! Egress gateways: which one a sandbox leaves by, with which addresses, and who is behind one.

use super::pool::family_of;
use crate::context::Context;
use crate::engine::{Draft, Held};
use crate::error::{Conflict, Error, Unfit};
use crate::workloads::rows;
use crate::workspace_defaults::DEFAULT_VPC;
use std::net::IpAddr;
use store::resources::{self, Order, Query};
use store::{Tx, references};
use types::kinds::{EgressGateway, EgressIp, Sandbox, Vpc};
use types::parts::Status;
use types::{Kind, KindName};

/// The type of events about addresses.
const ADDRESS: &str = "address";

/// Adds what became of an address to the events of its gateway.
pub(super) fn note(
    context: &Context,
    tx: &mut Tx<'_>,
    parents: &[String],
    message: &str,
) -> Result<(), Error> {
    let held = Held::<EgressGateway>::lock_around(context, tx, parents)?;
    let mut state = held.state.clone();
    let status = state.status().unwrap_or(Status::Deployed);
    state.record(ADDRESS, status, message, context.world().now());
    rows::put_state(tx, held, state).map(drop)
}

/// Finds the gateway that a sandbox names: the one in its own VPC, or else the only one of that
/// name.
fn named(
    context: &Context,
    tx: &mut Tx<'_>,
    (name, vpc): (&str, Option<&str>),
) -> Result<Option<Held<EgressGateway>>, Error> {
    let own = [vpc.unwrap_or(DEFAULT_VPC).to_owned()];
    if let Some(held) = Held::find(context, tx, &own, name)? {
        return Ok(Some(held));
    }
    let mut all = all_named(context, tx, name)?;
    Ok(all.pop().filter(|_| all.is_empty()))
}

/// Finds the gateways of this name in all VPCs.
fn all_named(
    context: &Context,
    tx: &mut Tx<'_>,
    name: &str,
) -> Result<Vec<Held<EgressGateway>>, Error> {
    let query = Query::new(&context.member.workspace, EgressGateway::NAME, None);
    let rows = resources::list(tx, &query)?.into_iter().filter(|row| row.name == name);
    rows.map(Held::read).collect()
}

/// Returns the path of a gateway, which its addresses have as parents.
fn path(gateway: &Held<EgressGateway>) -> Vec<String> {
    let mut path = gateway.parents();
    path.push(gateway.row.name.clone());
    path
}

/// Returns the addresses that traffic behind a gateway leaves with: the oldest of each family, so
/// that adding another does not change the address of running sandboxes.
pub(super) fn source_of(
    context: &Context,
    tx: &mut Tx<'_>,
    gateway: &[String],
) -> Result<Vec<IpAddr>, Error> {
    let parent = gateway.join("/");
    let query = Query::new(&context.member.workspace, EgressIp::NAME, Some(&parent));
    let query = Query { order: Order::CreatedAsc, ..query };
    let mut source: Vec<IpAddr> = Vec::new();
    for row in resources::list(tx, &query)? {
        let held = Held::<EgressIp>::read(row)?;
        let address = held.state.public_ip.as_deref().and_then(|it| it.parse::<IpAddr>().ok());
        let new = |it: &IpAddr| source.iter().all(|had| family_of(*had) != family_of(*it));
        source.extend(address.filter(new));
    }
    Ok(source)
}

/// Returns the addresses that a sandbox's traffic leaves with, or why it cannot leave as its wish
/// says.
pub(super) fn source_for(
    context: &Context,
    tx: &mut Tx<'_>,
    gateway: &str,
    wish: &Sandbox,
) -> Result<Result<Vec<IpAddr>, Unfit>, Error> {
    let name = gateway.to_owned();
    let Some(held) = named(context, tx, (gateway, wish.spec.vpc()))? else {
        return Ok(Err(Unfit::GatewayUnknown { name }));
    };
    if context.region(Some(&held.wish.spec.region)) != context.region(wish.spec.region.as_deref()) {
        return Ok(Err(Unfit::GatewayElsewhere { name, region: held.wish.spec.region }));
    }
    let source = source_of(context, tx, &path(&held))?;
    Ok(if source.is_empty() { Err(Unfit::GatewayWithoutAddress { name }) } else { Ok(source) })
}

/// Refuses a new sandbox whose gateway it cannot have. The gateway is locked, so it keeps its
/// addresses until the sandbox's row says that it leaves with them.
pub(crate) fn require_gateway(
    context: &Context,
    tx: &mut Tx<'_>,
    wish: &Sandbox,
) -> Result<(), Error> {
    let Some(gateway) = wish.spec.gateway() else { return Ok(()) };
    if let Some(held) = named(context, tx, (gateway, wish.spec.vpc()))? {
        Held::<EgressGateway>::lock(context, tx, &held.parents(), &held.row.name)?;
    }
    source_for(context, tx, gateway, wish)?.map(drop).map_err(Error::from)
}

/// Refuses a second gateway of one name, since sandboxes name their gateway without the VPC around
/// it.
pub(crate) fn require_alone(
    context: &Context,
    tx: &mut Tx<'_>,
    draft: &Draft<'_, EgressGateway>,
) -> Result<(), Error> {
    let name = draft.wish.name();
    match all_named(context, tx, name)?.into_iter().find(|held| held.row.id != *draft.id) {
        Some(held) => {
            let vpc = held.row.parent.clone();
            Err(Conflict::GatewayThere { name: name.to_owned(), vpc }.into())
        }
        None => Ok(()),
    }
}

/// Returns the sandboxes that leave by a gateway. A terminated one no longer does.
pub(super) fn users(
    context: &Context,
    tx: &mut Tx<'_>,
    gateway: &str,
) -> Result<Vec<Held<Sandbox>>, Error> {
    naming(context, tx, KindName::EgressGateway, gateway)
}

fn naming(
    context: &Context,
    tx: &mut Tx<'_>,
    kind: KindName,
    name: &str,
) -> Result<Vec<Held<Sandbox>>, Error> {
    let mut users = Vec::new();
    for (kind, name) in references::users(tx, &context.member.workspace, kind, name)? {
        if kind != Sandbox::NAME {
            continue;
        }
        let held = Held::<Sandbox>::find(context, tx, &[], &name)?;
        users.extend(held.filter(|held| !held.row.is_terminated()));
    }
    Ok(users)
}

/// Returns the names of the sandboxes that leave by a gateway.
pub fn sandboxes_of(
    context: &Context,
    tx: &mut Tx<'_>,
    gateway: &str,
) -> Result<Vec<String>, Error> {
    Ok(users(context, tx, gateway)?.into_iter().map(|held| held.row.name).collect())
}

/// Makes the sandboxes behind a gateway leave with a new address, if it is the first of its family.
pub(crate) fn addresses_changed(
    context: &Context,
    tx: &mut Tx<'_>,
    draft: &Draft<'_, EgressIp>,
) -> Result<(), Error> {
    let Some((gateway, _)) = draft.parents.split_last() else { return Ok(()) };
    let Some(address) = draft.state.public_ip.as_deref() else { return Ok(()) };
    let family = draft.wish.spec.ip_family;
    if source_of(context, tx, draft.parents)?.iter().any(|it| family_of(*it) == family) {
        return Ok(());
    }
    let now = context.world().now();
    let why = format!("the gateway `{gateway}` has the address {address}");
    for user in users(context, tx, gateway)? {
        let Some(held) = rows::lock::<Sandbox>(tx, &user.row.id)? else { continue };
        let mut state = held.state.clone();
        state.change_rules(&why, now);
        rows::put_state(tx, held, state)?;
    }
    Ok(())
}

/// Refuses to remove a gateway that sandboxes leave by.
pub(crate) fn require_unused(
    context: &Context,
    tx: &mut Tx<'_>,
    gateway: &str,
) -> Result<(), Error> {
    match users(context, tx, gateway)?.into_iter().next() {
        Some(held) => Err(Conflict::GatewayUsed { sandbox: held.row.name }.into()),
        None => Ok(()),
    }
}

/// Refuses to remove a VPC that sandboxes are in, or whose gateways they leave by.
pub(crate) fn require_vpc_unused(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<Vpc>,
) -> Result<(), Error> {
    if let Some(member) = naming(context, tx, Vpc::NAME, &held.row.name)?.into_iter().next() {
        return Err(Conflict::VpcUsed { sandbox: member.row.name }.into());
    }
    let below = Query::new(&context.member.workspace, EgressGateway::NAME, Some(&held.row.name));
    for gateway in resources::list(tx, &below)? {
        // Locked, so that no sandbox begins to leave by it meanwhile.
        let vpc = std::slice::from_ref(&held.row.name);
        Held::<EgressGateway>::lock(context, tx, vpc, &gateway.name)?;
        require_unused(context, tx, &gateway.name)?;
    }
    Ok(())
}
