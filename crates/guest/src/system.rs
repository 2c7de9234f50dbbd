//! Information about this program.

use crate::guest::Guest;
use crate::http::{Answer, Error};
use serde_json::json;

pub(crate) fn welcome() -> Result<Answer, Error> {
    Answer::json(&json!({
        "message": "This is a sandbox of Holm.",
        "documentation": "/health tells how it is; the operations are those of the sandbox API.",
        "description": "Files, processes, ports and terminals of one sandbox, over HTTP.",
    }))
}

pub(crate) fn health(guest: &Guest) -> Result<Answer, Error> {
    let up_ms = guest.instance.world.now().since(guest.started_at).max(0);
    let upgrades = guest.upgrades.lock();
    Answer::json(&json!({
        "status": "ok",
        "version": env!("CARGO_PKG_VERSION"),
        "gitCommit": "",
        "buildTime": "",
        // Required by clients that were written for another program.
        "goVersion": "",
        "os": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
        "startedAt": guest.started_at.to_string(),
        "uptime": format!("{}s", up_ms / 1000),
        "uptimeSeconds": up_ms / 1000,
        // Our own field: the component that puts sandboxes to sleep must know of processes that
        // keep them awake.
        "keepAliveProcesses": guest.processes.keeping_alive(),
        "upgradeCount": upgrades.count,
        "lastUpgrade": upgrades.last,
    }))
}
