//! A terminal in a sandbox, shown in the user's own.

mod command;
mod keys;
mod raw;

pub(crate) use command::command;

use crate::client::Socket;
use crate::client::workload::{Workload, segment};
use crate::error::Error;
use crate::exit::Exit;
use crate::signals::Ends;
use crate::term;
use command::Framed;
use futures_util::{SinkExt, StreamExt};
use keys::Keys;
use raw::Raw;
use serde_json::{Value, json};
use std::io::{self, IsTerminal};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval_at, sleep};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message};

/// Parameters of a terminal in a sandbox.
pub(crate) struct Ask {
    pub(crate) session: String,
    pub(crate) shell: Option<String>,
    pub(crate) workdir: Option<String>,
}

/// Reason why the connection to a terminal ended.
#[derive(Debug, PartialEq, Eq)]
enum Over {
    /// The shell has exited.
    Ended,
    Detached,
    /// This program was asked to stop.
    Asked,
    /// The connection broke; the terminal still exists.
    Cut,
}

const TRIES: u32 = 8;
const RETRY: Duration = Duration::from_millis(500);
/// Interval of pings on an idle connection, so that proxies do not drop it.
const PING: Duration = Duration::from_secs(25);
const SESSION_CHARS: usize = 16;
/// Longest input message that the sandbox accepts; longer input is split.
const INPUT_CHARS: usize = 8 << 10;

/// Returns a name that cannot be guessed, since anybody who knows it can see the terminal.
pub(crate) fn new_session(sandbox: &Workload) -> String {
    sandbox.world.random_text(SESSION_CHARS)
}

/// Checks that this program has a terminal itself.
pub(crate) fn check() -> Result<(), Error> {
    if io::stdin().is_terminal() && io::stdout().is_terminal() {
        return Ok(());
    }
    let message = "this is no terminal; `holm exec SANDBOX COMMAND` runs a command without one";
    Err(Error::Usage(message.into()))
}

pub(crate) async fn connect(sandbox: &Workload, ask: &Ask) -> Result<Exit, Error> {
    let (over, _) = attach(sandbox, ask, None).await?;
    Ok(match over {
        Over::Ended => Exit::Success,
        Over::Asked | Over::Cut => Exit::Interrupted,
        Over::Detached => {
            let (name, session) = (&sandbox.name, &ask.session);
            term::note(format!("left; `holm connect {name} --session {session}` comes back"));
            Exit::Success
        }
    })
}

/// Shows the terminal until it ends, reconnecting as often as necessary.
async fn attach(
    sandbox: &Workload,
    ask: &Ask,
    framed: Option<Framed>,
) -> Result<(Over, Option<Framed>), Error> {
    // Connects before the local terminal is switched to raw mode, so that errors are readable.
    let mut socket = sandbox.socket(&path(ask)).await?;
    let raw = Raw::enter()?;
    let mut seat = Seat::new(framed)?;
    let over = loop {
        match seat.sit(&mut socket).await? {
            Over::Cut => match reconnect(sandbox, ask, &mut seat).await? {
                Some(again) => socket = again,
                None => break Over::Asked,
            },
            over => break over,
        }
    };
    // A sandbox that is gone needs no close message.
    let _ = socket.close(None).await;
    if over != Over::Ended {
        raw::reset().map_err(Error::io("write to the terminal"))?;
    }
    drop(raw);
    Ok((over, seat.framed))
}

/// Connects again; `None` if this program was asked to stop meanwhile.
async fn reconnect(
    sandbox: &Workload,
    ask: &Ask,
    seat: &mut Seat,
) -> Result<Option<Socket>, Error> {
    let mut tries = 1;
    loop {
        tokio::select! {
            () = sleep(RETRY * tries) => {}
            () = seat.ends.next() => return Ok(None),
        }
        match sandbox.socket(&path(ask)).await {
            Ok(socket) => {
                // The sandbox sends the screen again, which needs a clear one.
                raw::show(b"\x1b[H\x1b[2J").map_err(Error::io("write to the terminal"))?;
                return Ok(Some(socket));
            }
            Err(error) if tries == TRIES => return Err(error),
            Err(Error::Unreachable { .. }) => {}
            Err(Error::Answer { status, .. }) if status.is_server_error() => {}
            Err(error) => return Err(error),
        }
        tries += 1;
    }
}

