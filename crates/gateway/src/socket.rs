//! Connections that changed their protocol: bytes both ways, until a side ends.
//!
//! A socket without traffic gives up its visit, so that the sandbox may rest while it stays
//! connected; before the next byte passes it takes a new visit, which wakes the sandbox.

use crate::keeper::{EnterError, Keeper, Visit};
use crate::settings::Settings;
use parking_lot::Mutex;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Bytes that are on their way in one direction.
const BUFFER_BYTES: usize = 16 << 10;

/// Holds the sandbox awake while there is traffic.
struct Lease<'k> {
    keeper: &'k Keeper,
    instance: String,
    held: Mutex<Held>,
    /// A visit was taken after there was none.
    renewed: Notify,
}

struct Held {
    visit: Option<Visit>,
    last: Instant,
}

/// `first` was read from the workload already.
pub(crate) async fn relay(
    keeper: Keeper,
    visit: Visit,
    settings: &Settings,
    client: impl AsyncRead + AsyncWrite,
    (workload, first): (TcpStream, bytes::Bytes),
) {
    let instance = visit.instance().to_owned();
    let held = Mutex::new(Held { visit: Some(visit), last: Instant::now() });
    let lease = Lease { keeper: &keeper, instance, held, renewed: Notify::new() };
    let (client_reads, client_writes) = tokio::io::split(client);
    let (workload_reads, workload_writes) = workload.into_split();
    let up = copy(&lease, client_reads, workload_writes, &[]);
    let down = copy(&lease, workload_reads, client_writes, &first);
    tokio::pin!(up, down);
    let both = async {
        // Either side may end first and still be owed the rest of the other.
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
        tokio::select! {
            end = rest => end,
            () = lease.silence(settings.socket_linger) => Ok(()),
        }
    };
    tokio::select! {
        end = both => if let Err(error) = end {
            tracing::debug!(%error, instance = lease.instance, "a socket ended early");
        },
        () = lease.rest_when_idle(settings) => {}
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
        let visit = self.keeper.enter(&self.instance).await?;
        self.touch(Some(visit));
        self.renewed.notify_one();
        Ok(())
    }

    /// Says whether there is a visit.
    fn touch(&self, visit: Option<Visit>) -> bool {
        let mut held = self.held.lock();
        held.last = Instant::now();
        if visit.is_some() {
            held.visit = visit;
        }
        held.visit.is_some()
    }

    /// Ends after that much time without traffic.
    async fn silence(&self, limit: std::time::Duration) {
        loop {
            let end = self.held.lock().last + limit;
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }

    /// Never ends.
    async fn rest_when_idle(&self, settings: &Settings) {
        loop {
            self.silence(settings.socket_idle).await;
            let given_up = self.held.lock().visit.take();
            drop(given_up);
            self.renewed.notified().await;
        }
    }
}
