//! A real server process with its own folder, and the command line against it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use tempfile::TempDir;

pub(crate) struct Server {
    process: Child,
    log: BufReader<std::process::ChildStderr>,
    pub(crate) folder: TempDir,
    pub(crate) address: String,
    /// The log up to the point when the server was ready.
    pub(crate) start_log: String,
}

/// Returns the program without settings or credentials of the user who runs the tests.
pub(crate) fn holm(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holm"));
    command.env_clear().env("HOME", home).env("PATH", std::env::var_os("PATH").unwrap_or_default());
    // Sandboxes have tests of their own; these here need no root.
    command.env("HOLM_SERVER__ROLES", r#"["api"]"#);
    command.current_dir(home).stdin(Stdio::null());
    command
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap())
    }

    pub(crate) fn start_in(folder: TempDir) -> Self {
        Self::start_with(folder, &[])
    }

    pub(crate) fn start_with(folder: TempDir, settings: &[(&str, &str)]) -> Self {
        Self::start_as(folder, &[], settings)
    }

    pub(crate) fn start_as(folder: TempDir, flags: &[&str], settings: &[(&str, &str)]) -> Self {
        let greeting = File::create(folder.path().join("greeting")).unwrap();
        let mut command = holm(folder.path());
        command
            .args(["up", "--data", "data", "--listen", "127.0.0.1:0"])
            .args(flags)
            .stdout(greeting)
            .stderr(Stdio::piped());
        command.envs(settings.iter().copied());
        let mut process = command.spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let start_log = read_until(&mut log, " ready ");
        let address =
            fs::read_to_string(folder.path().join("data/address")).unwrap().trim().to_owned();
        Self { process, log, folder, address, start_log }
    }

    pub(crate) fn greeting(&self) -> String {
        fs::read_to_string(self.folder.path().join("greeting")).unwrap()
    }

    /// Returns the last word of the greeting's line that begins with `what`.
    pub(crate) fn told(&self, what: &str) -> String {
        let greeting = self.greeting();
        let line = greeting.lines().find_map(|line| line.trim().strip_prefix(what)).unwrap();
        line.split_whitespace().last().unwrap().to_owned()
    }

    pub(crate) fn api_key(&self) -> String {
        self.told("API key")
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Runs the command line with the key of the first start.
    pub(crate) fn cli(&self, key: &str, arguments: &[&str]) -> Output {
        let mut command = holm(self.folder.path());
        command.env("HOLM_URL", self.url()).env("HOLM_API_KEY", key).env("HOLM_WORKSPACE", "main");
        command.args(arguments).output().unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> String {
        get(&self.address, path)
    }

    pub(crate) fn signal(&self, name: &str) {
        let done =
            Command::new("kill").args([name, &self.process.id().to_string()]).status().unwrap();
        assert!(done.success());
    }

    /// Lets the server open this many more files than it has open now.
    pub(crate) fn limit_files(&self, more: usize) {
        let process = self.process.id();
        let open = fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
        let limit = format!("--nofile={0}:{0}", open + more);
        let done = Command::new("prlimit").args(["--pid", &process.to_string(), &limit]).status();
        assert!(done.unwrap().success());
    }

    pub(crate) fn read_log_until(&mut self, sign: &str) -> String {
        read_until(&mut self.log, sign)
    }

    /// Waits until it ends. Returns its status, the log since it was ready, and its folder.
    pub(crate) fn wait(mut self) -> (ExitStatus, String, TempDir) {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        let status = self.process.wait().unwrap();
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        (status, rest, folder)
    }

    pub(crate) fn stop(self) -> (ExitStatus, String, TempDir) {
        self.signal("-TERM");
        self.wait()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already ended in most tests; a failed test must not leave it running.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn read_until(log: &mut impl BufRead, sign: &str) -> String {
    let mut read = String::new();
    while !read.contains(sign) {
        assert!(log.read_line(&mut read).unwrap() > 0, "the server ended: {read}");
    }
    read
}

/// Sends a hand-made request, and returns head and body of the answer.
pub(crate) fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Posts JSON with an API key, and returns the JSON of the answer.
pub(crate) fn post(address: &str, path: &str, key: &str, body: &str) -> serde_json::Value {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    let about = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    let by = format!("Authorization: Bearer {key}\r\nX-Blaxel-Workspace: main\r\n");
    write!(stream, "{head}{about}{by}\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 2"), "{answer}");
    serde_json::from_str(body).unwrap()
}

pub(crate) fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    fs::write(&file, text).unwrap();
    file
}

#[track_caller]
pub(crate) fn text(output: &Output, exit: i32) -> String {
    let (said, noted) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(exit), "said: {said}\nnoted: {noted}");
    said.into_owned() + &noted
}
