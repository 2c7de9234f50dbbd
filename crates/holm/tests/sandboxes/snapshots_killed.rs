//! The server is killed at random moments while snapshots are taken, forked and deleted, and
//! sandboxes are archived, unarchived and restored to their snapshots. A fork must have the files
//! its sandbox had when it was requested, an archive must keep everything that was written, no
//! snapshot may be incomplete, and nothing may be left over.
//!
//! `HOLM_KILLS` sets the number of kills; `HOLM_FAULTS=long` means 200. The random seed is printed.

use crate::setup::{Client, IMAGE, PATIENCE, Place, eventually};
use crate::volumes_killed::{
    Known, Lost, asked, chances, files, kills, live_and_die, loops, names_below, next_life_ms, seen,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testing::machine;

const FORKERS: usize = 2;
const DISK_MB: u32 = 320;
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Statuses of transitions.
const UNDER_WAY: [&str; 3] = ["ARCHIVING", "UNARCHIVING", "DEPLOYING"];

/// Numbers that a file may contain.
type Numbers = BTreeSet<u64>;

/// A user with one sandbox and at most one fork of it.
struct Forker {
    name: String,
    fork_name: String,
    chances: fastrand::Rng,
    /// True if it writes to a disk that lasts, and not to memory.
    has_disk: bool,
    sandbox: Known,
    fork: Known,
    /// Numbers that the sandbox's file may contain, and that the fork's may contain.
    written: Numbers,
    forked: Numbers,
    /// Numbers that may be in this sandbox's acknowledged snapshots, by snapshot id.
    taken: BTreeMap<String, Numbers>,
    forks: usize,
    archives: usize,
    restores: usize,
}

impl Forker {
    fn new(number: usize, chances: fastrand::Rng) -> Self {
        Self {
            name: format!("base-{number}"),
            fork_name: format!("fork-{number}"),
            chances,
            has_disk: number % 2 == 1,
            sandbox: Known::Gone,
            fork: Known::Gone,
            written: [0].into(),
            forked: [0].into(),
            taken: BTreeMap::new(),
            forks: 0,
            archives: 0,
            restores: 0,
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
        self.bring_back(client)?;
        match (self.sandbox, self.fork, self.chances.u8(..16)) {
            (Known::Gone, Known::Gone, _) => self.make(client),
            (_, Known::Gone, 0) => self.delete(client),
            (Known::There, Known::Gone, 1..=3) => self.fork(client),
            (Known::There, _, 4..=5) => self.snapshot(client),
            (_, _, 6) => self.delete_snapshots(client),
            (Known::There, _, 7..=8) => self.archive(client),
            (Known::There, _, 9..=10) => self.restore(client),
            (_, Known::There, 11..=13) => self.delete_fork(client),
            (_, Known::There, _) => self.read_fork(client),
            (..) => self.write(client),
        }
    }

    /// Learns the outcome of unanswered requests, and checks that of answered ones.
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
        if sandbox == Known::Gone {
            // The next sandbox of this name is a different one, which cannot be restored to them.
            self.taken.clear();
        }
        Ok(())
    }

    /// Returns the sandbox's status after any transition.
    fn settled(&self, client: &Client) -> Result<String, Lost> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = asked(client, "GET", &self.path(), None)?;
            let status = found["status"].as_str().unwrap();
            if !UNDER_WAY.contains(&status) {
                return Ok(status.to_owned());
            }
            assert!(Instant::now() < deadline, "{} stays as it is: {found}", self.name);
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Asks for something that needs the instance. If the kill took that too, the new server finds
    /// out only after it has said what the row says, and starts another.
    fn asked_of_instance(
        &self,
        client: &Client,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Lost> {
        loop {
            match client.ask("POST", path, body).ok_or(Lost)? {
                (200, answer) => return Ok(answer),
                (409, refused) if refused["message"].to_string().contains("is DEPLOYING;") => {
                    self.settled(client)?;
                }
                (status, answer) => panic!("POST {path}: {status} {answer}"),
            }
        }
    }

    /// Brings an archived sandbox back, no matter who archived it and whether that was answered.
    fn bring_back(&mut self, client: &Client) -> Result<(), Lost> {
        if self.sandbox == Known::Gone {
            return Ok(());
        }
        let mut status = self.settled(client)?;
        if status == "ARCHIVED" {
            asked(client, "POST", &format!("{}/unarchive", self.path()), None)?;
            status = self.settled(client)?;
        }
        assert_eq!(status, "DEPLOYED", "{}", self.name);
        Ok(())
    }

    fn archive(&mut self, client: &Client) -> Result<(), Lost> {
        self.asked_of_instance(client, &format!("{}/archive", self.path()), None)?;
        let status = self.settled(client)?;
        assert_eq!(status, "ARCHIVED", "{}", asked(client, "GET", &self.path(), None)?);
        self.archives += 1;
        if self.fork == Known::Gone && self.chances.u8(..4) == 0 {
            return self.delete(client);
        }
        self.bring_back(client)?;
        let number = self.read(client, &self.name)?;
        assert!(self.written.contains(&number), "{} came back with {number}", self.name);
        Ok(())
    }

    fn restore(&mut self, client: &Client) -> Result<(), Lost> {
        let there = self.snapshots(client)?;
        let known = self.taken.iter().filter(|(id, _)| there.contains(id));
        let Some((id, numbers)) = self.chances.choice(known.collect::<Vec<_>>()) else {
            return Ok(());
        };
        let (numbers, path) = (numbers.clone(), format!("{}/snapshots/{id}/restore", self.path()));
        // Until it is answered, both are possible.
        self.written.extend(&numbers);
        asked(client, "POST", &path, None)?;
        self.written = numbers;
        self.restores += 1;
        let number = self.read(client, &self.name)?;
        assert!(self.written.contains(&number), "{} was set back to {number}", self.name);
        Ok(())
    }

    fn make(&mut self, client: &Client) -> Result<(), Lost> {
        self.sandbox = Known::Open;
        (self.written, self.taken) = ([0].into(), BTreeMap::new());
        let mut runtime = json!({"image": IMAGE, "memory": 128, "generation": "mk2"});
        if self.has_disk {
            runtime["storageMb"] = json!(DISK_MB);
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
        self.asked_of_instance(client, &format!("{}/fork", self.path()), Some(&wish))?;
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

    fn snapshot(&mut self, client: &Client) -> Result<(), Lost> {
        let path = format!("{}/snapshots", self.path());
        let taken = self.asked_of_instance(client, &path, Some(&json!({})))?;
        assert_eq!(taken["status"], "ready", "{taken}");
        self.taken.insert(taken["id"].as_str().unwrap().to_owned(), self.written.clone());
        Ok(())
    }

    fn delete_snapshots(&self, client: &Client) -> Result<(), Lost> {
        for id in self.snapshots(client)? {
            // An unanswered request may have deleted it before a kill.
            let answer = client.ask("DELETE", &format!("/v0/snapshots/{id}"), None).ok_or(Lost)?;
            assert!([200, 204, 404].contains(&answer.0), "{answer:?}");
        }
        Ok(())
    }

    /// Returns the ids of the snapshots in the lists.
    fn snapshots(&self, client: &Client) -> Result<Vec<String>, Lost> {
        let all = listed(client)?;
        let own = all.iter().filter(|one| one["source"]["name"] == self.name.as_str());
        Ok(own.map(|one| one["id"].as_str().unwrap().to_owned()).collect())
    }

    fn write(&mut self, client: &Client) -> Result<(), Lost> {
        let number = self.read(client, &self.name)?;
        assert!(self.written.contains(&number), "{} has {number}", self.name);
        self.written = [number, number + 1].into();
        self.run(client, &self.name, &format!("echo {} > /new && mv /new /n", number + 1))?;
        self.written = [number + 1].into();
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
        self.forked = [number].into();
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

    /// Judges the state after a kill.
    fn rest(&mut self, client: &Client) {
        self.try_rest(client).unwrap_or_else(|Lost| panic!("nobody killed the server"));
    }

    fn try_rest(&mut self, client: &Client) -> Result<(), Lost> {
        self.look(client)?;
        if self.sandbox == Known::There {
            self.bring_back(client)?;
            let number = self.read(client, &self.name)?;
            assert!(self.written.contains(&number), "{} has {number}", self.name);
            self.written = [number].into();
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

/// Returns the number of snapshot folders, including those being made or removed.
fn folders(data: &Path) -> usize {
    let pool = machine::volume_folders(data).unwrap();
    let images = pool.iter().map(|volumes| names_below(&volumes.with_file_name("images")).len());
    names_below(&data.join("node/snapshots")).len() + images.sum::<usize>()
}

fn check(client: &Client, forkers: &mut [Forker]) {
    forkers.iter_mut().for_each(|forker| forker.rest(client));
    eventually("no snapshot is half there", || {
        let all = listed(client).unwrap_or_else(|Lost| panic!("nobody killed the server"));
        all.iter().all(|one| one["status"] != "pending")
    });
}

#[test]
fn a_killed_server_leaves_no_snapshot_half_there_and_no_sandbox_with_other_files() {
    let mut chances = chances();
    let mut place = Place::new("15s");
    let short = [("HOLM_SNAPSHOTS__TIDY_EVERY", "200ms"), ("HOLM_SNAPSHOTS__FORK_WITHIN", "15s")];
    place.settings.extend(short.map(|(name, value)| (name, value.to_owned())));
    let (mut server, mut client) = place.start();
    let mut forkers: Vec<_> =
        (0..FORKERS).map(|number| Forker::new(number, chances.fork())).collect();
    let is_enough = |forkers: &[Forker], kills| {
        forkers.iter().map(|it| it.forks + it.archives).sum::<usize>() > kills / 4
    };
    let (kills, mut lives) = (kills(), 0);
    while let Some(ms_max) = next_life_ms(lives, kills, is_enough(&forkers, kills)) {
        lives += 1;
        let life_ms = chances.u64(..ms_max);
        live_and_die(&mut server, life_ms, &mut forkers, |forker, over| {
            forker.act(&client, over);
        });
        (server, client) = place.start();
        // Sometimes the next kill comes while the server still recovers from the last.
        if chances.u8(..4) > 0 {
            check(&client, &mut forkers);
        }
    }
    check(&client, &mut forkers);
    let sum = |count: fn(&Forker) -> usize| forkers.iter().map(count).sum::<usize>();
    let (forks, archives, restores) =
        (sum(|it| it.forks), sum(|it| it.archives), sum(|it| it.restores));
    println!("{lives} kills, {forks} forks, {archives} archives, {restores} restores");
    assert!(is_enough(&forkers, kills), "hardly anything was done");
    forkers.iter_mut().for_each(|forker| forker.end(&client));
    eventually("nothing is left", || {
        let data = place.data();
        (folders(data), files(data), loops(data)) == (0, 0, 0)
    });
    place.clear(server, &client);
}
