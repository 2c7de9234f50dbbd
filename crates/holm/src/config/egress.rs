//! Outgoing traffic of workloads: what the proxy may reach, and which addresses traffic leaves
//! from.

use super::error::Wrong;
use super::values::{self, NameServer};
use crate::duration::Span;
use control::EgressPool;
use egress::{Ports, Upstream};
use serde::Deserialize;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use types::parts::Sensitive;
use types::parts::hosts::Places;

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WayOut {
    pub(crate) addresses: Vec<String>,
    pub(crate) addresses_workspace_max: usize,
    pub(crate) inside: Vec<String>,
    pub(crate) nameservers: Vec<NameServer>,
    #[serde(deserialize_with = "values::text_or_none")]
    pub(crate) proxy: Option<String>,
    #[serde(deserialize_with = "values::text_or_none")]
    pub(crate) proxy_user: Option<String>,
    #[serde(deserialize_with = "values::path_or_none")]
    pub(crate) proxy_password_file: Option<PathBuf>,
    pub(crate) no_proxy: Vec<String>,
    #[serde(deserialize_with = "values::path_or_none")]
    pub(crate) authorities: Option<PathBuf>,
    pub(crate) connections_max: usize,
    pub(crate) connections_workspace_max: usize,
    pub(crate) questions_max: usize,
    pub(crate) questions_workspace_max: usize,
    pub(crate) names_max: usize,
    pub(crate) cached_names_max: usize,
    pub(crate) head_bytes_max: usize,
    pub(crate) bodies_max: usize,
    pub(crate) bodies_workspace_max: usize,
    pub(crate) bodies_total_max: usize,
    pub(crate) events_max: usize,
    pub(crate) hello_timeout: Span,
    pub(crate) connect_timeout: Span,
    pub(crate) answer_timeout: Span,
    pub(crate) idle: Span,
    pub(crate) launch_wait: Span,
    pub(crate) nameserver_timeout: Span,
    pub(crate) names_grace: Span,
}

impl std::fmt::Debug for WayOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WayOut")
            .field("addresses", &self.addresses)
            .field("inside", &self.inside)
            .finish_non_exhaustive()
    }
}

impl WayOut {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        let wrong = |key, message: &str| Err(Wrong::new(key, message));
        if let Err(message) = self.pool() {
            return wrong("egress.addresses", &message);
        }
        for (key, list) in [("egress.inside", &self.inside), ("egress.no_proxy", &self.no_proxy)] {
            if let Err(bad) = Places::parse(list) {
                return wrong(key, &format!("has an entry that cannot be: {bad}"));
            }
        }
        let belongs = [
            ("egress.proxy_user", self.proxy_user.is_some()),
            ("egress.proxy_password_file", self.proxy_password_file.is_some()),
        ];
        if let Some((key, _)) = belongs.into_iter().find(|(_, set)| *set && self.proxy.is_none()) {
            return wrong(key, "belongs to egress.proxy, which is missing");
        }
        let Some(proxy) = &self.proxy else { return Ok(()) };
        let plain = |url: &reqwest::Url| {
            ["http", "https"].contains(&url.scheme())
                && url.has_host()
                && url.path() == "/"
                && url.username().is_empty()
                && url.password().is_none()
        };
        match reqwest::Url::parse(proxy).is_ok_and(|url| plain(&url)) {
            true => Ok(()),
            false => wrong(
                "egress.proxy",
                "must be an address such as http://proxy.example.com:3128 or https://proxy.example.com; a user is egress.proxy_user",
            ),
        }
    }

    /// Returns the addresses that workloads may have of their own.
    pub(crate) fn own_addresses(&self) -> Result<control::Egress, String> {
        Ok(control::Egress { pool: self.pool()?, workspace_max: self.addresses_workspace_max })
    }

    fn pool(&self) -> Result<EgressPool, String> {
        EgressPool::read(self.addresses.iter().map(String::as_str))
    }

    /// Makes the settings of the egress proxy, without the authorities that are in a file, and reads
    /// the upstream proxy's password from its file. `usual` are the name servers of workloads, used unless the settings name others.
    pub(crate) fn settings(
        &self,
        data: &Path,
        address: Ipv4Addr,
        usual: &[SocketAddr],
        own_hosts: Vec<String>,
    ) -> std::io::Result<egress::Settings> {
        let own: Vec<SocketAddr> = self.nameservers.iter().map(|server| server.0).collect();
        let share = |total: usize, share: usize| admission::Limits {
            total: total as u64,
            share: share as u64,
        };
        Ok(egress::Settings {
            address,
            ports: Ports {
                proxy: node::PROXY_PORT,
                transparent: node::TRANSPARENT_PORT,
                names: node::NAMES_PORT,
            },
            folder: data.join("egress"),
            nameservers: if own.is_empty() { usual.to_vec() } else { own },
            inside: self.inside.clone(),
            own_hosts,
            mark: Some(node::EGRESS_MARK),
            upstream_proxy: self.upstream()?,
            extra_roots: rustls::RootCertStore::empty(),
            limits: egress::Limits {
                connections: share(self.connections_max, self.connections_workspace_max),
                questions: share(self.questions_max, self.questions_workspace_max),
                names: self.names_max,
                cached_names: self.cached_names_max,
                head_bytes: self.head_bytes_max,
                bodies: self.bodies_max,
                bodies_shared: share(self.bodies_total_max, self.bodies_workspace_max),
                events: self.events_max,
                answer: self.answer_timeout.0,
                hello: self.hello_timeout.0,
                connect: self.connect_timeout.0,
                handshake: self.connect_timeout.0,
                idle: self.idle.0,
                unknown_wait: self.launch_wait.0,
                nameserver: self.nameserver_timeout.0,
                names_grace: self.names_grace.0,
                ..egress::Limits::default()
            },
        })
    }

    fn upstream(&self) -> std::io::Result<Option<Upstream>> {
        let Some(url) = &self.proxy else { return Ok(None) };
        let password =
            self.proxy_password_file.as_ref().map(std::fs::read_to_string).transpose()?;
        Ok(Some(Upstream {
            url: url.trim_end_matches('/').to_owned(),
            user: self.proxy_user.clone(),
            password: password.map(|password| Sensitive(password.trim().to_owned())),
            no_proxy: self.no_proxy.clone(),
        }))
    }
}
