//! The price book of an account.

use crate::http::call::{Body, Call, Person};
use crate::http::error::Error;
use crate::http::query::NoQuery;
use crate::http::reply::Reply;
use control::billing;
use control::billing::prices;
use types::wire::AccountPrices;

pub(crate) async fn get(call: Call<Person>) -> Result<Reply<AccountPrices>, Error> {
    let account = billing::administered(&call.who.0, call.path.name())?;
    let found = call.app.store.read(move |tx| prices::get(tx, &account)).await?;
    Ok(Reply::of(&found))
}

pub(crate) async fn replace(
    call: Call<Person, NoQuery, Body<AccountPrices>>,
) -> Result<Reply<AccountPrices>, Error> {
    let account = billing::administered(&call.who.0, call.path.name())?;
    let (wish, by) = (call.body.0.versions.clone(), call.who.0.name.clone());
    call.once(move |tx| prices::replace(tx, &account, &wish, &by)).await
}
