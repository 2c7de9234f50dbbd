//! The course of a connection from its first byte to its end, however it came.
//!
//! ```text
//! first bytes ─→ TLS      decided by the name in it, and by the one that the proxy was asked for
//!             ├→ HTTP     each request is decided by its own name, unless none is needed
//!             ├→ other    decided by the name asked for, or by those the address was given out for
//!             └→ silence  the same, but what the client says later is still inspected
//! ```

use crate::client::{Arrival, Client, Entry, Kind, of_hosts, of_unasked, of_unseen};
use crate::dial::{Dial as _, HostStream};
use crate::intercept::{self, To};
use crate::peek::{self, Replay, Seen, Stream};
use crate::policy::{Policy, Verdict};
use crate::relay::relay;
use crate::service::{Blocked, Service};
use admission::is_own_address;
use bytes::BytesMut;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use types::parts::hosts::Host;

/// Where a connection wanted to go, before anything was read from it.
#[derive(Debug, Clone)]
pub(crate) struct Aim {
    pub(crate) arrival: Arrival,
    pub(crate) host: Host,
    pub(crate) port: u16,
    /// The hosts that the rules are applied to: the host itself, or the names that its address was
    /// given out for.
    pub(crate) names: Vec<Host>,
}

const ODD: &str = "a beginning that can be read in more than one way";
const UNSEEN: &str = "a rule with a method or a path, and no request that it could decide";

pub(crate) struct Passage {
    pub(crate) service: Arc<Service>,
    pub(crate) client: Arc<Client>,
    pub(crate) aim: Aim,
}

/// The result of waiting for a silent client, whose server may speak first.
enum Waited<S> {
    /// The client has spoken, possibly after the server.
    Spoke {
        stream: S,
        seen: Seen,
        server: Option<HostStream>,
    },
    Over,
}

impl Passage {
    /// Carries the connection to its end. `server` is the connection to the host, if there is one
    /// already.
    pub(crate) async fn carry<S: Stream>(self, mut stream: S, mut server: Option<HostStream>) {
        let limits = &self.service.settings.limits;
        let mut head = BytesMut::new();
        let Ok(mut seen) = peek::peek(&mut stream, &mut head, limits).await else {
            return stream.reset();
        };
        if seen == Seen::Silence {
            match self.wait(stream, &mut head, server).await {
                Waited::Spoke { stream: spoken, seen: now, server: beside } => {
                    (stream, seen, server) = (spoken, now, beside);
                }
                Waited::Over => return,
            }
        }
        let stream = Replay::new(head, stream);
        let policy = self.client.policy();
        let (rules, is_decided) = (policy.rules(), self.is_decided(&policy));
        match seen {
            Seen::Tls(hello) => {
                let looks = hello.is_encrypted && rules.has_lists();
                self.tls(stream, server, &policy, hello.name, looks).await;
            }
            Seen::Http if !is_decided && (rules.has_lists() || !rules.routing.is_empty()) => {
                drop(server);
                let Aim { host, port, names, .. } = self.aim.clone();
                let to = To { host, names, port, is_tls: false };
                self.requests(stream, &policy, to, Kind::AnyRequests).await;
            }
            Seen::Odd if !is_decided && rules.has_lists() => {
                self.refuse(&stream, &self.aim.host, ODD)
            }
            Seen::Http | Seen::Odd | Seen::Other | Seen::Silence => {
                self.unseen(stream, server, &policy).await;
            }
        }
    }

    /// Returns whether the rules decide without a request: they leave alone whatever goes to this
    /// host, or let nothing past the proxy.
    fn is_decided(&self, policy: &Policy) -> bool {
        let is_alone = self.aim.arrival == Arrival::Transparent && policy.proxy_only();
        is_alone || self.aim.names.iter().all(|name| policy.bypasses(name))
    }

    fn judge(&self, policy: &Policy, hosts: &[Host]) -> Verdict {
        match self.aim.arrival {
            Arrival::Proxy => of_hosts(policy, hosts),
            Arrival::Transparent => of_unasked(policy, hosts),
        }
    }

    /// Applies the rules to bytes that are not requests.
    fn judge_unseen(&self, policy: &Policy) -> Verdict {
        match self.judge(policy, &self.aim.names) {
            Verdict::Look => of_unseen(policy, &self.aim.names),
            verdict => verdict,
        }
    }

