//! A watcher of the change stream that loses its connection over and over.

use crate::client::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::thread::{self, JoinHandle};

/// Most events before a connection is closed.
const EVENTS_PER_CONNECTION: u64 = 40;

/// An object whose creation tells watchers that they have seen everything before it.
pub(crate) struct Mark {
    name: String,
}

impl Mark {
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    /// Sets a mark after everything else is done.
    pub(crate) fn set(client: &Client, name: &str) -> Self {
        let mark = Self::named(name);
        mark.put(client);
        mark
    }

    pub(crate) fn put(&self, client: &Client) {
        let spec =
            json!({"type": "location", "locations": [{"type": "location", "name": "local"}]});
        client.post("/policies", &json!({"metadata": {"name": self.name}, "spec": spec}));
    }
}

/// What a watcher has seen: the changes of each object, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    changes: BTreeMap<(String, String), Vec<(String, i64)>>,
    last: i64,
}

pub(crate) struct Watcher(JoinHandle<Seen>);

impl Watcher {
    /// Watches from a revision until the mark appears.
    pub(crate) fn start(
        client: Client,
        after: i64,
        mut chances: fastrand::Rng,
        mark: &Mark,
    ) -> Self {
        let mark = mark.name.clone();
        Self(thread::spawn(move || {
            let mut seen = Seen { last: after, ..Seen::default() };
            while !seen.watch_until(&client, chances.u64(1..EVENTS_PER_CONNECTION), &mark) {}
            seen
        }))
    }

    pub(crate) fn finish(self) -> Seen {
        self.0.join().expect("the watcher has seen nothing wrong")
    }
}

impl Seen {
    /// Reads some events on one connection; `true` once the mark has appeared.
    fn watch_until(&mut self, client: &Client, events: u64, mark: &str) -> bool {
        // If the server is not back yet, the caller tries again.
        let Ok(stream) = client.changes(self.last) else { return false };
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        let data = lines.filter_map(|line| line.strip_prefix("data: ").map(str::to_owned));
        for data in data.take(usize::try_from(events).unwrap_or(usize::MAX)) {
            let change: Value = serde_json::from_str(&data).unwrap();
            self.note(&change);
            if change["name"] == mark {
                return true;
            }
        }
        false
    }

    fn note(&mut self, change: &Value) {
        let revision = change["revision"].as_i64().unwrap();
        assert!(revision > self.last, "revision {revision} came after {}", self.last);
        self.last = revision;
        let text = |member: &str| change[member].as_str().unwrap().to_owned();
        let (act, version) = (text("act"), change["version"].as_i64().unwrap());
        let history = self.changes.entry((text("kind"), text("name"))).or_default();
        let expected = match history.last() {
            Some((last, version)) if last != "deleted" => *version + 1,
            _ => 1,
        };
        let follows = match act.as_str() {
            "created" => version == 1 && expected == 1,
            "updated" => version == expected,
            "deleted" => version + 1 == expected,
            _ => false,
        };
        assert!(follows, "{change} does not follow {history:?}");
        history.push((act, version));
    }

    /// Returns the sorted names of a kind's objects that exist at the end.
    pub(crate) fn present(&self, kind: &str) -> Vec<&str> {
        let left = self.changes.iter().filter(|((of, _), changes)| {
            of == kind && changes.last().is_some_and(|(act, _)| act != "deleted")
        });
        left.map(|((_, name), _)| name.as_str()).collect()
    }

    /// Returns an object's version at the end.
    pub(crate) fn version(&self, kind: &str, name: &str) -> Option<i64> {
        let changes = self.changes.get(&(kind.to_owned(), name.to_owned()))?;
        changes.last().map(|(_, version)| *version)
    }
}
