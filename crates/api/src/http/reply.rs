//! The answers of handlers.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use control::engine::Shown;
use http::{HeaderName, HeaderValue, StatusCode, header};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use std::marker::PhantomData;

/// An answer, with its description for the OpenAPI document.
pub(crate) trait Answer: Send {
    fn into_response(self) -> Response;
    fn describe(generator: &mut SchemaGenerator) -> Vec<(u16, Option<Schema>)>;
}

/// A JSON body of a known type. It is serialized at once, so that the answer can be stored and
/// repeated.
pub(crate) struct Reply<T> {
    pub(crate) body: Bytes,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    kind: PhantomData<fn() -> T>,
}

impl<T: Serialize> Reply<T> {
    pub(crate) fn of(value: &T) -> Self {
        Self::written(control::json::bytes(value).into())
    }
}

impl<K: Serialize> From<Shown<K>> for Reply<K> {
    /// Answers with an object and its version, which a later write can name in `If-Match`.
    fn from(shown: Shown<K>) -> Self {
        Self::of(&shown.object).versioned(shown.version)
    }
}

impl<T> Reply<T> {
    /// Answers with a body that was serialized before.
    pub(crate) fn written(body: Bytes) -> Self {
        Self { body, headers: Vec::new(), kind: PhantomData }
    }

    /// Adds the version of the object in the body.
    pub(crate) fn versioned(mut self, version: i64) -> Self {
        let version = HeaderValue::from_str(&format!("\"{version}\""));
        self.headers.extend(version.map(|version| (header::ETAG, version)));
        self
    }

    pub(crate) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }
}

impl<T: JsonSchema> Answer for Reply<T> {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response.headers_mut().extend(self.headers);
        response
    }

    fn describe(generator: &mut SchemaGenerator) -> Vec<(u16, Option<Schema>)> {
        vec![(200, Some(generator.subschema_for::<T>()))]
    }
}

/// Success without a body: 204.
pub(crate) struct Silent;

impl Answer for Silent {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        response
    }

    fn describe(_: &mut SchemaGenerator) -> Vec<(u16, Option<Schema>)> {
        vec![(204, None)]
    }
}

/// Done at once (200), or begun and waiting for something else (202).
pub(crate) enum NowOrLater<T, L> {
    Now(Reply<T>),
    Later(Reply<L>),
}

impl<T: JsonSchema, L: JsonSchema> Answer for NowOrLater<T, L> {
    fn into_response(self) -> Response {
        match self {
            Self::Now(reply) => reply.into_response(),
            Self::Later(reply) => {
                let mut response = reply.into_response();
                *response.status_mut() = StatusCode::ACCEPTED;
                response
            }
        }
    }

    fn describe(generator: &mut SchemaGenerator) -> Vec<(u16, Option<Schema>)> {
        vec![
            (200, Some(generator.subschema_for::<T>())),
            (202, Some(generator.subschema_for::<L>())),
        ]
    }
}
