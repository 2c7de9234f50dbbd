//! Which revision and replica a caller stays with, as its request says: by the cookie of a sticky
//! caller, the conversation, or the session of an MCP server.

use crate::choice;
use crate::sessions::SessionId;
use crate::{cookies, headers};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use types::KindName;
use types::edge::WorkloadRoute;

/// Browsers accept the first only over a secure connection and only from the host itself.
const COOKIE_NAMES: [&str; 2] = ["__Host-holm_revision", "holm_revision"];

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Affinity {
    pub(crate) session: Option<SessionId>,
    /// Whether the request ends its session.
    pub(crate) ends_session: bool,
    /// The revision that its cookie names, whether it still serves or not.
    pub(crate) revision: Option<String>,
    /// Where its conversation falls among the weights.
    pub(crate) thread: Option<u32>,
}

impl Affinity {
    pub(crate) fn of(head: &Parts, route: &WorkloadRoute) -> Self {
        let session = session(&head.headers, route.kind);
        let ends_session = session.is_some() && head.method == Method::DELETE;
        if route.sticky_s == 0 {
            return Self { session, ends_session, ..Self::default() };
        }
        let thread = [headers::THREAD, headers::NEUTRAL_THREAD];
        let thread = thread.iter().find_map(|name| head.headers.get(name));
        let thread = thread.filter(|thread| !thread.is_empty());
        Self {
            session,
            ends_session,
            revision: cookies::values(&head.headers, &COOKIE_NAMES).next(),
            thread: thread.map(|thread| choice::point_of_thread(&route.id, thread.as_bytes())),
        }
    }

    /// Returns the cookie that keeps the caller with a revision, unless something else does so
    /// already.
    pub(crate) fn cookie(
        &self,
        revision: &str,
        sticky_s: u32,
        root: Option<&str>,
        secure: bool,
    ) -> Option<HeaderValue> {
        let kept = self.revision.as_deref() == Some(revision);
        if sticky_s == 0 || kept || self.thread.is_some() || self.session.is_some() {
            return None;
        }
        let name = if secure && root.is_none() { COOKIE_NAMES[0] } else { COOKIE_NAMES[1] };
        let value = utf8_percent_encode(revision, NON_ALPHANUMERIC);
        let (path, secure) = (root.unwrap_or("/"), if secure { "; Secure" } else { "" });
        HeaderValue::try_from(format!(
            "{name}={value}; Path={path}; Max-Age={sticky_s}; HttpOnly; SameSite=Lax{secure}"
        ))
        .ok()
    }
}

/// Returns the session that a message to or from a workload names. Only MCP servers have sessions.
pub(crate) fn session(headers: &HeaderMap, kind: KindName) -> Option<SessionId> {
    if kind != KindName::Function {
        return None;
    }
    let name = headers.get(headers::MCP_SESSION).filter(|name| !name.is_empty())?;
    Some(SessionId::of(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use types::ids::{ResourceId, WorkspaceId};

    fn route(kind: KindName, sticky_s: u32) -> WorkloadRoute {
        let workspace = (WorkspaceId::known("acme"), "acme".to_owned());
        let route = WorkloadRoute::new(kind, ResourceId::known("res_1"), workspace, "it");
        WorkloadRoute { sticky_s, ..route }
    }

    fn affinity(kind: KindName, sticky_s: u32, sent: &[(&str, &str)]) -> Affinity {
        let mut request = Request::delete("/");
        for (name, value) in sent {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        Affinity::of(&head, &route(kind, sticky_s))
    }

    #[test]
    fn only_sticky_workloads_look_at_cookies_and_threads_and_only_functions_at_sessions() {
        let sent = [
            ("cookie", "a=b; holm_revision=r%2D1"),
            ("x-blaxel-thread-id", "t"),
            ("mcp-session-id", "s"),
        ];
        let sticky = affinity(KindName::Agent, 60, &sent);
        assert_eq!(sticky.revision.as_deref(), Some("r-1"));
        assert!(sticky.thread.is_some() && sticky.session.is_none());
        let neutral = affinity(KindName::Agent, 60, &[("x-service-thread-id", "t")]);
        assert_eq!(neutral.thread, sticky.thread);
        assert_eq!(affinity(KindName::Agent, 0, &sent), Affinity::default());
        let function = affinity(KindName::Function, 0, &sent);
        assert_eq!(function.session, Some(SessionId::of(b"s")));
        assert!(function.ends_session && function.thread.is_none());
        assert_eq!(
            affinity(KindName::Function, 60, &[("mcp-session-id", "")]),
            Affinity::default()
        );
    }

    #[test]
    fn a_cookie_is_for_its_place_and_set_where_nothing_else_keeps_the_caller() {
        let cookie = |affinity: Affinity, root: Option<&str>, secure| {
            affinity.cookie("r-1", 60, root, secure).map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(
            cookie(Affinity::default(), Some("/acme/agents/it"), false).unwrap(),
            "holm_revision=r%2D1; Path=/acme/agents/it; Max-Age=60; HttpOnly; SameSite=Lax"
        );
        assert_eq!(
            cookie(Affinity::default(), None, true).unwrap(),
            "__Host-holm_revision=r%2D1; Path=/; Max-Age=60; HttpOnly; SameSite=Lax; Secure"
        );
        let kept =
            |revision: &str| Affinity { revision: Some(revision.into()), ..Affinity::default() };
        assert_eq!(cookie(kept("r-1"), None, false), None);
        assert!(cookie(kept("r-0"), None, false).is_some());
        assert_eq!(cookie(Affinity { thread: Some(1), ..Affinity::default() }, None, false), None);
        assert_eq!(Affinity::default().cookie("r-1", 0, None, false), None);
    }
}
