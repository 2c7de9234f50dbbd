//! The edge's own errors, for when a workload does not answer: whose fault it is, and what to do.

#[cfg(test)]
mod page_tests;
mod response;

use crate::address::BadAddress;
use crate::guard::Refused;
use crate::models::{ModelProblem, Stopped};
use crate::standby::EnterError;
use crate::wire::Unanswered;
use http::StatusCode;
use std::time::Duration;
use types::KindName;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("no workload answers at this address")]
    NoRoute,
    #[error("there is no such workload, or it is not yours to use")]
    NoWorkload,
    /// `why` completes the sentence.
    #[error("the {kind} {why}")]
    Unavailable { kind: KindName, why: String },
    #[error("credentials are needed")]
    NoCredentials,
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    BadAddress(#[from] BadAddress),
    #[error("{0}")]
    BadRequest(&'static str),
    #[error("the body of the request is larger than {0} bytes")]
    TooLarge(u64),
    #[error("the body of the request did not come in time")]
    SlowBody,
    #[error("the workload changed the protocol without being asked to")]
    Unasked,
    #[error("the answer of the workload has a `Transfer-Encoding` that nobody asked for")]
    Coded,
    #[error("{0}")]
    NotReady(EnterError),
    #[error("the {kind} took longer than the {} seconds that it may", .limit.as_secs())]
    OutOfTime { kind: KindName, limit: Duration },
    #[error("{0}: end some requests or sockets first")]
    Crowded(admission::Refused),
    #[error("the session has ended: its replica is gone; open another one")]
    SessionLost,
    #[error("{}", .why.message(.kind.name()))]
    Unanswered { kind: KindName, why: Unanswered },
    #[error(transparent)]
    Model(#[from] ModelProblem),
}

/// What all problems of one code have in common.
struct Page {
    code: &'static str,
    status: StatusCode,
    retryable: bool,
    action: &'static str,
    do_not: &'static str,
}

const fn page(
    code: &'static str,
    status: StatusCode,
    retryable: bool,
    action: &'static str,
    do_not: &'static str,
) -> Page {
    Page { code, status, retryable, action, do_not }
}

const NO_ROUTE: Page = page(
    "ROUTE_NOT_FOUND",
    StatusCode::NOT_FOUND,
    false,
    "Use the address in `metadata.url` of the workload, or in `spec.url` of the preview.",
    "Do not build addresses from parts.",
);
const NO_WORKLOAD: Page = page(
    "WORKLOAD_NOT_FOUND",
    StatusCode::NOT_FOUND,
    false,
    "Check the names of the workspace and the workload, and that the credentials belong to the workspace.",
    "Do not repeat the request unchanged.",
);
const UNAVAILABLE: Page = page(
    "WORKLOAD_UNAVAILABLE",
    StatusCode::NOT_FOUND,
    true,
    "Ask the server that is named, if one is. Otherwise look at `status` and `events` of the workload, then try again.",
    "Do not delete and create it anew before looking: its data would be lost.",
);
const NO_CREDENTIALS: Page = page(
    "AUTHENTICATION_REQUIRED",
    StatusCode::UNAUTHORIZED,
    false,
    "Send an API key or an access token as `Authorization: Bearer …`; for a private preview a preview token does too.",
    "Do not repeat the request without credentials.",
);
const BAD_CREDENTIALS: Page = page(
    "AUTHENTICATION_FAILED",
    StatusCode::UNAUTHORIZED,
    false,
    "Get a new key or token, and send it whole.",
    "Do not repeat the request with the same credentials.",
);
const FORBIDDEN: Page = page(
    "FORBIDDEN",
    StatusCode::FORBIDDEN,
    false,
    "Use credentials that have the right, or ask an admin of the workspace for it.",
    "Do not repeat the request with the same credentials.",
);
const BAD_REQUEST: Page = page(
    "BAD_REQUEST",
    StatusCode::BAD_REQUEST,
    false,
    "Mend the request as the message says.",
    "Do not repeat the request unchanged.",
);
const TOO_LARGE: Page = page(
    "REQUEST_ENTITY_TOO_LARGE",
    StatusCode::PAYLOAD_TOO_LARGE,
    false,
    "Send the data in parts, such as by a multipart upload.",
    "Do not repeat the request unchanged.",
);
const TOO_MANY: Page = page(
    "TOO_MANY_REQUESTS",
    StatusCode::TOO_MANY_REQUESTS,
    true,
    "Wait as long as `Retry-After` says, then go on with fewer requests at a time.",
    "Do not repeat the request at once.",
);
const NO_CAPACITY: Page = page(
    "NO_CAPACITY",
    StatusCode::SERVICE_UNAVAILABLE,
    true,
    "Wait as long as `Retry-After` says, then try again.",
    "Do not repeat the request at once.",
);
const NOT_LISTENING: Page = page(
    "PORT_NOT_LISTENING",
    StatusCode::BAD_GATEWAY,
    true,
    "Start the app in the workload and let it listen on 0.0.0.0 or 127.0.0.1 at this port, then try again.",
    "Do not let the app listen on an outside address only.",
);
const NO_ANSWER: Page = page(
    "WORKLOAD_NO_ANSWER",
    StatusCode::BAD_GATEWAY,
    true,
    "Look at the logs of the app in the workload; repeat the request if it may be done twice.",
    "Do not repeat a request that must not be done twice before looking whether it was done.",
);
const TIMED_OUT: Page = page(
    "WORKLOAD_TIMEOUT",
    StatusCode::GATEWAY_TIMEOUT,
    true,
    "Look at `status` and `events` of the workload, then try again.",
    "Do not wait longer on this connection: it has ended.",
);
const SESSION_LOST: Page = page(
    "SESSION_LOST",
    StatusCode::NOT_FOUND,
    false,
    "Open another session, by `initialize` without `Mcp-Session-Id`.",
    "Do not repeat the request in the same session.",
);
const LIMIT_REACHED: Page = page(
    "MODEL_LIMIT_REACHED",
    StatusCode::TOO_MANY_REQUESTS,
    true,
    "Wait as long as `Retry-After` says, or have the limit raised.",
    "Do not repeat the request before the window of the limit has ended.",
);
const LIMIT_TOO_SMALL: Page = page(
    "MODEL_LIMIT_TOO_SMALL",
    StatusCode::FORBIDDEN,
    false,
    "Set a lower `max_tokens`, shorten the request, or have the limit raised.",
    "Do not repeat the request unchanged.",
);
const LIMITS_UNAVAILABLE: Page = page(
    "MODEL_LIMITS_UNAVAILABLE",
    StatusCode::SERVICE_UNAVAILABLE,
    true,
    "Try again in a moment; if it stays, tell the operator of this server.",
    "Do not change the request: it is not at fault.",
);
const UNPRICED: Page = page(
    "MODEL_WITHOUT_PRICE",
    StatusCode::FORBIDDEN,
    false,
    "Have the operator add the model to the price table (`models.prices`), or use another model.",
    "Do not repeat the request unchanged.",
);
const UNCOUNTED: Page = page(
    "MODEL_PATH_UNCOUNTED",
    StatusCode::FORBIDDEN,
    false,
    "Ask for answers or embeddings, or use a model without a limit of tokens or money.",
    "Do not repeat the request unchanged.",
);
const HOOK_BLOCKED: Page = page(
    "MODEL_HOOK_BLOCKED",
    StatusCode::BAD_REQUEST,
    false,
    "Leave out what the hook refuses, or have `spec.hooks` of the model changed.",
    "Do not repeat the request unchanged.",
);
const HOOK_FAILED: Page = page(
    "MODEL_HOOK_FAILED",
    StatusCode::BAD_GATEWAY,
    true,
    "Look at the address or the pattern in `spec.hooks` of the model; `optional` lets requests pass without it.",
    "Do not change the request: it is not at fault.",
);
const BAD_CONNECTION: Page = page(
    "MODEL_CONNECTION_INVALID",
    StatusCode::BAD_GATEWAY,
    false,
    "Mend the integration connection that the model names.",
    "Do not change the request: it is not at fault.",
);
const LOOP: Page = page(
    "MODEL_LOOP",
    StatusCode::LOOP_DETECTED,
    false,
    "Give the connection that the model names the address of its provider.",
    "Do not repeat the request unchanged.",
);
const RESTING: Page = page(
    "MODEL_RESTING",
    StatusCode::SERVICE_UNAVAILABLE,
    true,
    "Wait as long as `Retry-After` says; give the model fallbacks, so that others answer meanwhile.",
    "Do not repeat the request at once.",
);
const PROVIDER_FAILED: Page = page(
    "MODEL_PROVIDER_FAILED",
    StatusCode::BAD_GATEWAY,
    true,
    "Look at the state of the provider and at the address in the model's connection, then try again.",
    "Do not change the request: it is not at fault.",
);
const PROVIDER_SLOW: Page = page(
    "MODEL_PROVIDER_TIMEOUT",
    StatusCode::GATEWAY_TIMEOUT,
    true,
    "Try again, or have the time-outs in `spec.routing` of the model raised.",
    "Do not wait longer on this connection: it has ended.",
);
const SLOW_BODY: Page = page(
    "REQUEST_TIMEOUT",
    StatusCode::REQUEST_TIMEOUT,
    true,
    "Send the whole request at once.",
    "Do not wait longer on this connection.",
);
const AWAY: Page = page(
    "UNAVAILABLE",
    StatusCode::SERVICE_UNAVAILABLE,
    true,
    "Try again shortly; if it stays, tell the operator of this server.",
    "Do not change the request: it is not at fault.",
);
const BROKEN: Page = page(
    "INTERNAL_ERROR",
    StatusCode::INTERNAL_SERVER_ERROR,
    true,
    "Try again; if it stays, tell the operator of this server the time of this answer.",
    "Do not change the request: it is not at fault.",
);

impl Problem {
    fn page(&self) -> &'static Page {
        match self {
            Self::NoRoute => &NO_ROUTE,
            Self::NoWorkload => &NO_WORKLOAD,
            Self::NoCredentials => &NO_CREDENTIALS,
            Self::Refused(Refused::Unknown | Refused::Expired) => &BAD_CREDENTIALS,
            Self::Refused(Refused::Forbidden { .. }) => &FORBIDDEN,
            Self::Refused(Refused::TooMany { .. }) | Self::NotReady(EnterError::Crowded) => {
                &TOO_MANY
            }
            Self::Crowded(refused) => Self::page_of_crowd(refused),
            Self::Refused(Refused::Broken) => &BROKEN,
            Self::Refused(Refused::Away) | Self::NotReady(EnterError::Stopping) => &AWAY,
            Self::BadAddress(_) | Self::BadRequest(_) => &BAD_REQUEST,
            Self::TooLarge(_) => &TOO_LARGE,
            Self::Unavailable { .. } | Self::NotReady(EnterError::Gone | EnterError::NotWoken) => {
                &UNAVAILABLE
            }
            Self::NotReady(EnterError::TimedOut) | Self::OutOfTime { .. } => &TIMED_OUT,
            Self::Unanswered { why, .. } => match why {
                Unanswered::Silent(_) | Unanswered::ConnectTimedOut(_) => &TIMED_OUT,
                Unanswered::NotListening(_) => &NOT_LISTENING,
                Unanswered::Unreachable { .. } | Unanswered::Broken { .. } => &NO_ANSWER,
            },
            Self::SlowBody => &SLOW_BODY,
            Self::Unasked | Self::Coded => &NO_ANSWER,
            Self::SessionLost => &SESSION_LOST,
            Self::Model(problem) => Self::page_of_model(problem),
        }
    }

    const fn page_of_crowd(refused: &admission::Refused) -> &'static Page {
        match refused {
            admission::Refused::Share { .. } => &TOO_MANY,
            admission::Refused::Total { .. } => &NO_CAPACITY,
        }
    }

    fn page_of_model(problem: &ModelProblem) -> &'static Page {
        use ModelProblem as P;
        match problem {
            P::BadBody(_)
            | P::CutBody
            | P::Method
            | P::Unsayable(_)
            | P::Unsupported
            | P::Unpassable(_) => &BAD_REQUEST,
            P::SlowBody => &SLOW_BODY,
            P::NoProvider => &UNAVAILABLE,
            P::Connection(_) | P::Credentials => &BAD_CONNECTION,
            P::OverLimit(over) if over.never_fits() => &LIMIT_TOO_SMALL,
            P::OverLimit(_) => &LIMIT_REACHED,
            P::Limits(_) => &LIMITS_UNAVAILABLE,
            P::Unpriced(_) => &UNPRICED,
            P::Uncounted => &UNCOUNTED,
            P::Stopped(Stopped::Blocked { .. }) => &HOOK_BLOCKED,
            P::Stopped(Stopped::Failed { .. }) => &HOOK_FAILED,
            P::Stopped(Stopped::Crowded(refused)) => Self::page_of_crowd(refused),
            P::Loop => &LOOP,
            P::Resting { .. } => &RESTING,
            P::Broken(broken) if broken.is_timeout() => &PROVIDER_SLOW,
            P::Broken(_)
            | P::Redirect
            | P::Unreadable(_)
            | P::BadCoding(_)
            | P::BadAnswer(_)
            | P::LongAnswer(_) => &PROVIDER_FAILED,
            P::NotReady => &NO_CAPACITY,
        }
    }

    pub(crate) fn code(&self) -> &'static str {
        self.page().code
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.page().status
    }
}
