//! Two servers on one PostgreSQL, with concurrent writers on a few objects.

use crate::client::{Answer, Client};
use crate::history::{self, Act, What};
use crate::setup::{Chances, Database, Place, is_long, times};
use crate::watcher::{Mark, Watcher};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

const OBJECTS: [&str; 3] = ["apple", "pear", "plum"];
const CALLERS: u64 = 6;
/// According to the documentation, a server looks for other servers' writes every 250 ms. The short
/// form runs beside other tests.
const REVOKED_WITHIN: Duration = Duration::from_secs(2);
const REVOKED_WITHIN_CROWDED: Duration = Duration::from_secs(20);

fn body(name: &str, value: &str) -> Value {
    let runtime =
        json!({"image": "blaxel/base-image:latest", "envs": [{"name": "VALUE", "value": value}]});
    json!({"metadata": {"name": name, "labels": {"value": value}}, "spec": {"runtime": runtime}})
}

fn value_of(object: &Value) -> &str {
    let value = object["metadata"]["labels"]["value"].as_str().unwrap();
    assert_eq!(object["spec"]["runtime"]["envs"][0]["value"], value, "half made: {object}");
    value
}

#[test]
fn writers_on_two_servers_see_one_history_and_watchers_miss_nothing() {
    let (chances, mut place) = (Chances::new(), Place::new(Database::Postgres));
    let [(_a, to_a), (_b, to_b)] = place.start_two();
    let mark = Mark::named("the-end");
    let watchers: Vec<_> = [&to_a, &to_b]
        .map(|client| Watcher::start(client.clone(), 0, chances.of(100), &mark))
        .into();
    for name in OBJECTS {
        to_a.post("/agents", &body(name, "first"));
    }
    let acts = times(60, 2000);
    let callers = (0..CALLERS).map(|caller| {
        let client = if caller % 2 == 0 { to_a.clone() } else { to_b.clone() };
        let chances = chances.of(caller);
        thread::spawn(move || {
            Caller { client, number: caller, chances, acts: BTreeMap::new() }.act(acts)
        })
    });
    let mut histories: BTreeMap<&str, Vec<Act>> = BTreeMap::new();
    for caller in callers.collect::<Vec<_>>() {
        for (name, mut acts) in caller.join().expect("the caller was answered as it must be") {
            histories.entry(name).or_default().append(&mut acts);
        }
    }
    mark.put(&to_b);
    let seen: Vec<_> = watchers.into_iter().map(Watcher::finish).collect();
    assert_eq!(seen[0], seen[1], "two watchers saw different histories");
    for (name, acts) in histories {
        history::check("first", &acts).unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
        let writes = acts.iter().filter(|act| act.what == What::Write).count();
        assert_eq!(
            seen[0].version("agent", name),
            Some(1 + writes as i64),
            "{name}: a write is lost, or not ours"
        );
    }
}

struct Caller {
    client: Client,
    number: u64,
    chances: fastrand::Rng,
    acts: BTreeMap<&'static str, Vec<Act>>,
}

impl Caller {
    fn act(mut self, acts: usize) -> BTreeMap<&'static str, Vec<Act>> {
        for act in 0..acts {
            let name = OBJECTS[self.chances.usize(..OBJECTS.len())];
            let value = format!("{}-{act}", self.number);
            match self.chances.u8(..3) {
                0 => drop(self.read(name)),
                1 => drop(self.write(name, &value, None)),
                _ => self.change(name, &value),
            }
        }
        self.acts
    }

    /// Reads and writes back with an addition, until no other write comes in between.
    fn change(&mut self, name: &'static str, value: &str) {
        let (mut version, mut tries) = (self.read(name), 0);
        while !self.write(name, &format!("{value}-{tries}"), Some(version)) {
            (version, tries) = (self.read(name), tries + 1);
        }
    }

    fn read(&mut self, name: &'static str) -> i64 {
        let begun = Instant::now();
        match self.client.ask("GET", &format!("/agents/{name}"), None, None) {
            Answer::Done { body, version } => {
                self.note(name, What::Read, value_of(&body), version, begun)
            }
            other => panic!("GET {name}: {other:?}"),
        }
    }

    /// Returns whether it was written; only a conflict may prevent it.
    fn write(&mut self, name: &'static str, value: &str, seen: Option<i64>) -> bool {
        let begun = Instant::now();
        match self.client.ask("PUT", &format!("/agents/{name}"), Some(&body(name, value)), seen) {
            Answer::Done { version, body } => {
                assert_eq!(value_of(&body), value);
                assert!(
                    seen.is_none_or(|seen| version == seen + 1),
                    "a write came in between {seen:?} and {version}"
                );
                self.note(name, What::Write, value, version, begun);
                true
            }
            Answer::Refused { status: 409 | 412, .. } if seen.is_some() => false,
            other => panic!("PUT {name}: {other:?}"),
        }
    }

    fn note(
        &mut self,
        name: &'static str,
        what: What,
        value: &str,
        version: i64,
        begun: Instant,
    ) -> i64 {
        let act = Act { what, value: value.to_owned(), version, begun, ended: Instant::now() };
        self.acts.entry(name).or_default().push(act);
        version
    }
}