    /// Carries a TLS connection. A redirected connection goes where the name in its hello leads. A
    /// connection through the proxy goes to the host that the proxy was asked for, if the name in
    /// the hello may be reached as well.
    async fn tls<S: Stream>(
        &self,
        stream: Replay<S>,
        server: Option<HostStream>,
        policy: &Arc<Policy>,
        name: Option<Host>,
        looks: bool,
    ) {
        let Aim { arrival, host, port, names } = self.aim.clone();
        let known_as = name.as_ref().map_or_else(|| names.clone(), |name| vec![name.clone()]);
        let hosts = match arrival {
            Arrival::Proxy if name.is_some() => [names, known_as.clone()].concat(),
            Arrival::Proxy | Arrival::Transparent => known_as.clone(),
        };
        let named = name.unwrap_or_else(|| host.clone());
        let target = if arrival == Arrival::Proxy { host } else { named.clone() };
        match self.judge(policy, &hosts) {
            Verdict::Block { rule } => self.refuse(&stream, &named, &rule),
            Verdict::Pass if !looks => self.bytes(stream, server, policy, hosts, &target).await,
            Verdict::Pass | Verdict::Look => {
                drop(server);
                let to = To { host: named, names: known_as, port, is_tls: true };
                self.requests(stream, policy, to, Kind::Requests).await;
            }
        }
    }

    async fn unseen<S: Stream>(
        &self,
        stream: Replay<S>,
        server: Option<HostStream>,
        policy: &Arc<Policy>,
    ) {
        match self.judge_unseen(policy) {
            Verdict::Pass => {
                let names = self.aim.names.clone();
                self.bytes(stream, server, policy, names, self.target()).await;
            }
            Verdict::Look => self.refuse(&stream, &self.aim.host, UNSEEN),
            Verdict::Block { rule } => self.refuse(&stream, &self.aim.host, &rule),
        }
    }

    /// Returns where bytes go that name no host: to the address that the program chose. An address
    /// inside that may be reached only under its name is reached under the name that it was given
    /// out for.
    fn target(&self) -> &Host {
        let (places, Aim { host, names, .. }) = (&self.service.inside, &self.aim);
        match host {
            Host::Address(address) if !places.permit(host, *address, is_own_address) => {
                names.iter().find(|name| places.has(name)).unwrap_or(host)
            }
            host => host,
        }
    }

    async fn bytes<S: Stream>(
        &self,
        mut stream: Replay<S>,
        server: Option<HostStream>,
        policy: &Arc<Policy>,
        hosts: Vec<Host>,
        target: &Host,
    ) {
        let entry = Entry { arrival: self.aim.arrival, hosts, kind: Kind::Bytes };
        let Some(passing) = self.client.pass(policy, entry) else { return stream.reset() };
        let idle = self.service.settings.limits.idle;
        let work = async {
            let Some(mut server) = self.connected(server, target).await else {
                return stream.reset();
            };
            relay(&mut stream, &mut server, idle).await;
        };
        let was_cut = tokio::select! {
            biased;
            () = passing.cut() => true,
            () = work => false,
        };
        if was_cut {
            stream.reset();
        }
        drop(stream);
        drop(passing);
    }

    async fn requests<S: Stream>(
        &self,
        stream: Replay<S>,
        policy: &Arc<Policy>,
        to: To,
        kind: Kind,
    ) {
        let entry = Entry { arrival: self.aim.arrival, hosts: to.names.clone(), kind };
        let Some(passing) = self.client.pass(policy, entry) else { return stream.reset() };
        let shared = Arc::clone(&self.service.intercept);
        let client = Arc::clone(&self.client);
        tokio::select! {
            biased;
            () = passing.cut() => {}
            () = Box::pin(intercept::serve(shared, client, stream, to)) => {}
        }
    }

    async fn connected(&self, server: Option<HostStream>, target: &Host) -> Option<HostStream> {
        if server.is_some() {
            return server;
        }
        let dialed = self.service.dialer.dial(&self.client, target, self.aim.port).await;
        match dialed {
            Ok(server) => Some(server),
            Err(error) => {
                let (_, note) = intercept::unreached(error, target, self.aim.port);
                self.service.note_of(&self.client, note);
                None
            }
        }
    }

