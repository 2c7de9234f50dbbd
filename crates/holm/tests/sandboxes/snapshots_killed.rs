//! The server is killed at random moments while snapshots are taken, forked and deleted. A fork has what its
//! sandbox had when it was asked for, no snapshot is half there, and nothing is left.
//!
//! `HOLM_KILLS` says how often; `HOLM_FAULTS=long` is 200 times. The seed of its chances is printed.

use crate::setup::{Client, IMAGE, Place, eventually};
use crate::volumes_killed::{Known, Lost, asked, chances, kills, live_and_die, seen};
use serde_json::{Value, json};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const FORKERS: usize = 2;
const LIFE_MS_MAX: u64 = 900;

/// Somebody with one sandbox and at most one fork of it.
struct Forker {
    name: String,
    fork_name: String,
    chances: fastrand::Rng,
    /// Whether it writes to a disk that stays, which is forked in another way.
    is_on_disk: bool,
    sandbox: Known,
    fork: Known,
    /// What may be written in the sandbox, and what in its fork.
    written: RangeInclusive<u64>,
    forked: RangeInclusive<u64>,
    forks: usize,
}

impl Forker {
    fn new(number: usize, chances: fastrand::Rng) -> Self {
        Self {
            name: format!("base-{number}"),
            fork_name: format!("fork-{number}"),
            chances,
            is_on_disk: number % 2 == 1,
            sandbox: Known::Gone,
            fork: Known::Gone,
            written: 0..=0,
            forked: 0..=0,
            forks: 0,
        }
    }

    fn path(&self) -> String {
        format!("/v0/sandboxes/{}", self.name)
    }

    fn fork_path(&self) -> String {
        format!("/v0/sandboxes/{}", self.fork_name)
    }

    fn act(&mut self, client: &Client, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) && self.step(client).is_ok() {}
    }

    fn step(&mut self, client: &Client) -> Result<(), Lost> {
        self.look(client)?;
        match (self.sandbox, self.fork, self.chances.u8(..10)) {
            (Known::Gone, Known::Gone, _) => self.make(client),
            (_, Known::Gone, 0) => self.delete(client),
            (Known::There, Known::Gone, 1..=4) => self.fork(client),
            (Known::There, _, 5) => self.snapshot(client),
            (_, _, 6) => self.delete_snapshots(client),
            (_, Known::There, 7..) => self.delete_fork(client),
            (_, Known::There, _) => self.read_fork(client),
            (..) => self.write(client),
        }
    }

    /// Learns what came of that which was not answered, and holds the rest to what was.
    fn look(&mut self, client: &Client) -> Result<(), Lost> {
        let (sandbox, _) = seen(client, &self.path())?;
        let (fork, _) = seen(client, &self.fork_path())?;
        for (known, now, what) in [(self.sandbox, sandbox, "sandbox"), (self.fork, fork, "fork")] {
            let name = &self.name;
            assert!(
                known == Known::Open || known == now,
                "the {what} of {name} was {known:?} and is {now:?}"
            );
        }
        (self.sandbox, self.fork) = (sandbox, fork);
        Ok(())
    }

    fn make(&mut self, client: &Client) -> Result<(), Lost> {
        self.sandbox = Known::Open;
        self.written = 0..=0;
        let mut runtime = json!({"image": IMAGE, "memory": 128, "generation": "mk2"});
        if self.is_on_disk {
            runtime["storageMb"] = json!(320);
        }
        let wish = json!({"metadata": {"name": self.name}, "spec": {"runtime": runtime}});
        asked(client, "POST", "/v0/sandboxes", Some(&wish))?;
        self.sandbox = Known::There;
        Ok(())
    }

    fn delete(&mut self, client: &Client) -> Result<(), Lost> {
        self.sandbox = Known::Open;
        asked(client, "DELETE", &self.path(), None)?;
        self.sandbox = Known::Gone;
        Ok(())
    }

    fn fork(&mut self, client: &Client) -> Result<(), Lost> {
        self.fork = Known::Open;
        self.forked = self.written.clone();
        let wish = json!({"targetType": "sandbox", "targetName": self.fork_name});
        asked(client, "POST", &format!("{}/fork", self.path()), Some(&wish))?;
        self.fork = Known::There;
        self.forks += 1;
        Ok(())
    }

    fn delete_fork(&mut self, client: &Client) -> Result<(), Lost> {
        self.fork = Known::Open;
        asked(client, "DELETE", &self.fork_path(), None)?;
        self.fork = Known::Gone;
        Ok(())
    }

    fn snapshot(&self, client: &Client) -> Result<(), Lost> {
        let path = format!("{}/snapshots", self.path());
        let taken = asked(client, "POST", &path, Some(&json!({})))?;
        assert_eq!(taken["status"], "ready", "{taken}");
        Ok(())
    }

    fn delete_snapshots(&self, client: &Client) -> Result<(), Lost> {
        for id in self.snapshots(client)? {
            // A kill may have deleted it before it was answered.
            let answer = client.ask("DELETE", &format!("/v0/snapshots/{id}"), None).ok_or(Lost)?;
            assert!([200, 204, 404].contains(&answer.0), "{answer:?}");
        }
        Ok(())
    }

    /// Ids of the snapshots that lists show.
    fn snapshots(&self, client: &Client) -> Result<Vec<String>, Lost> {
        let all = listed(client)?;
        let own = all.iter().filter(|one| one["source"]["name"] == self.name.as_str());
        Ok(own.map(|one| one["id"].as_str().unwrap().to_owned()).collect())
    }

    fn write(&mut self, client: &Client) -> Result<(), Lost> {
        let number = self.read(client, &self.name)?;
        assert!(self.written.contains(&number), "{} has {number}", self.name);
        self.written = number..=number + 1;
        self.run(client, &self.name, &format!("echo {} > /new && mv /new /n", number + 1))?;
        self.written = number + 1..=number + 1;
        Ok(())
    }

    fn read_fork(&mut self, client: &Client) -> Result<(), Lost> {
        let number = self.read(client, &self.fork_name)?;
        assert!(
            self.forked.contains(&number),
            "{} has {number}, not {:?}",
            self.fork_name,
            self.forked
        );
        self.forked = number..=number;
        Ok(())
    }

    fn read(&self, client: &Client, name: &str) -> Result<u64, Lost> {
        let read = self.run(client, name, "cat /n 2>/dev/null || echo 0")?;
        Ok(read.trim().parse().expect("a number"))
    }

    fn run(&self, client: &Client, name: &str, command: &str) -> Result<String, Lost> {
        let order = json!({"command": command, "waitForCompletion": true});
        let done = asked(client, "POST", &format!("/main/sandboxes/{name}/process"), Some(&order))?;
        assert_eq!(done["exitCode"], 0, "{command}: {done}");
        Ok(done["stdout"].as_str().unwrap().to_owned())
    }

    /// Judges what is there after a kill.
    fn rest(&mut self, client: &Client) {
        self.try_rest(client).unwrap_or_else(|Lost| panic!("nobody killed the server"));
    }

    fn try_rest(&mut self, client: &Client) -> Result<(), Lost> {
        self.look(client)?;
        if self.sandbox == Known::There {
            let number = self.read(client, &self.name)?;
            assert!(self.written.contains(&number), "{} has {number}", self.name);
            self.written = number..=number;
        }
        if self.fork == Known::There {
            self.read_fork(client)?;
        }
        Ok(())
    }

    fn end(&mut self, client: &Client) {
        for (known, path) in [(self.fork, self.fork_path()), (self.sandbox, self.path())] {
            if known != Known::Gone {
                client.done("DELETE", &path, None);
            }
        }
        self.delete_snapshots(client).unwrap_or_else(|Lost| panic!("nobody killed the server"));
    }
}

