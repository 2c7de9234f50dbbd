//! Connects a client to a terminal over a WebSocket.

use super::ask::{Ask, Size};
use super::session::{Input, Session, Sight};
use super::{Terminals, check_enabled};
use crate::http::{Answer, Error, Request};
use crate::instance::Instance;
use futures_util::{SinkExt, StreamExt};
use http::{HeaderName, HeaderValue, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};

/// A large paste comes as one message.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// How much of a message that is too large is still read, and for how long: a connection that is
/// closed before breaks, and the client does not learn why.
const PASSED_BY_BYTES_MAX: u64 = 32 << 20;
const PASSING_BY_MAX: Duration = Duration::from_secs(10);

type Socket = WebSocketStream<TokioIo<Upgraded>>;

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Said {
    Input { data: String },
    Resize { cols: u16, rows: u16 },
}

pub(crate) fn connect(
    terminals: &Terminals,
    instance: &Instance,
    mut request: Request,
) -> Result<Answer, Error> {
    check_enabled(&instance.settings)?;
    let ask = Ask::read(instance, &request)?;
    let refuse = || Error::BadRequest("this path speaks WebSocket only".into());
    let key = request.header(HeaderName::from_static("sec-websocket-key")).ok_or_else(refuse)?;
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes())).map_err(|_| refuse())?;
    let upgrade = request.take_upgrade().ok_or_else(refuse)?;
    let client = terminals.enter()?;
    let session = terminals.join(instance, &ask)?;
    tokio::spawn(async move {
        serve(session, upgrade).await;
        drop(client);
    });
    Ok(Answer::empty(StatusCode::SWITCHING_PROTOCOLS)
        .with(header::CONNECTION, "Upgrade")
        .with(header::UPGRADE, "websocket")
        .with_value(header::SEC_WEBSOCKET_ACCEPT, accept))
}

async fn serve(session: Arc<Session>, upgrade: OnUpgrade) {
    // If a client disconnects before the upgrade, the session stays for the others.
    let Ok(upgraded) = upgrade.await else { return };
    let limits = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let mut socket =
        WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(limits)).await;
    // Clients usually end by disconnecting.
    match show(&session, &mut socket).await {
        Err(tungstenite::Error::Capacity(_)) => refuse_message(socket).await,
        Ok(()) | Err(_) => drop(socket.close(None).await),
    }
}

/// Says that a message is too large. The connection cannot go on after it, because its rest is not
/// read as a message.
async fn refuse_message(mut socket: Socket) {
    let reason = format!("a message is larger than {MESSAGE_BYTES_MAX} bytes; send it in parts");
    let _ = socket.close(Some(CloseFrame { code: CloseCode::Size, reason: reason.into() })).await;
    let mut connection = socket.into_inner();
    // A client waits for this before it ends its side.
    let _ = connection.shutdown().await;
    let mut rest = connection.take(PASSED_BY_BYTES_MAX);
    let _ = timeout(PASSING_BY_MAX, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
}

/// Shows the terminal and takes inputs until either side ends.
async fn show(session: &Session, socket: &mut Socket) -> Result<(), tungstenite::Error> {
    let Sight { replay, mut live } = session.look();
    say(socket, "output", &replay).await?;
    while let Some(receiver) = &mut live {
        tokio::select! {
            output = receiver.recv() => match output {
                Ok(bytes) => say(socket, "output", &bytes).await?,
                Err(RecvError::Closed) => break,
                Err(RecvError::Lagged(_)) => {
                    let sight = session.look();
                    say(socket, "output", &sight.replay).await?;
                    live = sight.live;
                }
            },
            message = socket.next() => match message {
                Some(Ok(Message::Text(text))) => hear(session, socket, text.as_str()).await?,
                Some(Ok(Message::Close(_))) | None => return Ok(()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
            },
        }
    }
    Ok(())
}

async fn hear(
    session: &Session,
    socket: &mut Socket,
    text: &str,
) -> Result<(), tungstenite::Error> {
    let input = match serde_json::from_str(text) {
        Ok(Said::Input { data }) => Input::Text(data),
        Ok(Said::Resize { cols, rows }) => {
            Input::Resize(Size { columns: cols.max(1), rows: rows.max(1) })
        }
        Err(_) => return say(socket, "error", b"this message is not understood").await,
    };
    match session.put(input) {
        true => Ok(()),
        false => say(socket, "error", b"the terminal does not read; this input is dropped").await,
    }
}

async fn say(socket: &mut Socket, kind: &str, data: &[u8]) -> Result<(), tungstenite::Error> {
    let message = json!({"type": kind, "data": String::from_utf8_lossy(data)}).to_string();
    socket.send(Message::text(message)).await
}
