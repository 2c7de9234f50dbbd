//! Connections that switched protocols: relays bytes in both directions until a side ends.
//!
//! A socket without traffic gives up its visit, so that the workload may be paused while the socket
//! stays connected. Before the next byte passes it takes a new visit, which wakes the workload.

use crate::settings::Settings;
use crate::standby::{EnterError, Standby, Visit};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Size of the read buffer for one direction.
const BUFFER_BYTES: usize = 16 << 10;

/// Keeps the workload awake while there is traffic.
struct Lease<'s> {
    standby: &'s Standby,
    instance: Arc<str>,
    held: Mutex<Held>,
    /// Notified when a new visit is taken.
    renewed: Notify,
}

struct Held {
    visit: Option<Visit>,
    last: Instant,
}

/// Relays a socket. `first` was already read from the workload. A socket without traffic for
/// `idle_max` is ended.
pub(crate) async fn relay(
    standby: Standby,
    visit: Visit,
    (settings, idle_max): (&Settings, Option<Duration>),
    client: impl AsyncRead + AsyncWrite,
    (workload, first): (TcpStream, bytes::Bytes),
) {
    let instance = Arc::clone(visit.instance());
    let held = Mutex::new(Held { visit: Some(visit), last: Instant::now() });
    let lease = Lease { standby: &standby, instance, held, renewed: Notify::new() };
    let (client_reads, client_writes) = tokio::io::split(client);
    let (workload_reads, workload_writes) = workload.into_split();
    let up = copy(&lease, client_reads, workload_writes, &[]);
    let down = copy(&lease, workload_reads, client_writes, &first);
    tokio::pin!(up, down);
    let both = async {
        // Either side may end first while the rest of the other side's bytes is still to be
        // delivered.
        let ended = tokio::select! {
            ended = &mut up => ended.map(|()| Side::Client),
            ended = &mut down => ended.map(|()| Side::Workload),
        };
        let rest = async {
            match ended? {
                Side::Client => down.await,
                Side::Workload => up.await,
            }
        };
        // The time for the rest begins now, however quiet it was before.
        lease.touch(None);
        tokio::select! {
            end = rest => end,
            () = lease.silence(settings.socket_linger) => Ok(()),
        }
    };
    let too_long = async {
        match idle_max {
            Some(idle_max) => lease.silence(idle_max).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        end = both => if let Err(error) = end {
            tracing::debug!(%error, instance = &*lease.instance, "a socket ended early");
        },
        () = lease.leave_when_idle(settings) => {}
        () = too_long => {}
    }
}

enum Side {
    Client,
    Workload,
}

async fn copy(
    lease: &Lease<'_>,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    first: &[u8],
) -> io::Result<()> {
    to.write_all(first).await?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        lease.renew().await.map_err(io::Error::other)?;
        to.write_all(&buffer[..length]).await?;
    }
}

impl Lease<'_> {
    async fn renew(&self) -> Result<(), EnterError> {
        if self.touch(None) {
            return Ok(());
        }
        let visit = self.standby.enter(&self.instance).await?;
        self.touch(Some(visit));
        self.renewed.notify_one();
        Ok(())
    }

    /// Records traffic and returns whether there is a visit.
    fn touch(&self, visit: Option<Visit>) -> bool {
        let mut held = self.held.lock();
        held.last = Instant::now();
        if visit.is_some() {
            held.visit = visit;
        }
        held.visit.is_some()
    }

    /// Waits until there has been no traffic for `limit`.
    async fn silence(&self, limit: Duration) {
        loop {
            let end = self.held.lock().last + limit;
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }

    /// Gives up the visit whenever there is no traffic. Never returns.
    async fn leave_when_idle(&self, settings: &Settings) {
        loop {
            self.silence(settings.socket_idle).await;
            let given_up = self.held.lock().visit.take();
            drop(given_up);
            self.renewed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Machine, MachineError};
    use crate::standby::Initial;
    use futures_util::future::BoxFuture;
    use tokio::io::duplex;
    use tokio::net::TcpListener;

    struct Willing;

    impl Machine for Willing {
        fn name(&self) -> &str {
            "here"
        }

        fn connect<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<TcpStream>> {
            Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
        }

        fn pause<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), MachineError>> {
            Box::pin(async { Ok(()) })
        }

        fn resume<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), MachineError>> {
            Box::pin(async { Ok(()) })
        }

        fn give_program<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<()>> {
            Box::pin(async { Ok(()) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_follows_the_end_of_one_side_arrives_however_quiet_it_was_before() {
        // While a thread works, the clock does not move by itself.
        let (_end, ended) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || ended.recv());
        let settings = Settings::default();
        let standby = Standby::new(Arc::new(settings.clone()), Arc::new(Willing));
        standby.track("box", Initial::Awake);
        let visit = standby.enter("box").await.ok().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let workload = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut program, _) = listener.accept().await.unwrap();
        let (mut caller, client) = duplex(64);
        let linger = settings.socket_linger;
        tokio::spawn(async move {
            let workload = (workload, bytes::Bytes::new());
            relay(standby, visit, (&settings, None), client, workload).await;
        });
        caller.write_all(b"ask").await.unwrap();
        program.read_exact(&mut [0; 3]).await.unwrap();
        tokio::time::advance(2 * linger).await;
        caller.shutdown().await.unwrap();
        assert_eq!(program.read(&mut [0; 1]).await.unwrap(), 0);
        program.write_all(b"the rest").await.unwrap();
        drop(program);
        let mut heard = Vec::new();
        caller.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"the rest");
    }
}
