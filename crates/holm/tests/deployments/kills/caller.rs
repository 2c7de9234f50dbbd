//! Calls an agent asynchronously. Each accepted call must reach the agent's program and, if its
//! trigger has a callback, the program's answer must be delivered with a signature, however often
//! the server is killed in between.

use super::agent::{Agent, Known, Lost, good};
use super::{Actor, pause};
use crate::place::{PATIENCE, eventually};
use crate::web::Web;
use crate::wishes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

const PAUSE_MS_MAX: u64 = 200;
/// One in this many callbacks is refused, so that it is sent again.
const REFUSED_EVERY: usize = 5;
/// More lines than an agent prints between two looks.
const LINES: usize = 1000;
const GOT: &str = "got ";
/// Prints the body of each request and answers with it, also at its root.
const ECHOES: &str = r#"mkdir -p /srv/cgi-bin
cat > /srv/cgi-bin/index.cgi <<'END'
#!/bin/sh
body=$(cat)
echo "got $body" >&2
printf 'Content-Type: text/plain\r\n\r\n%s' "$body"
END
chmod 755 /srv/cgi-bin/index.cgi
exec httpd -f -p $PORT -h /srv"#;

pub(super) struct Caller {
    agent: Agent,
    chances: fastrand::Rng,
    receiver: Receiver,
    count: u64,
    /// Accepted calls not yet seen by the program.
    on_their_way: BTreeSet<u64>,
    /// Accepted calls for which a callback is expected.
    to_be_told: BTreeSet<u64>,
    pub(super) accepted: usize,
}

impl Caller {
    pub(super) fn new(chances: fastrand::Rng) -> Self {
        Self {
            agent: Agent::new("called".to_owned()),
            chances,
            receiver: Receiver::start(),
            count: 0,
            on_their_way: BTreeSet::new(),
            to_be_told: BTreeSet::new(),
            accepted: 0,
        }
    }

    /// Creates the agent. The answer contains the secret of its callbacks.
    pub(super) fn deploy(&mut self, web: &Web) {
        let mut wish = wishes::agent(&self.agent.name, ECHOES);
        let url = format!("http://{}:{}/", own_name(), self.receiver.address.port());
        let set = json!({"path": "/later", "callbackUrl": url});
        wish["spec"]["triggers"] =
            json!([{"id": "later", "type": "http-async", "configuration": set}]);
        let made = self.agent.put(web, &wish, "").ok().expect("nobody killed the server").json();
        let secret = made["spec"]["triggers"][0]["configuration"]["callbackSecret"].as_str();
        self.receiver.told.lock().unwrap().secret = secret.expect("a secret").to_owned();
        assert_eq!(self.agent.rest(web).expect("it is there")["status"], "DEPLOYED");
    }

    fn call(&mut self, web: &Web) -> Result<(), Lost> {
        self.count += 1;
        let (body, is_told) = (json!({"n": self.count}), self.chances.bool());
        let path = if is_told { "/main/later" } else { "/main/agents/called/?async=true" };
        let answer = good("a call", web.member("POST", path, Some(&body)))?;
        assert_eq!(answer.json(), json!({"success": true}));
        self.on_their_way.insert(self.count);
        if is_told {
            self.to_be_told.insert(self.count);
        }
        self.accepted += 1;
        Ok(())
    }

    /// Returns the calls that the program has printed.
    fn arrived(&self, web: &Web) -> BTreeSet<u64> {
        let query = format!("resourceType=agents&workloadIds=called&limit={LINES}");
        let path = format!("/v0/observability/logs?{query}");
        let logs = web.member("GET", &path, None).expect("nobody killed the server").json();
        let lines = logs["called"]["logs"].as_array().unwrap().iter();
        let lines = lines.filter_map(|line| line["message"].as_str()?.strip_prefix(GOT));
        lines.map(number).collect()
    }
}

/// Returns the name of this machine. An inside address as such is refused as a callback address,
/// even if the settings allow it.
pub(super) fn own_name() -> String {
    rustix::system::uname().nodename().to_str().unwrap().to_owned()
}

fn number(body: &str) -> u64 {
    let body: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("`{body}` was called"));
    body["n"].as_u64().expect("a number")
}

