//! Settings for access to an object service, tried with one that is slow, unresponsive or broken;
//! and when snapshots move there.

use crate::archives::snapshots;
use crate::settings::{end, start};
use crate::setup::{Client, PATIENCE, Place, eventually};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use testing::Holm;

/// Requests for an archived sandbox, each of which carries eight MiB.
const PARTS: usize = 3;
/// How long a put waits for one too many.
const SLOW: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(10);
const EMPTY_LIST: &str = "<?xml version=\"1.0\"?><ListBucketResult><KeyCount>0</KeyCount>\
    <IsTruncated>false</IsTruncated></ListBucketResult>";

#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// Puts wait for others: until there were at least as many at once, from as many snapshots.
    Slow {
        puts: usize,
        snapshots: usize,
    },
    Deaf,
    Broken,
}

/// What was put at the service.
#[derive(Default)]
struct Seen {
    puts: usize,
    /// Puts in progress, by the folder of each snapshot, and the highest number at once.
    under_way: BTreeMap<String, usize>,
    most: usize,
    most_folders: usize,
}

/// A service that keeps nothing.
#[derive(Clone)]
struct Service {
    address: String,
    seen: Arc<Mutex<Seen>>,
}

impl Service {
    fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let service = Self { address, seen: Arc::default() };
        let of = service.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let of = of.clone();
                thread::spawn(move || of.serve(stream.unwrap(), manner));
            }
        });
        service
    }

    /// Serves one request after the other, until the connection ends.
    fn serve(&self, mut stream: TcpStream, manner: Manner) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        loop {
            let (line, length) = head(&mut reader)?;
            let is_put = line.starts_with("PUT ");
            let folder = line.rsplit_once('/')?.0.to_owned();
            if is_put {
                self.begin(&folder);
            }
            std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink()).ok()?;
            if is_put && manner == Manner::Deaf {
                // Until the client goes away.
                let _ = reader.read(&mut [0]);
                return None;
            }
            if is_put && let Manner::Slow { puts, snapshots } = manner {
                self.wait(puts, snapshots);
            }
            if is_put {
                self.end(&folder);
            }
            let (status, body) = match (is_put, manner) {
                (true, Manner::Broken) => ("503 Service Unavailable", ""),
                (true, _) => ("200 OK", ""),
                (false, _) => ("200 OK", EMPTY_LIST),
            };
            let length = body.len();
            let head =
                format!("HTTP/1.1 {status}\r\nETag: \"x\"\r\nContent-Length: {length}\r\n\r\n");
            stream.write_all(head.as_bytes()).ok()?;
            stream.write_all(body.as_bytes()).ok()?;
        }
    }

    fn begin(&self, folder: &str) {
        let mut seen = self.seen.lock();
        seen.puts += 1;
        *seen.under_way.entry(folder.to_owned()).or_default() += 1;
        seen.most = seen.most.max(seen.under_way.values().sum());
        seen.most_folders = seen.most_folders.max(seen.under_way.len());
    }

    /// Waits until two snapshots are or were in transfer at the same time, but no longer than that
    /// may take, unless fewer requests or snapshots than there must be were under way so far.
    fn wait(&self, puts: usize, snapshots: usize) {
        let begun = Instant::now();
        let goes_on = || {
            let seen = self.seen.lock();
            let too_few = seen.most < puts || seen.most_folders < snapshots;
            let longest = if too_few { PATIENCE } else { SLOW };
            seen.most_folders < 2 && begun.elapsed() < longest
        };
        while goes_on() {
            thread::sleep(LOOK_EVERY);
        }
    }

    fn end(&self, folder: &str) {
        let mut seen = self.seen.lock();
        let left = seen.under_way.get_mut(folder).unwrap();
        *left -= 1;
        if *left == 0 {
            seen.under_way.remove(folder);
        }
    }

    fn settings(&self, more: &str) -> String {
        format!(
            "[objects]\nendpoint = \"http://{}\"\nbucket = \"b\"\nkey_id = \"k\"\nsecret = \"s\"\n{more}\n",
            self.address
        )
    }
}

