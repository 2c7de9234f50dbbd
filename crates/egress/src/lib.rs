//! The way out of instances: decides which hosts they may reach, adds to their requests what rules
//! say, and reports what happened.
//!
//! ```text
//! an instance ─→ its firewall (node) ─→ names        answers questions for names, by the rules
//!                                    ├→ explicit     the proxy that programs are configured to use
//!                                    └→ transparent  for programs that use no proxy
//!                                          │
//!                        Policy: pass, look at requests, or block
//!                          │                  │
//!                        relay             intercept ── opens TLS, injects secrets
//!                          └───── Dial ───────┘
//! ```
//!
//! It knows instances only by their addresses, which the machine's firewall vouches for, and not
//! which workspace they belong to.

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
mod intercept;
mod listen;
mod names;
mod passage;
mod pattern;
mod peek;
mod policy;
mod relay;
mod service;
mod settings;
mod tcp;
#[cfg(test)]
mod tests;
mod tls_records;
mod transparent;
mod upstream_tls;

pub use authority::AuthorityError;
pub use client::Known;
pub use dial::BadUpstream;
pub use listen::OpenError;
pub use service::Wake;
pub use settings::{Limits, Ports, Settings, Upstream};
pub use upstream_tls::RootsError;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use service::{Original, Service};
use std::fmt;
use std::sync::Arc;
use tokio_util::sync::{CancellationToken, DropGuard};
use types::World;
use types::egress::{EgressEvent, EgressRules};
use types::instance::InstanceName;
use types::parts::Sensitive;

/// The way out for all instances of a machine. Clones share it; dropping the last one closes it.
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

impl Egress {
    /// Starts to listen. Must be called within a runtime. Connections of an instance wait until it
    /// is set.
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

    /// Makes an instance known, or gives it new rules. Returns after the open connections that the
    /// rules no longer allow have been cut.
    pub async fn set(&self, who: Known, rules: EgressRules, credential: Sensitive<String>) {
        let service = &self.0.service;
        let names_max = service.settings.limits.names;
        let cut = service.clients.set(who, rules, credential, names_max);
        for gone in cut {
            gone.cancelled().await;
        }
    }

    /// Says how instances are woken when another member of their VPC asks for their name. Must be
    /// called at most once; without it they are not woken.
    pub fn wake_by(&self, wake: Box<Wake>) {
        if self.0.service.wake.set(wake).is_err() {
            tracing::error!("instances are woken in one way, and another was given");
        }
    }

    /// Forgets an instance and ends its connections.
    pub fn remove(&self, instance: &InstanceName) {
        self.0.service.clients.remove(instance);
        self.0.service.events.forget(instance);
    }

    /// Returns the URL of the proxy for programs in an instance.
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

    /// Returns the certificate that instances have to trust.
    pub fn authority_pem(&self) -> &str {
        self.0.service.authority.pem()
    }

    /// Returns the ports that are listened on.
    pub fn ports(&self) -> Ports {
        self.0.service.ports
    }

    /// Waits for events and returns them. Each event is returned once, so there must be only one
    /// reader.
    pub async fn events(&self) -> Vec<EgressEvent> {
        self.0.service.events.next().await
    }

    /// Stops listening and ends all connections.
    pub fn close(&self) {
        self.0.service.closing.cancel();
    }
}
