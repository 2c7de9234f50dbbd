//! Tests that whatever a hostile instance does, no server does anything for it under a forbidden
//! name.

use super::servers::{Server, Told, asked_for};
use super::*;
use crate::hello::tests::{real, split};
use std::sync::atomic::{AtomicUsize, Ordering};

const SHARED: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 3);
/// For each kind of list.
const CASES: usize = 5000;
const AT_ONCE: usize = 32;

/// Pseudo-random numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.roll(of.len())]
    }
}

/// The names under which servers were used.
#[derive(Default)]
struct Served {
    allowed: AtomicUsize,
    forbidden: Mutex<Vec<String>>,
}

/// Starts a server that goes by the name it is asked for. With `by_address`, a connection to
/// `ELSEWHERE` without a name counts as one to the forbidden name.
async fn server(address: SocketAddrV4, served: Arc<Served>, by_address: bool) -> Server {
    Server::with(address, move |mut stream: TcpStream| {
        let served = Arc::clone(&served);
        async move {
            let mut first = Vec::new();
            let mut buffer = [0; 4096];
            // Until something was said by which the server could choose.
            while asked_for(&first) == "-" && first.len() < 8192 {
                match stream.read(&mut buffer).await {
                    Ok(0) | Err(_) => break,
                    Ok(count) => first.extend_from_slice(&buffer[..count]),
                }
            }
            let name = match (asked_for(&first), *address.ip()) {
                (name, _) if name != "-" => name,
                (_, ELSEWHERE) if by_address => "bad.example".to_owned(),
                _ => "-".to_owned(),
            };
            if name == "bad.example" || *address.ip() == INSIDE {
                let first = String::from_utf8_lossy(&first).into_owned();
                served.forbidden.lock().push(format!("{address}: {first:?}"));
            } else if !first.is_empty() {
                served.allowed.fetch_add(1, Ordering::Relaxed);
            }
            let _ = stream.write_all(b"done").await;
        }
    })
    .await
}

fn first_bytes(dice: &mut Dice) -> Vec<u8> {
    let name = *dice.pick(&["ok.example", "bad.example", "bad.example", "x.bad.example"]);
    match dice.roll(8) {
        0 | 1 => real(name),
        2 => split(&real(name), 1 + dice.roll(60)),
        3 => real("192.0.2.7"),
        4 => {
            let mut bytes = real(name);
            let at = dice.roll(bytes.len());
            bytes[at] = bytes[at].wrapping_add(1 + u8::try_from(dice.roll(254)).unwrap());
            bytes
        }
        5 => {
            let begin = *dice.pick(&["GET / HTTP/1.1", "\r\nGET / HTTP/1.1", "get\t/\thttp/1.0"]);
            let field = *dice.pick(&["Host: ", "host:", "HOST:  ", "Host:\t"]);
            let tail = *dice.pick(&["", ".", ":80"]);
            format!("{begin}\r\n{field}{name}{tail}\r\nConnection: close\r\n\r\n").into_bytes()
        }
        6 => b"SSH-2.0-me\r\n".to_vec(),
        _ => (0..dice.roll(80)).map(|_| u8::try_from(dice.roll(256)).unwrap()).collect(),
    }
}

struct Case {
    by_proxy: Option<String>,
    asks_for: Option<&'static str>,
    to: Ipv4Addr,
    bytes: Vec<u8>,
    cut_at: usize,
    waits: bool,
}

impl Case {
    fn new(dice: &mut Dice, port: u16) -> Self {
        let hosts = [
            "ok.example",
            "bad.example",
            "BAD.example.",
            "127.1.0.2",
            "2130771970",
            "127.65538",
            "0x7f010002",
            "0177.1.0.2",
            "[::ffff:127.1.0.2]",
            "[::ffff:7f01:2]",
            "127.2.0.1",
            "turns.example",
            "inside.example",
        ];
        let host = *dice.pick(&hosts);
        let bytes = first_bytes(dice);
        Self {
            by_proxy: (dice.roll(4) == 0).then(|| format!("{host}:{port}")),
            asks_for: *dice.pick(&[
                None,
                Some("ok.example"),
                Some("bad.example"),
                Some("turns.example"),
            ]),
            to: *dice.pick(&[OUT_THERE, ELSEWHERE, SHARED, INSIDE]),
            cut_at: dice.roll(bytes.len() + 1),
            bytes,
            waits: dice.roll(16) == 0,
        }
    }

