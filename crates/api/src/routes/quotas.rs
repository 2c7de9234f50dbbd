//! Quotas, so that callers can read them before a request is refused.

use crate::http::call::Call;
use crate::http::error::Error;
use crate::http::reply::Reply;
use auth::Member;
use schemars::JsonSchema;
use serde::Serialize;
use store::resources::counts;
use types::KindName;

/// How many objects of a kind exist and are allowed.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Quota {
    kind: String,
    used: i64,
    /// Absent if the number is not limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<i64>,
}

pub(crate) async fn list(call: Call<Member>) -> Result<Reply<Vec<Quota>>, Error> {
    let workspace = call.who.workspace.clone();
    let counts = call.app.store.read(move |tx| counts(tx, &workspace)).await?;
    let quota = |kind: &KindName| {
        let used =
            counts.iter().find(|(counted, _)| counted == kind).map_or(0, |(_, count)| *count);
        Quota { kind: kind.name().into(), used, limit: call.app.settings.quotas.get(kind).copied() }
    };
    Ok(Reply::of(&KindName::ALL.iter().map(quota).collect::<Vec<_>>()))
}
