//! Forwarding of one request to a port of a sandbox, and of its answer.

use crate::client::workload::Workload;
use crate::error::Error;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode, uri::Authority};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use reqwest::Body;
use std::net::IpAddr;
use std::sync::Arc;

/// Headers that belong to a single connection, or that are set anew for the sandbox.
static NOT_PASSED: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Policy that the gateway adds to pages of workloads that share an origin. Here each port is an
/// origin of its own, so the policy would only cost the page its cookies and storage.
const CONFINED: &str =
    "sandbox allow-scripts allow-forms allow-modals allow-popups allow-downloads";

/// The link from a local port to one of the sandbox.
pub(super) struct Forward {
    pub(super) sandbox: Arc<Workload>,
    pub(super) port: u16,
    /// True if it listens on a loopback address only.
    pub(super) is_local: bool,
}

impl Forward {
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if self.is_local && !names_this_machine(request.headers()) {
            let why =
                "holm port-forward answers to names of this machine only, such as localhost\n";
            return refuse(StatusCode::FORBIDDEN, why.into());
        }
        match self.pass(request).await {
            Ok(response) => response,
            Err(error @ Error::Usage(_)) => refuse(StatusCode::BAD_REQUEST, format!("{error}\n")),
            Err(error) => refuse(StatusCode::BAD_GATEWAY, format!("holm port-forward: {error}\n")),
        }
    }

    async fn pass(&self, mut request: Request<Incoming>) -> Result<Response<Body>, Error> {
        if request.method() == Method::CONNECT {
            return Err(Error::Usage("this is not a proxy".into()));
        }
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let place = format!("/port/{}", self.port);
        let upgrade = request.headers().get(header::UPGRADE).cloned();
        let taken = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        let (head, body) = request.into_parts();
        let asked = self.sandbox.request_below(head.method, &place, &path).await?;
        let mut headers = passed(head.headers);
        headers.remove(header::HOST);
        let mut asked = asked.headers(headers);
        asked = match &upgrade {
            Some(protocol) => {
                asked.header(header::CONNECTION, "Upgrade").header(header::UPGRADE, protocol)
            }
            None => asked.body(Body::wrap(body)),
        };
        let response = self.sandbox.send(asked).await?;
        let mut answer = Response::new(Body::default());
        *answer.status_mut() = response.status();
        *answer.headers_mut() = self.back(response.headers().clone());
        match (response.status(), taken, upgrade) {
            (StatusCode::SWITCHING_PROTOCOLS, Some(taken), Some(protocol)) => {
                let headers = answer.headers_mut();
                headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
                headers.insert(header::UPGRADE, protocol);
                tokio::spawn(async move {
                    // The exchange ends when either side goes away.
                    let (Ok(here), Ok(mut there)) = (taken.await, response.upgrade().await) else {
                        return;
                    };
                    let mut here = TokioIo::new(here);
                    let _ = tokio::io::copy_bidirectional(&mut here, &mut there).await;
                });
            }
            _ => *answer.body_mut() = Response::<Body>::from(response).into_body(),
        }
        Ok(answer)
    }

    /// Rewrites headers of an answer as if the sandbox served at the root, since that is what the
    /// caller sees.
    fn back(&self, headers: HeaderMap) -> HeaderMap {
        let mut headers = passed(headers);
        let place = format!("{}/port/{}", path_of(self.sandbox.url()), self.port);
        if let Some(location) = headers.get(header::LOCATION).and_then(|value| value.to_str().ok())
        {
            let location = location.strip_prefix(&place).filter(|rest| rest.starts_with('/'));
            if let Some(location) = location.and_then(|location| location.parse().ok()) {
                headers.insert(header::LOCATION, location);
            }
        }
        let policies: Vec<_> =
            headers.get_all(header::CONTENT_SECURITY_POLICY).iter().cloned().collect();
        headers.remove(header::CONTENT_SECURITY_POLICY);
        for policy in policies.into_iter().filter(|policy| policy != CONFINED) {
            headers.append(header::CONTENT_SECURITY_POLICY, policy);
        }
        let cookies: Vec<_> = headers.get_all(header::SET_COOKIE).iter().cloned().collect();
        headers.remove(header::SET_COOKIE);
        for cookie in cookies {
            let text = cookie.to_str().map(|text| text.replace(&format!("Path={place}"), "Path="));
            let moved = text.ok().map(|text| text.replace("Path=;", "Path=/;"));
            let moved = moved.and_then(|text| text.parse().ok());
            headers.append(header::SET_COOKIE, moved.unwrap_or(cookie));
        }
        headers
    }
}

fn path_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find('/').map_or("", |at| &rest[at..])
}

fn passed(mut headers: HeaderMap) -> HeaderMap {
    for name in &NOT_PASSED {
        headers.remove(name);
    }
    headers
}

/// True if a request's `Host` is a name of this machine. A malicious page can make its own domain
/// resolve to this machine (DNS rebinding), but its requests still have that domain in `Host`.
fn names_this_machine(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let Some(authority) = host.and_then(|host| host.parse::<Authority>().ok()) else {
        return false;
    };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    let local =
        name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost");
    local || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn refuse(status: StatusCode, why: String) -> Response<Body> {
    let mut response = Response::new(Body::from(why));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_answered() {
        let names = |host: &str| {
            names_this_machine(&HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]))
        };
        for host in ["localhost:3000", "127.0.0.1", "[::1]:80", "app.localhost", "LOCALHOST"] {
            assert!(names(host), "{host}");
        }
        for host in ["evil.example", "10.0.0.1", "localhost.evil.example", ""] {
            assert!(!names(host), "{host}");
        }
        assert!(!names_this_machine(&HeaderMap::new()));
    }

    #[test]
    fn the_path_of_an_address_is_found() {
        assert_eq!(path_of("http://h:1/main/sandboxes/box"), "/main/sandboxes/box");
        assert_eq!(path_of("https://box.example"), "");
    }
}
