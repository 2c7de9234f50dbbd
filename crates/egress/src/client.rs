//! What the way out knows about an instance.

use crate::names::given_out::GivenOut;
use crate::policy::{Policy, Verdict};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use subtle::ConstantTimeEq;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use types::instance::InstanceName;
use types::parts::Sensitive;
use types::parts::hosts::Host;

/// How an instance is identified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub instance: InstanceName,
    /// Its address, which no other instance on the machine has at the same time.
    pub address: Ipv4Addr,
    /// The owner, whose share of the machine its connections and queries use.
    pub owner: String,
}

/// One instance. Its connections hold this and ask it for the current rules.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) instance: InstanceName,
    /// The address by which the machine's firewall knows it.
    pub(crate) address: Ipv4Addr,
    /// The owner, whose share its connections use.
    pub(crate) owner: String,
    policy: watch::Sender<Arc<Policy>>,
    credential: RwLock<Sensitive<String>>,
    given_out: Mutex<GivenOut>,
    open: Mutex<Open>,
}

impl Client {
    #[cfg(test)]
    pub(crate) fn new(instance: InstanceName, policy: Policy) -> Self {
        let (address, owner) = (Ipv4Addr::LOCALHOST, "somebody".to_owned());
        let known = Known { instance, address, owner };
        Self::known(known, policy, Sensitive("none".to_owned()), 128)
    }

    pub(crate) fn known(
        Known { instance, address, owner }: Known,
        policy: Policy,
        credential: Sensitive<String>,
        names_max: usize,
    ) -> Self {
        Self {
            instance,
            address,
            owner,
            policy: watch::Sender::new(Arc::new(policy)),
            credential: RwLock::new(credential),
            given_out: Mutex::new(GivenOut::new(names_max)),
            open: Mutex::default(),
        }
    }

    pub(crate) fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.borrow())
    }

    /// Waits until the rules are others than these, and returns them.
    pub(crate) async fn policy_after(&self, known: &Arc<Policy>) -> Arc<Policy> {
        let mut told = self.policy.subscribe();
        let later = told.wait_for(|now| !Arc::ptr_eq(now, known)).await;
        // It cannot fail, because the other end is here.
        later.map_or_else(|_| self.policy(), |later| Arc::clone(&later))
    }

    pub(crate) fn set_credential(&self, credential: Sensitive<String>) {
        *self.credential.write() = credential;
    }

    pub(crate) fn has_credential(&self, user: &str, password: &[u8]) -> bool {
        let credential = self.credential.read();
        let right: bool = credential.0.as_bytes().ct_eq(password).into();
        right && user == self.instance.as_str() && !credential.0.is_empty()
    }

    /// Records that the instance was told that `name` has these addresses.
    pub(crate) fn gave_out(&self, name: &str, addresses: &[Ipv4Addr], now_ms: i64, until_ms: i64) {
        self.given_out.lock().note(name, addresses, now_ms, until_ms);
    }

    /// Returns the hosts that the rules apply to: the host itself, or the names for which the
    /// instance was given this address.
    pub(crate) fn known_as(&self, host: &Host, now_ms: i64) -> Vec<Host> {
        let names = match host {
            Host::Address(IpAddr::V4(address)) => self.given_out.lock().names_of(*address, now_ms),
            Host::Address(IpAddr::V6(_)) | Host::Name(_) => Vec::new(),
        };
        match names.is_empty() {
            true => vec![host.clone()],
            false => names.into_iter().map(Host::Name).collect(),
        }
    }

    /// Sets new rules and cuts the open connections that they do not allow. Each token that is
    /// returned is cancelled when its connection is gone.
    pub(crate) fn set_policy(&self, policy: Policy) -> Vec<CancellationToken> {
        let policy = Arc::new(policy);
        self.policy.send_replace(Arc::clone(&policy));
        self.open.lock().cut(|entry| !entry.may_stay(&policy))
    }

    /// Cuts all connections.
    pub(crate) fn end(&self) {
        let mut open = self.open.lock();
        open.is_over = true;
        drop(open.cut(|_| true));
    }

    /// Registers a connection that `policy` let pass. Returns `None` if the rules have changed
    /// since and no longer allow it.
    pub(crate) fn pass(self: &Arc<Self>, policy: &Arc<Policy>, entry: Entry) -> Option<Passing> {
        let mut open = self.open.lock();
        let now = self.policy();
        if open.is_over || (!Arc::ptr_eq(&now, policy) && !entry.may_stay(&now)) {
            return None;
        }
        let cut = CancellationToken::new();
        let gone = CancellationToken::new();
        let number = open.next;
        open.next += 1;
        open.entries.insert(number, (entry, cut.clone(), gone.clone()));
        drop(open);
        Some(Passing { client: Arc::clone(self), number, cut, gone })
    }
}

/// Applies the rules to a connection that involves several hosts, all of which must pass.
pub(crate) fn of_hosts(policy: &Policy, hosts: &[Host]) -> Verdict {
    strictest(hosts.iter().map(|host| policy.of_host(host)))
}

/// Applies the rules to bytes that cannot be inspected, such as those of protocols other than HTTP.
/// Rules that add to requests do not matter for them.
pub(crate) fn of_unseen(policy: &Policy, hosts: &[Host]) -> Verdict {
    strictest(hosts.iter().map(|host| policy.of_host_unseen(host)))
}

