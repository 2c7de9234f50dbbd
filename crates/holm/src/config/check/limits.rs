//! Checks of limits that go together: with some, what each of them allows could never be done.

use crate::config::Config;
use crate::config::error::{Wrong, wrong_beside};

pub(super) fn limits(config: &Config) -> Result<(), Wrong> {
    let (server, models) = (&config.server, &config.models);
    bodies(
        ("server.body_bytes_max", server.body_bytes_max),
        ("server.bodies_bytes_max", server.bodies_bytes_max),
        ("server.bodies_workspace_bytes_max", server.bodies_workspace_bytes_max),
    )?;
    bodies(
        ("models.body_bytes_max", models.body_bytes_max),
        ("models.bodies_bytes_max", models.bodies_bytes_max),
        ("models.bodies_workspace_bytes_max", models.bodies_workspace_bytes_max),
    )?;
    let gateway = &config.gateway;
    if gateway.requests_public_max >= gateway.requests_workspace_max {
        return wrong_beside(
            "gateway.requests_public_max",
            "gateway.requests_workspace_max",
            "must be below gateway.requests_workspace_max: strangers could keep out all others",
        );
    }
    Ok(())
}

/// Checks that the largest body has room, in all and of one workspace. Else its caller would be told
/// to try again, for ever.
fn bodies(
    (largest, bytes): (&'static str, usize),
    all: (&'static str, usize),
    of_workspace: (&'static str, usize),
) -> Result<(), Wrong> {
    match [all, of_workspace].into_iter().find(|(_, room)| *room < bytes) {
        Some((key, _)) => wrong_beside(
            key,
            largest,
            format!("must be at least {largest}: no body of that size could be read"),
        ),
        None => Ok(()),
    }
}
