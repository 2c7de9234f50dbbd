//! PostgreSQL: a few threads with one connection each, which serve a common queue.

mod encoding;
mod failure;
mod link;
mod pooler;
mod replication;
mod servers;
mod tls;

pub(super) use link::Link;
pub use replication::{Replication, replication};
pub use servers::{DatabaseServer, database_servers};

use super::access::Access;
use super::settings::Settings;
use super::threads::{self, Shared};
use super::tx::{Conn, Tx};
use super::work::Job;
use crate::{Error, feed, migrations};
use link::Connector;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Most attempts at a transaction when the database or the order of the feed asks for a repetition.
const ATTEMPTS_MAX: u32 = 10;
/// Most attempts at a transaction that found a duplicate. The next one sees that row, and can decide
/// what it means. Where nobody looks for it, the duplicate is the answer.
const DUPLICATE_ATTEMPTS_MAX: u32 = 3;
/// Longest pause between two attempts. Part of each pause is random, to keep rivals apart.
const PAUSE_MAX_MS: u64 = 100;
/// How long requests fail at once after a failed connection attempt. Doubles with each failure in a
/// row, from the minimum to the maximum.
const RECONNECT_MIN: Duration = Duration::from_millis(50);
const RECONNECT_MAX: Duration = Duration::from_secs(2);
/// A job that has been with a thread for longer, which found no connection for it, is not left to
/// another thread: its caller would wait as long for each of them.
const PASS_ON_WITHIN: Duration = Duration::from_secs(1);
/// How often it is logged that there are fewer connections than there should be.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// Advisory lock that is held while the schema is brought up to date. Any number that nobody else
/// uses will do.
const MIGRATION_LOCK: i64 = 0x686f_6c6d_0001;

type Queued = (Access, Job);
type Queue = crossbeam_channel::Sender<Queued>;

pub(super) struct Engine {
    /// The threads end with it.
    queue: Arc<Queue>,
    waiting_max: usize,
}

impl Engine {
    pub(super) fn open(url: &str, settings: &Settings, shared: &Shared) -> Result<Self, Error> {
        let mut connector = Connector::new(url, settings)?;
        let mut link = connector.connect_first()?;
        pooler::refuse(&mut connector, &link)?;
        replication::require_primary(&mut link)?;
        // A backup leads out of a database that has the wrong encoding.
        if settings.reads_beside {
            require_current(&mut link, shared)?;
        } else {
            encoding::require_utf8(&mut link)?;
            migrate(&mut link, shared)?;
        }
        follow_history(&mut link, shared)?;
        let wanted = settings.connections.max(1);
        let (mut first, outage) = (Some(link), Outage::default());
        let (queue, inbox) = crossbeam_channel::bounded::<Queued>(settings.waiting_max);
        let queue = Arc::new(queue);
        for _ in 0..wanted {
            let (shared, inbox) = (shared.clone(), inbox.clone());
            let (connector, outage) = (connector.clone(), outage.clone());
            let (link, queue) = (first.take(), Arc::downgrade(&queue));
            let mut thread = Thread { connector, link, outage, shared, queue, wanted };
            let run = move || {
                while let Ok((access, job)) = inbox.recv() {
                    thread.serve(access, job);
                    thread.rejoin();
                }
            };
            threads::spawn("store-postgres", run)?;
        }
        Ok(Self { queue, waiting_max: settings.waiting_max })
    }

    pub(super) fn submit(&self, access: Access, job: Job) -> Result<(), Error> {
        self.queue.try_send((access, job)).map_err(|_| Error::Busy { limit: self.waiting_max })
    }
}

fn require_current(link: &mut Link, shared: &Shared) -> Result<(), Error> {
    link.begin(Access::Read);
    let checked = migrations::require_current(&mut Tx::new(Conn::Postgres(link), shared));
    link.rollback()?;
    checked
}

