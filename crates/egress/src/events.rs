//! Events about what rules did, kept until they are fetched.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use tokio::sync::Notify;
use types::World;
use types::egress::{EgressDecision, EgressEvent};
use types::instance::InstanceName;

/// How many events are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventLimits {
    /// How many events of one instance can wait.
    pub(crate) kept_max: usize,
    /// How many events of one instance are kept per second on average.
    pub(crate) per_second: u32,
}

impl Default for EventLimits {
    fn default() -> Self {
        Self { kept_max: 128, per_second: 20 }
    }
}

/// Longest text in an event, such as a path: these texts are hostile, and only for people to read.
const TEXT_BYTES_MAX: usize = 512;
const INJECTED_MAX: usize = 32;

/// An event that has not been kept yet.
#[derive(Debug)]
pub(crate) struct Note {
    pub(crate) decision: EgressDecision,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) method: Option<String>,
    /// A query is cut off before it is kept.
    pub(crate) path: Option<String>,
    pub(crate) rule: String,
    pub(crate) injected: Vec<String>,
}

impl Note {
    /// Creates a note; the caller fills in the rest.
    pub(crate) fn new(decision: EgressDecision, host: String, port: u16) -> Self {
        let (rule, injected) = (String::new(), Vec::new());
        Self { decision, host, port, method: None, path: None, rule, injected }
    }
}

#[derive(Debug)]
pub(crate) struct Events {
    instances: Mutex<HashMap<InstanceName, Waiting>>,
    is_any: Notify,
    world: World,
    limits: EventLimits,
}

/// The events of one instance. A flood from one instance does not displace those of others.
#[derive(Debug)]
struct Waiting {
    events: VecDeque<EgressEvent>,
    /// In thousandths of an event.
    credit: i64,
    credit_at_ms: i64,
    left_out: u64,
}

impl Events {
    pub(crate) fn new(world: World, limits: EventLimits) -> Self {
        Self { instances: Mutex::default(), is_any: Notify::new(), world, limits }
    }

    pub(crate) fn note(&self, instance: &InstanceName, note: Note) {
        let decision = note.decision.name();
        metrics::counter!("holm_egress_decisions_total", "decision" => decision).increment(1);
        let now_ms = self.world.uptime_ms();
        let mut instances = self.instances.lock();
        if !instances.contains_key(instance) {
            let waiting = Waiting::new(now_ms, self.limits);
            instances.insert(instance.clone(), waiting);
        }
        let Some(waiting) = instances.get_mut(instance) else { return };
        waiting.earn(now_ms, self.limits);
        if waiting.credit < COST || waiting.events.len() >= self.limits.kept_max {
            waiting.left_out += 1;
            return;
        }
        waiting.credit -= COST;
        let left_out = std::mem::take(&mut waiting.left_out);
        waiting.events.push_back(EgressEvent {
            at: self.world.now(),
            instance: instance.clone(),
            decision: note.decision,
            host: cut(note.host),
            port: note.port,
            method: note.method.map(cut),
            path: note.path.map(|path| cut(path.split('?').next().unwrap_or_default().to_owned())),
            rule: cut(note.rule),
            injected: note.injected.into_iter().take(INJECTED_MAX).map(cut).collect(),
            left_out,
        });
        drop(instances);
        self.is_any.notify_one();
    }

    /// Waits until there are events and takes all of them. Those of an instance are in their order.
    /// There must be only one reader.
    pub(crate) async fn next(&self) -> Vec<EgressEvent> {
        loop {
            let taken = self.take();
            if !taken.is_empty() {
                return taken;
            }
            self.is_any.notified().await;
        }
    }

    fn take(&self) -> Vec<EgressEvent> {
        let now_ms = self.world.uptime_ms();
        let mut taken = Vec::new();
        self.instances.lock().retain(|_, waiting| {
            taken.extend(waiting.events.drain(..));
            waiting.earn(now_ms, self.limits);
            // An instance that was quiet for long is in the same state as a new one.
            waiting.left_out > 0 || waiting.credit < credit_max(self.limits)
        });
        taken
    }

    /// Forgets an instance that is gone. Events that still wait are delivered.
    pub(crate) fn forget(&self, instance: &InstanceName) {
        let mut instances = self.instances.lock();
        if instances.get(instance).is_some_and(|waiting| waiting.events.is_empty()) {
            instances.remove(instance);
        }
    }
}

const COST: i64 = 1000;

/// How much credit can pile up: events of a few seconds may come at once.
fn credit_max(limits: EventLimits) -> i64 {
    i64::from(limits.per_second).max(1) * COST * 5
}

impl Waiting {
    fn new(now_ms: i64, limits: EventLimits) -> Self {
        let credit = credit_max(limits);
        Self { events: VecDeque::new(), credit, credit_at_ms: now_ms, left_out: 0 }
    }

    fn earn(&mut self, now_ms: i64, limits: EventLimits) {
        let elapsed_ms = now_ms.saturating_sub(self.credit_at_ms).max(0);
        self.credit_at_ms = now_ms;
        let earned = elapsed_ms.saturating_mul(i64::from(limits.per_second).max(1));
        self.credit = self.credit.saturating_add(earned).min(credit_max(limits));
    }
}

fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX).rev().find(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};
    use types::Timestamp;

    fn note(path: &str) -> Note {
        Note {
            decision: EgressDecision::Blocked,
            host: "a.b".to_owned(),
            port: 443,
            method: Some("GET".to_owned()),
            path: Some(path.to_owned()),
            rule: "forbiddenDomains: a.b".to_owned(),
            injected: Vec::new(),
        }
    }

    fn instance(text: &str) -> InstanceName {
        InstanceName::new(text).unwrap()
    }

    #[tokio::test]
    async fn a_flood_of_one_leaves_the_others_alone() {
        let now = Arc::new(AtomicI64::new(0));
        let clock = Arc::clone(&now);
        let time = move || Timestamp::from_ms(clock.load(Ordering::Relaxed));
        let world = World::new(time, crate::fixture::fill);
        let events = Events::new(world, EventLimits { kept_max: 8, per_second: 1 });
        let (loud, quiet) = (instance("loud"), instance("quiet"));
        for number in 0..1000 {
            events.note(&loud, note(&format!("/{number}?key=hush")));
        }
        events.note(&quiet, note("/"));
        let told = events.next().await;
        let of = |name: &InstanceName| told.iter().filter(|it| it.instance == *name).count();
        assert_eq!((of(&loud), of(&quiet)), (5, 1));
        assert!(told.iter().all(|event| !event.path.as_ref().unwrap().contains("hush")));
        // The next event that is kept says how many were left out.
        now.fetch_add(1000, Ordering::Relaxed);
        events.note(&loud, note("/again"));
        assert_eq!(events.next().await[0].left_out, 995);
        now.fetch_add(60_000, Ordering::Relaxed);
        assert!(events.take().is_empty());
        assert!(events.instances.lock().is_empty(), "nobody is remembered for ever");
    }

    #[tokio::test]
    async fn a_reader_waits_and_long_texts_are_cut() {
        let events = Arc::new(Events::new(crate::fixture::world(), EventLimits::default()));
        let reader = tokio::spawn({
            let events = Arc::clone(&events);
            async move { events.next().await }
        });
        tokio::task::yield_now().await;
        events.note(&instance("a"), note(&format!("/{}", "ä".repeat(5000))));
        let told = reader.await.unwrap();
        assert!(told[0].path.as_ref().unwrap().len() <= TEXT_BYTES_MAX + 3);
        events.forget(&instance("a"));
        assert!(events.instances.lock().is_empty());
    }
}
