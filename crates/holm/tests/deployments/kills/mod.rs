//! The server is killed over and over, at random moments and in the middle of named steps.
//! Meanwhile images are uploaded, built and pushed, revisions change, drain and are rolled back,
//! asynchronous calls are made, and all of it is queried and deleted. After each kill everything
//! must finish, and nothing may be left over.
//!
//! `HOLM_KILLS` sets the number of kills; `HOLM_FAULTS=long` means 100. The random seed is printed,
//! and `HOLM_SEED` repeats it, as far as the timing of processes can be repeated.

mod agent;
mod caller;
mod invariants;
mod left;
mod maker;
mod pusher;
mod switcher;

use crate::Sweep;
use crate::place::{Client, PATIENCE, Place, eventually};
use crate::web::Web;
use caller::Caller;
use invariants::{nothing_is_left, the_bill_stands_still};
use maker::Maker;
use pusher::Pusher;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use switcher::{Switcher, Visitor};
use testing::Holm;

const SHORT: usize = 12;
const LONG: usize = 100;
const LIFE_MS_MAX: u64 = 2500;
/// Longest wait for a step before a kill, which then comes a little later.
const STEP_MAX: Duration = Duration::from_secs(3);
const AFTER_STEP_MS_MAX: u64 = 300;
const LOOK_EVERY: Duration = Duration::from_millis(3);
/// Named steps in which the server is killed, as shown by the agents' status.
const STEPS: [&str; 4] = ["UPLOADING", "BUILDING", "DEPLOYING", "FAILED"];

/// A user who works with the server until it is killed.
trait Actor: Send {
    fn act(&mut self, web: &Web, over: &AtomicBool);
    /// Waits until everything it asked for has finished, and judges that. Returns how many
    /// instances are needed for it.
    fn rest(&mut self, web: &Web) -> Result<usize, String>;
    /// Deletes everything it has made.
    fn end(&mut self, web: &Web);
}

fn pause(chances: &mut fastrand::Rng, ms_max: u64) {
    thread::sleep(Duration::from_millis(chances.u64(..ms_max)));
}

struct Cast {
    switchers: Vec<Switcher>,
    visitors: Vec<Visitor>,
    makers: Vec<Maker>,
    pusher: Pusher,
    caller: Caller,
}

impl Cast {
    fn new(chances: &mut fastrand::Rng) -> Self {
        let switchers: Vec<_> =
            (0..2).map(|number| Switcher::new(number, chances.fork())).collect();
        Self {
            visitors: switchers.iter().map(|it| it.visitor(chances.fork())).collect(),
            switchers,
            makers: (0..2).map(|number| Maker::new(number, chances.fork())).collect(),
            pusher: Pusher::new(chances.fork()),
            caller: Caller::new(chances.fork()),
        }
    }

    fn all(&mut self) -> Vec<&mut dyn Actor> {
        let mut all: Vec<&mut dyn Actor> = vec![&mut self.pusher, &mut self.caller];
        all.extend(self.switchers.iter_mut().map(|it| it as &mut dyn Actor));
        all.extend(self.visitors.iter_mut().map(|it| it as &mut dyn Actor));
        all.extend(self.makers.iter_mut().map(|it| it as &mut dyn Actor));
        all
    }
}

fn settings() -> Vec<(&'static str, String)> {
    let short = [
        ("HOLM_BUILDS__SHOWN_FOR", "200ms"),
        ("HOLM_BUILDS__BACKOFF", "200ms"),
        ("HOLM_BUILDER__MEMORY_MB", "256"),
        ("HOLM_BUILDER__DISK_MB", "64"),
        ("HOLM_DEPLOYMENTS__DRAIN_TIMEOUT", "5s"),
        ("HOLM_DEPLOYMENTS__RESTART_PAUSE", "200ms"),
        ("HOLM_CALLBACKS__PAUSE", "200ms"),
        ("HOLM_CALLBACKS__TIMEOUT", "2s"),
    ];
    let many = [
        "HOLM_LIMITS__KEY_PER_SECOND",
        "HOLM_LIMITS__KEY_BURST",
        "HOLM_LIMITS__WORKSPACE_PER_SECOND",
        "HOLM_LIMITS__WORKSPACE_BURST",
    ];
    let many = many.into_iter().map(|name| (name, "1000000".to_owned()));
    let inside = ("HOLM_CALLBACKS__INSIDE", format!("[\"{}\"]", caller::own_name()));
    many.chain([inside]).chain(short.map(|(name, value)| (name, value.to_owned()))).collect()
}

fn kills() -> usize {
    let told = std::env::var("HOLM_KILLS").ok();
    let told = told.map(|kills| kills.parse().expect("HOLM_KILLS is a number"));
    let is_long = std::env::var("HOLM_FAULTS").is_ok_and(|form| form == "long");
    told.unwrap_or(if is_long { LONG } else { SHORT })
}

