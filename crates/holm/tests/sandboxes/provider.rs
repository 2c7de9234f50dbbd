//! A stand-in for a provider of models. How it answers is part of the address in the connection:
//! `http://{host}/slow=500,fail=503/v1/chat/completions`.

use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Serves until the process ends.
pub(crate) struct Provider {
    address: String,
    asked: Arc<Mutex<HashMap<String, usize>>>,
}

/// Manner of answering, from the first part of the path.
#[derive(Debug, Default)]
struct Manner {
    /// Delay before the head of the answer, and between the pieces of a stream.
    slow: Duration,
    gap: Duration,
    /// Pieces of a stream.
    pieces: usize,
    /// Characters of each text, and of a header.
    long: usize,
    head: usize,
    fail: Option<u16>,
    retry_after: Option<usize>,
}

impl Manner {
    fn of(words: &str) -> Self {
        let mut manner = Self { pieces: 2, long: 2, ..Self::default() };
        for word in words.split(',') {
            let (name, value) = word.split_once('=').unwrap_or((word, "0"));
            let number: usize = value.parse().unwrap_or(0);
            let time = Duration::from_millis(number as u64);
            match name {
                "slow" => manner.slow = time,
                "gap" => manner.gap = time,
                "pieces" => manner.pieces = number,
                "long" => manner.long = number,
                "head" => manner.head = number,
                "fail" => manner.fail = Some(u16::try_from(number).unwrap()),
                "again" => manner.retry_after = Some(number),
                _ => {}
            }
        }
        manner
    }
}

impl Provider {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
        let counts = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counts = Arc::clone(&counts);
                // Ends when the client goes away.
                std::thread::spawn(move || serve(&stream, &counts));
            }
        });
        Self { address, asked }
    }

    /// Returns the address at which it answers in this manner.
    pub(crate) fn at(&self, manner: &str) -> String {
        format!("http://{}/{manner}", self.address)
    }

    /// Returns how often it was asked to answer in this manner.
    pub(crate) fn asked(&self, manner: &str) -> usize {
        self.asked.lock().unwrap().get(manner).copied().unwrap_or(0)
    }
}

fn serve(stream: &TcpStream, counts: &Mutex<HashMap<String, usize>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let path = line.split(' ').nth(1)?.to_owned();
        let mut length = 0;
        loop {
            line.clear();
            reader.read_line(&mut line).ok()?;
            match line.trim().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.parse().ok()?;
                }
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let manner = path.trim_start_matches('/').split('/').next()?.to_owned();
        *counts.lock().unwrap().entry(manner.clone()).or_default() += 1;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        answer(stream, &Manner::of(&manner), &path, body["stream"] == true)?;
    }
}

fn answer(mut stream: &TcpStream, manner: &Manner, path: &str, is_stream: bool) -> Option<()> {
    std::thread::sleep(manner.slow);
    let status = manner.fail.unwrap_or(200);
    let mut head = format!("HTTP/1.1 {status} x\r\nx-long: {}\r\n", "h".repeat(manner.head));
    if let Some(seconds) = manner.retry_after {
        head += &format!("retry-after: {seconds}\r\n");
    }
    if is_stream && manner.fail.is_none() {
        return stream_out(stream, manner, head);
    }
    let body = match (manner.fail, path.ends_with("/models")) {
        (Some(_), _) => json!({"error": {"message": "it fails", "type": "server_error"}}),
        (None, true) => json!({"object": "list", "data": [{"id": "of-the-provider"}]}),
        (None, false) => whole(manner),
    };
    let body = body.to_string();
    let length = body.len();
    head += &format!("content-type: application/json\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all((head + &body).as_bytes()).ok()
}

fn whole(manner: &Manner) -> Value {
    let message = json!({"role": "assistant", "content": "a".repeat(manner.long)});
    json!({"id": "1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}})
}

fn stream_out(mut stream: &TcpStream, manner: &Manner, head: String) -> Option<()> {
    let head = head + "content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).ok()?;
    let mut send = |text: String| {
        let length = text.len();
        stream.write_all(format!("{length:x}\r\n{text}\r\n").as_bytes()).ok()
    };
    let event = |choices: Value, usage: Value| {
        let chunk = json!({"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": choices, "usage": usage});
        format!("data: {chunk}\n\n")
    };
    for piece in 0..manner.pieces {
        if piece > 0 {
            std::thread::sleep(manner.gap);
        }
        let delta = json!({"role": "assistant", "content": "a".repeat(manner.long)});
        send(event(json!([{"index": 0, "delta": delta, "finish_reason": null}]), Value::Null))?;
    }
    send(event(json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]), Value::Null))?;
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5});
    send(event(json!([]), usage))?;
    send("data: [DONE]\n\n".to_owned())?;
    stream.write_all(b"0\r\n\r\n").ok()
}
