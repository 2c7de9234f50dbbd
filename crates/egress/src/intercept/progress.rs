//! Tracks when something moved last, and whether the rules still allow it.

use crate::client::Client;
use crate::pattern::Paths;
use crate::policy::{Policy, RequestVerdict};
use http::Method;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use types::kinds::network::ProxyTarget;
use types::parts::hosts::Host;
use types::parts::{Sensitive, TextMap};

/// The progress of a connection or of one request.
#[derive(Debug)]
pub(super) struct Progress {
    begun: Instant,
    /// Milliseconds after `begun`.
    moved_at: AtomicU64,
    requests: AtomicUsize,
}

/// Marks a request as in progress while it exists.
#[derive(Debug)]
pub(super) struct UnderWay(Arc<Progress>);

impl Progress {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), moved_at: AtomicU64::new(0), requests: AtomicUsize::new(0) }
    }

    pub(super) fn moved(&self) {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved_at.store(now, Ordering::Relaxed);
    }

    /// Returns for how long nothing has moved.
    pub(super) fn quiet(&self) -> Duration {
        let moved_at = Duration::from_millis(self.moved_at.load(Ordering::Relaxed));
        self.begun.elapsed().saturating_sub(moved_at)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    pub(super) fn begin(self: &Arc<Self>) -> UnderWay {
        self.moved();
        self.requests.fetch_add(1, Ordering::Relaxed);
        UnderWay(Arc::clone(self))
    }

    /// Waits for a future as long as something moves. Returns `None` if nothing moved for `limit`.
    pub(super) async fn while_moving<T>(
        &self,
        limit: Duration,
        wanted: impl Future<Output = T>,
    ) -> Option<T> {
        let mut wanted = pin!(wanted);
        loop {
            tokio::select! {
                wanted = wanted.as_mut() => return Some(wanted),
                () = sleep(limit.saturating_sub(self.quiet())) => {
                    if self.quiet() >= limit {
                        return None;
                    }
                }
            }
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
        self.0.moved();
    }
}

/// A request that the rules let pass, and that is judged again when they have changed.
#[derive(Debug, Clone)]
pub(super) struct Leash {
    client: Arc<Client>,
    /// By which something was added to the request.
    made_by: Arc<Policy>,
    judged: Arc<Policy>,
    asked: Arc<Asked>,
    connection: Arc<Progress>,
    own: Arc<Progress>,
}

/// By how many names of an address a request to it is judged. Whoever has a zone can give an address
/// any number of names, and each is compared with all entries.
const NAMES_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Asked {
    pub(super) host: Host,
    /// The hosts that the lists apply to: the host itself, or the names that its address was given
    /// out for.
    pub(super) names: Vec<Host>,
    pub(super) method: Method,
    /// With its query, as the program wrote it.
    pub(super) path: String,
}

impl Leash {
    pub(super) fn new(
        client: Arc<Client>,
        made_by: Arc<Policy>,
        asked: Asked,
        connection: Arc<Progress>,
    ) -> Self {
        let (judged, own) = (Arc::clone(&made_by), Arc::new(Progress::new()));
        Self { client, made_by, judged, asked: Arc::new(asked), connection, own }
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.own
    }

    pub(super) fn asked(&self) -> &Asked {
        &self.asked
    }

    /// Returns whether the rules still let the request pass. Must be called for each piece that
    /// moves.
    pub(super) fn holds(&mut self) -> bool {
        self.connection.moved();
        self.own.moved();
        let policy = self.client.policy();
        if Arc::ptr_eq(&policy, &self.judged) {
            return true;
        }
        let passes = self.asked.rule_against(&policy).is_none();
        self.judged = if passes { policy } else { Arc::clone(&self.judged) };
        passes
    }

    /// Waits until the rules forbid the request, and returns the rule.
    pub(super) async fn forbidden(&self) -> String {
        let mut known = Arc::clone(&self.judged);
        loop {
            known = self.client.policy_after(&known).await;
            if let Some(rule) = self.asked.rule_against(&known) {
                return rule;
            }
        }
    }

    /// Returns why the request must not be sent as it was made, if the rules have changed since:
    /// they forbid it, or add something else to it.
    pub(super) fn rule_against_sending(&self) -> Option<String> {
        let policy = self.client.policy();
        if Arc::ptr_eq(&policy, &self.made_by) {
            return None;
        }
        self.asked.rule_against(&policy).or_else(|| {
            let adds = self.asked.routes(&policy).map(added);
            (!adds.eq(self.asked.routes(&self.made_by).map(added)))
                .then(|| "routing: it changed while the request waited to be sent".to_owned())
        })
    }
}

impl Asked {
    /// Returns the rule that forbids the request, if there is one. Each of the names must pass.
    pub(super) fn rule_against(&self, policy: &Policy) -> Option<String> {
        if self.names.len() > NAMES_MAX && policy.rules().has_lists() {
            return Some(format!("an address with more than {NAMES_MAX} names"));
        }
        // One for all names, so that many cost no more than one may.
        let paths = Paths::of(&self.path);
        self.names.iter().find_map(|name| match policy.of_request(name, &self.method, &paths) {
            RequestVerdict::Block { rule } => Some(rule),
            RequestVerdict::Pass { .. } => None,
        })
    }

    /// Returns the rules that add something to the request. They go by the host that it names: a
    /// secret that is for a name is not sent to whoever has the address.
    pub(super) fn routes<'a>(
        &self,
        policy: &'a Policy,
    ) -> impl Iterator<Item = &'a ProxyTarget> + use<'a> {
        policy.routes(&self.host, &self.method, &self.path)
    }
}

type Added<'a> = (&'a Option<TextMap>, &'a Option<TextMap>, &'a Option<Sensitive<TextMap>>);

/// Returns what a rule adds. Which other hosts it is for does not matter to a request.
fn added(ProxyTarget { destinations: _, headers, body, secrets }: &ProxyTarget) -> Added<'_> {
    (headers, body, secrets)
}
