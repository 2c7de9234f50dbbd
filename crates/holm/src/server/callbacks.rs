//! Callbacks: requests to URLs that users give.

use crate::config::Config;
use crate::error::Error;
use jobs::deliveries::{Sender, Settings};
use store::Store;

pub(crate) fn open(config: &Config, store: &Store) -> Result<Sender, Error> {
    let callbacks = &config.callbacks;
    let settings = Settings {
        attempts_max: callbacks.attempts_max.into(),
        timeout: callbacks.timeout.0,
        concurrency: callbacks.concurrency,
        workspace_concurrency: callbacks.workspace_concurrency,
        pause: callbacks.pause.0,
        pause_max: callbacks.pause_max.0.max(callbacks.pause.0),
        poll: config.store.feed_poll.0,
        inside: callbacks.inside.clone(),
    };
    let unusable =
        |error| Error::Start { act: "prepare callbacks".into(), message: format!("{error:?}") };
    Sender::new(store.clone(), settings).map_err(unusable)
}
