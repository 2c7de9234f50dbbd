//! `holm volume`: copies the content of volumes.

use super::cp::{Copied, Copy};
use crate::client::workload::Workload;
use crate::client::{Choice, Client, target};
use crate::error::Error;
use crate::exit::Exit;
use crate::signals::Ends;
use crate::{term, world};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Copies files to and from volumes
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    Cp(CpArgs),
}

/// Copies files and folders to and from a volume
///
/// Uses the sandbox that mounts the volume, or a temporary one. Paths work as with `holm cp`, and
/// start at the top of the volume.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm volume cp ./data disk:/           # becomes /data in the volume
  holm volume cp ./data/. disk:/         # what is in data
  holm volume cp disk:/results ./results")]
struct CpArgs {
    /// Source: a local path, or VOLUME:PATH
    from: String,
    /// Destination: a local path, or VOLUME:PATH
    to: String,
    /// Image of the temporary sandbox, if one is needed; by default the server chooses
    #[arg(long)]
    image: Option<String>,
}

/// Mount path of the volume in a temporary sandbox.
const MOUNT_PATH: &str = "/volume";
/// Life of the temporary sandbox, in case this program is killed before it deletes it.
const TTL: &str = "6h";
const MEMORY_MB: u32 = 256;
const UNIQUE_CHARS: usize = 10;
const READY_MAX: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(200);

pub(crate) async fn run(args: Args, choice: &Choice) -> Result<Exit, Error> {
    let Act::Cp(args) = args.act;
    let copy = Copy::read(&args.from, &args.to, "volume")?;
    let mut client = Client::choose(choice)?;
    let mut ends = Ends::new()?;
    let mut way = Way::find(&mut client, copy.there(), args.image.as_deref()).await?;
    let done = tokio::select! {
        done = way.copy(copy, choice) => done.map(Some),
        () = ends.next() => Ok(None),
    };
    way.leave(&mut client).await;
    match done? {
        Some(copied) => {
            copied.tell();
            Ok(Exit::Success)
        }
        None => Ok(Exit::Interrupted),
    }
}

/// The sandbox through which the volume is accessed.
struct Way {
    sandbox: String,
    mount_path: String,
    /// The object of the temporary sandbox, if one is made for this copy.
    made: Option<Value>,
}

impl Way {
    async fn find(client: &mut Client, volume: &str, image: Option<&str>) -> Result<Self, Error> {
        let place = target::resolve(&["volumes".into(), volume.to_owned()])?;
        let object = client.get(&place.object(volume)?, &[]).await?;
        let holder = object.pointer("/state/attachedTo").and_then(Value::as_str);
        let Some(holder) = holder.filter(|holder| !holder.is_empty()) else {
            return Ok(Self::to_make(volume, &object, image));
        };
        let Some(sandbox) = holder.strip_prefix("sandbox:") else {
            return Err(Error::Failed(format!(
                "the volume {volume} is mounted by {holder}, through which nothing can be copied; delete that first"
            )));
        };
        let place = target::resolve(&["sandboxes".into(), sandbox.to_owned()])?;
        let object = client.get(&place.object(sandbox)?, &[]).await?;
        let mounts = object.pointer("/spec/volumes").and_then(Value::as_array);
        let mount = mounts.into_iter().flatten().find(|mount| mount["name"] == volume);
        let path = mount.and_then(|mount| mount["mountPath"].as_str());
        let path = path.ok_or_else(|| {
            Error::Failed(format!("the sandbox {sandbox} does not say where it mounts {volume}"))
        })?;
        let mount_path = path.trim_end_matches('/').to_owned();
        Ok(Self { sandbox: sandbox.to_owned(), mount_path, made: None })
    }

    fn to_make(volume: &str, object: &Value, image: Option<&str>) -> Self {
        let sandbox = format!("volume-cp-{}", world::system().random_text(UNIQUE_CHARS));
        let mut body = json!({"metadata": {"name": sandbox}, "spec": {
            "runtime": {"memory": MEMORY_MB, "ttl": TTL},
            "volumes": [{"name": volume, "mountPath": MOUNT_PATH}],
        }});
        if let Some(image) = image {
            body["spec"]["runtime"]["image"] = image.into();
        }
        if let Some(region) = object.pointer("/spec/region") {
            body["spec"]["region"] = region.clone();
        }
        Self { sandbox, mount_path: MOUNT_PATH.to_owned(), made: Some(body) }
    }

    async fn copy(&mut self, copy: Copy, choice: &Choice) -> Result<Copied, Error> {
        let volume = copy.there().to_owned();
        let copy = copy.below(&self.mount_path)?;
        let mut client = Client::choose(choice)?;
        if let Some(body) = &self.made {
            client.call(Method::POST, "sandboxes", &[], Some(body)).await?;
            self.until_ready(&mut client).await?;
        }
        let place = target::resolve(&["sandboxes".into(), self.sandbox.clone()])?;
        let sandbox = Workload::find(client, &place).await?;
        copy.run(&sandbox.into_volume(&volume, &self.mount_path)).await
    }

    async fn until_ready(&self, client: &mut Client) -> Result<(), Error> {
        let path = format!("sandboxes/{}", self.sandbox);
        let until = Instant::now() + READY_MAX;
        loop {
            let object = client.get(&path, &[]).await?;
            match object["status"].as_str() {
                Some("DEPLOYED" | "STANDBY") => return Ok(()),
                Some("FAILED" | "TERMINATED") => {
                    let errors = object.get("errors").cloned().unwrap_or_default();
                    let message = format!("the sandbox for the copy did not start: {errors}");
                    return Err(Error::Failed(term::harmless(&message)));
                }
                _ if Instant::now() >= until => {
                    let message = "the sandbox for the copy did not start in time";
                    return Err(Error::Failed(message.into()));
                }
                _ => sleep(POLL).await,
            }
        }
    }

    /// Deletes the temporary sandbox, which releases the volume.
    async fn leave(self, client: &mut Client) {
        if self.made.is_none() {
            return;
        }
        let path = format!("sandboxes/{}", self.sandbox);
        match client.call(Method::DELETE, &path, &[], None).await {
            Ok(_) => {}
            Err(Error::Answer { status, .. }) if status == reqwest::StatusCode::NOT_FOUND => {}
            Err(error) => term::note(format!(
                "the sandbox {} of this copy could not be deleted, and goes in {TTL}: {error}",
                self.sandbox
            )),
        }
    }
}
