//! Routes outside the table of operations: pages, OAuth endpoints and webhooks. Their addresses are
//! recorded as they are added, so that a test can check for every address that the program serves
//! what other tenants may see of it.

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, on};
use http::Method;

/// A router that records its own addresses.
pub(crate) struct Listed<S> {
    pub(crate) router: Router<S>,
    pub(crate) addresses: Vec<(Method, String)>,
}

impl<S: Clone + Send + Sync + 'static> Listed<S> {
    pub(crate) fn new() -> Self {
        Self { router: Router::new(), addresses: Vec::new() }
    }

    pub(crate) fn get<H: Handler<T, S>, T: 'static>(
        self,
        path: impl Into<String>,
        handler: H,
    ) -> Self {
        self.on((Method::GET, MethodFilter::GET), path.into(), handler)
    }

    pub(crate) fn post<H: Handler<T, S>, T: 'static>(
        self,
        path: impl Into<String>,
        handler: H,
    ) -> Self {
        self.on((Method::POST, MethodFilter::POST), path.into(), handler)
    }

    pub(crate) fn put<H: Handler<T, S>, T: 'static>(
        self,
        path: impl Into<String>,
        handler: H,
    ) -> Self {
        self.on((Method::PUT, MethodFilter::PUT), path.into(), handler)
    }

    pub(crate) fn delete<H: Handler<T, S>, T: 'static>(
        self,
        path: impl Into<String>,
        handler: H,
    ) -> Self {
        self.on((Method::DELETE, MethodFilter::DELETE), path.into(), handler)
    }

    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.addresses.extend(other.addresses);
        Self { router: self.router.merge(other.router), ..self }
    }

    fn on<H: Handler<T, S>, T: 'static>(
        mut self,
        method: (Method, MethodFilter),
        path: String,
        handler: H,
    ) -> Self {
        self.router = self.router.route(&path, on(method.1, handler));
        self.addresses.push((method.0, path));
        self
    }
}
