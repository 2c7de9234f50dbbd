//! The parts of the sandbox API that the server answers itself, because root inside a sandbox must
//! not decide them.

use crate::body::Body;
use crate::destination::Destination;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use std::future::Future;
use types::KindName;
use types::ids::ResourceId;
use types::instance::GUEST_PORT;

/// A request for one of these parts.
pub(crate) trait Answered: Send + 'static {
    /// The service that carries it out.
    type By: Send + Sync + ?Sized + 'static;
    const BODY_BYTES_MAX: usize;

    /// Whether the sandbox has to be awake, and stay awake, while this is answered.
    fn needs_instance(&self) -> bool;

    /// Returns the answer in the form that the sandbox API has.
    fn answer(
        self,
        by: &Self::By,
        sandbox: &ResourceId,
        body: &[u8],
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// Returns whether a request may be for one of these parts. A request through a preview, whose
/// caller is not known, is left to the sandbox, which refuses it.
pub(crate) fn may_be(to: &Destination) -> bool {
    let own = to.port == GUEST_PORT && to.workload.kind == KindName::Sandbox;
    own && to.pass.caller.is_some()
}

pub(crate) fn respond(status: StatusCode, body: &serde_json::Value) -> Response<Body> {
    let mut response = Response::new(Body::own(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
