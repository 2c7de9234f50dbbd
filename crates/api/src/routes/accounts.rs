//! Accounts.

use crate::http::call::{Call, Person};
use crate::http::error::Error;
use crate::http::reply::Reply;
use types::wire::Account;

pub(crate) async fn list(call: Call<Person>) -> Result<Reply<Vec<Account>>, Error> {
    let who = call.who.0.clone();
    let found = call.app.store.read(move |tx| auth::accounts::list(tx, &who)).await?;
    let account = |(account, admin): (auth::accounts::Account, bool)| Account {
        id: account.id.to_string(),
        display_name: Some(account.name.clone()),
        name: Some(account.name),
        plan: Some(account.plan),
        admin: Some(admin),
        ..Account::default()
    };
    Ok(Reply::of(&found.into_iter().map(account).collect::<Vec<_>>()))
}