    async fn run(self, net: &Net, port: u16) {
        if let Some(name) = self.asks_for {
            net.resolve(ONE, name).await;
        }
        match &self.by_proxy {
            Some(target) => {
                let (mut stream, head) = net.connect(target).await;
                if head.starts_with("http/1.1 200") {
                    self.say(&mut stream).await;
                }
            }
            None => {
                let to = SocketAddrV4::new(self.to, port);
                if let Ok(mut stream) = net.try_divert(ONE, to).await {
                    self.say(&mut stream).await;
                }
            }
        }
    }

    async fn say(&self, stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
        let (first, second) = self.bytes.split_at(self.cut_at);
        let _ = stream.write_all(first).await;
        let _ = stream.flush().await;
        if self.waits {
            tokio::time::sleep(Duration::from_millis(8)).await;
        }
        let _ = stream.write_all(second).await;
        let _ = stream.shutdown().await;
        hear(stream).await;
    }
}

/// With a list of what is allowed, an address that is not allowed counts as its name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_is_not_allowed_is_reached() {
    nothing_passes(rules(&["ok.example", "turns.example"], &[]), true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_reached_by_a_forbidden_name() {
    nothing_passes(rules(&[], &["bad.example"]), false).await;
}

/// Without this, the other tests would prove nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_rules_it_would_pass() {
    let served = try_all(EgressRules::default(), true, 500).await;
    let forbidden = served.forbidden.lock();
    assert!(forbidden.len() > 50, "{}", forbidden.len());
    let is_inside = |seen: &String| seen.starts_with(&INSIDE.to_string());
    assert!(!forbidden.iter().any(is_inside), "{forbidden:?}");
}

async fn nothing_passes(rules: EgressRules, by_address: bool) {
    let served = try_all(rules, by_address, CASES).await;
    let forbidden = served.forbidden.lock();
    assert!(forbidden.is_empty(), "{} times: {:?}", forbidden.len(), forbidden.first());
    // Also check that what is allowed did pass.
    let allowed = served.allowed.load(Ordering::Relaxed);
    assert!(allowed > CASES / 50, "{allowed}");
}

async fn try_all(rules: EgressRules, by_address: bool, cases: usize) -> Arc<Served> {
    let fast =
        Limits { silence: Duration::from_millis(4), hello: Duration::from_millis(300), ..limits() };
    let net = Arc::new(Net::with(fast, None).await);
    net.names.tell("ok.example", Told::Addresses(vec![OUT_THERE, SHARED]));
    net.names.tell("bad.example", Told::Addresses(vec![ELSEWHERE, SHARED]));
    net.names.tell("x.bad.example", Told::Addresses(vec![ELSEWHERE, SHARED]));
    net.names.tell("inside.example", Told::Addresses(vec![INSIDE]));
    // It is on the internet when it is asked for, and inside when it is connected to.
    net.names.tell("turns.example", Told::Changing(vec![SHARED], vec![INSIDE]));
    net.set(ONE, rules).await;
    let served = Arc::new(Served::default());
    let first = SocketAddrV4::new(OUT_THERE, 0);
    let first = server(first, Arc::clone(&served), by_address).await;
    let mut servers = Vec::new();
    for address in [ELSEWHERE, SHARED, INSIDE] {
        let address = SocketAddrV4::new(address, first.port());
        servers.push(server(address, Arc::clone(&served), by_address).await);
    }
    let mut dice = Dice(14);
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..cases {
        let case = Case::new(&mut dice, first.port());
        let (net, port) = (Arc::clone(&net), first.port());
        running.spawn(async move { case.run(&net, port).await });
        if running.len() >= AT_ONCE {
            running.join_next().await.unwrap().unwrap();
        }
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
    served
}
