//! A folder with a database, servers that use it, and repeatable randomness.

use crate::client::Client;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testing::{Cluster, Holm, Start};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Database {
    Sqlite,
    Postgres,
}

/// Removed with its content on drop; the servers in it must be gone by then.
pub(crate) struct Place {
    data: TempDir,
    /// The folder of a second server.
    beside: TempDir,
    pub(crate) cluster: Option<Cluster>,
    key: Option<String>,
    /// Settings in addition to the usual ones.
    pub(crate) settings: Vec<(&'static str, String)>,
}

impl Place {
    pub(crate) fn new(database: Database) -> Self {
        let cluster = || Cluster::start(&std::env::temp_dir()).expect("PostgreSQL starts");
        let cluster = (database == Database::Postgres).then(cluster);
        let [data, beside] = [(), ()].map(|()| tempfile::tempdir().unwrap());
        Self { data, beside, cluster, key: None, settings: Vec::new() }
    }

    /// Starts a server. Returns how long it took to answer a request from the database.
    pub(crate) fn start(&mut self) -> (Holm, Client, Duration) {
        self.start_in(self.data.path().to_owned())
    }

    /// Starts two servers on the same database, each with a folder of its own.
    pub(crate) fn start_two(&mut self) -> [(Holm, Client); 2] {
        let key_file = self.data.path().join("seal.keys").display().to_string();
        self.settings.push(("HOLM_STORE__KEY_FILE", key_file));
        [self.data.path().to_owned(), self.beside.path().to_owned()].map(|data| {
            let (server, client, _) = self.start_in(data);
            (server, client)
        })
    }

    fn start_in(&mut self, data: PathBuf) -> (Holm, Client, Duration) {
        let begun = Instant::now();
        let limits = ["KEY_PER_SECOND", "KEY_BURST", "WORKSPACE_PER_SECOND", "WORKSPACE_BURST"];
        let names = limits.map(|limit| format!("HOLM_LIMITS__{limit}"));
        let start = Start {
            program: std::env::var_os("HOLM_PROGRAM")
                .unwrap_or(env!("CARGO_BIN_EXE_holm").into())
                .into(),
            data: &data,
            database: self.cluster.as_ref().map(Cluster::url),
            settings: names
                .iter()
                .map(|name| (name.as_str(), "1000000".to_owned()))
                .chain(self.settings.iter().cloned())
                .collect(),
        };
        let mut server = start.run().expect("the server starts");
        self.key = self.key.take().or(server.key.take());
        let client =
            Client::new(&server.address, self.key.as_deref().expect("the first start shows a key"));
        client.get("/quotas");
        (server, client, begun.elapsed())
    }

    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }
}

/// Returns how often a test breaks something.
pub(crate) fn times(short: usize, long: usize) -> usize {
    if is_long() { long } else { short }
}

pub(crate) fn is_long() -> bool {
    std::env::var("HOLM_FAULTS").is_ok_and(|form| form == "long")
}

/// Random seed of a test, which is shown when it fails, so that the test can be repeated.
pub(crate) struct Chances {
    seed: u64,
}

impl Chances {
    pub(crate) fn new() -> Self {
        let told = std::env::var("HOLM_SEED")
            .ok()
            .map(|seed| seed.parse().expect("HOLM_SEED is a number"));
        Self { seed: told.unwrap_or_else(|| fastrand::u64(..)) }
    }

    /// Returns the generator for one part of the test, independent of the progress of the others.
    pub(crate) fn of(&self, part: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

impl Drop for Chances {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("HOLM_SEED={} repeats the chances of this test", self.seed);
        }
    }
}
