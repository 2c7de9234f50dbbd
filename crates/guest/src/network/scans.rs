//! Looks at all processes and sockets, away from the thread that serves requests, and shares each
//! look among everybody who watches ports.

use super::proc::{Port, Snapshot};
use crate::blocking;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How old a look may be for those who look again and again.
const AGE_MAX: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(crate) struct Scans {
    /// The last look, and when it began. Whoever takes a new one holds this until it is there.
    last: Mutex<Option<(Instant, Arc<Snapshot>)>>,
}

/// Somebody who looks again and again. The first look is newer than the watch itself.
pub(crate) struct Watch<'s> {
    scans: &'s Scans,
    begun: Instant,
}

/// What one look has seen.
pub(crate) struct Seen(Arc<Snapshot>);

impl Scans {
    pub(crate) fn watch(&self) -> Watch<'_> {
        Watch { scans: self, begun: Instant::now() }
    }

    async fn since(&self, time: Instant) -> Result<Arc<Snapshot>, blocking::Error> {
        let mut last = self.last.lock().await;
        if let Some((begun, snapshot)) = &*last
            && *begun >= time
        {
            return Ok(snapshot.clone());
        }
        let begun = Instant::now();
        let snapshot = Arc::new(blocking::run(Snapshot::take).await?);
        *last = Some((begun, snapshot.clone()));
        Ok(snapshot)
    }
}

impl Watch<'_> {
    pub(crate) async fn look(&self) -> Result<Seen, blocking::Error> {
        let now = Instant::now();
        let recent = now.checked_sub(AGE_MAX).unwrap_or(now);
        self.scans.since(recent.max(self.begun)).await.map(Seen)
    }
}

impl Seen {
    /// Returns the sockets of a process and all its descendants.
    pub(crate) async fn ports_of(&self, pid: i32) -> Result<Vec<Port>, blocking::Error> {
        let snapshot = self.0.clone();
        blocking::run(move || snapshot.ports(&[pid])).await
    }

    /// Returns the ports on which processes, or what is left of them, can be reached from outside.
    pub(crate) async fn reachable_ports(
        &self,
        roots: Vec<i32>,
    ) -> Result<HashSet<u16>, blocking::Error> {
        let snapshot = self.0.clone();
        blocking::run(move || snapshot.reachable_ports(&roots)).await
    }

    /// Returns whether anything of a process was left.
    pub(crate) fn is_alive(&self, pid: i32) -> bool {
        self.0.is_alive(pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everybody_who_watches_shares_one_look() {
        let (scans, begun) = (Scans::default(), Instant::now());
        let (first, second) = tokio::join!(scans.since(begun), scans.since(begun));
        let (first, second) = (first.unwrap(), second.unwrap());
        assert!(Arc::ptr_eq(&first, &second));
        assert!(Arc::ptr_eq(&first, &scans.since(begun).await.unwrap()));
    }

    #[tokio::test]
    async fn nobody_sees_what_was_before_the_watch() {
        let scans = Scans::default();
        let first = scans.watch().look().await.unwrap();
        assert!(!Arc::ptr_eq(&first.0, &scans.watch().look().await.unwrap().0));
    }
}
