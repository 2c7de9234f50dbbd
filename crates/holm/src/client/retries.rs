//! Requests that are repeated while the server is away, for example while it restarts.

use super::Client;
use crate::error::Error;
use reqwest::StatusCode;
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(500);

impl Client {
    /// Like `get_with_retries`, but returns `None` if the object does not exist.
    pub(crate) async fn find_with_retries(&mut self, path: &str) -> Result<Option<Value>, Error> {
        match self.get_with_retries(path).await {
            Err(Error::Answer { status: StatusCode::NOT_FOUND, .. }) => Ok(None),
            found => found.map(Some),
        }
    }

    pub(crate) async fn get_with_retries(&mut self, path: &str) -> Result<Value, Error> {
        self.with_retries(async |client| client.get(path, &[]).await).await
    }

    /// Asks again and again while the server is away. The question must be safe to repeat.
    pub(crate) async fn with_retries<T>(
        &mut self,
        mut ask: impl AsyncFnMut(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let until = Instant::now() + TIMEOUT;
        loop {
            match ask(self).await {
                Err(error) if may_pass(&error) && Instant::now() < until => sleep(POLL).await,
                answer => return answer,
            }
        }
    }
}

/// True if repeating the request may help.
pub(super) fn may_pass(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. } => true,
        Error::Answer { status, .. } => status.is_server_error() || status.as_u16() == 429,
        _ => false,
    }
}
