//! Writers that know what must exist, and the check that it does.
//!
//! Each writer owns its objects and has one open request at a time, so exactly what was
//! acknowledged must be found. Only for the request that was open when something broke, both
//! outcomes are right.

use crate::client::{Answer, Client};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub(crate) const POLICY: &str = "even-rounds";
const OBJECTS: usize = 5;
const REVISIONS_MAX: usize = 7;

/// The round that last wrote an object; `None` if it does not exist.
type State = Option<u64>;

pub(crate) struct Writer {
    client: Client,
    chances: fastrand::Rng,
    round: u64,
    objects: BTreeMap<String, State>,
    /// The object whose last request was not answered, with the state that the request asked for.
    open: Option<(String, State)>,
}

/// Makes what the writers' objects refer to.
pub(crate) fn prepare(client: &Client) {
    let spec = json!({"type": "location", "locations": [{"type": "location", "name": "local"}]});
    client.post("/policies", &json!({"metadata": {"name": POLICY}, "spec": spec}));
}

/// Returns an object in which every part contains the round that wrote it.
fn body(name: &str, round: u64) -> Value {
    let policies = if round.is_multiple_of(2) { json!([POLICY]) } else { json!([]) };
    json!({
        "metadata": {"name": name, "displayName": format!("round {round}"), "labels": {"round": round.to_string()}},
        "spec": {
            "policies": policies,
            "runtime": {"image": format!("blaxel/base-image:{round}"), "envs": [{"name": "ROUND", "value": round.to_string()}]},
        },
    })
}

/// Returns an object's round; all its parts must agree.
fn round_of(object: &Value) -> u64 {
    let round = object["metadata"]["labels"]["round"].as_str().unwrap().parse().unwrap();
    let expected = body(object["metadata"]["name"].as_str().unwrap(), round);
    assert_eq!(
        object["metadata"]["displayName"], expected["metadata"]["displayName"],
        "half made: {object}"
    );
    assert_eq!(
        object["spec"]["runtime"]["image"], expected["spec"]["runtime"]["image"],
        "half made: {object}"
    );
    assert_eq!(
        object["spec"]["runtime"]["envs"], expected["spec"]["runtime"]["envs"],
        "half made: {object}"
    );
    assert_eq!(uses_policy(object), round % 2 == 0, "half made: {object}");
    round
}

fn uses_policy(object: &Value) -> bool {
    object["spec"]["policies"].as_array().is_some_and(|policies| !policies.is_empty())
}

impl Writer {
    pub(crate) fn new(number: usize, client: &Client, chances: fastrand::Rng) -> Self {
        let objects =
            (0..OBJECTS).map(|object| (format!("writer-{number}-{object}"), None)).collect();
        Self { client: client.clone(), chances, round: 0, objects, open: None }
    }

    /// Continues with another server.
    pub(crate) fn turn_to(&mut self, client: &Client) {
        self.client = client.clone();
    }

    /// Writes until it is stopped or an answer is lost. Counts acknowledged writes.
    pub(crate) fn write_until(&mut self, stop: &AtomicBool, acknowledged: &AtomicUsize) {
        while !stop.load(Ordering::Relaxed) && self.open.is_none() {
            match self.write_once() {
                Answer::Done { .. } => drop(acknowledged.fetch_add(1, Ordering::Relaxed)),
                Answer::Lost => {}
                refused @ Answer::Refused { .. } => {
                    panic!("a right request was refused: {refused:?}")
                }
            }
        }
    }

