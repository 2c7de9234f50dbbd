//! Offers the operations as tools of the Model Context Protocol: streamable HTTP without sessions,
//! JSON answers.
//!
//! A tool builds the request that its operation takes and calls the function that serves it over
//! HTTP, so the two cannot differ in what they allow or do.

mod code;
mod files;
mod processes;
mod tools;

use crate::guest::Guest;
use crate::http::{Answer, Error, JSON_BODY_BYTES_MAX, Request};
use bytes::Bytes;
use http::{HeaderValue, header};
use http_body_util::Full;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use std::sync::Arc;
use tools::Refused;

#[derive(Clone)]
struct Server {
    guest: Arc<Guest>,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        // The name that clients expect.
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("Sandbox API Server", "1.0.0"))
            .with_instructions("Runs commands and works on files in one sandbox.")
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, rmcp::ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::list(&self.guest)))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, rmcp::ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        match tools::call(&self.guest, &request.name, arguments).await {
            Ok(value) => Ok(CallToolResult::structured(value).into()),
            Err(Refused::Failed(error)) => {
                Ok(CallToolResult::structured_error(json!({"error": error.to_string()})).into())
            }
            Err(Refused::Unknown) => Err(rmcp::ErrorData::invalid_params(
                format!("there is no tool `{}`", request.name),
                None,
            )),
        }
    }
}

pub(crate) async fn serve(guest: &Arc<Guest>, mut request: Request) -> Result<Answer, Error> {
    let server = Server { guest: guest.clone() };
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(NeverSessionManager::default()),
        // Access is decided before a request arrives here, and the host can be any name of the
        // sandbox.
        StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .disable_allowed_hosts(),
    );
    let body: Bytes = request.bytes(JSON_BODY_BYTES_MAX).await?;
    let mut passed_on = http::Request::new(Full::new(body));
    *passed_on.method_mut() = request.method;
    *passed_on.headers_mut() = request.headers;
    passed_on.headers_mut().entry(header::HOST).or_insert(HeaderValue::from_static("sandbox"));
    Ok(Answer::of_response(service.handle(passed_on).await))
}