impl Actor for Caller {
    fn act(&mut self, web: &Web, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            if self.call(web).is_err() {
                return;
            }
            pause(&mut self.chances, PAUSE_MS_MAX);
        }
    }

    fn rest(&mut self, web: &Web) -> Result<usize, String> {
        eventually("all calls are made", || {
            let arrived = self.arrived(web);
            self.on_their_way.retain(|number| !arrived.contains(number));
            self.on_their_way.is_empty()
        });
        self.receiver.judge().map(|()| 1)
    }

    fn end(&mut self, web: &Web) {
        // A callback in progress when the server was killed is sent again after a while.
        eventually("all callbacks come", || {
            let told = self.receiver.told.lock().unwrap();
            self.to_be_told.iter().all(|number| told.deliveries.contains_key(number))
        });
        self.receiver.judge().unwrap();
        if self.agent.known != Known::Gone {
            good("DELETE", web.member("DELETE", &self.agent.path(), None)).ok();
            self.agent.known = Known::Gone;
        }
    }
}

/// Receiver of callbacks. It lives on when the server is killed.
struct Receiver {
    address: SocketAddr,
    told: Arc<Mutex<Told>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Told {
    secret: String,
    requests: usize,
    /// Ids of the deliveries for each call.
    deliveries: BTreeMap<u64, BTreeSet<String>>,
    wrong: Vec<String>,
}

impl Receiver {
    fn start() -> Self {
        let name = own_name();
        let listener = TcpListener::bind((name.as_str(), 0)).expect("this machine knows its name");
        let address = listener.local_addr().unwrap();
        let (told, over) = (Arc::<Mutex<Told>>::default(), Arc::<AtomicBool>::default());
        let (of, until) = (Arc::clone(&told), Arc::clone(&over));
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if until.load(Ordering::SeqCst) {
                    return;
                }
                // A server that was killed breaks off in the middle.
                let _ = stream.and_then(|stream| of.lock().unwrap().receive(&stream));
            }
        });
        Self { address, told, over, thread: Some(thread) }
    }

    /// Checks that nothing came unsigned, and that no call led to two different callbacks.
    fn judge(&self) -> Result<(), String> {
        let told = self.told.lock().unwrap();
        if let Some(wrong) = told.wrong.first() {
            return Err(format!("a callback is not what it should be: {wrong}"));
        }
        match told.deliveries.iter().find(|(_, ids)| ids.len() > 1) {
            Some((number, ids)) => Err(format!("call {number} was told of as {ids:?}")),
            None => Ok(()),
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Wakes the thread, so that it sees the flag.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Told {
    fn receive(&mut self, stream: &TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let (headers, body) = read(stream)?;
        self.requests += 1;
        let is_refused = self.requests.is_multiple_of(REFUSED_EVERY);
        if !is_refused && let Err(wrong) = self.take(&headers, &body) {
            self.wrong.push(format!("{wrong}: {headers:?} {}", String::from_utf8_lossy(&body)));
        }
        let status = if is_refused { "503 Service Unavailable" } else { "200 OK" };
        let mut stream = stream;
        write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    }

    fn take(&mut self, headers: &BTreeMap<String, String>, body: &[u8]) -> Result<(), String> {
        let header = |name| headers.get(name).ok_or_else(|| format!("{name} is missing"));
        let mut mac = Hmac::<Sha256>::new_from_slice(self.secret.as_bytes()).unwrap();
        mac.update(body);
        let hex: String =
            mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        for name in ["x-blaxel-signature", "x-service-signature"] {
            if *header(name)? != format!("sha256={hex}") {
                return Err(format!("{name} is wrong"));
            }
        }
        let told: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        if told["status_code"] != 200 {
            return Err("the call failed".to_owned());
        }
        let number = number(told["response_body"].as_str().unwrap_or_default());
        let delivery = header("x-service-delivery-id")?.clone();
        self.deliveries.entry(number).or_default().insert(delivery);
        Ok(())
    }
}

/// Reads one request: its headers, with names in lower case, and its body.
fn read(stream: &TcpStream) -> io::Result<(BTreeMap<String, String>, Vec<u8>)> {
    let mut reader = BufReader::new(stream);
    let (mut headers, mut line) = (BTreeMap::new(), String::new());
    reader.read_line(&mut line)?;
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok());
    let length = length.ok_or_else(|| io::Error::other("a body without its length"))?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok((headers, body))
}
