//! Custom domains.

use crate::http::call::{Body, Call, Wish};
use crate::http::error::Error;
use crate::http::query::NoQuery;
use crate::http::reply::Reply;
use auth::Member;
use control::kinds::custom_domain as domains;
use types::kinds::CustomDomain;
use types::wire::{CustomDomainShareRequest, CustomDomainShareTarget};

pub(crate) async fn create_for_application(
    call: Call<Member, NoQuery, Wish<CustomDomain>>,
) -> Result<Reply<CustomDomain>, Error> {
    let (context, application, wish) =
        (call.context(), call.path.name().to_owned(), call.body.0.clone());
    call.once(move |tx| domains::create_for_application(&context, tx, &application, wish.clone()))
        .await
}

pub(crate) async fn verify(call: Call<Member>) -> Result<Reply<CustomDomain>, Error> {
    Ok(Reply::of(&domains::verify(&call.context(), call.path.name()).await?))
}

pub(crate) async fn shares(
    call: Call<Member>,
) -> Result<Reply<Vec<CustomDomainShareTarget>>, Error> {
    let (context, name) = (call.context(), call.path.name().to_owned());
    let found = call.app.store.read(move |tx| domains::shares(&context, tx, &name)).await?;
    Ok(Reply::of(&found))
}

pub(crate) async fn share(
    call: Call<Member, NoQuery, Body<CustomDomainShareRequest>>,
) -> Result<Reply<CustomDomain>, Error> {
    let (context, name, target) =
        (call.context(), call.path.name().to_owned(), call.body.0.target_workspace.clone());
    call.once(move |tx| domains::share(&context, tx, &name, &target)).await
}

pub(crate) async fn unshare(call: Call<Member>) -> Result<Reply<CustomDomain>, Error> {
    let (context, name, target) =
        (call.context(), call.path.at(0).to_owned(), call.path.at(1).to_owned());
    let work = move |tx: &mut store::Tx<'_>| domains::unshare(&context, tx, &name, &target);
    Ok(Reply::of(&call.app.store.write(work).await?))
}
