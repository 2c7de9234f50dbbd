//! Answers that are lists.

use crate::http::reply::{Answer, Reply};
use axum::response::Response;
use control::engine::{Listing, Page};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

impl<K: Serialize + JsonSchema + Send> Answer for Listing<K> {
    fn into_response(self) -> Response {
        match &self {
            Self::Page(page) => Reply::of(page).into_response(),
            Self::Bare(all) => Reply::of(all).into_response(),
        }
    }

    fn describe(generator: &mut SchemaGenerator) -> Vec<(u16, Option<Schema>)> {
        let (page, item) = (generator.subschema_for::<Page<K>>(), generator.subschema_for::<K>());
        let listing = json_schema!({"oneOf": [page, {"type": "array", "items": item}]});
        vec![(200, Some(listing))]
    }
}
