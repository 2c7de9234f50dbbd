//! WebSockets to workloads.

use super::workload::{Workload, refusal};
use crate::error::Error;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Method, StatusCode, Upgraded, header};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

pub(crate) type Socket = WebSocketStream<Upgraded>;

/// Largest accepted message; a terminal's messages are much smaller.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

impl Workload {
    /// Opens a WebSocket. The credentials go into a header, because addresses end up in logs.
    pub(crate) async fn socket(&self, path: &str) -> Result<Socket, Error> {
        let key = STANDARD.encode(self.world.random_bytes::<16>());
        let request = self.request(Method::GET, path).await?;
        let request = request
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, &key);
        let response = self.send(request).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(refusal(response).await);
        }
        let accepted = response.headers().get(header::SEC_WEBSOCKET_ACCEPT);
        let expected = derive_accept_key(key.as_bytes());
        if accepted.is_none_or(|accepted| accepted.as_bytes() != expected.as_bytes()) {
            return Err(self.odd("it accepted another connection than ours"));
        }
        let upgraded = response.upgrade().await.map_err(|source| self.unreachable(source))?;
        let limits = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        Ok(WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(limits)).await)
    }
}
