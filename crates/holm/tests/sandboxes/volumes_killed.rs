//! The server is killed at random moments while volumes are made (some from a template), mounted,
//! written to, grown and deleted. What was acknowledged must be there, no volume may be in two
//! places, and nothing may be left over.
//!
//! `HOLM_KILLS` sets the number of kills; `HOLM_FAULTS=long` means 200. The random seed is printed.

use crate::command_line::{done, holm};
use crate::setup::{Client, IMAGE, Place, eventually};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use testing::{Holm, machine};

const SHORT: usize = 10;
const LONG: usize = 200;
const KEEPERS: usize = 2;
const LIFE_MS_MAX: u64 = 900;
/// Most further lives, if hardly anything was done in those that there must be. Together they last a
/// few minutes.
const FURTHER_MAX: usize = 24;
const SIZE_MB: u64 = 32;
const GROWTH_MB: u64 = 8;
const TEMPLATE: &str = "base";
/// Content of its only file.
const BEGINS: &str = "from the template\n";

/// The connection broke because the server was killed.
pub(crate) struct Lost;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    There,
    Gone,
    /// The server was killed before it answered.
    Open,
}

/// A user with one volume, and at most one sandbox that mounts it.
struct Keeper {
    name: String,
    chances: fastrand::Rng,
    volume: Known,
    sandbox: Known,
    /// True if the volume was made from the template.
    of_template: bool,
    /// The last number whose write was acknowledged, and whether the next one may be there already.
    written: u64,
    is_writing: bool,
    size_mb: u64,
    writes: usize,
}

impl Keeper {
    fn new(number: usize, chances: fastrand::Rng) -> Self {
        Self {
            name: format!("keeper-{number}"),
            chances,
            volume: Known::Gone,
            sandbox: Known::Gone,
            of_template: false,
            written: 0,
            is_writing: false,
            size_mb: 0,
            writes: 0,
        }
    }

    fn volume_path(&self) -> String {
        format!("/v0/volumes/{}", self.name)
    }

    fn sandbox_path(&self) -> String {
        format!("/v0/sandboxes/{}", self.name)
    }

