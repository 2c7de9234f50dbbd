//! The tunnel of a sandbox: settings are parsed and fully checked, but not applied. A tunnel needs
//! a device and rights over the network, and an instance has neither, so that nothing inside it can
//! change the way out. Tunnels are made by the server, and requests for them never get here.

use crate::http::{Answer, Error, Request};
use serde::Deserialize;
use std::fs::OpenOptions;
use types::tunnel::{NotATunnel, TunnelSettings};

const DEVICE: &str = "/dev/net/tun";

#[derive(Deserialize)]
struct Ask {
    config: String,
}

pub(crate) async fn set(mut request: Request) -> Result<Answer, Error> {
    let ask: Ask = request.json().await?;
    TunnelSettings::read(&ask.config).map_err(|why| match why {
        NotATunnel::Unreadable(_) => Error::BadRequest(why.to_string()),
        NotATunnel::Invalid(_) => Error::Unprocessable(why.to_string()),
    })?;
    let why = match OpenOptions::new().read(true).write(true).open(DEVICE) {
        Err(error) => format!("this sandbox may not use {DEVICE}: {error}"),
        Ok(_) => "this sandbox has a tunnel device, but no rights over its network".into(),
    };
    Err(Error::Internal(format!("failed to bring up the tunnel: {why}")))
}

pub(crate) fn remove() -> Result<Answer, Error> {
    Err(Error::BadRequest("no tunnel is active".into()))
}
