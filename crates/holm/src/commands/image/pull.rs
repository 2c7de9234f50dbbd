//! `holm image pull`: pulls an image from a registry.

use super::local::{self, failed};
use crate::commands::progress;
use crate::error::Error;
use crate::exit::Exit;
use crate::term;
use images::{Credentials, Puller, Recipe, RetryPolicy, Store};
use std::path::PathBuf;
use std::time::Duration;

const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// Pulls an image from a registry
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name such as `debian:12` or `registry.example.org/team/app:v2`
    name: String,
    /// Docker configuration file with credentials for the registry
    #[arg(long, value_name = "FILE")]
    docker_config: Option<PathBuf>,
}

pub(super) async fn run(args: Args, store: &Store) -> Result<Exit, Error> {
    let name = local::public_name(&args.name)?;
    if Recipe::of(&name).map_err(|error| failed("read the recipes", &error))?.is_some() {
        let made = format!("{} is made here, not pulled: `holm image make {0}`", name.path());
        return Err(Error::Usage(made));
    }
    let credentials = match args.docker_config {
        Some(file) => {
            let act = format!("read {}", file.display());
            let bytes = std::fs::read(&file).map_err(Error::reading(&act))?;
            Credentials::from_docker_config(&bytes, &name).map_err(|error| failed(&act, &error))?
        }
        None => Credentials::None,
    };
    let http = reqwest::Client::builder().connect_timeout(CONNECT_TIME_MAX).build();
    let puller =
        Puller::new(http.map_err(|error| failed("start", &error))?, RetryPolicy::default());
    let bars = progress::Layers::new();
    let pulled = puller.pull(store, &name, &credentials, |step| bars.show(step)).await;
    bars.finish();
    let digest = pulled.map_err(|error| failed(&format!("pull {name}"), &error))?;
    term::say(format!("{name} {digest}"));
    Ok(Exit::Success)
}
