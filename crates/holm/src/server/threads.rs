//! The threads that serve connections.
//!
//! Each has a runtime of its own, and a connection stays on one thread from its first byte to its
//! last, as do the connections to workloads and providers that its requests use. Passing a request
//! on then wakes no other thread and moves nothing between cores. Work that the control plane spawns
//! runs in the main runtime; what the gateway spawns stays on the thread.

use super::busy_poll::BusyPoll;
use crate::error::Error;
use std::future::Future;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::sync::CancellationToken;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Threads(Arc<[Thread]>);

struct Thread {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
    busy_poll: Arc<BusyPoll>,
}

/// Ends the threads, and with them the connections that are left.
pub(crate) struct Running {
    closing: CancellationToken,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts `count` threads; 0 means one for each core. Each polls for `busy_poll` before it
    /// sleeps.
    pub(crate) fn start(count: usize, busy_poll: Duration) -> Result<(Self, Running), Error> {
        let count = match count {
            0 => thread::available_parallelism().map_or(1, NonZero::get),
            count => count,
        };
        let mut running = Running { closing: CancellationToken::new(), threads: Vec::new() };
        let started = (0..count).map(|_| running.start(busy_poll));
        let threads = started.collect::<Result<_, _>>();
        let threads = threads.map_err(Error::io("start the threads that serve connections"))?;
        Ok((Self(threads), running))
    }

    /// Serves a connection on the thread that has the fewest.
    pub(crate) fn serve<F>(
        &self,
        stream: TcpStream,
        serve: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send,
    {
        let thread = self.idlest();
        let counted = Counted::new(&thread.connections);
        let stream = stream.into_std();
        let busy_poll = Arc::clone(&thread.busy_poll);
        let served = async move {
            let _counted = counted;
            match stream.and_then(TcpStream::from_std) {
                Ok(stream) => busy_poll.watch(serve(stream)).await,
                // The client sees it closed.
                Err(error) => tracing::warn!(%error, "a connection could not be served"),
            }
        };
        thread.runtime.spawn(served);
    }

    #[expect(clippy::expect_used, reason = "`start` makes at least one")]
    fn idlest(&self) -> &Thread {
        let connections = |thread: &&Thread| thread.connections.load(Ordering::Relaxed);
        self.0.iter().min_by_key(connections).expect("a thread that serves connections")
    }
}

impl Running {
    fn start(&mut self, busy_poll: Duration) -> std::io::Result<Thread> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let closing = self.closing.clone();
        let busy_poll = Arc::new(BusyPoll::new(busy_poll));
        let polling = Arc::clone(&busy_poll);
        let run = move || run(&runtime, &closing, &polling);
        self.threads.push(thread::Builder::new().name("holm-serve".to_owned()).spawn(run)?);
        Ok(Thread { runtime: handle, connections: Arc::default(), busy_poll })
    }

    pub(crate) async fn end(self) {
        self.closing.cancel();
        let joined = tokio::task::spawn_blocking(move || {
            self.threads.into_iter().filter_map(|thread| thread.join().err()).count()
        });
        if joined.await.map_or(true, |panicked| panicked > 0) {
            tracing::error!("a thread that serves connections ended by a panic");
        }
    }
}

fn run(runtime: &Runtime, closing: &CancellationToken, busy_poll: &BusyPoll) {
    runtime.block_on(closing.run_until_cancelled(busy_poll.run()));
}

struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(connections: &Arc<AtomicUsize>) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(connections))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::ThreadId;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    /// Serves one connection until its client closes it, and says on which thread.
    async fn connect(threads: &Threads, says: &UnboundedSender<ThreadId>) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let says = says.clone();
        threads.serve(stream, move |mut stream| async move {
            says.send(thread::current().id()).unwrap();
            let _ = stream.read(&mut [0]).await;
            let _ = says.send(thread::current().id());
        });
        client
    }

    async fn said(says: &mut UnboundedReceiver<ThreadId>) -> ThreadId {
        says.recv().await.unwrap()
    }

    #[tokio::test]
    async fn a_connection_is_served_where_there_are_the_fewest_and_stays_there() {
        let (threads, running) = Threads::start(2, Duration::ZERO).unwrap();
        let (says, mut hears) = unbounded_channel();
        let first = connect(&threads, &says).await;
        let one = said(&mut hears).await;
        let _second = connect(&threads, &says).await;
        let other = said(&mut hears).await;
        assert_ne!(one, other);
        drop(first);
        assert_eq!(said(&mut hears).await, one);
        // Counted until its task has ended, which may be a moment later.
        while threads.0.iter().all(|thread| thread.connections.load(Ordering::Relaxed) > 0) {
            tokio::task::yield_now().await;
        }
        let _third = connect(&threads, &says).await;
        assert_eq!(said(&mut hears).await, one);
        running.end().await;
    }

    #[tokio::test]
    async fn connections_end_with_their_threads() {
        let (threads, running) = Threads::start(0, Duration::ZERO).unwrap();
        let (says, mut hears) = unbounded_channel();
        let mut client = connect(&threads, &says).await;
        said(&mut hears).await;
        running.end().await;
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    }
}
