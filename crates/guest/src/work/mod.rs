//! Work instances: an instance that exists for one piece of work.
//!
//! ```text
//!            the program starts                      it ends, or is killed
//!   (none) ─────────────────────▶ Running ──────────────────────────────────▶ Ended
//!                                    │ time-out, interrupt                      ▲
//!                                    └─▶ SIGTERM ── the grace is over ─▶ SIGKILL ─┘
//! ```
//!
//! A work instance serves nothing but this work: the machine follows it and may interrupt it, and
//! the work fetches its data. All requests use the same socket, which anything that runs here can
//! connect to, so the machine identifies itself with the secret from its orders, and the data has
//! an address that only the work is told. While it runs, this program is not dumpable, so that even
//! root inside the instance cannot read its memory, and it listens for no signals.
//!
//! When the work's program has ended, everything that it left behind is killed: only the program
//! counts, and nothing should hold a connection or a pipe any longer. The result and the last
//! output remain until the instance is removed, and can be read repeatedly.

mod output;
mod routes;
mod run;

pub(crate) use routes::answer;
pub(crate) use run::run;

use crate::settings::WantedWork;
use bytes::Bytes;
use output::Output;
use parking_lot::Mutex;
use std::net::SocketAddr;
use tokio::sync::{Notify, watch};
use types::World;
use types::instance::WorkEnd;
use types::work::Orders;

/// Length of the random name of the data, five bits per character, so that it cannot be guessed.
const DATA_NAME_CHARACTERS: usize = 40;

pub(crate) struct Work {
    orders: Orders,
    data: Bytes,
    refused: Option<String>,
    /// The path of the data.
    data_path: String,
    state: Mutex<State>,
    /// Notifies that there is more to read.
    changed: watch::Sender<()>,
    /// Notifies that a reader has read on.
    fetched: Notify,
    interrupted: Notify,
}

struct State {
    output: Output,
    end: Option<WorkEnd>,
}

impl Work {
    pub(crate) fn new(world: &World, wanted: WantedWork) -> Self {
        let WantedWork { orders, data, refused } = wanted;
        Self {
            refused: refused.map(|error| error.to_string()),
            data_path: format!("/execution/{}", world.random_text(DATA_NAME_CHARACTERS)),
            state: Mutex::new(State { output: Output::new(orders.output_bytes_max), end: None }),
            orders,
            data,
            changed: watch::Sender::new(()),
            fetched: Notify::new(),
            interrupted: Notify::new(),
        }
    }

    /// Returns the address of the data, if there is any.
    fn data_address(&self, listener: SocketAddr) -> Option<String> {
        let port = listener.port();
        (!self.data.is_empty()).then(|| format!("http://127.0.0.1:{port}{}", self.data_path))
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.send_replace(());
    }
}
