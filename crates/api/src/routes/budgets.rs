//! Budgets of an account.

use crate::http::call::{Body, Call, Person};
use crate::http::error::Error;
use crate::http::query::NoQuery;
use crate::http::reply::Reply;
use control::billing;
use control::billing::budgets::{self, Draft};
use types::wire::{Budget, BudgetRequest};

pub(crate) async fn list(call: Call<Person>) -> Result<Reply<Vec<Budget>>, Error> {
    let account = billing::administered(&call.who.0, call.path.name())?;
    let found = call.app.store.read(move |tx| budgets::list(tx, &account)).await?;
    Ok(Reply::of(&found))
}

pub(crate) async fn get(call: Call<Person>) -> Result<Reply<Budget>, Error> {
    let account = billing::administered(&call.who.0, call.path.at(0))?;
    let name = call.path.name().to_owned();
    let found = call.app.store.read(move |tx| budgets::get(tx, &account, &name)).await?;
    Ok(Reply::of(&found))
}

/// Creates a budget, or replaces the wish for it.
pub(crate) async fn put(
    call: Call<Person, NoQuery, Body<BudgetRequest>>,
) -> Result<Reply<Budget>, Error> {
    let account = billing::administered(&call.who.0, call.path.at(0))?;
    let draft = Draft {
        control: call.app.control().clone(),
        account,
        name: call.path.name().to_owned(),
        wish: call.body.0.clone(),
        by: call.who.0.name.clone(),
    };
    draft.check()?;
    call.once(move |tx| draft.write(tx)).await
}

pub(crate) async fn remove(call: Call<Person>) -> Result<Reply<Budget>, Error> {
    let account = billing::administered(&call.who.0, call.path.at(0))?;
    let name = call.path.name().to_owned();
    call.once(move |tx| budgets::remove(tx, &account, &name)).await
}
