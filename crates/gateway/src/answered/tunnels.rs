//! The part of the sandbox API that brings a tunnel up and down. The server answers it and not the
//! sandbox, because nothing inside a sandbox has rights over its network.

use super::{Answered, read_object, refuse, respond};
use crate::body::Body;
use crate::tunnels::Tunnels;
use http::{Method, Response, StatusCode};
use serde::Deserialize;
use serde_json::json;
use types::ids::ResourceId;
use types::tunnel::{NotATunnel, TunnelRefusal};

/// Largest body with settings: a thousand networks in base64, and a few words.
const CONFIG_BYTES_MAX: usize = 128 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TunnelRequest {
    Set,
    Remove,
}

#[derive(Deserialize)]
struct Order {
    config: String,
}

impl TunnelRequest {
    /// `None` means the request is about something else.
    pub(crate) fn read(method: &Method, path: &str) -> Option<Self> {
        match (method, path.strip_suffix('/').unwrap_or(path)) {
            (&Method::PUT, "/network/tunnel/config") => Some(Self::Set),
            (&Method::DELETE, "/network/tunnel") => Some(Self::Remove),
            _ => None,
        }
    }
}

impl Answered for TunnelRequest {
    type By = dyn Tunnels;
    const BODY_BYTES_MAX: usize = CONFIG_BYTES_MAX;

    fn needs_instance(&self) -> bool {
        true
    }

    /// `body` is that of a [`TunnelRequest::Set`].
    async fn answer(
        self,
        tunnels: &dyn Tunnels,
        sandbox: &ResourceId,
        body: &[u8],
    ) -> Response<Body> {
        let (answered, message) = match self {
            Self::Set => (set(tunnels, sandbox, body).await, "Tunnel configured successfully"),
            Self::Remove => (tunnels.remove(sandbox).await, "Tunnel removed successfully"),
        };
        match answered {
            Ok(()) => respond(StatusCode::OK, &json!({"message": message})),
            Err(refusal) => refuse(status(&refusal), &refusal),
        }
    }
}

async fn set(
    tunnels: &dyn Tunnels,
    sandbox: &ResourceId,
    body: &[u8],
) -> Result<(), TunnelRefusal> {
    // The parser's reason is left out, since it could quote the key.
    let order: Order = read_object(body)
        .map_err(|_| NotATunnel::Unreadable("the body is no JSON object with a text `config`"))?;
    tunnels.set(sandbox, order.config).await
}

fn status(refusal: &TunnelRefusal) -> StatusCode {
    match refusal {
        TunnelRefusal::Settings(NotATunnel::Unreadable(_)) | TunnelRefusal::Missing => {
            StatusCode::BAD_REQUEST
        }
        TunnelRefusal::Settings(NotATunnel::Invalid(_)) => StatusCode::UNPROCESSABLE_ENTITY,
        TunnelRefusal::Rules(_) => StatusCode::CONFLICT,
        TunnelRefusal::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
        TunnelRefusal::Away(_) => StatusCode::SERVICE_UNAVAILABLE,
        TunnelRefusal::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::BoxFuture;
    use parking_lot::Mutex;
    use proptest::prelude::*;

    #[test]
    fn only_tunnels_are_answered_here() {
        assert_eq!(
            TunnelRequest::read(&Method::PUT, "/network/tunnel/config"),
            Some(TunnelRequest::Set)
        );
        assert_eq!(
            TunnelRequest::read(&Method::DELETE, "/network/tunnel/"),
            Some(TunnelRequest::Remove)
        );
        for (method, path) in [
            (Method::GET, "/network/tunnel"),
            (Method::DELETE, "/network/tunnel/config"),
            (Method::PUT, "/network/tunnel"),
            (Method::PUT, "/network/tunnels/config"),
        ] {
            assert_eq!(TunnelRequest::read(&method, path), None, "{method} {path}");
        }
    }

    /// Answers as it is told to, and records what it was asked.
    struct Told(Mutex<Option<TunnelRefusal>>, Mutex<Vec<String>>);

    impl Tunnels for Told {
        fn set<'a>(
            &'a self,
            _: &'a ResourceId,
            config: String,
        ) -> BoxFuture<'a, Result<(), TunnelRefusal>> {
            self.1.lock().push(config);
            let refusal = self.0.lock().clone();
            Box::pin(async move { refusal.map_or(Ok(()), Err) })
        }

        fn remove<'a>(&'a self, _: &'a ResourceId) -> BoxFuture<'a, Result<(), TunnelRefusal>> {
            let refusal = self.0.lock().clone();
            Box::pin(async move { refusal.map_or(Ok(()), Err) })
        }
    }

    async fn asked(
        asked: TunnelRequest,
        body: &str,
        refusal: Option<TunnelRefusal>,
    ) -> (u16, usize) {
        let told = Told(Mutex::new(refusal), Mutex::default());
        let id = ResourceId::known("res_ab3k9");
        let response = asked.answer(&told, &id, body.as_bytes()).await;
        let calls = told.1.lock().len();
        (response.status().as_u16(), calls)
    }

    #[tokio::test]
    async fn each_refusal_has_its_status() {
        let body = r#"{"config": "e30="}"#;
        assert_eq!(asked(TunnelRequest::Set, body, None).await, (200, 1));
        assert_eq!(asked(TunnelRequest::Set, r#"{"config": 1}"#, None).await, (400, 0));
        assert_eq!(asked(TunnelRequest::Remove, "", None).await, (200, 0));
        assert_eq!(asked(TunnelRequest::Remove, "", Some(TunnelRefusal::Missing)).await, (400, 0));
        let invalid = TunnelRefusal::Settings(NotATunnel::Invalid("x".into()));
        assert_eq!(asked(TunnelRequest::Set, body, Some(invalid)).await, (422, 1));
        assert_eq!(
            asked(TunnelRequest::Set, body, Some(TunnelRefusal::Rules("x".into()))).await,
            (409, 1)
        );
        let full = TunnelRefusal::Full("x".into());
        assert_eq!(asked(TunnelRequest::Remove, "", Some(full)).await, (507, 0));
        let away = TunnelRefusal::Away("x".into());
        assert_eq!(asked(TunnelRequest::Set, body, Some(away)).await, (503, 1));
        let failed = TunnelRefusal::Failed("x".into());
        assert_eq!(asked(TunnelRequest::Set, body, Some(failed)).await, (500, 1));
    }

    proptest! {
        #[test]
        fn no_path_is_trouble(path in "(/network/tunnel)?[/%.a-zA-Z0-9]{0,20}") {
            if TunnelRequest::read(&Method::PUT, &path).is_some() {
                prop_assert!(path.starts_with("/network/tunnel/config"));
            }
        }
    }
}