fn path(ask: &Ask) -> String {
    let (columns, rows) = raw::size();
    let session = segment(&ask.session);
    let mut path = format!("/terminal/ws?cols={columns}&rows={rows}&sessionId={session}");
    for (name, value) in [("shell", &ask.shell), ("workingDir", &ask.workdir)] {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", segment(value)));
        }
    }
    path
}

/// The local side of the terminal, which outlives connections.
struct Seat {
    typed: mpsc::Receiver<Vec<u8>>,
    keys: Keys,
    resized: Signal,
    ends: Ends,
    /// For a single command: separates its output from that of the shell that starts it.
    framed: Option<Framed>,
}

impl Seat {
    fn new(framed: Option<Framed>) -> Result<Self, Error> {
        let resized = signal(SignalKind::window_change());
        Ok(Self {
            typed: raw::typed(),
            keys: Keys::default(),
            resized: resized.map_err(Error::io("listen for signals"))?,
            ends: Ends::new()?,
            framed,
        })
    }

    /// Passes data in both directions until the connection ends.
    async fn sit(&mut self, socket: &mut Socket) -> Result<Over, Error> {
        let mut ping = interval_at(Instant::now() + PING, PING);
        if let Some(line) = self.framed.as_mut().and_then(Framed::take_line)
            && say(socket, &line).await.is_err()
        {
            return Ok(Over::Cut);
        }
        loop {
            let sent = tokio::select! {
                message = socket.next() => match message {
                    Some(Ok(Message::Text(text))) => {
                        if self.show(text.as_str())? { return Ok(Over::Ended) }
                        Ok(())
                    }
                    Some(Ok(Message::Close(frame))) => return Ok(closed(frame.as_ref())),
                    Some(Ok(_)) => Ok(()),
                    Some(Err(_)) | None => return Ok(Over::Cut),
                },
                Some(bytes) = self.typed.recv() => {
                    let typed = self.keys.take(&bytes);
                    let sent = say(socket, &typed.text).await;
                    if typed.detach { return Ok(Over::Detached) }
                    sent
                }
                _ = self.resized.recv() => {
                    let (cols, rows) = raw::size();
                    send(socket, &json!({"type": "resize", "cols": cols, "rows": rows})).await
                }
                _ = ping.tick() => socket.send(Message::Ping(Bytes::new())).await.map_err(drop),
                () = self.ends.next() => return Ok(Over::Asked),
            };
            if sent.is_err() {
                return Ok(Over::Cut);
            }
        }
    }

    /// Shows a message. Returns true once the command has ended.
    fn show(&mut self, text: &str) -> Result<bool, Error> {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        let said = |kind: &str| message.get("type").is_some_and(|said| said == kind);
        let data = message.get("data").and_then(Value::as_str).unwrap_or_default();
        let act = "write to the terminal";
        if said("error") {
            let line = format!("\r\nholm: {}\r\n", term::harmless(data));
            raw::show(line.as_bytes()).map_err(Error::io(act))?;
        } else if said("output") {
            let shown = match &mut self.framed {
                Some(framed) => framed.take(data),
                None => data.to_owned(),
            };
            raw::show(shown.as_bytes()).map_err(Error::io(act))?;
        }
        Ok(self.framed.as_ref().is_some_and(|framed| framed.code().is_some()))
    }
}

/// Interprets a close message. When the shell ends there is no reason code; servers in between that
/// shut down send one.
fn closed(frame: Option<&CloseFrame>) -> Over {
    let normal =
        frame.is_none_or(|frame| matches!(frame.code, CloseCode::Normal | CloseCode::Status));
    if normal { Over::Ended } else { Over::Cut }
}

/// Sends typed text. The error only means that the connection failed.
async fn say(socket: &mut Socket, text: &str) -> Result<(), ()> {
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.char_indices().map(|(at, _)| at).nth(INPUT_CHARS).unwrap_or(rest.len());
        let (piece, more) = rest.split_at(end);
        send(socket, &json!({"type": "input", "data": piece})).await?;
        rest = more;
    }
    Ok(())
}

async fn send(socket: &mut Socket, message: &Value) -> Result<(), ()> {
    socket.send(Message::text(message.to_string())).await.map_err(drop)
}