    /// Waits for a silent client, whose server may speak first. The client's first bytes are still
    /// inspected, because it may only have waited.
    async fn wait<S: Stream>(
        &self,
        mut stream: S,
        head: &mut BytesMut,
        server: Option<HostStream>,
    ) -> Waited<S> {
        let policy = self.client.policy();
        if self.judge_unseen(&policy) != Verdict::Pass {
            // Only a name in its first bytes can still make the rules let it pass.
            let limits = &self.service.settings.limits;
            return match peek::insist(&mut stream, head, limits).await {
                Ok(seen) => Waited::Spoke { stream, seen, server },
                Err(error) => {
                    if error.kind() == io::ErrorKind::TimedOut {
                        self.refuse(&stream, &self.aim.host, "nothing that a rule could decide");
                    }
                    Waited::Over
                }
            };
        }
        let names = self.aim.names.clone();
        let entry = Entry { arrival: self.aim.arrival, hosts: names, kind: Kind::Bytes };
        let Some(passing) = self.client.pass(&policy, entry) else {
            stream.reset();
            return Waited::Over;
        };
        // Cutting the connection ends all of this, whatever it is waiting for.
        let waited = {
            let work = async {
                let mut server = self.connected(server, self.target()).await?;
                let heard = self.listen(&mut stream, head, &mut server).await.ok()?;
                Some((heard, server))
            };
            tokio::select! {
                biased;
                () = passing.cut() => None,
                waited = work => waited,
            }
        };
        drop(passing);
        if let Some(((seen, spoke), server)) = waited {
            return self.spoken(stream, seen, server, spoke);
        }
        stream.reset();
        Waited::Over
    }

    /// Decides how to go on once the client has spoken. After a server that spoke first, an honest
    /// client speaks the server's protocol, which is neither TLS nor HTTP.
    fn spoken<S: Stream>(
        &self,
        stream: S,
        seen: Seen,
        server: HostStream,
        spoke: bool,
    ) -> Waited<S> {
        let policy = self.client.policy();
        let is_decided = self.is_decided(&policy);
        match seen {
            Seen::Tls(_) | Seen::Http | Seen::Odd
                if spoke && policy.rules().has_lists() && !is_decided =>
            {
                self.refuse(&stream, &self.aim.host, ODD);
                Waited::Over
            }
            Seen::Tls(_) | Seen::Http | Seen::Odd if spoke => {
                Waited::Spoke { stream, seen: Seen::Other, server: Some(server) }
            }
            Seen::Http if is_decided => Waited::Spoke { stream, seen, server: Some(server) },
            // The name in it decides where it goes, unless the proxy was asked for this host.
            Seen::Tls(_) | Seen::Http if self.aim.arrival == Arrival::Transparent => {
                Waited::Spoke { stream, seen, server: None }
            }
            seen => Waited::Spoke { stream, seen, server: Some(server) },
        }
    }

    /// Passes on what the server says until the client has spoken. Also returns whether the server
    /// spoke.
    async fn listen(
        &self,
        stream: &mut impl Stream,
        head: &mut BytesMut,
        server: &mut HostStream,
    ) -> io::Result<(Seen, bool)> {
        let limits = &self.service.settings.limits;
        let mut buffer = vec![0; 4096];
        let mut spoke = false;
        loop {
            let ended = tokio::select! {
                seen = peek::more(stream, head, limits.head_bytes) => {
                    match seen? {
                        Some(seen) => return Ok((seen, spoke)),
                        // The client has begun to speak, and has to go on.
                        None => return Ok((peek::insist(stream, head, limits).await?, spoke)),
                    }
                }
                read = server.read(&mut buffer) => {
                    let count = read?;
                    let passing = pass_on(stream, &buffer[..count]);
                    tokio::time::timeout(limits.idle, passing).await??;
                    spoke = true;
                    count == 0
                }
                () = tokio::time::sleep(limits.idle) => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            };
            if ended {
                return Ok((Seen::Other, spoke));
            }
        }
    }

    fn refuse(&self, stream: &impl Stream, host: &Host, rule: &str) {
        let blocked = Blocked { host, port: self.aim.port, rule };
        self.service.note_blocked(&self.client, &blocked);
        stream.reset();
    }
}

/// Writes what the server said, and flushes it: TLS may keep it back otherwise, while the client
/// waits for it before it speaks.
async fn pass_on(stream: &mut (impl AsyncWrite + Unpin), said: &[u8]) -> io::Result<()> {
    stream.write_all(said).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use tokio::io::{BufWriter, duplex};

    #[tokio::test]
    async fn what_a_server_says_first_is_not_kept_back() {
        let (mut client, proxy) = duplex(64);
        pass_on(&mut BufWriter::new(proxy), b"220 ready").await.unwrap();
        let mut heard = [0; 9];
        client.read_exact(&mut heard).now_or_never().unwrap().unwrap();
        assert_eq!(&heard, b"220 ready");
    }
}
