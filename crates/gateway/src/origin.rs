//! Decides which origin a browser takes an answer to be from. This is the only place that does, for
//! workloads of every kind and for previews.
//!
//! What workspaces serve never shares an origin with the server's own pages. It answers at a host
//! of its own, or by path at the listener for content. What answers by path beside the management
//! interface is served as documents without an origin. Workspaces share those paths with each other
//! too, so such a document is confined at either listener.

use crate::address::Endpoint;
use crate::headers;
use crate::peer::Site;
use http::HeaderMap;
use http::header::{
    ALT_SVC, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY,
    STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A host of its own.
    OwnHost,
    /// The origin that everything by path at this listener shares.
    Shared,
    /// Must not be answered here, where a browser would take it for one of the server's own pages.
    Elsewhere,
}

pub(crate) fn of(endpoint: &Endpoint, site: Site) -> Origin {
    match (endpoint, site) {
        (Endpoint::Host(_), _) => Origin::OwnHost,
        (Endpoint::Label { by_path: false, .. } | Endpoint::Preview { by_path: false, .. }, _) => {
            Origin::OwnHost
        }
        (Endpoint::Workload { .. } | Endpoint::Trigger(_) | Endpoint::Model { .. }, _) => {
            Origin::Shared
        }
        (Endpoint::Label { .. } | Endpoint::Preview { .. }, Site::Content) => Origin::Shared,
        (Endpoint::Label { .. } | Endpoint::Preview { .. }, Site::Management) => Origin::Elsewhere,
    }
}

/// Gives a document an origin of its own: no cookies, no storage, no requests in the name of the
/// shared origin.
const SANDBOX: HeaderValue = HeaderValue::from_static(
    "sandbox allow-scripts allow-forms allow-modals allow-popups allow-downloads",
);
const CLEAR_SITE_DATA: HeaderName = HeaderName::from_static("clear-site-data");

/// Headers that apply to a whole origin, whichever path sets them.
static ORIGIN_WIDE: [HeaderName; 10] = [
    ALT_SVC,
    STRICT_TRANSPORT_SECURITY,
    HeaderName::from_static("accept-ch"),
    HeaderName::from_static("nel"),
    HeaderName::from_static("report-to"),
    // Both names of what lets a page hold back all requests for its origin.
    HeaderName::from_static("sec-session-registration"),
    HeaderName::from_static("secure-session-registration"),
    HeaderName::from_static("service-worker-allowed"),
    HeaderName::from_static("set-login"),
    HeaderName::from_static("use-as-dictionary"),
];

/// Keeps the answer of a workload from affecting more than its own origin.
pub(crate) fn confine(all: &mut HeaderMap, is_shared: bool) {
    // It would also clear the cookies of the server's own name, which this host is below.
    all.remove(CLEAR_SITE_DATA);
    if !is_shared {
        return;
    }
    headers::remove_any(all, &ORIGIN_WIDE);
    // All policies of an answer apply, so the workload's own can only be stricter.
    all.append(CONTENT_SECURITY_POLICY, SANDBOX);
    all.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    all.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}
