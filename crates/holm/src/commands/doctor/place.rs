//! Checks of what the settings refer to: folders, files, the database and the port.

use super::finding::{Finding, Health};
use crate::config::Config;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;
use store::Replication;
use tokio::net::TcpStream;

const DISK_MIN: u64 = 1 << 30;
const DISK_WISHED: u64 = 10 << 30;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
const POSTGRES_PORT: u16 = 5432;

pub(super) async fn look(config: &Config) -> Vec<Finding> {
    let mut findings = vec![
        data_folder(&config.data.folder),
        disk(&config.data.folder),
        super::machine::clones(&config.data.folder),
        key_file(&config.key_file()),
    ];
    let database = database(config).await;
    let reached = database.health == Health::Ok;
    findings.push(database);
    if reached {
        findings.extend(standby(config).await);
    }
    findings.extend(objects(config).await);
    findings.push(port(config).await);
    findings
}

fn data_folder(folder: &Path) -> Finding {
    const CHECK: &str = "data folder";
    let Ok(about) = fs::metadata(folder) else {
        let above = nearest(folder);
        return match rustix::fs::access(above, rustix::fs::Access::WRITE_OK) {
            Ok(()) => {
                Finding::ok(CHECK, format!("{} will be made at the first start", folder.display()))
            }
            Err(error) => Finding::fail(
                CHECK,
                format!("{} cannot be made: {error}", folder.display()),
                format!("make it for this user: install -d -m 700 -o USER {}", folder.display()),
            ),
        };
    };
    if !about.is_dir() {
        return Finding::fail(
            CHECK,
            format!("{} is not a folder", folder.display()),
            "set data.folder to a folder",
        );
    }
    if let Err(error) = rustix::fs::access(folder, rustix::fs::Access::WRITE_OK) {
        let remedy = format!("chown -R USER {}", folder.display());
        return Finding::fail(
            CHECK,
            format!("{} cannot be written: {error}", folder.display()),
            remedy,
        );
    }
    private(CHECK, folder, about.permissions().mode(), 0o700)
}

fn key_file(file: &Path) -> Finding {
    const CHECK: &str = "key file";
    match fs::metadata(file) {
        Ok(about) if about.is_file() => private(CHECK, file, about.mode(), 0o600),
        Ok(_) => Finding::fail(
            CHECK,
            format!("{} is not a file", file.display()),
            "set store.key_file to a file",
        ),
        Err(_) => Finding::ok(CHECK, format!("{} will be made at the first start", file.display())),
    }
}

/// Checks that only the owner can use a file or folder.
fn private(check: &'static str, path: &Path, mode: u32, wished: u32) -> Finding {
    if mode & 0o077 == 0 {
        return Finding::ok(check, path.display().to_string());
    }
    let says = format!("{} can be used by others (mode {:o})", path.display(), mode & 0o777);
    Finding::warn(check, says, format!("chmod {wished:o} {}", path.display()))
}

fn disk(folder: &Path) -> Finding {
    const CHECK: &str = "disk space";
    let free = match rustix::fs::statvfs(nearest(folder)) {
        Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize),
        Err(error) => {
            return Finding::warn(CHECK, format!("cannot be read: {error}"), "check data.folder");
        }
    };
    let says = format!("{} free", crate::output::size(free));
    match free {
        DISK_WISHED.. => Finding::ok(CHECK, says),
        DISK_MIN..DISK_WISHED => {
            Finding::warn(CHECK, says, "images and snapshots need more: have 10 GiB free")
        }
        _ => Finding::fail(CHECK, says, "free some space, or set data.folder to a larger disk"),
    }
}

fn nearest(folder: &Path) -> &Path {
    let above = folder.ancestors().find(|above| above.exists() && !above.as_os_str().is_empty());
    above.unwrap_or(Path::new("."))
}

async fn database(config: &Config) -> Finding {
    const CHECK: &str = "database";
    let Some(url) = &config.store.url else {
        return Finding::ok(CHECK, "SQLite in the data folder");
    };
    let Ok(url) = reqwest::Url::parse(url) else {
        return Finding::fail(
            CHECK,
            "store.url is not an address",
            "write postgres://user:password@host/database",
        );
    };
    // A socket folder is given as the parameter `host`, or percent-encoded as the host.
    let folder = url
        .query_pairs()
        .find(|(name, value)| name == "host" && value.starts_with('/'))
        .map(|(_, value)| value.into_owned());
    let port = url.port().unwrap_or(POSTGRES_PORT);
    let (place, reached) = match folder {
        Some(folder) => {
            let socket = format!("{folder}/.s.PGSQL.{port}");
            let reached = tokio::net::UnixStream::connect(&socket).await.map(drop);
            (socket, reached)
        }
        None => {
            let host = url.host_str().unwrap_or("localhost").to_owned();
            let connect =
                tokio::time::timeout(ANSWER_TIMEOUT, TcpStream::connect((host.as_str(), port)))
                    .await;
            (
                format!("{host}:{port}"),
                connect.map_err(Into::into).and_then(|stream| stream.map(drop)),
            )
        }
    };
    match reached {
        Ok(()) => Finding::ok(CHECK, format!("PostgreSQL at {place} takes connections")),
        Err(error) => Finding::fail(
            CHECK,
            format!("PostgreSQL at {place} cannot be reached: {error}"),
            "start it, open its port to this machine, or mend store.url",
        ),
    }
}