#[test]
fn counting_on_two_servers_loses_no_count() {
    let mut place = Place::new(Database::Postgres);
    let [(_a, to_a), (_b, to_b)] = place.start_two();
    to_a.post("/agents", &body("counter", "0"));
    let counts = times(15, 500);
    let counters: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let client = if caller % 2 == 0 { to_a.clone() } else { to_b.clone() };
            thread::spawn(move || (0..counts).for_each(|_| count(&client)))
        })
        .collect();
    counters
        .into_iter()
        .for_each(|counter| counter.join().expect("the counter was answered as it must be"));
    for client in [&to_a, &to_b] {
        assert_eq!(
            value_of(&client.get("/agents/counter")),
            (CALLERS as usize * counts).to_string()
        );
    }
}

/// Adds one, trying as often as necessary.
fn count(client: &Client) {
    loop {
        let Answer::Done { body: object, version } =
            client.ask("GET", "/agents/counter", None, None)
        else {
            panic!("the counter is there");
        };
        let next = value_of(&object).parse::<u64>().unwrap() + 1;
        match client.ask(
            "PUT",
            "/agents/counter",
            Some(&body("counter", &next.to_string())),
            Some(version),
        ) {
            Answer::Done { .. } => return,
            Answer::Refused { status: 409 | 412, .. } => {}
            other => panic!("PUT counter: {other:?}"),
        }
    }
}

#[test]
fn a_name_is_given_once_among_two_servers() {
    let mut place = Place::new(Database::Postgres);
    let [(_a, to_a), (_b, to_b)] = place.start_two();
    for round in 0..times(20, 500) {
        let name = format!("wanted-{round}");
        let (client, wish) = (to_b.clone(), body(&name, "b"));
        let rival = thread::spawn(move || client.ask("POST", "/agents", Some(&wish), None));
        let ours = to_a.ask("POST", "/agents", Some(&body(&name, "a")), None);
        let theirs = rival.join().unwrap();
        let winner = match (&ours, &theirs) {
            (Answer::Done { .. }, Answer::Refused { status: 409, .. }) => "a",
            (Answer::Refused { status: 409, .. }, Answer::Done { .. }) => "b",
            both => panic!("{both:?}"),
        };
        assert_eq!(value_of(&to_a.get(&format!("/agents/{name}"))), winner);
    }
}

#[test]
fn a_key_revoked_on_one_server_stops_on_the_other() {
    let mut place = Place::new(Database::Postgres);
    let [(_a, to_a), (_b, to_b)] = place.start_two();
    let revoked_within = if is_long() { REVOKED_WITHIN } else { REVOKED_WITHIN_CROWDED };
    for round in 0..times(3, 50) {
        let key = to_a.post("/api_keys", &json!({"name": format!("short-lived-{round}")}));
        let stranger = to_b.with_key(key["apiKey"].as_str().unwrap());
        stranger.get("/quotas");
        let revoked =
            to_a.ask("DELETE", &format!("/api_keys/{}", key["id"].as_str().unwrap()), None, None);
        assert!(matches!(revoked, Answer::Done { .. }), "{revoked:?}");
        let begun = Instant::now();
        while !matches!(
            stranger.ask("GET", "/quotas", None, None),
            Answer::Refused { status: 401, .. }
        ) {
            assert!(begun.elapsed() < revoked_within, "the key still works on the other server");
        }
    }
}
