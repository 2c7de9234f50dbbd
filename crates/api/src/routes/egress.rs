//! Egress gateways and addresses of all VPCs, and who uses them.

use crate::call::Call;
use crate::engine::{Desk, Draft, Held, Managed, Paging, everywhere};
use crate::error::Error;
use crate::reply::Reply;
use auth::Member;
use store::{Tx, references};
use types::kinds::{EgressGateway, EgressIp};
use types::wire::EgressGatewayUsage;
use types::{Kind, KindName};

/// Every object of a nested kind, wherever it is.
pub(crate) async fn all<K: Managed>(call: Call<Member>) -> Result<Reply<Vec<K>>, Error> {
    let desk = call.desk();
    let found = call.app.store.read(move |tx| everywhere::<K>(&desk, tx)).await?;
    Ok(Reply::of(&found))
}

/// The sandboxes that leave through each gateway.
pub(crate) async fn usage(call: Call<Member>) -> Result<Reply<EgressGatewayUsage>, Error> {
    let desk = call.desk();
    let work = move |tx: &mut Tx<'_>| {
        let mut usage = EgressGatewayUsage::default();
        for gateway in everywhere::<EgressGateway>(&desk, tx)? {
            let users = references::users(
                tx,
                &desk.member.workspace,
                KindName::EgressGateway,
                gateway.name(),
            )?;
            let sandboxes = users
                .into_iter()
                .filter(|(kind, _)| *kind == KindName::Sandbox)
                .map(|(_, name)| name);
            usage.0.entry(gateway.name().to_owned()).or_default().extend(sandboxes);
        }
        Ok::<_, Error>(usage)
    };
    Ok(Reply::of(&call.app.store.read(work).await?))
}

impl Managed for EgressGateway {
    const PAGING: Paging = Paging::Bare;

    fn settle(desk: &Desk, _: &mut Tx<'_>, draft: &mut Draft<'_, Self>) -> Result<(), Error> {
        super::catalogues::require_region(desk, Some(&draft.wish.spec.region), "spec.region")
    }

    fn release(desk: &Desk, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        let users =
            references::users(tx, &desk.member.workspace, KindName::EgressGateway, &held.row.name)?;
        match users.first() {
            Some((_, name)) => Err(Error::Conflict(format!(
                "the gateway is used by the sandbox `{name}`; delete that first"
            ))),
            None => Ok(()),
        }
    }
}

impl Managed for EgressIp {
    const PAGING: Paging = Paging::Bare;
}