/// Checks what would be lost if the database server failed.
async fn standby(config: &Config) -> Option<Finding> {
    let looked =
        tokio::time::timeout(ANSWER_TIMEOUT, store::replication(config.store_settings())).await;
    match looked {
        Ok(Ok(found)) => found.map(standby_finding),
        // Neither error shows the URL, which may contain a password.
        Ok(Err(error)) => {
            let cause = std::error::Error::source(&error)
                .map(|cause| format!(": {cause}"))
                .unwrap_or_default();
            Some(Finding::fail(
                STANDBY,
                format!("the database gives no answer: {error}{cause}"),
                "mend store.url",
            ))
        }
        Err(_) => {
            Some(Finding::fail(STANDBY, "the database gives no answer in time", "look at its log"))
        }
    }
}

const STANDBY: &str = "standby";

fn standby_finding(found: Replication) -> Finding {
    match found {
        Replication::None => {
            Finding::ok(STANDBY, "none: what is written is as safe as the disk of the database")
        }
        Replication::Synchronous { standbys } => {
            Finding::ok(STANDBY, format!("{standbys} connected; commits wait for a standby"))
        }
        Replication::Asynchronous { standbys } => Finding::warn(
            STANDBY,
            format!(
                "{standbys} connected, none synchronous: a failover loses what was answered last"
            ),
            "set synchronous_standby_names in postgresql.conf, so that commits wait for a standby",
        ),
        Replication::IsStandby => Finding::fail(
            STANDBY,
            "store.url leads to a standby, which takes no writes",
            "name the primary, or all servers with target_session_attrs=read-write",
        ),
    }
}

/// Checks the service of `[objects]`, if configured. The server starts without it, too.
async fn objects(config: &Config) -> Option<Finding> {
    const CHECK: &str = "object service";
    let remedy = "mend the settings below [objects]; until then nothing is archived or fetched";
    let settings = match config.objects.settings() {
        Ok(settings) => settings?,
        Err(error) => {
            let says = format!("objects.secret_file cannot be read: {error}");
            return Some(Finding::fail(CHECK, says, remedy));
        }
    };
    let hasty = objects::Settings { timeout: ANSWER_TIMEOUT, retries: 0, ..settings };
    let listed = match objects::Objects::open(&hasty) {
        Ok(objects) => objects.folders().await,
        Err(error) => Err(error),
    };
    let place = format!("{}/{}", hasty.endpoint, hasty.bucket);
    Some(match listed {
        Ok(_) => Finding::ok(CHECK, format!("{place} answers")),
        Err(objects::Error::Service(details)) => {
            Finding::warn(CHECK, format!("{place}: {details}"), remedy)
        }
        Err(error) => Finding::warn(CHECK, format!("{place}: {}", types::chain(&error)), remedy),
    })
}

async fn port(config: &Config) -> Finding {
    const CHECK: &str = "port";
    let address = config.server.listen;
    let Err(error) = TcpListener::bind(address) else {
        return Finding::ok(CHECK, format!("{address} is free"));
    };
    let scheme = if config.server.tls_certificate.is_some() { "https" } else { "http" };
    if holm_answers(&format!("{scheme}://{address}/health")).await {
        return Finding::ok(CHECK, format!("{address}: a Holm server is running"));
    }
    let remedy = "end what uses the port, or choose another with server.listen or --listen";
    Finding::fail(CHECK, format!("{address}: {error}"), remedy)
}

/// Asks without credentials, and takes any certificate: that of the server has its name, not its
/// address.
async fn holm_answers(url: &str) -> bool {
    let client = reqwest::Client::builder()
        .timeout(ANSWER_TIMEOUT)
        .tls_danger_accept_invalid_certs(true)
        .build();
    let Ok(client) = client else { return false };
    matches!(client.get(url).send().await, Ok(answer) if answer.status().is_success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_that_nobody_waits_for_is_warned_of() {
        let health = |found| standby_finding(found).health;
        assert_eq!(health(Replication::Asynchronous { standbys: 1 }), Health::Warn);
        assert_eq!(health(Replication::Synchronous { standbys: 1 }), Health::Ok);
        assert_eq!(health(Replication::IsStandby), Health::Fail);
    }
}
