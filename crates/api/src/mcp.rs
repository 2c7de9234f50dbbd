//! Management tools over MCP: every operation of the table is a tool.
//!
//! Calling a tool sends a request to the same router with the caller's own credentials, so a tool
//! can do exactly what its operation can. Streamable HTTP without sessions, JSON answers.

mod refusals;

use crate::app::App;
use crate::http::call::{Call, Person, Raw};
use crate::http::error::Error;
use crate::http::headers;
use crate::http::reply::Answer;
use crate::openapi::{self, path_names, placeholder};
use crate::routes::uploads::UPLOAD_URL;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use http_body_util::{BodyExt, Full};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CustomRequest, CustomResult,
    ErrorCode, Implementation, InitializeRequestParams, JsonObject, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use tower::ServiceExt;
use types::error::ErrorBody;

/// Not offered as tools: a stream has no end, and the tools endpoint itself makes no sense as a
/// tool.
const LEFT_OUT: [&str; 2] = ["/changes", "/mcp"];
/// Characters of a name that need no escaping in a path.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// One operation, offered as a tool.
struct Act {
    tool: Tool,
    method: Method,
    path: String,
}

static ACTS: LazyLock<BTreeMap<String, Act>> = LazyLock::new(|| acts(&openapi::document()));

fn acts(document: &Value) -> BTreeMap<String, Act> {
    let mut acts = BTreeMap::new();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        if item.get("servers").is_some() || LEFT_OUT.contains(&path.as_str()) {
            continue;
        }
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
            let operation = &item[method.as_str().to_ascii_lowercase()];
            if let Some(id) = operation["operationId"].as_str() {
                let summary = operation["summary"].as_str().unwrap_or_default().to_owned();
                let tool = Tool::new(id.to_owned(), summary, Arc::new(input(operation, document)));
                acts.insert(id.to_owned(), Act { tool, method, path: path.clone() });
            }
        }
    }
    acts
}

/// Returns the input schema of a tool: path values, query parameters, body, and the workspace to
/// act in.
fn input(operation: &Value, document: &Value) -> JsonObject {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    properties.insert(
        "workspace".into(),
        json!({"type": "string", "description": "The workspace to act in"}),
    );
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let (Some(name), Some(place)) = (parameter["name"].as_str(), parameter["in"].as_str())
        else {
            continue;
        };
        if place == "path" {
            required.push(json!(name));
        }
        properties.insert(name.to_owned(), described(parameter));
    }
    if let Some(body) = operation.pointer("/requestBody/content/application~1json/schema") {
        properties.insert("body".into(), body.clone());
        required.push(json!("body"));
    }
    let mut definitions = Map::new();
    gather(&Value::Object(properties.clone()), document, &mut definitions);
    let schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        // The place to which references in the published schemas point.
        "components": {"schemas": definitions},
    });
    schema.as_object().cloned().unwrap_or_default()
}

/// Returns the schema of a parameter together with its description, which OpenAPI keeps beside it.
fn described(parameter: &Value) -> Value {
    let mut schema = parameter["schema"].clone();
    if let (Value::Object(members), Some(text)) = (&mut schema, parameter.get("description")) {
        members.insert("description".into(), text.clone());
    }
    schema
}

/// Collects the schemas that a schema refers to, directly or indirectly.
fn gather(schema: &Value, document: &Value, found: &mut Map<String, Value>) {
    match schema {
        Value::Object(members) => {
            let reference = members.get("$ref").and_then(Value::as_str);
            if let Some(name) =
                reference.and_then(|reference| reference.strip_prefix("#/components/schemas/"))
            {
                let target = &document["components"]["schemas"][name];
                if found.insert(name.to_owned(), target.clone()).is_none() {
                    gather(target, document, found);
                }
            }
            members.values().for_each(|member| gather(member, document, found));
        }
        Value::Array(items) => items.iter().for_each(|item| gather(item, document, found)),
        _ => {}
    }
}

