//! The provider's addresses, asked for once in a while, however many people sign in.

use super::error::OutsideError;
use super::wire::{Discovery, Wire};
use std::sync::{Arc, OnceLock};
use tokio::sync::Mutex;

/// How long the provider's addresses are used before it is asked again.
const KEPT_FOR_S: i64 = 600;
/// How long sign-ins fail at once after the provider could not be asked. Anybody can begin one.
const FAILS_FOR_S: i64 = 5;

/// The client for requests to the provider, and what the provider said last.
#[derive(Default)]
pub(crate) struct Discoveries {
    wire: OnceLock<Wire>,
    /// Held while the provider is asked, so that the others wait for the same answer.
    last: Mutex<Option<Answer>>,
}

struct Answer {
    /// On the steady clock: a calendar that is set back must not keep an old answer.
    at_ms: i64,
    /// The error says why the provider could not be used.
    found: Result<Arc<Discovery>, String>,
}

impl Answer {
    fn is_fresh(&self, now_ms: i64) -> bool {
        let kept_for_s = if self.found.is_ok() { KEPT_FOR_S } else { FAILS_FOR_S };
        now_ms < self.at_ms + kept_for_s * 1000
    }
}

impl Discoveries {
    pub(super) fn wire(&self) -> Result<&Wire, OutsideError> {
        match self.wire.get() {
            Some(wire) => Ok(wire),
            None => {
                let wire = Wire::new()?;
                Ok(self.wire.get_or_init(|| wire))
            }
        }
    }

    /// Returns the addresses of the provider. `now_ms` is on the steady clock.
    pub(super) async fn of(
        &self,
        issuer: &str,
        now_ms: i64,
    ) -> Result<Arc<Discovery>, OutsideError> {
        let mut last = self.last.lock().await;
        if let Some(answer) = last.as_ref().filter(|answer| answer.is_fresh(now_ms)) {
            return answer.found.clone().map_err(OutsideError::Provider);
        }
        let found = self.wire()?.discover(issuer).await.map(Arc::new);
        let kept = found.as_ref().map(Arc::clone).map_err(|error| match error {
            OutsideError::Provider(why) => why.clone(),
            other => other.to_string(),
        });
        *last = Some(Answer { at_ms: now_ms, found: kept });
        found
    }
}
