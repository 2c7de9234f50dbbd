//! Requests that the management side makes to services on the internet, over the same guarded
//! connections.

use super::settings::AnswerTimeouts;
use super::upstream::{Broken, Outgoing, Pieces, Uncollected};
use super::{Models, Room};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use std::time::Duration;
use types::ids::WorkspaceId;
use types::models::{OutsideAnswer, OutsideRequest};
use types::parts::Sensitive;

const TIME: Duration = Duration::from_secs(30);

/// Why a service gave no answer. The text says nothing about what was sent.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OutsideError(String);

impl From<Broken> for OutsideError {
    fn from(broken: Broken) -> Self {
        Self(broken.to_string())
    }
}

impl From<Uncollected> for OutsideError {
    fn from(uncollected: Uncollected) -> Self {
        Self(uncollected.to_string())
    }
}

impl Models {
    pub(crate) async fn ask_outside(
        &self,
        workspace: &WorkspaceId,
        request: &OutsideRequest,
    ) -> Result<OutsideAnswer, OutsideError> {
        let bad = |what: &str| OutsideError(format!("the request has {what}"));
        let uri: Uri = request.url.parse().map_err(|_| bad("no address"))?;
        let method: Method = request.method.parse().map_err(|_| bad("no method"))?;
        let mut headers = HeaderMap::new();
        for (name, value) in &request.headers {
            let name = HeaderName::try_from(name.as_str()).map_err(|_| bad("a bad header"))?;
            let mut value = HeaderValue::try_from(value.0.as_str())
                .map_err(|_| bad("a header that no header can hold"))?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        let body = Pieces::from(bytes::Bytes::from(request.body.0.clone()));
        let timeouts = AnswerTimeouts { first: TIME, between: TIME, total: TIME };
        let outgoing = Outgoing { method, uri, headers, body };
        let mut response = self.client.ask(outgoing, workspace.as_str(), timeouts).await?;
        let max = self.settings.answer_max;
        let mut room = Room::new(&self.bodies, workspace.as_str());
        let (pieces, is_all) = response.body_mut().collect_in(&mut room, max).await?;
        if !is_all {
            return Err(OutsideError(format!("the answer is longer than {max} bytes")));
        }
        let body = Sensitive(Pieces::from_iter(pieces).whole().to_vec());
        Ok(OutsideAnswer { status: response.status().as_u16(), body })
    }
}
