//! Volumes, which are also created and grown on a machine, besides their row.

use crate::http::call::{Call, Wish};
use crate::http::error::Error;
use crate::http::query::NoQuery;
use crate::http::reply::Reply;
use auth::Member;
use control::volumes;
use types::kinds::Volume;

pub(crate) async fn create(
    call: Call<Member, NoQuery, Wish<Volume>>,
) -> Result<Reply<Volume>, Error> {
    Ok(volumes::create(call.context(), call.body.0, call.key).await?.into())
}

pub(crate) async fn replace(
    call: Call<Member, NoQuery, Wish<Volume>>,
) -> Result<Reply<Volume>, Error> {
    let (context, name, seen) = (call.context(), call.path.name().to_owned(), call.if_match);
    Ok(volumes::replace(context, name, call.body.0, seen).await?.into())
}
