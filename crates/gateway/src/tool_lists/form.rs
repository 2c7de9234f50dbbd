//! The two formats in which a server answers: a JSON body, or a stream of events.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};

/// The format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Events,
}

impl Form {
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let is = |wanted: &str| is_of_type(headers, wanted);
        is("application/json")
            .then_some(Self::Json)
            .or_else(|| is("text/event-stream").then_some(Self::Events))
    }

    pub(super) fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Json => "application/json",
            Self::Events => "text/event-stream",
        })
    }
}

pub(super) fn is_of_type(headers: &HeaderMap, wanted: &str) -> bool {
    let named = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = named.and_then(|named| named.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case(wanted))
}
