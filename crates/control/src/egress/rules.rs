//! How a wish becomes the rules that the machine is told.

use super::gateways::source_for;
use crate::context::Context;
use crate::engine::Held;
use crate::error::Error;
use crate::workspace_defaults::DEFAULT_VPC;
use store::Tx;
use types::Kind;
use types::egress::{EgressRules, VpcMember};
use types::kinds::{Network, Sandbox, Vpc};

/// Returns the rules in a wish itself. Secrets must be opened.
pub(crate) fn plain(network: Option<&Network>) -> EgressRules {
    network.map(Network::rules).unwrap_or_default()
}

/// Checks whether a row asks for any rules.
pub(crate) fn has_rules(wish: &Sandbox) -> bool {
    wish.spec.rules() != EgressRules::default()
        || wish.spec.gateway().is_some()
        || wish.spec.vpc().is_some()
}

/// Returns the rules of a sandbox whose secrets are opened, or why it cannot have them, in which
/// case it must not run.
pub(crate) fn of_sandbox(
    context: &Context,
    tx: &mut Tx<'_>,
    wish: &Sandbox,
) -> Result<Result<EgressRules, String>, Error> {
    let mut rules = wish.spec.rules();
    if let Some(gateway) = wish.spec.gateway() {
        match source_for(context, tx, gateway, wish)? {
            Ok(source) => rules.source = source,
            Err(why) => return Ok(Err(why.to_string())),
        }
    }
    rules.vpc = membership(context, tx, wish)?;
    Ok(Ok(rules))
}

/// Returns the VPC through which others reach a sandbox, if the VPC is reachable. The workspace's
/// default VPC never is, so most sandboxes need no look into the store.
fn membership(
    context: &Context,
    tx: &mut Tx<'_>,
    wish: &Sandbox,
) -> Result<Option<VpcMember>, Error> {
    let named = wish.spec.vpc().filter(|name| *name != DEFAULT_VPC);
    let Some(name) = named else { return Ok(None) };
    let Some(vpc) = Held::<Vpc>::find(context, tx, &[], name)? else { return Ok(None) };
    Ok(vpc.wish.spec.is_reachable().then(|| VpcMember {
        vpc: vpc.row.id,
        vpc_name: vpc.row.name,
        host: wish.name().to_owned(),
    }))
}