fn strictest(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    let mut strictest = Verdict::Pass;
    for verdict in verdicts {
        match verdict {
            Verdict::Pass => {}
            Verdict::Look => strictest = Verdict::Look,
            block @ Verdict::Block { .. } => return block,
        }
    }
    strictest
}

/// Like [`of_hosts`], for the port of programs that do not use the proxy.
pub(crate) fn of_unasked(policy: &Policy, hosts: &[Host]) -> Verdict {
    past_proxy(policy, hosts).unwrap_or_else(|| of_hosts(policy, hosts))
}

/// Blocks traffic that should have gone through the proxy.
pub(crate) fn past_proxy(policy: &Policy, hosts: &[Host]) -> Option<Verdict> {
    let is_blocked = policy.proxy_only() && !hosts.iter().all(|host| policy.bypasses(host));
    is_blocked.then(|| Verdict::Block { rule: "firewall.rulesets: proxy".to_owned() })
}

/// The way a connection came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    Proxy,
    Transparent,
}

/// How the bytes of a connection are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Passed on unchanged.
    Bytes,
    /// Read as requests to one host, which are decided one by one.
    Requests,
    /// Read as requests, each of which may be for another host.
    AnyRequests,
}

/// A connection that the rules have let pass.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) arrival: Arrival,
    pub(crate) hosts: Vec<Host>,
    pub(crate) kind: Kind,
}

impl Entry {
    fn may_stay(&self, policy: &Policy) -> bool {
        if self.arrival == Arrival::Transparent && past_proxy(policy, &self.hosts).is_some() {
            return false;
        }
        match self.kind {
            // Each request is judged by its own host, and again while it goes on.
            Kind::AnyRequests => true,
            Kind::Requests => !matches!(of_hosts(policy, &self.hosts), Verdict::Block { .. }),
            Kind::Bytes => of_unseen(policy, &self.hosts) == Verdict::Pass,
        }
    }
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    is_over: bool,
    entries: HashMap<u64, (Entry, CancellationToken, CancellationToken)>,
}

impl Open {
    fn cut(&self, is_cut: impl Fn(&Entry) -> bool) -> Vec<CancellationToken> {
        let cut = self.entries.values().filter(|(entry, ..)| is_cut(entry));
        cut.map(|(_, cut, gone)| {
            cut.cancel();
            gone.clone()
        })
        .collect()
    }
}

/// Keeps a connection registered while it exists.
#[derive(Debug)]
pub(crate) struct Passing {
    client: Arc<Client>,
    number: u64,
    cut: CancellationToken,
    gone: CancellationToken,
}

impl Passing {
    /// Waits until the rules no longer allow the connection.
    pub(crate) async fn cut(&self) {
        self.cut.cancelled().await;
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.client.open.lock().entries.remove(&self.number);
        self.gone.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::egress::EgressRules;

    fn rules(allowed: &[&str], forbidden: &[&str]) -> EgressRules {
        let texts = |list: &[&str]| list.iter().map(|&entry| entry.to_owned()).collect();
        EgressRules {
            allowed_domains: texts(allowed),
            forbidden_domains: texts(forbidden),
            ..EgressRules::default()
        }
    }

    fn entry(host: &str, kind: Kind) -> Entry {
        Entry { arrival: Arrival::Transparent, hosts: vec![Host::parse(host).unwrap()], kind }
    }

    #[tokio::test]
    async fn new_rules_cut_what_they_do_not_allow() {
        let instance = InstanceName::new("one").unwrap();
        let client = Arc::new(Client::new(instance, Policy::compile(EgressRules::default())));
        let pass = |entry| client.pass(&client.policy(), entry);
        let kept = pass(entry("kept.example", Kind::Bytes)).unwrap();
        let lost = pass(entry("lost.example", Kind::Bytes)).unwrap();
        let asked = pass(entry("lost.example", Kind::AnyRequests)).unwrap();
        let old = client.policy();
        let gone = client.set_policy(Policy::compile(rules(&[], &["lost.example"])));
        assert_eq!(gone.len(), 1);
        lost.cut().await;
        assert!(!kept.cut.is_cancelled() && !asked.cut.is_cancelled());
        drop(lost);
        assert!(gone.iter().all(CancellationToken::is_cancelled));
        // What was decided by old rules is decided again.
        assert!(client.pass(&old, entry("lost.example", Kind::Bytes)).is_none());
        assert!(client.pass(&old, entry("kept.example", Kind::Bytes)).is_some());
        let alone = EgressRules { proxy_only: true, ..EgressRules::default() };
        assert_eq!(client.set_policy(Policy::compile(alone)).len(), 2);
        asked.cut().await;
        client.end();
        kept.cut().await;
        assert!(client.pass(&client.policy(), entry("kept.example", Kind::Bytes)).is_none());
    }

    #[test]
    fn only_the_proxy_is_left() {
        let policy = Policy::compile(EgressRules {
            proxy_only: true,
            bypass: vec!["past.example".to_owned()],
            ..EgressRules::default()
        });
        let of = |host: &str| of_unasked(&policy, &[Host::parse(host).unwrap()]);
        assert!(matches!(of("any.example"), Verdict::Block { .. }));
        assert_eq!(of("past.example"), Verdict::Pass);
    }
}
