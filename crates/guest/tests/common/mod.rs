//! Starts the real binary on a free port, with a client that hides nothing.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// A test that gets no answer fails instead of hanging.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// How often a request is repeated until its answer is right, and the pause between two: half a
/// minute in all.
const REPEATS: u32 = 3000;
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) struct Guest {
    child: Child,
    pub(crate) address: String,
    pub(crate) directory: tempfile::TempDir,
}

pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Guest {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(variables: &[(&str, &str)]) -> Self {
        Self::start_by(&[], variables)
    }

    /// Starts it through another program.
    pub(crate) fn start_by(starter: &[&str], variables: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut words = starter.iter().copied().chain([env!("CARGO_BIN_EXE_holm-guest")]);
        let mut child = Command::new(words.next().unwrap())
            .args(words)
            .args(["--listen", "127.0.0.1:0"])
            .env_remove("SHELL")
            .env("WORKDIR", directory.path())
            .env("TMPDIR", directory.path())
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { child, address: address.trim().to_owned(), directory }
    }

    /// Starts it as the machine does, with its socket on descriptor 3 and its settings on
    /// descriptor 4.
    pub(crate) fn start_handed_over(
        listener: &TcpListener,
        settings: &Path,
        directory: tempfile::TempDir,
    ) -> Self {
        let address = listener.local_addr().unwrap().to_string();
        // The shell moves the descriptors to their places, which would otherwise take unsafe code.
        let child = Command::new("sh")
            .args(["-c", "exec \"$0\" 3<&0 4<\"$1\" 0</dev/null", env!("CARGO_BIN_EXE_holm-guest")])
            .arg(settings)
            .env_remove("SHELL")
            .env("TMPDIR", directory.path())
            .envs([("HOLM_GUEST_FD", "3"), ("HOLM_GUEST_CONFIG_FD", "4")])
            .stdin(OwnedFd::from(listener.try_clone().unwrap()))
            .spawn()
            .unwrap();
        Self { child, address, directory }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the peak of its memory use.
    pub(crate) fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Waits until it ends by itself.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn delete(&self, path: &str) -> Response {
        self.send("DELETE", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        self.send(
            "POST",
            path,
            &[("Content-Type", "application/json")],
            body.to_string().as_bytes(),
        )
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        self.open(method, path, headers, body).into_response()
    }

    /// Sends a request, leaving the answer to be read.
    pub(crate) fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(ANSWER_WAIT)).unwrap();
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: sandbox\r\nContent-Length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(b"\r\n").unwrap();
        stream.write_all(body).unwrap();
        let answer = Answer::read_head(BufReader::new(stream));
        if method == "HEAD" { Answer { left: Some(0), ..answer } } else { answer }
    }

    /// Runs a command and waits for its end.
    #[track_caller]
    pub(crate) fn run(&self, command: &str) -> Value {
        let response = self
            .post("/process", &serde_json::json!({"command": command, "waitForCompletion": true}));
        response.ok()
    }

    /// Repeats a request until the answer is right, or fails.
    #[track_caller]
    pub(crate) fn until(&self, path: &str, is_right: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..REPEATS {
            let value = self.get(path).json();
            if is_right(&value) {
                return value;
            }
            std::thread::sleep(PAUSE);
        }
        panic!("{path} never became right: {}", self.get(path).json());
    }
}

impl Guest {
    /// Like `until`, but also while connections break.
    #[track_caller]
    pub(crate) fn until_reached(&self, path: &str, is_right: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..REPEATS {
            if let Some(value) = self.try_get(path)
                && is_right(&value)
            {
                return value;
            }
            std::thread::sleep(PAUSE);
        }
        panic!("{path} never became right: {}", self.get(path).json());
    }

    fn try_get(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(ANSWER_WAIT)).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: sandbox\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let processes = self.try_get("/process").unwrap_or_default();
        for process in processes.as_array().into_iter().flatten() {
            if process["status"] == "running" {
                self.delete(&format!(
                    "/process/{}/kill",
                    process["pid"].as_str().unwrap_or_default()
                ));
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) stream: BufReader<TcpStream>,
    left: Option<usize>,
    chunk: usize,
}

impl Answer {
    fn read_head(mut stream: BufReader<TcpStream>) -> Self {
        let mut line = || {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        let status = line().split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = Vec::new();
        while let Some((name, value)) = line().split_once(": ") {
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let length = headers
            .iter()
            .find(|(name, _)| name == "content-length")
            .map(|(_, value)| value.parse().unwrap());
        let chunked = headers.iter().any(|(name, _)| name == "transfer-encoding");
        let left = if chunked { None } else { Some(length.unwrap_or(0)) };
        Self { status, headers, stream, left, chunk: 0 }
    }

    /// Reads the next chunk of a streamed body and returns its size; zero at the end.
    fn next_chunk(&mut self) -> usize {
        let mut size = String::new();
        self.stream.read_line(&mut size).unwrap();
        usize::from_str_radix(size.trim(), 16).unwrap()
    }

    pub(crate) fn into_response(mut self) -> Response {
        let mut body = Vec::new();
        self.read_to_end(&mut body).unwrap();
        Response { status: self.status, headers: self.headers, body }
    }
}

impl Read for Answer {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let wanted = match self.left {
            // A buffered reader would wait for more even if nothing is wanted.
            Some(0) => return Ok(0),
            Some(left) => left.min(buffer.len()),
            None => {
                if self.chunk == 0 {
                    self.chunk = self.next_chunk();
                    if self.chunk == 0 {
                        self.left = Some(0);
                        return Ok(0);
                    }
                }
                self.chunk.min(buffer.len())
            }
        };
        let length = self.stream.read(&mut buffer[..wanted])?;
        match &mut self.left {
            Some(left) => *left -= length,
            None => {
                self.chunk -= length;
                if self.chunk == 0 {
                    self.stream.read_exact(&mut [0; 2])?;
                }
            }
        }
        Ok(length)
    }
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.text()))
    }

    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()
    }

    #[track_caller]
    pub(crate) fn refused(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text());
        let body = self.json();
        assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
        body["error"].as_str().unwrap().to_owned()
    }
}