    /// Sends one write. If it is not acknowledged, both outcomes are possible and `open` remembers
    /// it.
    pub(crate) fn write_once(&mut self) -> Answer {
        let chosen = self.chances.usize(..self.objects.len());
        let (name, state) =
            self.objects.iter().nth(chosen).map(|(name, state)| (name.clone(), *state)).unwrap();
        self.round += 1;
        let (path, round) = (format!("/agents/{name}"), self.round);
        let (method, path, next) = match state {
            None => ("POST", "/agents", Some(round)),
            Some(_) if self.chances.u8(..4) == 0 => ("DELETE", path.as_str(), None),
            Some(_) => ("PUT", path.as_str(), Some(round)),
        };
        let wish = next.map(|round| body(&name, round));
        let answer = self.client.ask(method, path, wish.as_ref(), None);
        match &answer {
            Answer::Done { .. } => drop(self.objects.insert(name, next)),
            Answer::Lost | Answer::Refused { .. } => self.open = Some((name, next)),
        }
        answer
    }

    pub(crate) fn has_open_request(&self) -> bool {
        self.open.is_some()
    }

    /// Finds out the outcome of the open request; `false` if the server cannot say.
    pub(crate) fn resolve(&mut self) -> bool {
        let Some((name, next)) = self.open.clone() else { return true };
        let found = match self.client.ask("GET", &format!("/agents/{name}"), None, None) {
            Answer::Done { body, .. } => Some(round_of(&body)),
            Answer::Refused { status: 404, .. } => None,
            Answer::Refused { .. } | Answer::Lost => return false,
        };
        let before = self.objects[&name];
        assert!(
            found == before || found == next,
            "{name} is {found:?}, neither {before:?} nor {next:?}"
        );
        self.objects.insert(name, found);
        self.open = None;
        true
    }

    /// Checks that each object is as acknowledged.
    fn check(&self) {
        for (name, state) in &self.objects {
            let found = match self.client.ask("GET", &format!("/agents/{name}"), None, None) {
                Answer::Done { body, .. } => {
                    check_revisions(&self.client, name, &body);
                    Some(round_of(&body))
                }
                Answer::Refused { status: 404, .. } => None,
                other => panic!("GET {name}: {other:?}"),
            };
            assert_eq!(found, *state, "{name} is not what was acknowledged last");
        }
    }
}

/// Checks that exactly one revision is active, and that the object names it.
fn check_revisions(client: &Client, name: &str, object: &Value) {
    let revisions = client.get(&format!("/agents/{name}/revisions"));
    let revisions = revisions.as_array().unwrap();
    assert!(
        (1..=REVISIONS_MAX).contains(&revisions.len()),
        "{name} has {} revisions",
        revisions.len()
    );
    let active: Vec<_> = revisions.iter().filter(|revision| revision["active"] == true).collect();
    assert_eq!(active.len(), 1, "{name} has {revisions:?}");
    assert_eq!(active[0]["id"], object["spec"]["revision"]["active"], "{name}");
}

/// Checks everything that can be read against what the writers know: objects, lists, totals, quotas
/// and references.
pub(crate) fn check(client: &Client, writers: &mut [Writer]) {
    for writer in writers.iter_mut() {
        assert!(writer.resolve(), "the server answers");
        writer.check();
    }
    let known = writers.iter().flat_map(|writer| &writer.objects);
    let known: BTreeMap<&str, u64> =
        known.filter_map(|(name, state)| Some((name.as_str(), (*state)?))).collect();
    let (listed, total) = client.list("agents");
    let seen = listed
        .iter()
        .map(|object| (object["metadata"]["name"].as_str().unwrap(), round_of(object)));
    assert_eq!(seen.collect::<BTreeMap<_, _>>(), known, "the list differs from the objects");
    assert_eq!(total, known.len() as i64, "the total of the list");
    assert_eq!(listed.len(), known.len(), "an object is listed twice");

    let quotas = client.get("/quotas");
    let agents = quotas.as_array().unwrap().iter().find(|quota| quota["kind"] == "agent").unwrap();
    assert_eq!(agents["used"], known.len(), "the quota");

    let usages = client.get(&format!("/policies/{POLICY}/usages"));
    let users = usages["agents"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|user| user["name"].as_str().unwrap());
    let even = known.iter().filter(|(_, round)| **round % 2 == 0).map(|(name, _)| *name);
    assert_eq!(users.collect::<Vec<_>>(), even.collect::<Vec<_>>(), "the users of the policy");
}
