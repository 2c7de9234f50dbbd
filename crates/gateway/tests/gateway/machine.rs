//! A machine whose instances are servers on loopback. A paused one takes no connection and answers
//! nothing.

use futures_util::future::BoxFuture;
use gateway::{Machine, MachineError};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpStream;
use tokio::sync::watch;

#[derive(Default)]
pub struct LoopbackMachine {
    ports: Mutex<HashMap<(String, u16), SocketAddr>>,
    paused: watch::Sender<HashSet<String>>,
    pub resumes: AtomicUsize,
    pub connects: AtomicUsize,
    /// How many of the next wakes fail.
    pub failing: AtomicUsize,
    /// The instances that were given this server's guest program.
    pub given: Mutex<Vec<String>>,
}

impl LoopbackMachine {
    pub fn listen(&self, instance: &str, port: u16, at: SocketAddr) {
        self.ports.lock().insert((instance.to_owned(), port), at);
    }

    pub fn is_paused(&self, instance: &str) -> bool {
        self.paused.borrow().contains(instance)
    }

    /// Makes an instance sleep without a pause by standby.
    pub fn sleep(&self, instance: &str) {
        self.paused.send_modify(|paused| assert!(paused.insert(instance.to_owned())));
    }

    pub async fn until_paused(&self, instance: &str) {
        self.paused.subscribe().wait_for(|paused| paused.contains(instance)).await.unwrap();
    }

    pub async fn until_awake(&self, instance: &str) {
        self.paused.subscribe().wait_for(|paused| !paused.contains(instance)).await.unwrap();
    }
}

impl Machine for LoopbackMachine {
    fn name(&self) -> &str {
        "here"
    }

    fn connect<'a>(&'a self, instance: &'a str, port: u16) -> BoxFuture<'a, io::Result<TcpStream>> {
        Box::pin(async move {
            self.until_awake(instance).await;
            self.connects.fetch_add(1, Ordering::Relaxed);
            let at = self.ports.lock().get(&(instance.to_owned(), port)).copied();
            TcpStream::connect(at.ok_or(io::ErrorKind::ConnectionRefused)?).await
        })
    }

    fn pause<'a>(&'a self, instance: &'a str) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async move {
            self.paused
                .send_modify(|paused| assert!(paused.insert(instance.to_owned()), "paused twice"));
            Ok(())
        })
    }

    fn resume<'a>(&'a self, instance: &'a str) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(async move {
            let fails = |left: usize| left.checked_sub(1);
            if self.failing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fails).is_ok() {
                return Err(MachineError::Failed(io::Error::other("the kernel says no")));
            }
            self.resumes.fetch_add(1, Ordering::Relaxed);
            // Gives other requests that wait for the same wake a chance to arrive.
            tokio::task::yield_now().await;
            self.paused.send_modify(|paused| assert!(paused.remove(instance), "woken twice"));
            Ok(())
        })
    }

    fn give_program<'a>(&'a self, instance: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            self.given.lock().push(instance.to_owned());
            Ok(())
        })
    }
}