/// Returns the first line of a request, and the length of its body.
fn head(reader: &mut impl BufRead) -> Option<(String, u64)> {
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
    Some((first.split(" HTTP").next()?.to_owned(), length))
}

fn sandboxes(client: &Client, names: &[&str]) {
    let runtime = json!({"runtime": {"memory": 512}});
    for name in names {
        client.create(name, &runtime);
        // Incompressible.
        let bytes = PARTS * 8_000_000;
        client.run(name, &format!("head -c {bytes} /dev/urandom > /noise"));
    }
}

/// Archives all of them at the same time, and waits until that is finished.
fn archive(client: &Client, names: &[&str]) -> Vec<Value> {
    for name in names {
        client.done("POST", &format!("/v0/sandboxes/{name}/archive"), None);
    }
    let settled = |name: &&str| {
        let mut found = Value::Null;
        eventually(&format!("{name} is archived or not"), || {
            found = client.get(name);
            found["status"] != "ARCHIVING"
        });
        found
    };
    names.iter().map(settled).collect()
}

fn begin(manner: Manner, more: &str) -> (Service, (Holm, Place, Client)) {
    let service = Service::start(manner);
    let text = service.settings(&format!("tidy_every = \"1h\"\n{more}"));
    (service, start(&text))
}

#[test]
fn parts_and_snapshots_on_their_way_are_as_many_as_the_settings_say() {
    // The list of a snapshot's parts may be put while parts of the next arrive, so the number of
    // requests is only checked exactly with a single snapshot.
    for (setting, names, parts, folders) in [
        ("parallel = 1", &["a"][..], 1..=1, 1..=1),
        ("", &["a"], 2..=8, 1..=1),
        ("transfers_max = 1", &["a", "b"], 1..=8, 1..=1),
        ("transfers_workspace_max = 1", &["a", "b"], 1..=8, 1..=1),
        ("", &["a", "b"], 2..=8, 2..=2),
    ] {
        let manner = Manner::Slow { puts: *parts.start(), snapshots: *folders.start() };
        let (service, here) = begin(manner, setting);
        sandboxes(&here.2, names);
        for archived in archive(&here.2, names) {
            assert_eq!(archived["status"], "ARCHIVED", "{archived}");
        }
        let (most, most_folders) = {
            let seen = service.seen.lock();
            assert!(seen.puts > PARTS * names.len(), "{} requests", seen.puts);
            (seen.most, seen.most_folders)
        };
        assert!(parts.contains(&most), "{setting}: {most} requests at once");
        assert!(folders.contains(&most_folders), "{setting}: {most_folders} snapshots at once");
        end(here);
    }
}

#[test]
fn a_service_is_given_up_when_the_settings_say() {
    for (manner, setting, tries) in
        [(Manner::Broken, "retries = 2", 3), (Manner::Deaf, "timeout = \"1s\"\nretries = 0", 1)]
    {
        let (service, here) = begin(manner, &format!("parallel = 1\n{setting}"));
        here.2.create("box", &json!({}));
        here.2.run("box", "echo x > /x");
        let begun = Instant::now();
        let kept = archive(&here.2, &["box"]).remove(0);
        assert_eq!(kept["status"], "DEPLOYED", "{kept}");
        assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
        assert_eq!(service.seen.lock().puts, tries, "{setting}");
        end(here);
    }
}

#[test]
fn snapshots_that_nothing_stands_on_go_when_the_settings_say() {
    let service = Service::start(Manner::Slow { puts: 1, snapshots: 1 });
    let text = service.settings("tidy_every = \"200ms\"");
    let here = start(&format!("{text}[snapshots]\noffload_after = \"1s\""));
    let client = &here.2;
    client.create("box", &json!({}));
    client.run("box", "echo x > /x");
    client.done("POST", "/v0/sandboxes/box/snapshots", Some(&json!({"name": "s"})));
    eventually("its files are at the service", || snapshots(here.1.data()) == (0, 1));
    assert!(service.seen.lock().puts > 0);
    end(here);
}