    fn act(&mut self, client: &Client, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) && self.step(client).is_ok() {}
    }

    fn step(&mut self, client: &Client) -> Result<(), Lost> {
        self.look(client)?;
        match (self.volume, self.sandbox, self.chances.u8(..10)) {
            (Known::Gone, ..) => self.make(client),
            (_, Known::Gone, 0) => self.delete_volume(client),
            (_, Known::Gone, 1..=2) | (_, Known::There, 1) => self.grow(client),
            (_, Known::Gone, _) => self.mount(client),
            (_, _, 0) => self.delete_sandbox(client),
            (..) => self.write(client),
        }
    }

    /// Learns the outcome of unanswered requests, and checks that of answered ones.
    fn look(&mut self, client: &Client) -> Result<(), Lost> {
        let (volume, found) = seen(client, &self.volume_path())?;
        let (sandbox, _) = seen(client, &self.sandbox_path())?;
        for (known, now, what) in
            [(self.volume, volume, "volume"), (self.sandbox, sandbox, "sandbox")]
        {
            assert!(
                known == Known::Open || known == now,
                "the {what} of {} was {known:?} and is {now:?}",
                self.name
            );
        }
        (self.volume, self.sandbox) = (volume, sandbox);
        match found["spec"]["size"].as_u64() {
            None => (self.written, self.is_writing, self.size_mb) = (0, false, 0),
            Some(size_mb) => {
                assert!(size_mb >= self.size_mb, "{} shrank to {size_mb} MB", self.name);
                self.size_mb = size_mb;
            }
        }
        Ok(())
    }

    fn make(&mut self, client: &Client) -> Result<(), Lost> {
        (self.volume, self.of_template) = (Known::Open, self.chances.bool());
        let mut wish = self.volume_of(SIZE_MB);
        if self.of_template {
            wish["spec"]["template"] = json!(TEMPLATE);
        }
        asked(client, "POST", "/v0/volumes", Some(&wish))?;
        (self.volume, self.size_mb) = (Known::There, SIZE_MB);
        Ok(())
    }

    fn volume_of(&self, size_mb: u64) -> Value {
        json!({"metadata": {"name": self.name}, "spec": {"size": size_mb}})
    }

    fn grow(&mut self, client: &Client) -> Result<(), Lost> {
        let size_mb = self.size_mb + GROWTH_MB;
        asked(client, "PUT", &self.volume_path(), Some(&self.volume_of(size_mb)))?;
        self.size_mb = size_mb;
        Ok(())
    }

    fn delete_volume(&mut self, client: &Client) -> Result<(), Lost> {
        self.volume = Known::Open;
        asked(client, "DELETE", &self.volume_path(), None)?;
        self.volume = Known::Gone;
        (self.written, self.is_writing, self.size_mb) = (0, false, 0);
        Ok(())
    }

    fn mount(&mut self, client: &Client) -> Result<(), Lost> {
        self.sandbox = Known::Open;
        asked(client, "POST", "/v0/sandboxes", Some(&self.sandbox_of(&self.name)))?;
        self.sandbox = Known::There;
        Ok(())
    }

    fn sandbox_of(&self, name: &str) -> Value {
        let volumes = json!([{"name": self.name, "mountPath": "/data"}]);
        let runtime = json!({"image": IMAGE, "memory": 128, "generation": "mk2"});
        json!({"metadata": {"name": name}, "spec": {"runtime": runtime, "volumes": volumes}})
    }

    fn delete_sandbox(&mut self, client: &Client) -> Result<(), Lost> {
        self.sandbox = Known::Open;
        asked(client, "DELETE", &self.sandbox_path(), None)?;
        self.sandbox = Known::Gone;
        Ok(())
    }

    fn write(&mut self, client: &Client) -> Result<(), Lost> {
        self.read(client)?;
        let next = self.written + 1;
        self.is_writing = true;
        let write = format!("echo {next} > /data/new && sync && mv /data/new /data/n && sync");
        self.run(client, &write)?;
        (self.written, self.is_writing) = (next, false);
        self.writes += 1;
        Ok(())
    }

    /// Checks that the volume contains what was acknowledged, or what was being written.
    fn read(&mut self, client: &Client) -> Result<(), Lost> {
        let read = self.run(
            client,
            "cat /data/n 2>/dev/null || echo 0; cat /data/begins 2>/dev/null || true",
        )?;
        let (number, begins) = read.split_once('\n').expect("a line");
        let number: u64 = number.parse().expect("a number is on the volume");
        let wanted = if self.of_template { BEGINS } else { "" };
        assert_eq!(begins, wanted, "{} began with other files", self.name);
        let may_be = self.written..=self.written + u64::from(self.is_writing);
        assert!(may_be.contains(&number), "{number} is on {}, not {may_be:?}", self.name);
        (self.written, self.is_writing) = (number, false);
        Ok(())
    }

    fn run(&self, client: &Client, command: &str) -> Result<String, Lost> {
        let order = json!({"command": command, "waitForCompletion": true});
        let path = format!("/main/sandboxes/{}/process", self.name);
        let done = asked(client, "POST", &path, Some(&order))?;
        assert_eq!(done["exitCode"], 0, "{command}: {done}");
        Ok(done["stdout"].as_str().unwrap().to_owned())
    }

    /// Judges the state after a kill. Returns how many volumes and mounts are needed.
    fn rest(&mut self, client: &Client) -> (usize, usize) {
        let alive = |Lost| panic!("nobody killed the server");
        self.look(client).unwrap_or_else(alive);
        if self.volume == Known::Gone {
            assert_eq!(self.sandbox, Known::Gone, "{} lives without its volume", self.name);
            return (0, 0);
        }
        let attached =
            || client.done("GET", &self.volume_path(), None)["state"]["attachedTo"].clone();
        if self.sandbox == Known::Gone {
            eventually("the volume is free", || attached().is_null());
            return (1, 0);
        }
        assert_eq!(attached(), format!("sandbox:{}", self.name));
        let second = client.ask("POST", "/v0/sandboxes", Some(&self.sandbox_of("second")));
        assert_eq!(second.unwrap().0, 400, "{} is in two places", self.name);
        self.read(client).unwrap_or_else(alive);
        (1, 1)
    }

    fn end(&mut self, client: &Client) {
        if self.sandbox != Known::Gone {
            client.done("DELETE", &self.sandbox_path(), None);
        }
        if self.volume != Known::Gone {
            client.done("DELETE", &self.volume_path(), None);
        }
    }
}

/// Returns the answer, which must be successful.
#[track_caller]
pub(crate) fn asked(
    client: &Client,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, Lost> {
    match client.ask(method, path, body).ok_or(Lost)? {
        (200, answer) => Ok(answer),
        (status, answer) => panic!("{method} {path}: {status} {answer}"),
    }
}

/// Returns whether an object exists, and the object.
pub(crate) fn seen(client: &Client, path: &str) -> Result<(Known, Value), Lost> {
    match client.ask("GET", path, None).ok_or(Lost)? {
        (404, _) => Ok((Known::Gone, Value::Null)),
        (200, found) if found["status"] == "TERMINATED" || found["status"] == "DELETING" => {
            Ok((Known::Gone, Value::Null))
        }
        (200, found) => Ok((Known::There, found)),
        (status, answer) => panic!("GET {path}: {status} {answer}"),
    }
}

pub(crate) fn chances() -> fastrand::Rng {
    let seed = std::env::var("HOLM_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("HOLM_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}

/// Runs the server once, with all actors at work, and kills it.
pub(crate) fn live_and_die<A: Send>(
    server: &mut Holm,
    life_ms: u64,
    actors: &mut [A],
    act: impl Fn(&mut A, &AtomicBool) + Sync,
) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for actor in actors {
            let (act, over) = (&act, &over);
            scope.spawn(move || act(actor, over));
        }
        thread::sleep(Duration::from_millis(life_ms));
        server.kill();
        over.store(true, Ordering::Relaxed);
    });
}

