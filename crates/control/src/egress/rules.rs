//! From a wish to what the machine is told.

use super::gateways::source_for;
use crate::context::Context;
use crate::engine::Held;
use crate::error::Error;
use crate::workspace_defaults::DEFAULT_VPC;
use store::Tx;
use types::Kind;
use types::egress::{EgressRules, VpcMember};
use types::kinds::{Network, Sandbox, Vpc};

/// The rules of a wish that names nothing else. Secrets must be open.
pub(crate) fn plain(network: Option<&Network>) -> EgressRules {
    network.map(Network::rules).unwrap_or_default()
}

/// The rules of a sandbox whose secrets are open, or why there are none: then it must not run.
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

/// The VPC through which others reach a sandbox, if it is one of that sort. The workspace's own is
/// not, so most sandboxes cost no look.
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