fn listed(client: &Client) -> Result<Vec<Value>, Lost> {
    let all = asked(client, "GET", "/v0/snapshots?limit=200", None)?;
    let page = all.as_array().or_else(|| all["data"].as_array());
    Ok(page.expect("a list of snapshots").clone())
}

/// Folders of snapshots, also of those that are being made or removed.
fn folders(data: &Path) -> usize {
    let Ok(owners) = std::fs::read_dir(data.join("node/snapshots")) else { return 0 };
    let owners = owners.map(|owner| owner.unwrap().path()).filter(|path| path.is_dir());
    owners.map(|owner| std::fs::read_dir(owner).unwrap().count()).sum()
}

fn check(client: &Client, forkers: &mut [Forker]) {
    forkers.iter_mut().for_each(|forker| forker.rest(client));
    eventually("no snapshot is half there", || {
        let all = listed(client).unwrap_or_else(|Lost| panic!("nobody killed the server"));
        all.iter().all(|one| one["status"] != "pending")
    });
}

#[test]
fn a_killed_server_leaves_no_snapshot_half_there_and_no_fork_with_other_files() {
    let mut chances = chances();
    let mut place = Place::new("15s");
    let short = [("HOLM_SNAPSHOTS__TIDY_EVERY", "200ms"), ("HOLM_SNAPSHOTS__FORK_WITHIN", "15s")];
    place.settings.extend(short.map(|(name, value)| (name, value.to_owned())));
    let (mut server, mut client) = place.start();
    let mut forkers: Vec<_> =
        (0..FORKERS).map(|number| Forker::new(number, chances.fork())).collect();
    let kills = kills();
    for _ in 0..kills {
        let life_ms = chances.u64(..LIFE_MS_MAX);
        live_and_die(&mut server, life_ms, &mut forkers, |forker, over| {
            forker.act(&client, over);
        });
        (server, client) = place.start();
        // Now and then the next kill comes while the last one is still made good.
        if chances.u8(..4) > 0 {
            check(&client, &mut forkers);
        }
    }
    check(&client, &mut forkers);
    let forks: usize = forkers.iter().map(|forker| forker.forks).sum();
    assert!(forks > kills / 4, "hardly anything was forked: {forks}");
    println!("{kills} kills, {forks} forks");
    forkers.iter_mut().for_each(|forker| forker.end(&client));
    eventually("nothing is left", || folders(place.data()) == 0);
    place.clear(server, &client);
}
