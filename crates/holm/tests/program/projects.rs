//! Projects on this machine: started from templates, and run.

use crate::common::{holm, text};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A running `holm serve`, which is stopped on drop.
struct Serving {
    process: Child,
    port: u16,
}

impl Serving {
    fn start(folder: &Path, flags: &[&str]) -> Self {
        static PORTS: AtomicU16 = AtomicU16::new(0);
        let port = testing::machine::own().port(PORTS.fetch_add(1, Ordering::Relaxed));
        let mut command = holm(folder);
        // Programs may be found through shims in the home folder of the user who runs the tests.
        let home = std::env::var_os("HOME").unwrap_or_default();
        command.env("HOME", home).env("HOLM_WORKSPACE", "main");
        command.args(["serve", "--port", &port.to_string()]).args(flags);
        let process = command.stderr(Stdio::null()).spawn().unwrap();
        Self { process, port }
    }

    /// Sends a request until the answer satisfies the condition, and returns it.
    fn ask(&self, request: impl AsRef<[u8]>, satisfies: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + PATIENCE;
        let mut answer = String::new();
        loop {
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
                answer.clear();
                // A server that is being replaced breaks connections.
                let sent = stream.write_all(request.as_ref());
                let read = sent.and_then(|()| stream.read_to_string(&mut answer));
                if read.is_ok() && satisfies(&answer) {
                    return answer;
                }
            }
            assert!(Instant::now() < until, "{answer}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn post(&self, path: &str, body: &str) -> String {
        let head = format!("Host: h\r\nConnection: close\r\nContent-Length: {}", body.len());
        self.ask(format!("POST {path} HTTP/1.1\r\n{head}\r\n\r\n{body}"), |answer| {
            !answer.is_empty()
        })
    }

    /// Sends a body without saying how long it is, one byte at a time, so that a character of
    /// several bytes comes in pieces.
    fn post_in_chunks(&self, path: &str, body: &str) -> String {
        let head = "Host: h\r\nConnection: close\r\nTransfer-Encoding: chunked";
        let mut request = format!("POST {path} HTTP/1.1\r\n{head}\r\n\r\n").into_bytes();
        for byte in body.bytes() {
            request.extend_from_slice(&[b'1', b'\r', b'\n', byte, b'\r', b'\n']);
        }
        request.extend_from_slice(b"0\r\n\r\n");
        self.ask(request, |answer| !answer.is_empty())
    }

    fn interrupt(mut self) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        assert_eq!(self.process.wait().unwrap().code(), Some(130));
        let refused = TcpStream::connect(("127.0.0.1", self.port)).is_err();
        assert!(refused, "the program goes on without holm serve");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.process.id().to_string()).status();
        let _ = self.process.wait();
    }
}

fn begin(place: &Path, kind: &str, language: &str) -> std::path::PathBuf {
    let folder = format!("{kind}-{language}");
    let made = holm(place).args(["new", kind, &folder, "--template", language]).output().unwrap();
    text(&made, 0);
    place.join(folder)
}

