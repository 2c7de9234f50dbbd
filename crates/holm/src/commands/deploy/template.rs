//! Waiting for the upload of a volume template to become a version.

use crate::client::Client;
use crate::commands::progress;
use crate::error::Error;
use crate::term;
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const POLL: Duration = Duration::from_millis(500);

/// Waits until the upload has become a version. `asked` is the answer that had the upload address.
pub(super) async fn to_the_end(
    asked: &Value,
    path: &str,
    timeout: Duration,
    client: &mut Client,
) -> Result<Value, Error> {
    let created = versions(asked).find(|version| version["status"] == "CREATED");
    let name = created.and_then(|version| version["name"].as_str()).unwrap_or_default().to_owned();
    let until = Instant::now() + timeout;
    let bar = progress::spinner("the server unpacks it");
    loop {
        let template = client.find_with_retries(path).await?;
        let template = template.ok_or_else(|| Error::Failed("it was deleted meanwhile".into()))?;
        let version = versions(&template).find(|version| version["name"] == name.as_str());
        match version.and_then(|version| Some((version["status"].as_str()?, version))) {
            Some(("READY", _)) => {
                bar.finish_and_clear();
                return Ok(template);
            }
            Some(("FAILED", version)) => {
                let why = version["reason"].as_str().unwrap_or("the server does not say why");
                return Err(Error::Failed(term::harmless(why)));
            }
            None => {
                let why = "another upload took its place";
                return Err(Error::Failed(why.into()));
            }
            _ if Instant::now() >= until => {
                return Err(Error::Failed("it was not unpacked in time; it goes on".into()));
            }
            _ => sleep(POLL).await,
        }
    }
}

fn versions(template: &Value) -> impl Iterator<Item = &Value> {
    template["versions"].as_array().into_iter().flatten()
}