/// Brings the schema up to date, however long that takes: a step may copy a large table.
fn migrate(link: &mut Link, shared: &Shared) -> Result<(), Error> {
    let usual = std::mem::replace(&mut link.answer_within, Duration::MAX);
    alone(link, shared, |tx| {
        tx.execute("SET LOCAL statement_timeout = 0", &[])?;
        migrations::run(tx)
    })?;
    link.answer_within = usual;
    Ok(())
}

/// Moves revisions above all that were ever given out, including those of a primary that this
/// database server has replaced meanwhile. Must be done with every new connection before anything
/// else; see the module `feed`.
fn follow_history(link: &mut Link, shared: &Shared) -> Result<(), Error> {
    // The transaction must be able to write: a standby refuses that, so it is not used until
    // promoted.
    link.begin(Access::Write);
    let anchored = feed::is_anchored(&mut Tx::new(Conn::Postgres(link), shared));
    link.rollback()?;
    if anchored? { Ok(()) } else { alone(link, shared, feed::anchor) }
}

/// Runs a step in a transaction of its own, while no other server runs one.
fn alone(
    link: &mut Link,
    shared: &Shared,
    step: fn(&mut Tx<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    link.begin(Access::Write);
    let mut tx = Tx::new(Conn::Postgres(link), shared);
    tx.execute("SELECT pg_advisory_xact_lock($1)", &[MIGRATION_LOCK.into()])?;
    step(&mut tx)?;
    link.commit()
}

/// The state of one database thread.
struct Thread {
    connector: Connector,
    link: Option<Link>,
    outage: Outage,
    shared: Shared,
    queue: Weak<Queue>,
    /// How many connections there should be.
    wanted: usize,
}

impl Thread {
    fn serve(&mut self, access: Access, mut job: Job) {
        let begun = Instant::now();
        match self.run(access, &mut job) {
            Ok(Done::Written { newest }) => {
                job.answer();
                self.shared.note_commit(newest);
            }
            Ok(Done::Unchanged) => {
                // Nothing depends on how this transaction ends, so the caller need not wait for
                // that.
                job.answer();
                if let Some(Err(error)) = self.link.as_mut().map(Link::rollback) {
                    tracing::debug!(%error, "a transaction could not be ended");
                }
            }
            // Nothing was done, and others have connections.
            Err(error @ Error::Unreachable(_))
                if self.connector.links() > 0 && begun.elapsed() < PASS_ON_WITHIN =>
            {
                self.pass_on(access, job, error);
            }
            Err(error) => job.fail(error),
        }
        self.link = self.link.take().filter(Link::is_alive);
    }

    /// Leaves a job to another thread.
    fn pass_on(&self, access: Access, job: Job, error: Error) {
        let left = match self.queue.upgrade() {
            Some(queue) => queue.try_send((access, job)).map_err(|full| full.into_inner()),
            None => Err((access, job)),
        };
        if let Err((_, job)) = left {
            job.fail(error);
        }
    }

    /// Waits for a connection after an attempt that failed, as long as other threads have some: this
    /// one would only keep jobs from them. Without any connection, jobs must be told so at once.
    fn rejoin(&mut self) {
        while self.link.is_none() && self.connector.links() > 0 {
            let Some(pause) = self.outage.left() else { return };
            thread::sleep(pause);
            let (links, wanted) = (self.connector.links(), self.wanted);
            match self.reconnected() {
                Ok(link) => self.link = Some(link),
                Err(Error::Unreachable(Some(error))) if links > 0 && self.outage.may_warn() => {
                    tracing::warn!(
                        error = &*error as &dyn std::error::Error,
                        "only {links} of the {wanted} connections that `store.connections` wants can be had: let the database accept more, or lower it"
                    );
                }
                Err(_) => {}
            }
        }
    }

    /// Runs a job to its end, after which the job holds its own result. If the connection turns out
    /// to have broken before anything was done, the job runs again on a new one.
    fn run(&mut self, access: Access, job: &mut Job) -> Result<Done, Error> {
        let mut attempt = 1;
        let mut link = self.connected()?;
        loop {
            link.begin(access);
            let mut tx = Tx::new(Conn::Postgres(&mut link), &self.shared);
            let keep = job.run(&mut tx) && access == Access::Write;
            let (repeat, found_duplicate) = (tx.repeat, tx.found_duplicate && !keep);
            let mut recorded = tx.into_recorded();
            if link.was_gone() && attempt == 1 {
                drop(link);
                link = self.reconnected()?;
                attempt += 1;
                continue;
            }
            let committed = if keep && !repeat { link.commit() } else { Ok(()) };
            let attempts_max = match repeat || link.asks_for_repetition() {
                true => ATTEMPTS_MAX,
                false if found_duplicate => DUPLICATE_ATTEMPTS_MAX,
                false => 1,
            };
            if link.is_alive() && attempt < attempts_max {
                // Ignored: if the transaction cannot be undone, the next attempt will notice.
                let _ = link.rollback();
                thread::sleep(pause(&self.shared, attempt));
                attempt += 1;
                continue;
            }
            self.link = Some(link);
            return match committed {
                Ok(()) if keep && !repeat => {
                    recorded.undo.keep();
                    Ok(Done::Written { newest: recorded.newest })
                }
                // The job returned an error of its own, or only read.
                Ok(()) => Ok(Done::Unchanged),
                Err(error) => Err(error),
            };
        }
    }

    /// Returns the connection of this thread, or opens one.
    fn connected(&mut self) -> Result<Link, Error> {
        match self.link.take() {
            Some(link) => Ok(link),
            None => self.reconnected(),
        }
    }

    fn reconnected(&mut self) -> Result<Link, Error> {
        let Self { connector, outage, shared, .. } = self;
        outage.connect(|| {
            let mut link = connector.connect()?;
            follow_history(&mut link, shared)?;
            Ok(link)
        })
    }
}

/// The outcome of a job.
enum Done {
    /// Its changes are durable. `newest` is the newest revision that it recorded in the feed.
    Written { newest: Option<i64> },
    /// It changed nothing; its transaction may still be open.
    Unchanged,
}

/// A database outage as the threads see it. They share it, so that the first one to get through ends
/// the outage for all.
#[derive(Clone, Default)]
struct Outage(Arc<Mutex<Pause>>);

#[derive(Default)]
struct Pause {
    /// The time of the next attempt, and the pause before it.
    next: Option<(Instant, Duration)>,
    warned: Option<Instant>,
}

impl Outage {
    /// Returns how long nobody tries to connect. `None` if the last attempt succeeded.
    fn left(&self) -> Option<Duration> {
        self.0.lock().next.map(|(at, _)| at.saturating_duration_since(Instant::now()))
    }

    fn may_warn(&self) -> bool {
        let warned = &mut self.0.lock().warned;
        let may = warned.is_none_or(|last| last.elapsed() >= WARN_EVERY);
        if may {
            *warned = Some(Instant::now());
        }
        may
    }

    fn connect(&self, open: impl FnOnce() -> Result<Link, Error>) -> Result<Link, Error> {
        let before = self.0.lock().next;
        if before.is_some_and(|(at, _)| Instant::now() < at) {
            return Err(Error::Unreachable(None));
        }
        let connected = open();
        let now = &mut self.0.lock().next;
        match &connected {
            Ok(_) => *now = None,
            // Threads that fail at the same time count as one failure.
            Err(_) if *now == before => {
                let pause =
                    before.map_or(RECONNECT_MIN, |(_, pause)| (pause * 2).min(RECONNECT_MAX));
                *now = Some((Instant::now() + pause, pause));
            }
            Err(_) => {}
        }
        connected.map_err(|error| Error::Unreachable(Some(Box::new(error))))
    }
}

fn pause(shared: &Shared, attempt: u32) -> Duration {
    let [random] = shared.world.random_bytes::<1>();
    let ms = (1 << attempt.min(6)) * (128 + u64::from(random)) / 256;
    Duration::from_millis(ms.min(PAUSE_MAX_MS))
}