/// Serves one MCP request.
#[derive(Clone)]
struct Tools {
    operations: Router,
}

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("holm", env!("CARGO_PKG_VERSION")))
            .with_instructions(
                "Manages the workspaces of a Holm installation with the rights of the given credentials. \
                 A tool that is called with `upload` answers with `uploadUrl`: send the sources there with PUT.",
            )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, rmcp::ErrorData> {
        Ok(ListToolsResult::with_all_items(ACTS.values().map(|act| act.tool.clone()).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, rmcp::ErrorData> {
        let unknown = || {
            rmcp::ErrorData::invalid_params(format!("there is no tool `{}`", request.name), None)
        };
        let act = ACTS.get(request.name.as_ref()).ok_or_else(unknown)?;
        let none = HeaderMap::new();
        let headers = context.extensions.get::<Parts>().map_or(&none, |parts| &parts.headers);
        let arguments = request.arguments.unwrap_or_default();
        let inner = inner_request(act, &arguments, headers)
            .map_err(|problem| rmcp::ErrorData::invalid_params(problem, None))?;
        Ok(self.send(inner).await.into())
    }

    /// Refuses what the protocol library does not know as a request. It also takes a method whose
    /// parameters it cannot read for one that it does not know.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, rmcp::ErrorData> {
        let problem = match request.method.as_str() {
            "initialize" => misfit::<InitializeRequestParams>(&request),
            "tools/call" => misfit::<CallToolRequestParams>(&request),
            _ => {
                return Err(rmcp::ErrorData::new(
                    ErrorCode::METHOD_NOT_FOUND,
                    request.method,
                    None,
                ));
            }
        };
        Err(rmcp::ErrorData::invalid_params(problem, None))
    }
}

/// Says why the parameters of a request cannot be read.
fn misfit<T: DeserializeOwned>(request: &CustomRequest) -> String {
    let why = serde_json::from_value::<T>(request.params.clone().unwrap_or_default()).err();
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    format!("the parameters of `{}` cannot be read{why}", request.method)
}

impl Tools {
    async fn send(&self, request: Request<Body>) -> CallToolResult {
        let Ok(response) = self.operations.clone().oneshot(request).await;
        let failed = !response.status().is_success();
        let [upload_url, _] = UPLOAD_URL;
        let upload_url = response.headers().get(upload_url).and_then(|url| url.to_str().ok());
        let upload_url = upload_url.map(Value::from);
        let Ok(body) = response.into_body().collect().await else {
            return CallToolResult::structured_error(json!({"error": "the answer broke off"}));
        };
        // Clients accept only objects.
        let mut members = match value_in(&body.to_bytes()) {
            Value::Null if !failed => return CallToolResult::success(Vec::new()),
            Value::Object(members) => members,
            value => Map::from_iter([("data".to_owned(), value)]),
        };
        // A tool's answer has no headers, and nobody can upload anything without the address.
        members.extend(upload_url.map(|url| ("uploadUrl".to_owned(), url)));
        if failed {
            CallToolResult::structured_error(members.into())
        } else {
            CallToolResult::structured(members.into())
        }
    }
}

/// Returns what an answer says. What is not JSON is told as it is.
fn value_in(body: &[u8]) -> Value {
    if body.is_empty() {
        return Value::Null;
    }
    serde_json::from_slice(body).unwrap_or_else(|_| String::from_utf8_lossy(body).into())
}

/// Longest query of a tool call, before it is encoded.
const QUERY_BYTES_MAX: usize = 16 << 10;

/// Builds the request for a tool call.
fn inner_request(
    act: &Act,
    arguments: &JsonObject,
    outer: &HeaderMap,
) -> Result<Request<Body>, String> {
    let (path, query) = (path(act, arguments)?, query(act, arguments)?);
    let mut request = Request::builder().method(act.method.clone()).uri(format!("{path}?{query}"));
    // The caller's own credentials.
    for name in headers::AUTHORIZATION.iter().chain(&headers::WORKSPACE) {
        if let Some(value) = outer.get(*name) {
            request = request.header(*name, value);
        }
    }
    let body = arguments.get("body").map(Value::to_string).unwrap_or_default();
    let mut request = request
        .header("blaxel-version", types::ApiVersion::V2026_09_22.name())
        .body(Body::from(body))
        .map_err(|error| error.to_string())?;
    if let Some(workspace) = text(arguments, "workspace")? {
        let value = workspace.parse().map_err(|_| "`workspace` is not a name".to_owned())?;
        request.headers_mut().insert("x-blaxel-workspace", value);
    }
    Ok(request)
}

/// Returns an argument that must be a text. Clients say with a null that they leave one out.
fn text<'a>(arguments: &'a JsonObject, name: &str) -> Result<Option<&'a str>, String> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{name}` must be a text")),
    }
}

