//! The OpenAPI document, generated from the table and the types of the handlers, and a page to try
//! it out.

use crate::http::harden::guard_page;
use crate::http::operation::{Base, Line, Needs, Operation, Shape};
use crate::table;
use axum::http::{HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;
use types::error::ErrorBody;
use types::{ApiVersion, Scope};

/// The page loads and asks this server only, and no other site shows it in a frame.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
);

static TEXT: LazyLock<String> = LazyLock::new(|| control::json::text(&document()));

/// Answers with a static text of the given content type.
fn text(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response()
}

pub(crate) async fn served() -> Response {
    text("application/json", TEXT.as_str())
}

/// Answers with the page, into which people type their keys.
pub(crate) async fn page() -> Response {
    let page = Html(include_str!("openapi/page.html")).into_response();
    guard_page(page, PAGE_POLICY)
}

pub(crate) async fn script() -> Response {
    text("text/javascript", include_str!("openapi/page.js"))
}

pub(crate) async fn style() -> Response {
    text("text/css", include_str!("openapi/page.css"))
}

/// Where this server explains the errors of the edge, which link here.
pub const EDGE_ERRORS: &str = "/v0/docs/edge-errors";

/// Answers as plain text, which every browser and program can show.
pub(crate) async fn edge_errors() -> Response {
    text("text/plain; charset=utf-8", include_str!("../../../docs/edge-errors.md"))
}

/// Generates the document for this version of the program.
pub fn document() -> Value {
    let mut generator = types::schema::generator();
    let error = generator.subschema_for::<ErrorBody>();
    let operations = table::operations();
    let mut paths = Map::new();
    for operation in &operations {
        let entry = paths.entry(operation.line.path).or_insert_with(|| json!({}));
        let item = describe(operation, &operations, &mut generator);
        if let Value::Object(methods) = entry {
            methods.insert(operation.line.method.as_str().to_ascii_lowercase(), item);
            if operation.line.base == Base::Inference {
                methods.insert("servers".into(), json!([{"url": "/"}]));
            }
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Holm management API",
            "version": "v0",
            "description": "Everything that is kept and decided about workloads: what shall run, who may ask, and what it cost.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/v0"}],
        "security": [{"OAuth2": [Scope::Admin.to_string()]}, {"ApiKeyAuth": []}],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "parameters": {"Version": version_header(), "Workspace": workspace_header(), "IdempotencyKey": idempotency_header(), "IfMatch": if_match_header()},
            "responses": refusals(&error),
            "securitySchemes": security_schemes(),
        },
    })
}

fn security_schemes() -> Value {
    let scopes: Map<String, Value> =
        Scope::ALL.iter().map(|scope| (scope.to_string(), json!(""))).collect();
    json!({
        "ApiKeyAuth": {"type": "http", "scheme": "bearer", "bearerFormat": "API Key"},
        "OAuth2": {"type": "oauth2", "flows": {
            "authorizationCode": {"authorizationUrl": "/oauth/authorize", "tokenUrl": "/oauth/token", "scopes": scopes},
            "clientCredentials": {"tokenUrl": "/oauth/token", "scopes": scopes},
        }},
    })
}

fn version_header() -> Value {
    let versions: Vec<&str> = ApiVersion::ALL.iter().map(|version| version.name()).collect();
    json!({"name": "Blaxel-Version", "in": "header", "required": false, "schema": {"type": "string", "enum": versions},
           "description": "Version of the interface; the first stable one when absent. `Service-Version` is the same header."})
}

fn workspace_header() -> Value {
    json!({"name": "X-Blaxel-Workspace", "in": "header", "required": false, "schema": {"type": "string"},
           "description": "The workspace to act in, when the credentials reach several. `X-Service-Workspace` is the same header."})
}

fn idempotency_header() -> Value {
    json!({"name": "Idempotency-Key", "in": "header", "required": false,
           "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
           "description": "Names this attempt: repeated with the same body by the same caller, it is answered as the first time, and nothing is done twice."})
}

fn if_match_header() -> Value {
    json!({"name": "If-Match", "in": "header", "required": false,
           "schema": {"type": "string", "pattern": "^(\\*|\"[0-9]{1,18}\")$"},
           "description": "The `ETag` of the object as it was read: the write happens only if nobody changed it since."})
}

fn describe(operation: &Operation, all: &[Operation], generator: &mut SchemaGenerator) -> Value {
    let (line, shape) = (&operation.line, operation.shape(generator));
    let mut item = json!({
        "operationId": line.id,
        "summary": line.summary,
        "tags": [line.path.split('/').nth(1).unwrap_or_default()],
        "parameters": parameters(line, &shape),
        "responses": responses(line, &shape, all),
    });
    if let Value::Object(members) = &mut item {
        if let Some(body) = shape.body {
            members.insert(
                "requestBody".into(),
                json!({"required": true, "content": {"application/json": {"schema": body}}}),
            );
        }
        if let Some(security) = security(line.needs) {
            members.insert("security".into(), security);
        }
    }
    item
}

/// Returns the security requirement of an operation. One that needs the scope `admin` inherits that
/// of the document.
fn security(needs: Needs) -> Option<Value> {
    match needs {
        Needs::ADMIN => None,
        Needs::Nothing => Some(json!([])),
        Needs::Bearer => Some(json!([{"OAuth2": []}, {"ApiKeyAuth": []}])),
        Needs::Scopes(scopes) => {
            let names: Vec<String> = scopes.iter().map(Scope::to_string).collect();
            Some(json!([{"OAuth2": names}, {"ApiKeyAuth": []}]))
        }
    }
}

