//! The router of the operations: each of the table under its prefixes, and answers for addresses
//! that nothing else has.

use crate::app::App;
use crate::http::error::Error;
use crate::http::operation::{Base, Operation};
use crate::routes::{registry, s3, triggers};
use crate::table;
use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter};
use control::workloads;
use futures_util::future::BoxFuture;
use http::{HeaderName, HeaderValue, Method};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Instant;
use types::error::Refusal;

/// The prefixes of each base.
pub(super) const PREFIXES: [(Base, &[&str]); 2] =
    [(Base::Management, &["/v0", "/api"]), (Base::Inference, &["", "/run"])];

/// The routes of the operations, without an app yet. Built only once, because that takes a
/// millisecond.
static OPERATIONS: LazyLock<Router<App>> = LazyLock::new(routes);

/// Builds a router without the addresses that are listed beside the operations.
pub(crate) fn operations(app: App) -> Router {
    OPERATIONS.clone().with_state(app)
}

fn routes() -> Router<App> {
    let operations: Vec<Arc<Operation>> = table::operations().into_iter().map(Arc::new).collect();
    let mut router = Router::new();
    for (base, prefixes) in PREFIXES {
        let mut paths: BTreeMap<&str, MethodRouter<App>> = BTreeMap::new();
        for operation in operations.iter().filter(|operation| operation.line.base == base) {
            let routes = paths.remove(operation.line.path).unwrap_or_default();
            paths.insert(
                operation.line.path,
                routes.on(filter(&operation.line.method), handler(operation)),
            );
        }
        for (path, routes) in paths {
            let routes = routes.fallback(|| async { Error::NoMethod });
            for prefix in prefixes {
                router = router.route(&format!("{prefix}{path}"), routes.clone());
            }
        }
    }
    for path in ["/v2", "/v2/", "/v2/{*path}"] {
        router = router.route(path, axum::routing::any(registry::answer));
    }
    for path in ["/s3", "/s3/", "/s3/{*path}"] {
        router = router.route(path, axum::routing::any(s3::answer));
    }
    router.fallback(triggers::answer)
}

#[expect(clippy::expect_used, reason = "axum knows every method that the table has")]
fn filter(method: &Method) -> MethodFilter {
    MethodFilter::try_from(method.clone()).expect("a method of the table")
}

/// Wraps an operation for axum: counted, timed and traced under its name.
fn handler(
    operation: &Arc<Operation>,
) -> impl Fn(State<App>, Request) -> Running + Clone + Send + Sync + 'static {
    let operation = Arc::clone(operation);
    move |State(app), request| Box::pin(observed(app, Arc::clone(&operation), request))
}

type Running = BoxFuture<'static, Response>;

async fn observed(app: App, operation: Arc<Operation>, request: Request) -> Response {
    use tracing::Instrument;
    let started = Instant::now();
    let id = request_id(&app, &request);
    let span = tracing::info_span!("request", operation = %operation.line.id, request_id = %id);
    let routed = changes_routes(&operation.line.method, operation.line.path);
    let answer = Arc::clone(&operation).answer(app.clone(), request);
    let mut response = answer.instrument(span.clone()).await;
    if routed && response.status().is_success() {
        workloads::published(&app).await;
    }
    if let Some(refusal) = response.extensions_mut().get_mut::<Refusal>() {
        refusal.operation = Some(operation.line.id.clone());
    }
    let status = response.status().as_u16();
    let seconds = started.elapsed().as_secs_f64();
    span.in_scope(|| tracing::debug!(status, seconds, "answered"));
    let labels = [("operation", operation.line.id.clone()), ("status", status.to_string())];
    metrics::histogram!("holm_api_request_seconds", &labels).record(seconds);
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// Returns whether a request changes routes, so that the caller may try the change at the edge
/// right away. A new sandbox is announced immediately in any case.
fn changes_routes(method: &Method, path: &str) -> bool {
    let routed = ["/sandboxes/", "/customdomains"].iter().any(|start| path.starts_with(start));
    routed && *method != Method::GET
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Returns the caller's id for the request if it is harmless, else a new one.
fn request_id(app: &App, request: &Request) -> String {
    let given = request.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let harmless = |id: &&str| {
        (1..=64).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    given.filter(harmless).map_or_else(|| app.world.random_text(16), str::to_owned)
}
