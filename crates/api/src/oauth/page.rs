//! The frame, style and headers that all pages share.
//!
//! Names that somebody else has chosen are in `bdi`: characters that turn the direction of writing
//! must not turn the words around them.

use crate::http::harden::guard_page;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use maud::{DOCTYPE, Markup, html};
use types::error::Refusal;

const STYLE: &str = include_str!("style.css");

/// A page, or a way to one, that answers a request before its end.
pub(crate) struct Answered(Box<Response>);

impl From<Response> for Answered {
    fn from(response: Response) -> Self {
        Self(Box::new(response))
    }
}

impl From<store::Error> for Answered {
    fn from(error: store::Error) -> Self {
        failed(&error).into()
    }
}

impl IntoResponse for Answered {
    fn into_response(self) -> Response {
        *self.0
    }
}

/// Builds a page: one card with a heading.
pub(super) fn page(status: StatusCode, title: &str, content: &Markup) -> Response {
    page_leading_to(status, title, content, None)
}

/// Builds a page with a form whose answer may send the browser to `destination`, which the policy
/// must allow.
pub(super) fn page_leading_to(
    status: StatusCode,
    title: &str,
    content: &Markup,
    destination: Option<&str>,
) -> Response {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="robots" content="noindex";
                title { (title) " · Holm" }
                link rel="stylesheet" href="/oauth/style.css";
            }
            body {
                main {
                    p.brand { "Holm" }
                    h1 { (title) }
                    (content)
                }
            }
        }
    };
    let mut response = guarded(Response::new(Body::from(markup.into_string())), destination);
    *response.status_mut() = status;
    if let Some(reason) = reason(status) {
        response.extensions_mut().insert(Refusal::new(reason, title));
    }
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

/// Returns the name under which a refused page is logged; other pages are not logged.
fn reason(status: StatusCode) -> Option<&'static str> {
    match status {
        StatusCode::UNAUTHORIZED => Some("unauthorized"),
        StatusCode::FORBIDDEN => Some("forbidden"),
        StatusCode::TOO_MANY_REQUESTS => Some("too_many_requests"),
        _ => None,
    }
}

/// Builds a page that says what is wrong and what to do about it.
pub(super) fn wrong(status: StatusCode, title: &str, text: &str) -> Response {
    page(status, title, &html! { p.wrong role="alert" { (text) } })
}

/// Builds a page for a failure of the store.
pub(super) fn failed(error: &store::Error) -> Response {
    if !error.is_away() {
        return broken(error);
    }
    let text = "The server cannot ask its database at the moment. Try again shortly.";
    let mut page = wrong(StatusCode::SERVICE_UNAVAILABLE, "Not at the moment", text);
    page.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    // Strangers can cause as many of these as they like, so they are logged at a limited rate.
    page.extensions_mut().insert(Refusal::new("unavailable", types::chain(error)));
    page
}

/// Builds a page for an internal failure; its cause goes to the log.
fn broken(error: &(dyn std::error::Error + 'static)) -> Response {
    tracing::error!(error, "a page failed");
    let text = "Something failed inside the server. Try again; if it stays, its operator finds the cause in its log.";
    wrong(StatusCode::INTERNAL_SERVER_ERROR, "That did not work", text)
}

/// Redirects the browser with GET, whatever method it used.
pub(super) fn see_other(location: &str) -> Response {
    let mut response = guarded(Response::new(Body::empty()), None);
    *response.status_mut() = StatusCode::SEE_OTHER;
    match HeaderValue::from_str(location) {
        Ok(location) => {
            response.headers_mut().insert(header::LOCATION, location);
            response
        }
        Err(error) => broken(&error),
    }
}

/// Adds security headers. Nothing is loaded except our style.
fn guarded(response: Response, destination: Option<&str>) -> Response {
    let extra = destination.map_or_else(String::new, |destination| format!(" {destination}"));
    let policy = format!(
        "default-src 'none'; style-src 'self'; form-action 'self'{extra}; frame-ancestors 'none'; base-uri 'none'"
    );
    // A destination that cannot be in a header is not a URL; then only our own forms work.
    let policy =
        HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"));
    guard_page(response, policy)
}

pub(crate) async fn style() -> Response {
    let mut response = Response::new(Body::from(STYLE));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use proptest::prelude::*;

    #[test]
    fn a_page_says_when_to_try_again_while_the_database_is_away() {
        for away in [store::Error::Unreachable(None), store::Error::Busy { limit: 1 }] {
            let page = failed(&away);
            assert_eq!(page.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(page.headers()[header::RETRY_AFTER], "1");
            assert!(page.extensions().get::<Refusal>().is_some());
        }
        let broken = failed(&store::Error::Unusable("broken".into()));
        assert_eq!(broken.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!broken.headers().contains_key(header::RETRY_AFTER));
    }

    proptest! {
        #[test]
        fn what_people_type_never_becomes_markup(text in ".{0,40}|<script>.{0,20}|\"'>.{0,20}") {
            let response = page(StatusCode::OK, &text, &html! { input value=(text); p { (text) } });
            let body = tokio::runtime::Builder::new_current_thread().build().unwrap()
                .block_on(response.into_body().collect()).unwrap().to_bytes();
            let body = String::from_utf8(body.to_vec()).unwrap();
            let empty = page(StatusCode::OK, "", &html! { input value=""; p { "" } });
            let empty = tokio::runtime::Builder::new_current_thread().build().unwrap()
                .block_on(empty.into_body().collect()).unwrap().to_bytes();
            let count = |text: &str, of: char| text.matches(of).count();
            let empty = String::from_utf8(empty.to_vec()).unwrap();
            for mark in ['<', '>', '"'] {
                prop_assert_eq!(count(&body, mark), count(&empty, mark));
            }
        }
    }
}
