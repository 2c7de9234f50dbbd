//! Statistics of requests to deployments: their number, failures and durations.

use super::logs::{names, time};
use crate::http::call::Call;
use crate::http::error::Error;
use crate::http::malformed::Malformed;
use crate::http::reply::Reply;
use auth::Member;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use store::{Tx, resources};
use types::edge::Window;
use types::wire::{RequestAnswer, WorkloadRequests};
use types::{KindName, Timestamp, Verb};

/// The kinds whose requests are counted.
const COUNTED: [KindName; 3] = [KindName::Agent, KindName::Application, KindName::Function];

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestQuery {
    /// Plural kind: `agents`, `applications` or `functions`. Required.
    pub resource_type: Option<String>,
    /// Names of workloads, separated by commas. Required.
    pub workload_ids: Option<String>,
    /// Start of the window, inclusive. Minutes count as a whole, as far back as the server keeps
    /// them. Without `start` and `end`, everything since the server started.
    pub start: Option<String>,
    /// End of the window, exclusive. Default: now.
    pub end: Option<String>,
}

impl RequestQuery {
    fn window(&self, now: Timestamp) -> Result<Option<Window>, Error> {
        let start = time("start", self.start.as_deref())?;
        let end = time("end", self.end.as_deref())?;
        if start.is_none() && end.is_none() {
            return Ok(None);
        }
        // Requests at this very moment count too.
        let (start, end) = (start.unwrap_or_default(), end.unwrap_or_else(|| now.plus_ms(1)));
        if start < end {
            return Ok(Some(Window { start, end }));
        }
        let why = "must be after `start`".to_owned();
        Err(Malformed::Query { name: "end".to_owned(), why }.into())
    }
}

pub(crate) async fn get(call: Call<Member, RequestQuery>) -> Result<Reply<RequestAnswer>, Error> {
    let wanted = call.query.resource_type.as_deref().unwrap_or_default();
    let kind = COUNTED.into_iter().find(|kind| kind.plural() == wanted);
    let kind = kind.ok_or_else(|| Malformed::Query {
        name: "resourceType".to_owned(),
        why: format!("must be one of {}", COUNTED.map(KindName::plural).join(", ")),
    })?;
    call.who.who.may(&[kind.scope(Verb::Get)])?;
    let window = call.query.window(call.app.world.now())?;
    let names = names(call.query.workload_ids.as_deref())?;
    let (workspace, asked) = (call.who.workspace.clone(), names.clone());
    let find = move |tx: &mut Tx<'_>| {
        let row = |name: &String| resources::find(tx, &workspace, kind, "", name);
        asked.iter().map(row).collect::<Result<Vec<_>, _>>()
    };
    let rows = call.app.store.read(find).await?;
    let counted = names.into_iter().zip(rows).map(|(name, row)| {
        let stats = row.and_then(|row| call.app.requests_of(&row.id, window));
        (name, stats.as_ref().map_or_else(WorkloadRequests::default, WorkloadRequests::from))
    });
    Ok(Reply::of(&RequestAnswer(counted.collect::<BTreeMap<_, _>>())))
}
