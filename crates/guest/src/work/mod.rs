//! The one piece of work that an instance is for.
//!
//! ```text
//!            the program starts                      it ends, or is killed
//!   (none) ─────────────────────▶ Running ──────────────────────────────────▶ Ended
//!                                    │ time-out, interrupt                      ▲
//!                                    └─▶ SIGTERM ── the grace is over ─▶ SIGKILL ─┘
//! ```
//!
//! An instance with work serves nothing but this work: the machine follows it and may interrupt it,
//! and the work fetches its data. All come over the same socket, which whatever runs here can dial
//! as well, so the machine shows the secret of its orders and the data has an address that only the
//! work is told. This program is not dumpable meanwhile, so that a root of the instance reads
//! neither of its memory, and it listens for no signal of anybody.
//!
//! When the program of the work has ended, all that it left behind is killed: what counts is over,
//! and nothing holds a connection or a pipe any more. The result and the last output stay until the
//! instance goes, and may be read again.

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

/// So that nobody finds it by trying: five bits each.
const DATA_NAME_CHARACTERS: usize = 40;

pub(crate) struct Work {
    orders: Orders,
    data: Bytes,
    refused: Option<String>,
    /// The path under which the data is.
    data_path: String,
    state: Mutex<State>,
    /// There is more to read.
    changed: watch::Sender<()>,
    /// Somebody has read on.
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

    /// Where the work finds its data, if it has any.
    fn data_address(&self, listener: SocketAddr) -> Option<String> {
        let port = listener.port();
        (!self.data.is_empty()).then(|| format!("http://127.0.0.1:{port}{}", self.data_path))
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.send_replace(());
    }
}
