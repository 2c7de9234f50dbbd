//! The way out of instances: the node's firewall, the proxy, and what programs inside are told
//! about them.

use crate::leases::Purpose;
use crate::trust::Roots;
use crate::way_out::{Parts, Surroundings};
use crate::{Inner, LocalMachine};
use bytes::Bytes;
use control::machine::MachineFault;
use egress::{Egress, Known};
use gateway::Standby;
use http::{Method, StatusCode};
use http_body_util::Full;
use images::Image;
use node::{Firewall, Level, State};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use types::chain;
use types::egress::{EgressEvent, EgressRules};
use types::guest::{PROXY_PATH, ProxySettings};
use types::instance::InstanceName;
use types::parts::Sensitive;

/// How long to wait for the guest to tell programs inside. It answers at once.
const TELL_TIMEOUT: Duration = Duration::from_secs(10);
/// What programs reach without the proxy in any case. None of it is on the internet.
const NO_PROXY: [&str; 9] = [
    "localhost",
    "127.0.0.1",
    "::1",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "169.254.169.254",
    ".local",
    ".internal",
];

impl LocalMachine {
    /// Returns this machine's address on which the proxy has to listen. `None` if instances reach
    /// nothing.
    pub fn proxy_address(&self) -> Option<std::net::Ipv4Addr> {
        self.0.node.proxy_address()
    }

    /// Sets the proxy through which instances with rules get out.
    pub async fn use_egress(&self, egress: Egress, surroundings: Surroundings) {
        let parts = Parts { egress, roots: Roots::default(), surroundings };
        if self.0.way_out.parts.set(parts).is_err() {
            tracing::error!("a machine has one proxy, and was given another");
        }
        // Instances that once had rules get their DNS answers here, and nobody will register them
        // again.
        for view in self.0.node.list() {
            let level = self.0.node.firewall(&view.id).map(|firewall| firewall.level);
            if matches!(level, Ok(Level::Names)) {
                self.register(&view.id, EgressRules::default()).await;
            }
        }
    }

    /// Has members of a VPC woken when another asks for their name, as by a request.
    pub(crate) fn wake_members(&self, standby: &Arc<Standby>) {
        let Some(parts) = self.0.way_out.parts.get() else { return };
        // The standby holds this machine, which holds the proxy.
        let standby = Arc::downgrade(standby);
        parts.egress.wake_by(Box::new(move |instance| {
            let standby = standby.upgrade();
            Box::pin(async move {
                let Some(standby) = standby else { return };
                if let Err(error) = standby.enter(instance.as_str()).await {
                    tracing::debug!(%instance, %error, "a member of a VPC was not woken");
                }
            })
        }));
    }

    /// Changes an instance's rules.
    pub(crate) async fn set_egress(
        &self,
        id: &InstanceName,
        rules: EgressRules,
    ) -> Result<(), MachineFault> {
        let fault = |error: node::Error| MachineFault(chain(&error));
        self.0.require_way_out(&rules).map_err(MachineFault)?;
        // The rules come first, so that whatever the firewall diverts to the proxy finds them.
        self.put_rules(id, rules.clone()).await.map_err(fault)?;
        let of = id.clone();
        let told = self.on_node(move |inner| {
            let firewall = inner.next_firewall(&of, &rules).map_err(fault)?;
            inner.node.set_firewall(&of, firewall).map_err(fault)?;
            let has_programs = inner.leases.purpose(&of) == Purpose::Serve;
            Ok::<_, MachineFault>(has_programs.then(|| inner.proxy_settings(&of, &rules, None)))
        });
        let Some(told) = told.await? else { return Ok(()) };
        self.0.way_out.untold.lock().insert(id.clone(), told);
        match self.0.node.inspect(id).map(|view| view.state) {
            Ok(State::Running { .. }) => self.tell_programs(id).await.map_err(|error| {
                MachineFault(format!("programs inside cannot be told of the proxy: {error}"))
            }),
            // It is told when it wakes.
            _ => Ok(()),
        }
    }

    /// Tells the proxy by which rules an instance gets out from now on.
    pub(crate) async fn put_rules(
        &self,
        id: &InstanceName,
        rules: EgressRules,
    ) -> Result<(), node::Error> {
        let had_rules = self.0.node.firewall(id)?.level != Level::Open;
        if had_rules || self.0.firewall(&rules).level != Level::Open {
            self.register(id, rules).await;
        }
        Ok(())
    }

    async fn register(&self, id: &InstanceName, rules: EgressRules) {
        let inner = &self.0;
        // An instance that is gone meanwhile needs no rules.
        if let (Some(parts), Ok(view)) = (inner.way_out.parts.get(), inner.node.inspect(id)) {
            let owner = view
                .owner
                .as_ref()
                .map_or_else(|| id.to_string(), |owner| owner.as_str().to_owned());
            let who = Known { instance: id.clone(), address: view.address, owner };
            parts.egress.set(who, rules, inner.credential(id)).await;
        }
    }