#[test]
fn every_template_that_answers_does_so() {
    let place = tempfile::tempdir().unwrap();
    for language in ["python", "node"] {
        let agent = Serving::start(&begin(place.path(), "agent", language), &[]);
        let answer = agent.post("/", r#"{"inputs": "hi there"}"#);
        assert!(answer.contains("You said: ") && answer.contains("there"), "{language}: {answer}");
        for body in ["{", "[]", "3", "null"] {
            assert!(agent.post("/", body).starts_with("HTTP/1.1 400"), "{language}: {body}");
        }
        let answer = agent.post_in_chunks("/", r#"{"inputs": "Grüße"}"#);
        assert!(answer.contains("Grüße"), "{language}: {answer}");
        agent.interrupt();

        let tools = Serving::start(&begin(place.path(), "function", language), &[]);
        let listed = tools.post("/mcp", r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}"#);
        assert!(listed.contains("greet"), "{language}: {listed}");
        let call = r#"{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "greet", "arguments": {"name": "Ann"}}}"#;
        assert!(tools.post("/mcp", call).contains("Hello, Ann!"), "{language}");
        for body in ["{", "[]", "3", "null", "{}"] {
            assert!(tools.post("/mcp", body).starts_with("HTTP/1.1 400"), "{language}: {body}");
        }
        let told = tools.post_in_chunks("/mcp", &call.replace("Ann", "Grüße"));
        let told = &told[told.find('{').unwrap()..=told.rfind('}').unwrap()];
        let told: serde_json::Value = serde_json::from_str(told).unwrap();
        assert_eq!(told["result"]["content"][0]["text"], "Hello, Grüße!", "{language}: {told}");
        let gone = tools.post("/mcp", r#"{"jsonrpc": "2.0", "id": 3, "method": "x"}"#);
        assert!(gone.contains("-32601"), "{language}: {gone}");
        tools.interrupt();

        let page = Serving::start(&begin(place.path(), "application", language), &[]);
        let answer = page
            .ask("GET /<b> HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", |text| {
                !text.is_empty()
            });
        assert!(!answer.contains("<b>") && answer.contains("<title>application-"), "{answer}");
        page.interrupt();
    }
}

#[test]
fn a_task_gets_its_arguments() {
    let place = tempfile::tempdir().unwrap();
    for (language, program, file) in [("python", "python3", "main.py"), ("node", "node", "main.js")]
    {
        let folder = begin(place.path(), "job", language);
        let ran = Command::new(program).arg(folder.join(file)).args(["--city", "Bonn"]).output();
        let told = text(&ran.unwrap(), 0);
        assert!(told.contains("task 0:") && told.contains("Bonn"), "{told}");
    }
}

#[test]
fn a_change_starts_the_program_again_with_its_variables() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("app");
    fs::create_dir(&folder).unwrap();
    let manifest = "name = 'shop'\ntype = 'agent'\n[env]\nMODE = '${secrets.SPEED}'\n[entrypoint]\ndev = 'python3 it.py'";
    fs::write(folder.join("blaxel.toml"), manifest).unwrap();
    fs::write(folder.join(".env"), "SPEED=fast\nBL_API_KEY=s3cret").unwrap();
    // Its children have to end with it.
    let program = |word: &str| {
        format!(
            "import os, subprocess, http.server as h\n\
             subprocess.Popen(['sleep', '1000'])\n\
             class H(h.BaseHTTPRequestHandler):\n\
             \x20   def do_GET(self):\n\
             \x20       e = os.environ\n\
             \x20       self.send_response(200); self.end_headers()\n\
             \x20       self.wfile.write(f\"{word} {{e['MODE']}} {{e['BL_NAME']}} {{e['BL_TYPE']}} {{e['BL_WORKSPACE']}} {{e['BL_HOTRELOAD']}} {{e.get('BL_API_KEY')}} {{os.getpgid(0)}}\".encode())\n\
             h.HTTPServer((os.environ['HOST'], int(os.environ['PORT'])), H).serve_forever()\n"
        )
    };
    fs::write(folder.join("it.py"), program("first")).unwrap();
    let serving = Serving::start(&folder, &["--watch"]);
    let request = "GET / HTTP/1.0\r\n\r\n";
    let answer = serving.ask(request, |answer| answer.contains("first"));
    assert!(answer.contains("first fast shop agent main true None "), "{answer}");
    let group = |answer: &str| answer.split_whitespace().last().unwrap().to_owned();
    let first = group(&answer);
    fs::write(folder.join("it.py"), program("second")).unwrap();
    let second = group(&serving.ask(request, |answer| answer.contains("second")));
    assert!(!is_alive(&first) && is_alive(&second));
    serving.interrupt();
    assert!(!is_alive(&second), "what the program started goes on");
}

/// Returns whether a process group has any processes.
fn is_alive(group: &str) -> bool {
    Command::new("kill")
        .args(["-0", "--", &format!("-{group}")])
        .stderr(Stdio::null())
        .status()
        .unwrap()
        .success()
}

#[test]
fn the_end_of_the_program_is_the_end() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("blaxel.toml"), "[entrypoint]\nprod = 'echo $PORT; exit 7'")
        .unwrap();
    let mut running =
        holm(place.path()).args(["serve", "-p", "4321"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!((line.as_str(), running.wait().unwrap().code()), ("4321\n", Some(7)));
    let taken = holm(place.path()).args(["new", "agent", "."]).output().unwrap();
    text(&taken, 2);
}
