//! The way out of instances: which names they may reach, what is added to their requests, and what
//! came of it.
//!
//! ```text
//! an instance ─→ its firewall (node) ─→ names        answers questions for names, by the rules
//!                                    ├→ explicit     the proxy that programs are told of
//!                                    └→ transparent  for programs that ask nobody
//!                                          │
//!                        Policy: pass, look at requests, or block
//!                          │                  │
//!                        relay             intercept ── TLS opened, secrets put in
//!                          └───── Dial ───────┘
//! ```
//!
//! It knows instances by their addresses, which the machine's firewall vouches for, and never whose
//! they are.

mod authority;
mod client;
mod clients;
mod dial;
mod events;
mod explicit;
#[cfg(test)]
mod fixture;
mod hello;
mod inject;
mod inside;
mod intercept;
mod linger;
mod listen;
mod names;
mod passage;
mod pattern;
mod peek;
mod policy;
mod relay;
mod service;
mod settings;
#[cfg(test)]
mod tests;
mod tls_records;
mod transparent;

pub use authority::AuthorityError;
pub use client::Known;
pub use dial::BadUpstream;
pub use intercept::RootsError;
pub use linger::{Linger, Lingering};
pub use settings::{Limits, Ports, Settings, Upstream};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use service::{Original, Service};
use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use tokio_util::sync::{CancellationToken, DropGuard};
use types::World;
use types::egress::{EgressEvent, EgressRules};
use types::instance::InstanceName;
use types::parts::Sensitive;
use types::parts::hosts::BadPlace;

/// The way out of the instances of a machine. Clones are the same; the last one that is dropped
/// closes it.
#[derive(Clone)]
pub struct Egress(Arc<Handle>);

struct Handle {
    service: Arc<Service>,
    _close: DropGuard,
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Egress").field(&self.0.service.settings.address).finish()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot listen at {address}:{port} for instances")]
    Bind { address: Ipv4Addr, port: u16, source: io::Error },
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Roots(#[from] RootsError),
    #[error(transparent)]
    Inside(#[from] BadPlace),
    #[error(transparent)]
    Upstream(#[from] BadUpstream),
}

impl Egress {
    /// Listens, within a runtime. Until an instance is set, its connections wait.
    pub fn open(settings: Settings, world: World) -> Result<Self, OpenError> {
        Self::open_with(settings, world, Box::new(transparent::original))
    }

    fn open_with(
        settings: Settings,
        world: World,
        original: Box<Original>,
    ) -> Result<Self, OpenError> {
        let closing = CancellationToken::new();
        let service = listen::open(settings, world, original, closing.clone())?;
        Ok(Self(Arc::new(Handle { service, _close: closing.drop_guard() })))
    }

    /// Tells of an instance, or of new rules for one. Returns after what is open and not allowed
    /// any more has been cut.
    pub async fn set(&self, who: Known, rules: EgressRules, credential: Sensitive<String>) {
        let service = &self.0.service;
        let names_max = service.settings.limits.names;
        let cut = service.clients.set(who, rules, credential, names_max);
        for gone in cut {
            gone.cancelled().await;
        }
    }

    /// Forgets an instance. Its connections end.
    pub fn remove(&self, instance: &InstanceName) {
        self.0.service.clients.remove(instance);
        self.0.service.events.forget(instance);
    }

    /// Where programs in an instance find the proxy.
    pub fn proxy_url(
        &self,
        instance: &InstanceName,
        credential: &Sensitive<String>,
    ) -> Sensitive<String> {
        let Service { settings, ports, .. } = &*self.0.service;
        let password = utf8_percent_encode(&credential.0, NON_ALPHANUMERIC);
        let user = instance.as_str();
        Sensitive(format!("https://{user}:{password}@{}:{}", settings.address, ports.proxy))
    }

    /// The certificate that instances have to trust.
    pub fn authority_pem(&self) -> &str {
        self.0.service.authority.pem()
    }

    /// The ports that it listens at.
    pub fn ports(&self) -> Ports {
        self.0.service.ports
    }

    /// Waits for something to tell. It is told once: there is one reader.
    pub async fn events(&self) -> Vec<EgressEvent> {
        self.0.service.events.next().await
    }

    /// Ends all listening and all connections.
    pub fn close(&self) {
        self.0.service.closing.cancel();
    }
}
