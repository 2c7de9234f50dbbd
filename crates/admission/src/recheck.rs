//! Rechecks long-lived connections: each caller is judged again now and then, and their connection
//! ends once they would no longer be let in.

use std::future::Future;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

/// Something that expires by itself, such as a token, is noticed within this time; changes sooner.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long to wait for further changes, so that changes close together cause one look.
const GATHERING: Duration = Duration::from_millis(100);
/// How many connections are looked at at once, so that one change does not send all of them to the
/// database together. Connections with the same credentials find the result cached.
const LOOKS_AT_ONCE: usize = 4;
/// How long a connection may stay open while its caller's right to it cannot be determined.
const UNSURE_MAX: Duration = Duration::from_secs(60);

/// The result of a look.
#[derive(Debug)]
pub enum Verdict<E> {
    Good,
    /// It cannot be determined now, for example because the database is away.
    Unsure(E),
    Refused(E),
}

/// Limits how many connections of a server are looked at at once.
#[derive(Debug)]
pub struct Recheck(Semaphore);

impl Default for Recheck {
    fn default() -> Self {
        Self(Semaphore::new(LOOKS_AT_ONCE))
    }
}

impl Recheck {
    /// Looks whenever a look is due, until the caller would be refused. Returns the reason.
    pub async fn until_refused<E, F: Future<Output = Verdict<E>>>(
        &self,
        mut due: Due,
        mut look: impl FnMut() -> F,
    ) -> E {
        let mut unsure_since = None;
        loop {
            due.next().await;
            let turn = self.0.acquire().await;
            let verdict = look().await;
            drop(turn);
            match verdict {
                Verdict::Good => unsure_since = None,
                Verdict::Unsure(why) => {
                    let since: Instant = *unsure_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > UNSURE_MAX {
                        return why;
                    }
                }
                Verdict::Refused(why) => return why,
            }
        }
    }
}

/// When a connection is to be looked at again.
#[derive(Debug)]
pub enum Due {
    /// Every few seconds, and soon after any of these changes.
    Changes(Vec<watch::Receiver<()>>),
    /// Whenever [`tell_when_due`] says so. Cheap for a connection that ends before its first look.
    Told(watch::Receiver<()>),
}

impl Due {
    async fn next(&mut self) {
        match self {
            Self::Changes(changes) => {
                if timeout(LOOK_EVERY, any_change(changes)).await.is_ok() {
                    sleep(GATHERING).await;
                    changes.iter_mut().for_each(watch::Receiver::mark_unchanged);
                }
            }
            Self::Told(due) => changed(due).await,
        }
    }
}

/// Signals `told` whenever the connections that share these changes are due for a look. Never ends.
pub async fn tell_when_due(changes: Vec<watch::Receiver<()>>, told: watch::Sender<()>) {
    let mut due = Due::Changes(changes);
    loop {
        due.next().await;
        told.send_replace(());
    }
}

async fn changed(changes: &mut watch::Receiver<()>) {
    // The sender is dropped only when the server ends.
    if changes.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn any_change(changes: &mut [watch::Receiver<()>]) {
    let all = changes.iter_mut().map(|changes| Box::pin(changed(changes)));
    if all.len() == 0 {
        std::future::pending::<()>().await;
    }
    futures_util::future::select_all(all).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test(start_paused = true)]
    async fn a_change_is_looked_at_soon_and_an_end_within_seconds() {
        let (recheck, sender, good) = (Recheck::default(), watch::Sender::new(()), Cell::new(true));
        let look =
            || async { if good.get() { Verdict::Good } else { Verdict::Refused("revoked") } };
        let begun = Instant::now();
        let change = async {
            sleep(Duration::from_secs(12)).await;
            good.set(false);
            sender.send_replace(());
        };
        let (why, ()) = tokio::join!(
            recheck.until_refused(Due::Changes(vec![sender.subscribe()]), look),
            change
        );
        assert_eq!((why, begun.elapsed()), ("revoked", Duration::from_secs(12) + GATHERING));
        let begun = Instant::now();
        recheck.until_refused(Due::Changes(Vec::new()), look).await;
        assert_eq!(begun.elapsed(), LOOK_EVERY);
    }

    #[tokio::test(start_paused = true)]
    async fn who_shares_the_changes_is_told_as_soon() {
        let (changes, told) = (watch::Sender::new(()), watch::Sender::new(()));
        let mut due = Due::Told(told.subscribe());
        tokio::spawn(tell_when_due(vec![changes.subscribe()], told));
        let begun = Instant::now();
        due.next().await;
        assert_eq!(begun.elapsed(), LOOK_EVERY);
        changes.send_replace(());
        due.next().await;
        assert_eq!(begun.elapsed(), LOOK_EVERY + GATHERING);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_sent_away_because_the_database_is_away_for_a_moment() {
        let (recheck, looks, begun) = (Recheck::default(), Cell::new(0), Instant::now());
        let look = || async {
            looks.set(looks.get() + 1);
            if looks.get() % 10 == 0 { Verdict::Good } else { Verdict::Unsure("away") }
        };
        timeout(Duration::from_secs(600), recheck.until_refused(Due::Changes(Vec::new()), look))
            .await
            .unwrap_err();
        let away = || async { Verdict::Unsure("away") };
        assert_eq!(recheck.until_refused(Due::Changes(Vec::new()), away).await, "away");
        assert!(begun.elapsed() < Duration::from_secs(600) + 2 * UNSURE_MAX);
    }
}
