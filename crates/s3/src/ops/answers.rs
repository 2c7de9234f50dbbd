//! Answers of operations.

use crate::body::{self, Body};
use crate::xml::Xml;
use http::header::HeaderValue;
use http::{Response, StatusCode};

pub(super) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(body::empty());
    *response.status_mut() = status;
    response
}

pub(crate) fn xml(xml: Xml) -> Response<Body> {
    let mut response = Response::new(body::of(xml.end()));
    let xml = HeaderValue::from_static("application/xml");
    response.headers_mut().insert("content-type", xml);
    response
}

pub(super) fn quoted(etag: &str) -> String {
    format!("\"{etag}\"")
}

/// Sets a field to a value made here. A value that cannot be in a header is left out.
pub(super) fn set(response: &mut Response<Body>, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