/// POST operations that an idempotency key changes nothing about: they only answer questions, may
/// be repeated as they are, or do what cannot be kept in one transaction.
const IGNORE_KEYS: [&str; 7] = [
    "AcceptInvitation",
    "CallManagementTools",
    "CheckWorkspaceAvailability",
    "CreateDriveAccessToken",
    "DeclineInvitation",
    "RotateSealKeys",
    "VerifyCustomDomain",
];

fn parameters(line: &Line, shape: &Shape) -> Vec<Value> {
    let mut parameters = vec![json!({"$ref": "#/components/parameters/Version"})];
    if line.needs != Needs::Nothing {
        parameters.push(json!({"$ref": "#/components/parameters/Workspace"}));
    }
    if line.method == http::Method::POST && !IGNORE_KEYS.contains(&line.id.as_str()) {
        parameters.push(json!({"$ref": "#/components/parameters/IdempotencyKey"}));
    }
    if shape.guarded && line.method != http::Method::POST {
        parameters.push(json!({"$ref": "#/components/parameters/IfMatch"}));
    }
    for name in path_names(line.path) {
        parameters.push(
            json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}),
        );
    }
    let query = shape.query.as_value().get("properties").and_then(Value::as_object);
    for (name, schema) in query.into_iter().flatten() {
        let mut schema = schema.clone();
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        let mut parameter =
            json!({"name": name, "in": "query", "required": false, "schema": not_null(schema)});
        if let (Some(description), Value::Object(members)) = (description, &mut parameter) {
            members.insert("description".into(), description);
        }
        parameters.push(parameter);
    }
    parameters
}

/// Removes `null` from a schema: a query parameter is a string or absent, but the schema of an
/// `Option` also allows `null`.
fn not_null(mut schema: Value) -> Value {
    if let Some(Value::Array(kinds)) = schema.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [only] = kinds.as_slice() {
            schema["type"] = only.clone();
        }
    }
    if let Some(Value::Array(choices)) = schema.get("anyOf") {
        let real: Vec<&Value> =
            choices.iter().filter(|choice| choice.get("type") != Some(&json!("null"))).collect();
        if let [only] = real.as_slice() {
            return (*only).clone();
        }
    }
    schema
}

/// Returns the name of the parameter that stands at this place of a path, if one does.
pub(crate) fn placeholder(part: &str) -> Option<&str> {
    part.strip_prefix('{')?.strip_suffix('}')
}

pub(crate) fn path_names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(placeholder)
}

/// Refusals that any operation may answer, and what they mean.
const REFUSALS: &[(&str, &str)] = &[
    ("400", "the request is wrong; the message names what"),
    ("401", "no valid credentials"),
    ("403", "the credentials do not allow it"),
    ("404", "no such object"),
    ("409", "in conflict with what is stored"),
    ("410", "it is no longer there"),
    ("412", "the object no longer has the version named in `If-Match`"),
    ("413", "the body is too large"),
    ("429", "too many requests"),
    ("500", "the server failed"),
    ("501", "this server cannot do it yet; the message names what is missing"),
    ("503", "too much is waiting, or the server is ending"),
];

fn refusals(error: &Schema) -> Value {
    let response = |(status, description): &(&str, &str)| {
        let content = json!({"application/json": {"schema": error}});
        ((*status).to_owned(), json!({"description": description, "content": content}))
    };
    REFUSALS.iter().map(response).collect()
}

fn responses(line: &Line, shape: &Shape, all: &[Operation]) -> Value {
    let mut responses = Map::new();
    for (status, schema) in &shape.answers {
        let mut response = json!({"description": "done"});
        if let (Some(schema), Value::Object(members)) = (schema, &mut response) {
            members.insert("content".into(), json!({"application/json": {"schema": schema}}));
            let links = links(line, all);
            if !links.is_empty() {
                members.insert("links".into(), Value::Object(links));
            }
        }
        responses.insert(status.to_string(), response);
    }
    for (status, _) in REFUSALS {
        let about_credentials = matches!(*status, "401" | "403");
        if !about_credentials || line.needs != Needs::Nothing {
            responses.insert(
                (*status).into(),
                json!({"$ref": format!("#/components/responses/{status}")}),
            );
        }
    }
    Value::Object(responses)
}

/// Returns links from the result of a POST to the operations on the new object.
fn links(line: &Line, all: &[Operation]) -> Map<String, Value> {
    if line.method != http::Method::POST {
        return Map::new();
    }
    let below = format!("{}/{{", line.path);
    let about = all.iter().filter(|other| {
        other
            .line
            .path
            .strip_prefix(&below)
            .is_some_and(|rest| rest.ends_with('}') && !rest.contains('/'))
    });
    about
        .filter_map(|other| {
            let mut parameters: Map<String, Value> = path_names(line.path)
                .map(|name| (name.to_owned(), json!(format!("$request.path.{name}"))))
                .collect();
            let own = path_names(other.line.path).last()?;
            parameters.insert(
                own.to_owned(),
                json!(format!("$response.body#{}", name_pointer(line.path))),
            );
            Some((
                other.line.id.clone(),
                json!({"operationId": other.line.id, "parameters": parameters}),
            ))
        })
        .collect()
}

/// Returns the place of the new object's name in the answer of a POST.
fn name_pointer(path: &str) -> &'static str {
    match path.rsplit('/').next() {
        Some("schedules" | "snapshots" | "api_keys") => "/id",
        Some("service_accounts") => "/client_id",
        Some("executions") => "/executionId",
        Some("users") => "/email",
        Some("workspaces") => "/name",
        _ => "/metadata/name",
    }
}
