//! The first decision for a request on either listener: control plane or data plane.

use super::refusals::{Refusals, Seen};
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use egress::Lingering;
use gateway::{Address, BadAddress, Gateway, Peer, Site};
use http::Request;
use hyper::body::Incoming;
use std::convert::Infallible;
use tokio::runtime::Handle;
use tokio_util::context::TokioContext;
use tower::ServiceExt;

/// A request's body.
type Asked = Lingering<Incoming>;

/// Everything that answers requests. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Front {
    pub(crate) router: Router,
    pub(crate) gateway: Option<Gateway>,
    pub(crate) refusals: Refusals,
    /// What the control plane spawns lasts longer than the connection that asked for it.
    pub(crate) main: Handle,
}

impl Front {
    /// Returns the address of the workload that a request is for; `None` if it is for the control
    /// plane.
    async fn address_of(&self, request: &Request<Asked>) -> Option<Result<Address, BadAddress>> {
        let gateway = self.gateway.as_ref()?;
        let address = gateway.address_of(request)?;
        match &address {
            Ok(address) if !gateway.admits(request, address).await => None,
            _ => Some(address),
        }
    }

    pub(crate) async fn answer(self, request: Request<Asked>) -> Result<Response, Infallible> {
        let is_content =
            request.extensions().get::<Peer>().is_some_and(|peer| peer.site == Site::Content);
        let seen = Seen::of(&request);
        let address = self.address_of(&request).await;
        let response = match &self.gateway {
            // The listener for content serves nothing of the server's own.
            Some(gateway) if is_content || address.is_some() => {
                gateway.serve(request, address).await.map(Body::new)
            }
            _ => {
                let answered = self.router.oneshot(request.map(Body::new));
                TokioContext::new(answered, self.main.clone()).await?
            }
        };
        self.refusals.log(&seen, &response);
        Ok(response)
    }
}