fn path(act: &Act, arguments: &JsonObject) -> Result<String, String> {
    let mut path = String::from("/v0");
    for part in act.path.split('/').skip(1) {
        path.push('/');
        let Some(name) = placeholder(part) else {
            path.push_str(part);
            continue;
        };
        let value = text(arguments, name)?.filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| format!("`{name}` is required"))?;
        path.extend(utf8_percent_encode(value, PLAIN));
    }
    Ok(path)
}

/// Returns the query: all arguments that are not elsewhere in the request.
fn query(act: &Act, arguments: &JsonObject) -> Result<String, String> {
    let in_path: Vec<&str> = path_names(&act.path).collect();
    let mut query = form_urlencoded::Serializer::new(String::new());
    let mut room = QUERY_BYTES_MAX;
    for (name, value) in arguments {
        let is_elsewhere =
            ["workspace", "body"].contains(&name.as_str()) || in_path.contains(&name.as_str());
        // No query can say null, with which clients leave an argument out.
        if is_elsewhere || value.is_null() {
            continue;
        }
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        // Checked before more of them are encoded: a caller may send as many as fit into a body.
        room = room.checked_sub(name.len() + value.len()).ok_or_else(|| {
            format!("the arguments beside `body` have more than {QUERY_BYTES_MAX} bytes")
        })?;
        query.append_pair(name, &value);
    }
    Ok(query.finish())
}

/// The answer of the MCP endpoint, as the protocol library made it.
pub(crate) struct Spoken(Response);

impl Answer for Spoken {
    fn into_response(self) -> Response {
        self.0
    }

    fn describe(generator: &mut SchemaGenerator) -> Vec<(u16, Option<Schema>)> {
        let message = json_schema!({"type": "object", "description": "A JSON-RPC message"});
        // 202 answers a notification; 406 and 415 are refusals of the protocol itself.
        let refusal = Some(generator.subschema_for::<ErrorBody>());
        vec![(200, Some(message)), (202, None), (406, refusal.clone()), (415, refusal)]
    }
}

pub(crate) async fn serve(
    call: Call<Person, crate::http::query::NoQuery, Raw>,
) -> Result<Spoken, Error> {
    refusals::require_json(&call.headers, &call.body.0)?;
    let service = StreamableHttpService::new(
        {
            let app: App = call.app.clone();
            move || Ok(Tools { operations: crate::http::operation_router::operations(app.clone()) })
        },
        Arc::new(NeverSessionManager::default()),
        // Browsers do not add these credentials by themselves, so the host name that was used does
        // not matter.
        StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            // The limit of this server was applied when the body was read.
            .with_max_request_body_bytes(usize::MAX)
            .disable_allowed_hosts(),
    );
    let mut request = Request::new(Full::new(call.body.0));
    *request.method_mut() = Method::POST;
    *request.headers_mut() = call.headers;
    // With HTTP/2 the host is not in this header; the service requires one and, as configured
    // above, accepts any.
    request.headers_mut().entry(header::HOST).or_insert(HeaderValue::from_static("holm"));
    refusals::checked(service.handle(request).await.map(Body::new)).await.map(Spoken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_not_json_is_told_as_it_is() {
        assert_eq!(value_in(b""), Value::Null);
        assert_eq!(value_in(br#"{"a":1}"#), json!({"a": 1}));
        assert_eq!(value_in(b"a,b\n1,2"), json!("a,b\n1,2"));
    }
}
