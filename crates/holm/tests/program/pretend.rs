//! A fake server: it answers real requests over loopback as the API specifies, and records them.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// With the query.
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(body: &Value) -> Self {
        let headers = vec![("Content-Type", "application/json".to_owned())];
        Self { status: 200, headers, body: body.to_string() }
    }

    pub(crate) fn refuse(status: u16) -> Self {
        let body =
            format!(r#"{{"code": {status}, "error": "e", "message": "refused with {status}"}}"#);
        Self { status, headers: Vec::new(), body }
    }

    pub(crate) fn with(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }
}

/// Lives as long as the test. Its thread waits for clients and ends with the process.
pub(crate) struct Pretend {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Pretend {
    /// Starts a server. `answer` also gets the server's address.
    pub(crate) fn start(mut answer: impl FnMut(&str, &Asked) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (own, log) = (url.clone(), asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                // A client that is gone has no request.
                let Some(request) = read(&stream) else { continue };
                let answer = answer(&own, &request);
                log.lock().unwrap().push(request);
                write(&stream, &answer);
            }
        });
        Self { url, asked }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Returns a command line with a key for this server.
    pub(crate) fn cli(&self, folder: &Path, arguments: &[&str]) -> Command {
        let mut command = crate::common::holm(folder);
        command.env("HOLM_URL", &self.url).env("HOLM_API_KEY", "hk_s3cret");
        command.env("HOLM_WORKSPACE", "main").args(arguments);
        command
    }
}

fn read(stream: &TcpStream) -> Option<Asked> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, length)| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Asked { method, path, headers, body })
}

fn write(mut stream: &TcpStream, answer: &Answer) {
    let mut text = format!("HTTP/1.1 {} x\r\nConnection: close\r\n", answer.status);
    for (name, value) in &answer.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("Content-Length: {}\r\n\r\n{}", answer.body.len(), answer.body));
    // The client may be gone.
    let _ = stream.write_all(text.as_bytes());
}
