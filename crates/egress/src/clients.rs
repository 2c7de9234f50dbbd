//! All instances, by address and by name.

use crate::client::{Client, Known};
use crate::policy::Policy;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use types::egress::{EgressRules, VpcMember};
use types::ids::ResourceId;
use types::instance::InstanceName;
use types::parts::Sensitive;

#[derive(Debug, Default)]
pub(crate) struct Clients {
    all: RwLock<All>,
    more: Notify,
}

#[derive(Debug, Default)]
struct All {
    by_address: HashMap<Ipv4Addr, Arc<Client>>,
    by_instance: HashMap<InstanceName, Arc<Client>>,
    /// By VPC and lower-case name within it. Replicas may share a name.
    members: HashMap<(ResourceId, String), Vec<Ipv4Addr>>,
}

impl Clients {
    /// Makes an instance known, or gives it new rules. Each token that is returned is cancelled
    /// when a connection that is no longer allowed is gone.
    pub(crate) fn set(
        &self,
        who: Known,
        rules: EgressRules,
        credential: Sensitive<String>,
        names_max: usize,
    ) -> Vec<CancellationToken> {
        let (instance, address) = (who.instance.clone(), who.address);
        let mut known = self.all.write();
        let member = rules.vpc.clone();
        let found = known.by_instance.get(&instance).filter(|client| client.address == address);
        let Some(client) = found.map(Arc::clone) else {
            // An address belongs to one instance, so the instance that had it before is gone.
            let old = known.by_address.get(&address).map(|client| client.instance.clone());
            for instance in old.iter().chain([&instance]) {
                known.remove(instance);
            }
            let policy = Policy::compile(rules);
            let client = Client::known(who, policy, credential, names_max);
            let client = Arc::new(client);
            known.by_address.insert(address, Arc::clone(&client));
            known.by_instance.insert(instance, client);
            known.join(member.as_ref(), address);
            drop(known);
            self.more.notify_waiters();
            return Vec::new();
        };
        client.set_credential(credential);
        let policy = client.policy();
        if *policy.rules() == rules {
            return Vec::new();
        }
        known.leave(policy.rules().vpc.as_ref(), address);
        known.join(member.as_ref(), address);
        client.set_policy(Policy::compile(rules))
    }

    pub(crate) fn remove(&self, instance: &InstanceName) {
        self.all.write().remove(instance);
    }

    /// Finds the instance with this address. Waits for it, because it may just be starting.
    pub(crate) async fn find(&self, address: Ipv4Addr, wait: Duration) -> Option<Arc<Client>> {
        let search = async {
            loop {
                let mut more = std::pin::pin!(self.more.notified());
                more.as_mut().enable();
                if let Some(client) = self.all.read().by_address.get(&address) {
                    return Arc::clone(client);
                }
                more.await;
            }
        };
        tokio::time::timeout(wait, search).await.ok()
    }

    /// Returns the owner whose share traffic from this address uses. An unknown address is its own
    /// owner.
    pub(crate) fn owner(&self, address: Ipv4Addr) -> String {
        let known = self.all.read();
        let client = known.by_address.get(&address);
        client.map_or_else(|| address.to_string(), |client| client.owner.clone())
    }

    /// Returns the instances that have these addresses now.
    pub(crate) fn instances(&self, addresses: &[Ipv4Addr]) -> Vec<InstanceName> {
        let known = self.all.read();
        let clients = addresses.iter().filter_map(|address| known.by_address.get(address));
        clients.map(|client| client.instance.clone()).collect()
    }

    /// Returns the addresses of the members with this name in the VPC.
    pub(crate) fn members(&self, vpc: &ResourceId, host: &str) -> Vec<Ipv4Addr> {
        let known = self.all.read();
        known.members.get(&(vpc.clone(), host.to_owned())).cloned().unwrap_or_default()
    }
}

impl All {
    fn remove(&mut self, instance: &InstanceName) {
        let Some(client) = self.by_instance.remove(instance) else { return };
        self.by_address.remove(&client.address);
        self.leave(client.policy().rules().vpc.as_ref(), client.address);
        client.end();
    }

    fn join(&mut self, member: Option<&VpcMember>, address: Ipv4Addr) {
        if let Some(member) = member {
            self.members.entry(key(member)).or_default().push(address);
        }
    }

    fn leave(&mut self, member: Option<&VpcMember>, address: Ipv4Addr) {
        let Some(key) = member.map(key) else { return };
        if let Some(addresses) = self.members.get_mut(&key) {
            addresses.retain(|other| *other != address);
            if addresses.is_empty() {
                self.members.remove(&key);
            }
        }
    }
}

fn key(member: &VpcMember) -> (ResourceId, String) {
    (member.vpc.clone(), member.host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(vpc: &str) -> EgressRules {
        let vpc = VpcMember {
            vpc: ResourceId::known(vpc),
            vpc_name: "net".to_owned(),
            host: "Web".to_owned(),
        };
        EgressRules { vpc: Some(vpc), ..EgressRules::default() }
    }

    #[tokio::test]
    async fn an_address_is_of_one_instance() {
        let clients = Clients::default();
        let instance = |name: &str| InstanceName::new(name).unwrap();
        let one = Ipv4Addr::new(127, 0, 0, 2);
        let other = Ipv4Addr::new(127, 0, 0, 3);
        let set = |name: &str, address, rules| {
            let who = Known { instance: instance(name), address, owner: "o".to_owned() };
            clients.set(who, rules, Sensitive("x".to_owned()), 16)
        };
        let vpc = ResourceId::known("res_a");
        set("a", one, rules("res_a"));
        assert_eq!(clients.members(&vpc, "web"), [one]);
        assert_eq!(clients.members(&ResourceId::known("res_b"), "web"), [Ipv4Addr::LOCALHOST; 0]);
        // Another instance gets the address of one that is gone without notice.
        set("b", one, EgressRules::default());
        assert!(clients.members(&vpc, "web").is_empty());
        let found = clients.find(one, Duration::ZERO).await.unwrap();
        assert_eq!(found.instance, instance("b"));
        // An instance that moved leaves nothing behind.
        set("b", other, rules("res_a"));
        assert!(clients.find(one, Duration::ZERO).await.is_none());
        assert_eq!(clients.members(&vpc, "web"), [other]);
        set("b", other, EgressRules::default());
        assert!(clients.members(&vpc, "web").is_empty());
        clients.remove(&instance("b"));
        assert!(clients.find(other, Duration::ZERO).await.is_none());
    }

    #[tokio::test]
    async fn who_comes_early_waits() {
        let clients = Arc::new(Clients::default());
        let early = tokio::spawn({
            let clients = Arc::clone(&clients);
            async move { clients.find(Ipv4Addr::LOCALHOST, Duration::from_secs(60)).await }
        });
        tokio::task::yield_now().await;
        let instance = InstanceName::new("a").unwrap();
        let credential = Sensitive("x".to_owned());
        let who = Known { instance, address: Ipv4Addr::LOCALHOST, owner: "o".to_owned() };
        assert_eq!(clients.owner(who.address), "127.0.0.1");
        clients.set(who.clone(), EgressRules::default(), credential, 16);
        assert_eq!(clients.owner(who.address), "o");
        assert!(early.await.unwrap().is_some());
    }
}
