//! The one listener's first question: the management side or the data plane?

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use gateway::Gateway;
use http::Request;
use hyper::body::Incoming;
use std::convert::Infallible;
use tower::ServiceExt;

/// All that answers requests. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Front {
    pub(crate) router: Router,
    pub(crate) gateway: Option<Gateway>,
}

impl Front {
    pub(crate) async fn answer(self, request: Request<Incoming>) -> Result<Response, Infallible> {
        match &self.gateway {
            Some(gateway) if gateway.takes(&request) => Ok(gateway.serve(request).await.map(Body::new)),
            _ => self.router.oneshot(request.map(Body::new)).await,
        }
    }
}
