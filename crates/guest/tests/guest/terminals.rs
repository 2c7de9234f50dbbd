//! Terminals over WebSocket.

use crate::common::Guest;
use crate::first::until;
use serde_json::{Value, json};
use std::net::TcpStream;
use std::time::Duration;
use tokio_tungstenite::tungstenite::{self, HandshakeError, Message, WebSocket};

pub(crate) struct Client(pub(crate) WebSocket<TcpStream>);

impl Client {
    pub(crate) fn connect(guest: &Guest, query: &str) -> Self {
        Self::try_connect(guest, query).unwrap()
    }

    /// Connects, unless that is refused with the status that is returned.
    fn try_connect(guest: &Guest, query: &str) -> Result<Self, u16> {
        let stream = TcpStream::connect(&guest.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let address = format!("ws://{}/terminal/ws?shell=/bin/sh&{query}", guest.address);
        match tungstenite::client(address, stream) {
            Ok((socket, _)) => Ok(Self(socket)),
            Err(HandshakeError::Failure(tungstenite::Error::Http(answer))) => {
                Err(answer.status().as_u16())
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn say(&mut self, message: &Value) {
        self.0.send(Message::text(message.to_string())).unwrap();
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.say(&json!({"type": "input", "data": text}));
    }

    fn hear(&mut self) -> Option<Value> {
        match self.0.read() {
            Ok(Message::Text(text)) => Some(serde_json::from_str(text.as_str()).unwrap()),
            Ok(Message::Close(_)) | Err(_) => None,
            Ok(other) => panic!("{other:?}"),
        }
    }

    /// Reads output until it contains a text.
    #[track_caller]
    pub(crate) fn until(&mut self, text: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(text) {
            let message = self.hear().unwrap_or_else(|| panic!("no `{text}` in {seen:?}"));
            assert_eq!(message["type"], "output");
            seen.push_str(message["data"].as_str().unwrap());
        }
        seen
    }
}

#[test]
fn a_session_is_shared_and_replayed() {
    let guest = Guest::start();
    let mut first = Client::connect(&guest, "sessionId=a");
    first.type_in("echo $((40+2)) $TERM\n");
    first.until("42 xterm-256color");
    let mut second = Client::connect(&guest, "sessionId=a");
    let replay = second.until("42 xterm-256color");
    assert!(replay.starts_with("\u{1b}[0m"), "{replay:?}");
    second.type_in("echo $((50+5))\n");
    first.until("55");
    let mut other = Client::connect(&guest, "sessionId=b");
    other.type_in("echo $((60+6))\n");
    assert!(!other.until("66").contains("42 xterm"));
}

#[test]
fn it_is_a_terminal_of_the_size_that_is_asked_for() {
    let guest = Guest::start();
    let mut client = Client::connect(&guest, "cols=100&rows=30");
    client.type_in("stty size; test -t 0 && echo is-a-$((0))-tty\n");
    let seen = client.until("is-a-0-tty");
    assert!(seen.contains("30 100"), "{seen}");
    client.say(&json!({"type": "resize", "cols": 77, "rows": 11}));
    client.type_in("stty size\n");
    client.until("11 77");
    // An interrupt discards typed text that was not read yet, so each step waits for the previous
    // one.
    client.type_in("PS1=re''ady; echo on''line; cat\n");
    client.until("online\r\n");
    client.type_in("twice\n");
    client.until("twice\r\ntwice\r\n");
    client.type_in("\u{3}");
    client.until("ready");
    client.type_in("echo inter$((1))rupted\n");
    client.until("inter1rupted");
}

#[test]
fn its_shell_knows_its_home_even_if_the_image_does_not_say_it() {
    let guest = Guest::start_by(&["env", "-u", "HOME"], &[]);
    let mut client = Client::connect(&guest, "");
    client.type_in("env | grep ^HOME; echo al$((0))l\n");
    let seen = client.until("al0l");
    assert!(seen.contains("\nHOME=/root\r"), "{seen}");
}

#[test]
fn the_end_of_the_shell_is_the_end_of_the_session() {
    let guest = Guest::start();
    let mut client = Client::connect(&guest, "");
    client.type_in("exit\n");
    while client.hear().is_some() {}
    let mut again = Client::connect(&guest, "");
    again.type_in("echo $((70+7))\n");
    again.until("77");
}

#[test]
fn a_terminal_without_clients_makes_room_for_a_new_one() {
    let guest = Guest::start();
    let mut left = Client::connect(&guest, "sessionId=left");
    left.type_in("echo $((40+2))\n");
    left.until("42");
    let open = |number| Client::connect(&guest, &format!("sessionId={number}"));
    let _held: Vec<Client> = (1..32).map(open).collect();
    assert_eq!(Client::try_connect(&guest, "sessionId=new").err(), Some(503));
    drop(left);
    // That its client has gone is noticed a moment later.
    until("no room is made", || Client::try_connect(&guest, "sessionId=new").is_ok());
}

#[test]
fn characters_stay_whole_wherever_output_is_cut() {
    let guest = Guest::start();
    let mut client = Client::connect(&guest, "sessionId=text");
    // Lines of eleven bytes with characters of three, so that most pieces that are read end within
    // one.
    client.type_in(
        "stty -echo; yes '\u{20ac}\u{20ac}\u{20ac}' | head -c 200000; echo; echo do''ne\n",
    );
    let seen = client.until("done\r\n");
    assert!(seen.matches('\u{20ac}').count() > 50_000);
    // The output is cut in a character at its end, but nowhere else.
    assert!(seen.matches('\u{fffd}').count() <= 2, "{}", seen.matches('\u{fffd}').count());
    let replay = Client::connect(&guest, "sessionId=text").until("done\r\n");
    let replay = replay.strip_prefix("\u{1b}[0m").unwrap();
    assert!(!replay.starts_with('\u{fffd}'), "{}", &replay[..20]);
}

#[test]
fn a_large_paste_arrives() {
    let guest = Guest::start();
    let mut client = Client::connect(&guest, "");
    client.type_in("stty -echo -icanon; echo on''line; head -c 900000 | wc -c; echo do''ne\n");
    client.until("online\r\n");
    client.type_in(&"x".repeat(900_000));
    assert!(client.until("done\r\n").contains("900000\r\n"));
}

#[test]
fn what_is_not_understood_is_told() {
    let guest = Guest::start();
    let mut client = Client::connect(&guest, "");
    client.say(&json!({"type": "dance"}));
    while client.hear().unwrap()["type"] != "error" {}
    guest.get("/terminal/ws").refused(400);
    guest.get("/terminal/ws?cols=wide").refused(400);
    guest.get("/terminal/ws?workingDir=/nonexistent").refused(422);
}

#[test]
fn terminals_can_be_disabled() {
    let guest = Guest::start();
    let page = guest.get("/terminal");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.text().contains("WebSocket"));
    let without = Guest::start_with(&[("DISABLE_TERMINAL", "true")]);
    without.get("/terminal").refused(404);
    without.get("/terminal/ws").refused(404);
}
