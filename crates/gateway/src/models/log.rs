//! The queue of log entries of requests, for the part that writes the logs.

use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Mutex, mpsc};
use types::models::ModelLogEntry;

/// Entries that are handed over at a time.
const BATCH: usize = 256;

pub(crate) struct Log {
    sender: mpsc::Sender<ModelLogEntry>,
    receiver: Mutex<mpsc::Receiver<ModelLogEntry>>,
    left_out: AtomicU64,
}

impl Log {
    pub(crate) fn new(max: usize) -> Self {
        let (sender, receiver) = mpsc::channel(max.max(1));
        Self { sender, receiver: Mutex::new(receiver), left_out: AtomicU64::new(0) }
    }

    /// Queues an entry. Nobody waits for a log: entries without room are dropped and counted.
    pub(crate) fn tell(&self, mut entry: ModelLogEntry) {
        match self.sender.try_reserve() {
            Ok(place) => {
                entry.left_out = self.left_out.swap(0, Ordering::Relaxed);
                place.send(entry);
            }
            Err(_) => {
                self.left_out.fetch_add(1, Ordering::Relaxed);
                metrics::counter!("holm_model_log_left_out_total").increment(1);
            }
        }
    }

    pub(crate) async fn next(&self) -> Vec<ModelLogEntry> {
        let mut entries = Vec::new();
        self.receiver.lock().await.recv_many(&mut entries, BATCH).await;
        entries
    }
}
