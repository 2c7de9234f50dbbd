//! The sandboxes that use each egress gateway.

use crate::http::call::Call;
use crate::http::error::Error;
use crate::http::reply::Reply;
use auth::Member;
use control::egress::sandboxes_of;
use control::engine::everywhere;
use store::Tx;
use types::Kind;
use types::kinds::EgressGateway;
use types::wire::EgressGatewayUsage;

/// Lists the sandboxes that use each gateway.
pub(crate) async fn usage(call: Call<Member>) -> Result<Reply<EgressGatewayUsage>, Error> {
    let context = call.context();
    let work = move |tx: &mut Tx<'_>| {
        let mut usage = EgressGatewayUsage::default();
        for gateway in everywhere::<EgressGateway>(&context, tx)? {
            let sandboxes = sandboxes_of(&context, tx, gateway.name())?;
            usage.0.entry(gateway.name().to_owned()).or_default().extend(sandboxes);
        }
        Ok(usage)
    };
    Ok(Reply::of(&call.app.lists.read(call.who.workspace.as_str(), work).await?))
}