/// Returns the longest time for the next life of the server, if there is to be one. There is one for
/// each kill, and where a slow disk keeps much from being done, there are further, ever longer ones
/// until it is enough.
pub(crate) fn next_life_ms(lives: usize, kills: usize, is_enough: bool) -> Option<u64> {
    let further = (lives + 1).saturating_sub(kills);
    let is_next = further == 0 || (!is_enough && further <= FURTHER_MAX);
    is_next.then_some(LIFE_MS_MAX * (1 + further as u64))
}

pub(crate) fn kills() -> usize {
    let told = std::env::var("HOLM_KILLS").ok();
    let told = told.map(|kills| kills.parse().expect("HOLM_KILLS is a number"));
    let is_long = std::env::var("HOLM_FAULTS").is_ok_and(|form| form == "long");
    told.unwrap_or(if is_long { LONG } else { SHORT })
}

/// Counts the files of volumes, below the folders of their owners.
pub(crate) fn files(data: &Path) -> usize {
    machine::volume_folders(data).unwrap().iter().map(|folder| names_below(folder).len()).sum()
}

/// Returns the content of all owners' folders, as owner and name.
pub(crate) fn names_below(folder: &Path) -> Vec<String> {
    let Ok(owners) = fs::read_dir(folder) else { return Vec::new() };
    let owners = owners.map(|owner| owner.unwrap().path()).filter(|path| path.is_dir());
    let all =
        owners.flat_map(|owner| fs::read_dir(owner).unwrap().map(|file| file.unwrap().path()));
    let name = |path: PathBuf| path.strip_prefix(folder).unwrap().display().to_string();
    all.map(name).collect()
}

/// Counts loop devices of volumes' files. Files in the pool, whose mount is attached nowhere,
/// appear to the kernel by their path inside the pool. The pool's own device is not counted, since
/// it exists as long as any of these and the server; that it goes is checked at the end.
pub(crate) fn loops(data: &Path) -> usize {
    let place = format!("{}/", data.canonicalize().unwrap().display());
    let pool = machine::volume_folders(data).unwrap().into_iter().skip(1);
    let inside: Vec<_> = pool.flat_map(|folder| names_below(&folder)).collect();
    let is_ours = |file: &str| {
        let own = file.strip_prefix(&place).is_some_and(|file| file != "node/pool");
        own || inside.iter().any(|name| file == format!("/volumes/{name}"))
    };
    let devices = fs::read_dir("/sys/block").unwrap().map(|device| device.unwrap().path());
    let behind = |device: &Path| fs::read_to_string(device.join("loop/backing_file"));
    devices.filter(|device| behind(device).is_ok_and(|file| is_ours(file.trim_end()))).count()
}

/// Makes a template with a single file, from which volumes can be made.
fn make_template(client: &Client) {
    let here = tempfile::tempdir().unwrap();
    let folder = here.path().join(TEMPLATE);
    fs::create_dir(&folder).unwrap();
    let manifest = format!("name = '{TEMPLATE}'\ntype = 'volume-template'\ndefaultSize = 16\n");
    fs::write(folder.join("blaxel.toml"), manifest).unwrap();
    fs::write(folder.join("begins"), BEGINS).unwrap();
    done(holm(client, &["deploy", TEMPLATE, "--yes"]).current_dir(here.path()), 0);
}

fn check(place: &Place, client: &Client, keepers: &mut [Keeper]) {
    let (mut volumes, mut mounts) = (0, 0);
    for keeper in keepers {
        let (volume, mount) = keeper.rest(client);
        (volumes, mounts) = (volumes + volume, mounts + mount);
    }
    eventually("what is left is explained", || {
        // One more for the version of the template.
        (files(place.data()), loops(place.data())) == (volumes + 1, mounts)
    });
}

#[test]
fn a_killed_server_keeps_what_is_on_volumes_and_leaves_none_behind() {
    let mut chances = chances();
    let mut place = Place::new("15s");
    let (mut server, mut client) = place.start();
    make_template(&client);
    let mut keepers: Vec<_> =
        (0..KEEPERS).map(|number| Keeper::new(number, chances.fork())).collect();
    let writes = |keepers: &[Keeper]| keepers.iter().map(|keeper| keeper.writes).sum::<usize>();
    let (kills, mut lives) = (kills(), 0);
    while let Some(ms_max) = next_life_ms(lives, kills, writes(&keepers) > kills / 2) {
        lives += 1;
        let life_ms = chances.u64(..ms_max);
        live_and_die(&mut server, life_ms, &mut keepers, |keeper, over| {
            keeper.act(&client, over);
        });
        (server, client) = place.start();
        // Sometimes the next kill comes while the server still recovers from the last.
        if chances.u8(..4) > 0 {
            check(&place, &client, &mut keepers);
        }
    }
    check(&place, &client, &mut keepers);
    client.done("DELETE", &format!("/v0/volume_templates/{TEMPLATE}"), None);
    let writes = writes(&keepers);
    assert!(writes > kills / 2, "hardly anything was written: {writes}");
    println!("{lives} kills, {writes} writes");
    keepers.iter_mut().for_each(|keeper| keeper.end(&client));
    eventually("nothing is left", || (files(place.data()), loops(place.data())) == (0, 0));
    place.clear(server, &client);
}
