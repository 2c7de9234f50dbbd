//! Rewrites messages on their way between the caller and the workload.

use crate::body::Body;
use crate::context::Context;
use crate::destination::{Destination, Fallback};
use crate::headers::{self, FALLBACK, FALLBACK_DOMAIN, FALLBACK_PREVIEW};
use crate::peer::Peer;
use crate::timing::Timing;
use crate::wire::RequestBody;
use crate::{cookies, origin, preview};
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, REFERRER_POLICY, SET_COOKIE,
    TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts as Head;
use http::{HeaderMap, HeaderValue, Request, Response, Uri};

/// Length of the generated id of a request that comes without one.
const REQUEST_ID_CHARACTERS: usize = 20;

/// Returns the request as the workload gets it. `protocol` is what the client wants to switch to.
pub(crate) fn request(
    context: &Context,
    head: Head,
    to: &Destination,
    peer: Option<Peer>,
    protocol: Option<HeaderValue>,
    body: RequestBody,
) -> Request<RequestBody> {
    let Head { method, uri, headers: mut all, .. } = head;
    if let Some(authority) = uri.authority() {
        all.insert(HOST, headers::ascii(authority.as_str()));
    }
    headers::remove_hop(&mut all);
    headers::remove_ours(&mut all, to.preview.as_ref().map(|preview| &*preview.request_headers));
    // Answered by the edge, when it begins to read the body.
    all.remove(EXPECT);
    if to.pass.strips_authorization {
        all.remove(AUTHORIZATION);
    }
    cookies::to_workload(&mut all);
    preview::clean_referer(&mut all);
    headers::forwarded(&mut all, peer, context.settings.trust_forwarded);
    if !all.contains_key(headers::REQUEST_ID) {
        let id = context.world.random_text(REQUEST_ID_CHARACTERS);
        all.insert(headers::REQUEST_ID, headers::ascii(&id));
    }
    introduce(&mut all, to);
    if let Some(protocol) = protocol {
        all.insert(UPGRADE, protocol);
        all.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    if !body.is_empty() && !all.contains_key(CONTENT_LENGTH) {
        // Set explicitly, because for methods that rarely have a body it would be left out.
        all.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = Uri::from(to.target.clone());
    *request.headers_mut() = all;
    request
}

/// Sets the headers that say who the caller is, and those that the preview adds.
fn introduce(all: &mut HeaderMap, to: &Destination) {
    if let Some(caller) = &to.pass.caller {
        all.insert(headers::SUBJECT_ID, headers::ascii(&caller.subject_id));
        all.insert(headers::SUBJECT_TYPE, HeaderValue::from_static(caller.subject_type));
    }
    if let Some(method) = to.pass.auth_method {
        all.insert(headers::AUTH_METHOD, HeaderValue::from_static(method));
    }
    if let Some(preview) = &to.preview {
        headers::set_all(all, &preview.request_headers);
    }
    if let Some(Fallback { domain, name }) = &to.fallback {
        all.insert(FALLBACK, HeaderValue::from_static("true"));
        // The name is the one that was given as `fallbackPreviewId`.
        for (header, text) in [(FALLBACK_PREVIEW, name), (FALLBACK_DOMAIN, &domain.name)] {
            if let Ok(value) = HeaderValue::try_from(text) {
                all.insert(header, value);
            }
        }
    }
}

/// Returns the answer that switches protocols, as the caller gets it.
pub(crate) fn switched(mut response: Response<Body>) -> Response<Body> {
    let protocol = response.headers_mut().remove(UPGRADE);
    headers::remove_hop(response.headers_mut());
    if let Some(protocol) = protocol {
        response.headers_mut().insert(UPGRADE, protocol);
    }
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    response
}

/// Rewrites the headers of an answer for the caller. Those of a single hop have been removed
/// already.
pub(crate) fn response_headers(all: &mut HeaderMap, from: Destination, timing: Timing) {
    // Only the edge's own answers come from the platform.
    all.remove(headers::SOURCE);
    if let Some(preview) = &from.preview {
        headers::set_all(all, &preview.response_headers);
    }
    cookies::from_workload(all, from.root.as_deref());
    origin::confine(all, from.root.is_some());
    if let Some(cookie) = from.pass.cookie {
        all.append(SET_COOKIE, cookie);
        // The address of this answer holds a token.
        all.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    }
    all.append(headers::SERVER_TIMING, timing.header());
}
