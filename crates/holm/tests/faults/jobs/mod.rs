//! Batch jobs while everything below them is killed at random moments: the server, the first
//! process of instances, and PostgreSQL. Two workspaces keep starting executions meanwhile. In the
//! end every task has ended once, no task ever ran in two instances at the same time, and nothing
//! is left on the machine.

mod killer;
mod load;
mod outage;
mod process;
mod tasks;
mod witness;

use crate::setup::{Chances, Database, Place, is_long};
use images::{Config, Overlay, Settings, Store};
use killer::Killer;
use load::{Load, WORKSPACES};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testing::{Cluster, Holm, machine};
use witness::Witness;

const SHORT: Duration = Duration::from_secs(10);
const LIVES_MIN: usize = 4;
const LONG: Duration = Duration::from_secs(30 * 60);
/// Latest time for killing the server.
const LIFE_MS_MAX: u64 = 2500;
/// Longest outage of the database, which is shorter than a lease.
const OUTAGE_MS_MAX: u64 = 400;
/// No task takes longer than a second, and the number of waiting ones is limited.
const REST_MAX: Duration = Duration::from_secs(120);

#[test]
fn every_task_ends_once_whatever_is_killed_on_sqlite() {
    survive(Database::Sqlite);
}

#[test]
fn every_task_ends_once_whatever_is_killed_on_postgres() {
    survive(Database::Postgres);
}

fn survive(database: Database) {
    assert!(rustix::process::geteuid().is_root(), "instances need root");
    let chances = Chances::new();
    let mut place = Place::new(database);
    make_image(&place);
    place.settings = machine::settings();
    // First processes are killed far more often here than a task should have to expect.
    place.settings.push(("HOLM_JOBS__LOST_ATTEMPTS_MAX", "1000".to_owned()));
    place.settings.push(("HOLM_JOBS__BACKOFF_FIRST", "20ms".to_owned()));
    place.settings.push(("HOLM_JOBS__BACKOFF_MAX", "500ms".to_owned()));

    let _sweep = Sweep(place.data().to_owned());
    let (mut server, mut client, _) = place.start();
    let mut load = Load::prepare(&client, chances.of(0));
    let workspaces = WORKSPACES.map(|name| {
        client.get(&format!("/workspaces/{name}"))["id"]
            .as_str()
            .expect("a workspace has an id")
            .to_owned()
    });
    let groups = machine::groups_folder(place.data()).unwrap().expect("the server has its groups");
    let witness = Witness::start(&groups, &workspaces);
    let mut killer = Killer::new(place.data(), chances.of(1));
    let mut moments = chances.of(2);
    let (end, mut lives) = (Instant::now() + if is_long() { LONG } else { SHORT }, 0);
    while Instant::now() < end || lives < LIVES_MIN {
        live_and_die(&mut server, place.cluster.as_mut(), &mut load, &mut killer, &mut moments);
        (server, client, _) = place.start();
        load.turn_to(&client);
        lives += 1;
    }
    load.await_the_end(REST_MAX);
    let instances = witness.finish();
    load.check(&instances);
    println!(
        "{database:?}: {lives} lives of the server, {} first processes killed, {load}",
        killer.kills
    );
    assert!(killer.kills > lives / 2, "hardly anything was killed");
    leave_nothing(server, &place);
}

/// Runs the server once, while everything else is killed as well, and kills it.
fn live_and_die(
    server: &mut Holm,
    cluster: Option<&mut Cluster>,
    load: &mut Load,
    killer: &mut Killer,
    moments: &mut fastrand::Rng,
) {
    let over = AtomicBool::new(false);
    let mut pause = |ms_max| thread::sleep(Duration::from_millis(moments.u64(..ms_max)));
    thread::scope(|scope| {
        scope.spawn(|| load.grow_until(&over));
        scope.spawn(|| killer.kill_until(&over));
        pause(LIFE_MS_MAX / 2);
        if let Some(cluster) = cluster {
            cluster.kill();
            pause(OUTAGE_MS_MAX);
            cluster.restart().expect("PostgreSQL starts again");
        }
        pause(LIFE_MS_MAX / 2);
        server.kill();
        over.store(true, Ordering::Relaxed);
    });
}

/// Removes the instances of a failed test, which nothing else would.
struct Sweep(PathBuf);

impl Drop for Sweep {
    fn drop(&mut self) {
        if thread::panicking() {
            machine::sweep(&self.0).unwrap();
        }
    }
}

/// Makes an image whose command does what a task's arguments say.
fn make_image(place: &Place) {
    let archive = testing::small_root(place.data(), &[("act", tasks::SCRIPT)]).unwrap();
    let settings = Settings { overlay: Overlay::User, ..Settings::default() };
    let store = Store::open(&place.data().join("images"), settings).unwrap();
    let entrypoint = ["/bin/sh", "/act"].map(str::to_owned).to_vec();
    let config = Config { entrypoint, ..Config::default() };
    store.import_rootfs(archive.as_slice(), &config, &tasks::IMAGE.parse().unwrap()).unwrap();
}

fn leave_nothing(mut server: Holm, place: &Place) {
    until_none("instances", || machine::groups(place.data()).unwrap());
    server.end().unwrap();
    // The kernel removes mounts some time after the process that had them.
    until_none("traces", || machine::traces(place.data()).unwrap());
}

fn until_none<T: std::fmt::Debug>(what: &str, look: impl Fn() -> Vec<T>) {
    let deadline = Instant::now() + REST_MAX;
    loop {
        let left = look();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{what} are left: {left:?}");
        thread::sleep(Duration::from_millis(20));
    }
}
