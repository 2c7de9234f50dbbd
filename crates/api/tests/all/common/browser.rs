//! A browser that keeps cookies, for the pages on which people sign in.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

use super::Cloud;
use axum::body::Body;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt;
use std::collections::BTreeMap;
use tower::ServiceExt;

pub(crate) const FORM: &str = "application/x-www-form-urlencoded";

pub(crate) struct Page {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Page {
    pub(crate) fn location(&self) -> &str {
        assert_eq!(self.status, StatusCode::SEE_OTHER, "{}", self.text);
        self.headers[header::LOCATION].to_str().unwrap()
    }

    /// Returns the proof in its form.
    pub(crate) fn proof(&self) -> String {
        let (_, rest) = self
            .text
            .split_once(r#"name="proof" value=""#)
            .unwrap_or_else(|| panic!("{}", self.text));
        rest.split('"').next().unwrap().to_owned()
    }
}

/// A browser that keeps cookies but follows no redirects by itself.
pub(crate) struct Browser<'c> {
    cloud: &'c Cloud,
    pub(crate) cookies: BTreeMap<String, String>,
}

impl<'c> Browser<'c> {
    pub(crate) fn new(cloud: &'c Cloud) -> Self {
        Self { cloud, cookies: BTreeMap::new() }
    }

    pub(crate) async fn get(&mut self, path: &str) -> Page {
        self.send(Request::get(path), String::new()).await
    }

    pub(crate) async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Page {
        self.send(Request::post(path).header(header::CONTENT_TYPE, FORM), form(fields)).await
    }

    pub(crate) async fn send(&mut self, request: http::request::Builder, body: String) -> Page {
        let cookies: Vec<_> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request =
            request.header(header::COOKIE, cookies.join("; ")).body(Body::from(body)).unwrap();
        let (parts, body) = self.cloud.router.clone().oneshot(request).await.unwrap().into_parts();
        for line in parts.headers.get_all(header::SET_COOKIE) {
            let line = line.to_str().unwrap();
            assert!(line.contains("; HttpOnly; SameSite=Lax"), "{line}");
            let (name, rest) = line.split_once('=').unwrap();
            self.cookies.insert(name.to_owned(), rest.split(';').next().unwrap().to_owned());
        }
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        Page { status: parts.status, headers: parts.headers, text }
    }

    pub(crate) async fn sign_in(&mut self, next: &str) -> Page {
        let password = self.cloud.first.password.clone();
        self.try_password(next, &password).await
    }

    pub(crate) async fn try_password(&mut self, next: &str, password: &str) -> Page {
        let page = self.get(&format!("/oauth/sign-in?{}", form(&[("next", next)]))).await;
        let email = &self.cloud.first.email;
        let proof = &*page.proof();
        let fields = [("proof", proof), ("next", next), ("email", email), ("password", password)];
        self.post("/oauth/sign-in", &fields).await
    }
}

pub(crate) fn form(fields: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}
