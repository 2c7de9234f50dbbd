//! Whose origin a browser takes an answer for. Decided here and nowhere else: for sandboxes and
//! previews, and for whatever else of a workspace's will answer requests.
//!
//! What workspaces serve never shares an origin with the server's own pages. It answers at a host
//! of its own, or by path at the listener for content. What programs ask for by path beside the
//! management interface stays there, in documents without an origin. Workspaces share those paths
//! with each other as well, so such a document is confined either way.

use crate::address::Place;
use http::HeaderMap;
use http::header::{
    ALT_SVC, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY,
    STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS,
};

/// Which listener a request came in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// The one of the management interface and of the server's own pages.
    Management,
    /// The one that serves what workspaces serve, and nothing else.
    Content,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A host of its own.
    OwnHost,
    /// The origin of everything that answers by path there.
    Shared,
    /// Not here: a browser would take it for a page of the server's own.
    Elsewhere,
}

pub(crate) fn of(place: &Place<'_>, site: Site) -> Origin {
    match (place, site) {
        (Place::Label(_) | Place::Host(_) | Place::Preview { root: "/", .. }, _) => Origin::OwnHost,
        (Place::Sandbox { .. }, _) | (Place::Preview { .. }, Site::Content) => Origin::Shared,
        (Place::Preview { .. }, Site::Management) => Origin::Elsewhere,
    }
}

/// A document in which nothing is same-origin with anything: no cookies, no storage, no requests in
/// the name of the origin.
const SANDBOX: HeaderValue = HeaderValue::from_static(
    "sandbox allow-scripts allow-forms allow-modals allow-popups allow-downloads",
);
const CLEAR_SITE_DATA: HeaderName = HeaderName::from_static("clear-site-data");

/// What holds for a whole origin, whichever path of it says so.
const ORIGIN_WIDE: [HeaderName; 6] = [
    ALT_SVC,
    STRICT_TRANSPORT_SECURITY,
    HeaderName::from_static("nel"),
    HeaderName::from_static("report-to"),
    HeaderName::from_static("service-worker-allowed"),
    HeaderName::from_static("set-login"),
];

/// Keeps the answer of a workload from acting for more than its own origin.
pub(crate) fn confine(headers: &mut HeaderMap, is_shared: bool) {
    // It would clear the cookies of the server's own name along with those of hosts below it.
    headers.remove(CLEAR_SITE_DATA);
    if !is_shared {
        return;
    }
    for name in ORIGIN_WIDE {
        headers.remove(name);
    }
    // Every policy of an answer holds, so that the workload's own can only add to this one.
    headers.append(CONTENT_SECURITY_POLICY, SANDBOX);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}