#[test]
fn nothing_is_lost_doubled_or_left_however_often_the_server_is_killed() {
    let seed = std::env::var("HOLM_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("HOLM_SEED={seed}");
    let mut chances = fastrand::Rng::with_seed(seed);
    let mut place = Place::new("15s");
    place.settings = settings();
    let _sweep = Sweep::of(&place);
    let (mut server, mut client) = place.start();
    let mut cast = Cast::new(&mut chances);
    cast.caller.deploy(&Web::new(&client));
    let (kills, begun) = (kills(), Instant::now());
    for kill in 1..=kills {
        live_and_die(&mut server, &client, &mut cast, &mut chances);
        (server, client) = place.start();
        // Sometimes the next kill comes while the server still recovers from the last.
        if kill == kills || chances.u8(..4) > 0 {
            check(&place, &client, &mut cast, kill);
        }
    }
    let taken: usize = cast.makers.iter().map(|maker| maker.taken).sum();
    let answers: usize = cast.visitors.iter().map(|visitor| visitor.answers).sum();
    println!(
        "{kills} kills in {:?}: {taken} uploads were taken, {answers} requests answered, {} pushes \
         went on after a kill, {} calls accepted that nobody waited for",
        begun.elapsed(),
        cast.pusher.went_on,
        cast.caller.accepted
    );
    let accepted = cast.caller.accepted;
    assert!(taken > 0 && answers > kills && accepted > kills, "hardly anything was done");
    leave_nothing(&place, server, &client, cast);
}

/// Runs the server once, with all actors at work, and kills it.
fn live_and_die(server: &mut Holm, client: &Client, cast: &mut Cast, chances: &mut fastrand::Rng) {
    let (over, web) = (AtomicBool::new(false), Web::new(client));
    thread::scope(|scope| {
        for actor in cast.all() {
            let (web, over) = (&web, &over);
            scope.spawn(move || actor.act(web, over));
        }
        match chances.choice(STEPS).filter(|_| chances.bool()) {
            Some(step) => {
                await_step(&web, step);
                pause(chances, AFTER_STEP_MS_MAX);
            }
            None => pause(chances, LIFE_MS_MAX),
        }
        server.kill();
        over.store(true, Ordering::Relaxed);
    });
}

/// Waits until an agent is in this step, but not for ever.
fn await_step(web: &Web, step: &str) {
    let end = Instant::now() + STEP_MAX;
    while Instant::now() < end {
        let Some(page) = web.member("GET", "/v0/agents?limit=200", None) else { return };
        let page = page.json();
        let agents = page["data"].as_array().unwrap();
        if agents.iter().any(|agent| agent["status"] == step) {
            return;
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn check(place: &Place, client: &Client, cast: &mut Cast, kill: usize) {
    let web = Web::new(client);
    let judged: Result<Vec<usize>, String> =
        cast.all().into_iter().map(|actor| actor.rest(&web)).collect();
    let instances: usize =
        judged.unwrap_or_else(|error| panic!("after kill {kill}: {error}")).into_iter().sum();
    let explained = BTreeMap::from([
        ("instances", instances),
        ("records of instances", instances),
        ("leases of images", instances),
        ("users of the images", 1),
        ("uploads to the registry", cast.pusher.nameless + cast.pusher.open()),
    ]);
    // What drains ends a little after its replacement starts.
    let deadline = Instant::now() + PATIENCE;
    while let Err(left) = nothing_is_left(&left::found(place.data()), &explained) {
        assert!(Instant::now() < deadline, "after kill {kill} is left: {left}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the compute usage that is billed.
fn billed(client: &Client) -> f64 {
    let account = client.done("GET", "/v0/accounts", None)[0]["id"].as_str().unwrap().to_owned();
    let window = "startTime=2020-01-01T00:00:00Z&endTime=2100-01-01T00:00:00Z";
    let path = format!("/v0/accounts/{account}/metrics?{window}&groupBy=billing_dimension");
    let answer = client.done("GET", &path, None);
    let entries = answer["data"].as_array().unwrap().iter();
    let compute = entries.filter(|entry| {
        entry["billingDimension"].as_str().is_some_and(|name| name.contains("runtime"))
    });
    compute.map(|entry| entry["summary"]["usage"].as_f64().unwrap()).sum()
}

fn leave_nothing(place: &Place, server: Holm, client: &Client, mut cast: Cast) {
    let web = Web::new(client);
    cast.all().into_iter().for_each(|actor| actor.end(&web));
    eventually("no instance is left", || place.groups().is_empty());
    let mut before = -1.0;
    eventually("all facts are in", || {
        let last = std::mem::replace(&mut before, billed(client));
        last.to_bits() == before.to_bits()
    });
    thread::sleep(Duration::from_secs(1));
    the_bill_stands_still(before, billed(client)).unwrap();
    assert!(before > 0.0, "something ran");
    place.clear(server, client);
    let found = left::found(place.data());
    let explained = BTreeMap::from([
        ("uploads to the registry", cast.pusher.nameless),
        ("leases of images", 0),
    ]);
    nothing_is_left(&found, &explained).unwrap();
}
