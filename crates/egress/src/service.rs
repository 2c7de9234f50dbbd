//! The state that all listeners share.

use crate::authority::Authority;
use crate::client::Client;
use crate::clients::Clients;
use crate::dial::Dialer;
use crate::events::{Events, Note};
use crate::intercept;
use crate::names::Resolver;
use crate::settings::{Ports, Settings};
use admission::Pool;
use futures_util::future::BoxFuture;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use types::World;
use types::egress::EgressDecision;
use types::instance::InstanceName;
use types::parts::hosts::Host;
use types::parts::hosts::Places;

/// Returns where a connection was going before the firewall redirected it here.
pub(crate) type Original = dyn Fn(&TcpStream) -> io::Result<SocketAddrV4> + Send + Sync;

/// Wakes an instance, if it sleeps, and waits until it is awake.
pub type Wake = dyn Fn(InstanceName) -> BoxFuture<'static, ()> + Send + Sync;

pub(crate) struct Service {
    pub(crate) settings: Settings,
    /// The ports actually bound, which matters if the settings let the machine choose.
    pub(crate) ports: Ports,
    pub(crate) world: World,
    pub(crate) clients: Clients,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) inside: Arc<Places>,
    pub(crate) own_hosts: Places,
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) authority: Arc<Authority>,
    pub(crate) events: Arc<Events>,
    pub(crate) intercept: Arc<intercept::Shared>,
    pub(crate) original: Box<Original>,
    /// Absent as long as nobody puts instances to sleep.
    pub(crate) wake: OnceLock<Box<Wake>>,
    /// Counted by owner, or by source address while the owner is unknown.
    pub(crate) connections: Pool<String>,
    pub(crate) questions: Pool<String>,
    pub(crate) closing: CancellationToken,
}

/// An attempt that was blocked.
pub(crate) struct Blocked<'a> {
    pub(crate) host: &'a Host,
    pub(crate) port: u16,
    pub(crate) rule: &'a str,
}

/// Pause before accepting again on a socket that failed, for example because no file descriptors
/// are left.
const PAUSE: Duration = Duration::from_millis(50);
/// Longest time for which the answer to a question waits for a member of the VPC to wake. Programs
/// ask again after 5 seconds.
const WAKE_TIMEOUT: Duration = Duration::from_secs(3);

impl Service {
    /// Runs a task until it ends or the service closes.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let closing = self.closing.clone();
        tokio::spawn(async move { closing.run_until_cancelled(work).await });
    }

    pub(crate) async fn client(&self, address: Ipv4Addr) -> Option<Arc<Client>> {
        self.clients.find(address, self.settings.limits.unknown_wait).await
    }

    /// Wakes those that a member of a VPC asks for: it is about to connect, which wakes nobody. An
    /// instance that is not awake in time goes on waking while the asker connects.
    pub(crate) async fn wake(&self, asker: &Client, addresses: &[Ipv4Addr]) {
        let Some(wake) = self.wake.get() else { return };
        let all = async {
            for instance in self.clients.instances(addresses) {
                if instance != asker.instance {
                    wake(instance).await;
                }
            }
        };
        if tokio::time::timeout(WAKE_TIMEOUT, all).await.is_err() {
            tracing::warn!(asker = %asker.instance, "a member of its VPC does not wake in time");
        }
    }

    pub(crate) fn note_blocked(&self, client: &Client, blocked: &Blocked<'_>) {
        let Blocked { host, port, rule } = *blocked;
        let note = Note::new(EgressDecision::Blocked, host.to_string(), port);
        self.events.note(&client.instance, Note { rule: rule.to_owned(), ..note });
    }

    pub(crate) fn note_of(&self, client: &Client, note: Option<Note>) {
        if let Some(note) = note {
            self.events.note(&client.instance, note);
        }
    }

    pub(crate) async fn pause_after(&self, error: &io::Error) {
        tracing::warn!(%error, "a listener of the way out failed");
        tokio::time::sleep(PAUSE).await;
    }
}
