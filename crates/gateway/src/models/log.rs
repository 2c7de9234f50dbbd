//! The queue of log entries of requests, for the part that writes the logs.

use admission::{Limits, Permit, Pool};
use std::collections::HashMap;
use tokio::sync::{Mutex, mpsc};
use types::ids::WorkspaceId;
use types::models::ModelLogEntry;

/// Entries that are handed over at a time.
const BATCH: usize = 256;
/// One workspace may fill this part of the queue, so that it loses only entries of its own.
const WORKSPACE_PART: usize = 4;

pub(crate) struct Log {
    sender: mpsc::Sender<Waiting>,
    receiver: Mutex<mpsc::Receiver<Waiting>>,
    places: Pool<WorkspaceId>,
    /// Entries without room since the last one that had some. Each workspace reads its own count.
    left_out: parking_lot::Mutex<HashMap<WorkspaceId, u64>>,
}

/// An entry with its place in the queue.
type Waiting = (ModelLogEntry, Permit<WorkspaceId>);

impl Log {
    pub(crate) fn new(max: usize) -> Self {
        let (sender, receiver) = mpsc::channel(max.max(1));
        let total = max.max(1) as u64;
        let share = max.div_ceil(WORKSPACE_PART).max(1) as u64;
        let places = Pool::new("entries of the logs of models", Limits { total, share });
        let receiver = Mutex::new(receiver);
        Self { sender, receiver, places, left_out: parking_lot::Mutex::default() }
    }

    /// Queues an entry, which is made only if there is room for it. Nobody waits for a log: entries
    /// without room are dropped and counted.
    pub(crate) fn tell(&self, workspace: &WorkspaceId, make: impl FnOnce() -> ModelLogEntry) {
        // The queue is as long as there are places, so who has one finds room.
        match (self.places.take(workspace, 1), self.sender.try_reserve()) {
            (Ok(place), Ok(room)) => {
                let mut entry = make();
                entry.left_out = self.left_out.lock().remove(workspace).unwrap_or(0);
                room.send((entry, place));
            }
            _ => {
                *self.left_out.lock().entry(workspace.clone()).or_default() += 1;
                metrics::counter!("holm_model_log_left_out_total").increment(1);
            }
        }
    }

    pub(crate) async fn next(&self) -> Vec<ModelLogEntry> {
        let mut waiting = Vec::new();
        self.receiver.lock().await.recv_many(&mut waiting, BATCH).await;
        waiting.into_iter().map(|(entry, _place)| entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Timestamp;
    use types::ids::ResourceId;
    use types::kinds::model::ModelType;
    use types::models::{ModelCall, ModelOutcome, TokenUsage};

    fn entry(workspace: &str) -> ModelLogEntry {
        let text = String::new;
        ModelLogEntry {
            call: ModelCall {
                at: Timestamp::from_ms(0),
                workspace: WorkspaceId::known(workspace),
                model: text(),
                model_id: ResourceId::known("res_m"),
                provider: ModelType::Openai,
                provider_model: text(),
                key: text(),
                end_user: None,
                tag: None,
                usage: TokenUsage::default(),
                cost: 0,
                prices: text(),
                outcome: ModelOutcome::Answered,
            },
            method: text(),
            path: text(),
            status: 200,
            error: None,
            first_byte_ms: 0,
            took_ms: 0,
            tried: Vec::new(),
            request: None,
            answer: None,
            left_out: 0,
        }
    }

    #[tokio::test]
    async fn a_workspace_that_floods_its_log_loses_only_entries_of_its_own() {
        let log = Log::new(8);
        let tell = |of: &str| log.tell(&WorkspaceId::known(of), || entry(of));
        (0..10).for_each(|_| tell("ws_loud"));
        tell("ws_quiet");
        let told = |entries: Vec<ModelLogEntry>| -> Vec<(String, u64)> {
            let told = |entry: ModelLogEntry| (entry.call.workspace.to_string(), entry.left_out);
            entries.into_iter().map(told).collect()
        };
        let of = |name: &str, left_out| (name.to_owned(), left_out);
        let wanted = [of("ws_loud", 0), of("ws_loud", 0), of("ws_quiet", 0)];
        assert_eq!(told(log.next().await), wanted);
        tell("ws_quiet");
        tell("ws_loud");
        tell("ws_loud");
        let wanted = [of("ws_quiet", 0), of("ws_loud", 8), of("ws_loud", 0)];
        assert_eq!(told(log.next().await), wanted);
    }
}
