//! The addresses of the pool, and their holders.

use super::gateways::{self, source_of};
use super::pool::EgressPool;
use crate::context::Context;
use crate::engine::{Draft, Held};
use crate::error::{Conflict, Error};
use crate::settings::{Egress, Settings};
use std::collections::BTreeMap;
use store::Tx;
use store::egress_addresses::{self, Taken};
use types::kinds::egress_ip::IpFamily;
use types::kinds::{EgressGateway, EgressIp};
use types::parts::Status;
use types::wire::PublicIp;

pub(super) const fn name_of(family: IpFamily) -> &'static str {
    match family {
        IpFamily::IPv4 => "IPv4",
        IpFamily::IPv6 => "IPv6",
    }
}

/// Takes an address for a row that is being created. Sandboxes behind the gateway leave with it if
/// they had none of its family. If the operator has no addresses of the family at all, the row says
/// so, and no sandbox can leave by it.
pub(crate) fn take(
    context: &Context,
    tx: &mut Tx<'_>,
    draft: &mut Draft<'_, EgressIp>,
) -> Result<(), Error> {
    if draft.state.public_ip.is_some() {
        return Ok(());
    }
    let family = draft.wish.spec.ip_family;
    let holder = (&context.member.workspace, draft.id);
    let Egress { pool, workspace_max } = &context.control.settings.egress;
    if pool.of(family).next().is_none() {
        let message = format!(
            "this server has no {} addresses: its operator lists those that it may give in `egress.addresses`",
            name_of(family)
        );
        let now = context.world().now();
        draft.state.lifecycle.record("address", Status::Failed, message, now);
        return Ok(());
    }
    let max = *workspace_max;
    let address = match egress_addresses::take(tx, holder, max, pool.of(family))? {
        Taken::Address(address) => address.to_string(),
        Taken::NoneFree => {
            return Err(Conflict::NoEgressAddress { family: name_of(family) }.into());
        }
        Taken::TooMany => return Err(Conflict::ManyEgressAddresses { max }.into()),
    };
    let (name, parents) = (&draft.wish.metadata.name, draft.parents);
    let message = format!("it has the address {address} (`{name}`)");
    gateways::note(context, tx, parents, &message)?;
    draft.state.public_ip = Some(address);
    Ok(())
}

/// Refuses to give back an address that sandboxes leave with.
pub(crate) fn require_address_unused(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<EgressIp>,
) -> Result<(), Error> {
    let parents = held.parents();
    // Locked, so that no sandbox begins to leave by it meanwhile.
    let gateway = Held::<EgressGateway>::lock_around(context, tx, &parents)?;
    let Some(address) = &held.state.public_ip else { return Ok(()) };
    let leaves = source_of(context, tx, &parents)?;
    if leaves.iter().any(|source| source.to_string() == *address)
        && let Some(sandbox) = gateways::users(context, tx, &gateway.row.name)?.into_iter().next()
    {
        return Err(Conflict::EgressIpUsed { sandbox: sandbox.row.name }.into());
    }
    Ok(())
}

/// Notes with its gateway that an address is given back. The address itself is given back when the
/// row is deleted.
pub(crate) fn give_back(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<EgressIp>,
) -> Result<(), Error> {
    let Some(address) = &held.state.public_ip else { return Ok(()) };
    let message = format!("it gave the address {address} back (`{}`)", held.row.name);
    gateways::note(context, tx, &held.parents(), &message)
}

/// Returns where traffic of this server comes from, by region: as the operator says, or else the
/// addresses of the pool for gateways.
pub fn public_ips(settings: &Settings) -> BTreeMap<String, PublicIp> {
    let told = &settings.catalogue.public_ips;
    let region = settings.regions.first().and_then(|region| region.name.clone());
    match region {
        Some(region) if told.is_empty() && !settings.egress.pool.is_empty() => {
            [(region, of_pool(&settings.egress.pool))].into()
        }
        _ => told.clone(),
    }
}

fn of_pool(pool: &EgressPool) -> PublicIp {
    PublicIp {
        description: Some("addresses of egress gateways".to_owned()),
        ipv4_cidrs: Some(pool.blocks(IpFamily::IPv4)),
        ipv6_cidrs: Some(pool.blocks(IpFamily::IPv6)),
    }
}