    /// Tells the guest of an instance what it has not been told yet.
    pub(crate) async fn tell_programs(&self, id: &InstanceName) -> io::Result<()> {
        let untold = self.0.way_out.untold.lock().get(id).cloned();
        let Some(settings) = untold else { return Ok(()) };
        let body = Full::new(Bytes::from(serde_json::to_vec(&settings)?));
        let request = self.as_machine(id, Method::PUT, PROXY_PATH);
        let asked = timeout(TELL_TIMEOUT, self.ask_guest(id, request, body)).await;
        match asked.map_err(|_| io::ErrorKind::TimedOut)??.status() {
            StatusCode::NO_CONTENT => {}
            // The rules hold all the same, whether a program asks the proxy or not.
            StatusCode::NOT_FOUND => {
                tracing::warn!(instance = %id, "its first program is of an earlier release and cannot be told of the proxy");
            }
            status => return Err(io::Error::other(format!("the guest answers {status}"))),
        }
        let mut untold = self.0.way_out.untold.lock();
        // There may be newer settings meanwhile.
        if untold.get(id) == Some(&settings) {
            untold.remove(id);
        }
        Ok(())
    }

    pub(crate) async fn egress_events(&self) -> Vec<EgressEvent> {
        match self.0.way_out.parts.get() {
            Some(parts) => parts.egress.events().await,
            None => std::future::pending().await,
        }
    }
}

impl Inner {
    /// Refuses rules that nobody here could enforce.
    pub(crate) fn require_way_out(&self, rules: &EgressRules) -> Result<(), String> {
        let needs_proxy = self.firewall(rules).level != Level::Open;
        // Without an address for the proxy nothing gets out at all.
        let may_get_out = self.node.proxy_address().is_some();
        match needs_proxy && may_get_out && self.way_out.parts.get().is_none() {
            true => {
                Err("this machine has no proxy, and runs nothing whose network has rules; the \
                         server's log says why"
                    .to_owned())
            }
            false => Ok(()),
        }
    }

    /// Returns the firewall settings for these rules.
    pub(crate) fn firewall(&self, rules: &EgressRules) -> Firewall {
        let level = match rules {
            rules if rules.has_lists() || rules.proxy_only => Level::Closed,
            rules if !rules.routing.is_empty() => Level::Proxied,
            rules if rules.vpc.is_some() => Level::Names,
            _ => Level::Open,
        };
        let v4 = |address: &IpAddr| match address {
            IpAddr::V4(address) => Some(*address),
            IpAddr::V6(_) => None,
        };
        Firewall {
            level,
            source: rules.source.iter().find_map(v4),
            group: rules.vpc.as_ref().map(|member| member.vpc.to_string()),
        }
    }

    /// Returns the firewall settings for new rules of a running instance. Its programs may have
    /// been told about the proxy, so the proxy stays reachable even if no rule needs it any more.
    fn next_firewall(
        &self,
        id: &InstanceName,
        rules: &EgressRules,
    ) -> Result<Firewall, node::Error> {
        let had_rules = self.node.firewall(id)?.level != Level::Open;
        let next = self.firewall(rules);
        let least = if had_rules { Level::Names } else { Level::Open };
        Ok(Firewall { level: next.level.max(least), ..next })
    }

    /// Forgets an instance that is gone.
    pub(crate) fn end_rules(&self, id: &InstanceName) {
        self.way_out.untold.lock().remove(id);
        if let Some(parts) = self.way_out.parts.get() {
            parts.egress.remove(id);
        }
    }

    /// Returns the credential by which the proxy recognises this instance.
    fn credential(&self, id: &InstanceName) -> Sensitive<String> {
        Sensitive(self.key.credential(id))
    }

    /// Returns what programs of an instance are told. Its image says what it lacks; without that
    /// it gets everything.
    pub(crate) fn proxy_settings(
        &self,
        id: &InstanceName,
        rules: &EgressRules,
        image: Option<&Image>,
    ) -> ProxySettings {
        let Some(parts) = self.way_out.parts.get().filter(|_| rules.names_proxy()) else {
            return ProxySettings::default();
        };
        let Surroundings { own_hosts, authorities } = &parts.surroundings;
        let authority = format!("{}{authorities}", parts.egress.authority_pem());
        let Sensitive(url) = parts.egress.proxy_url(id, &self.credential(id));
        let bypass = rules.bypass.iter().map(|entry| entry.strip_prefix('*').unwrap_or(entry));
        let no_proxy: Vec<&str> = NO_PROXY
            .into_iter()
            .chain(own_hosts.iter().map(String::as_str))
            .chain(bypass.filter(|entry| !entry.is_empty()))
            .collect();
        let environment = BTreeMap::from([
            ("HTTP_PROXY".to_owned(), url.clone()),
            ("HTTPS_PROXY".to_owned(), url),
            ("NO_PROXY".to_owned(), no_proxy.join(",")),
        ]);
        let lacks_roots = image.is_none_or(|image| !crate::trust::has_bundle(&image.layers));
        let has_java = image.is_none_or(crate::trust::has_java);
        ProxySettings {
            environment,
            roots: lacks_roots.then(|| parts.roots.pem().to_owned()),
            java: has_java.then(|| parts.roots.java(&authority)),
            authority,
        }
    }
}
