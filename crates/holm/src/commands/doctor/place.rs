//! Checks of what the settings refer to: folders, files, the database and the ports.

use super::finding::{Finding, Health};
use crate::config::Config;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::{DatabaseServer, Replication};
use tokio::net::{TcpStream, UnixStream};

const DISK_MIN: u64 = 1 << 30;
const DISK_WISHED: u64 = 10 << 30;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) async fn look(config: &Config) -> Vec<Finding> {
    let mut findings = vec![
        data_folder(&config.data.folder),
        disk(&config.data.folder),
        super::machine::clones(&config.data.folder),
        key_file(&config.key_file(), config.database_file().filter(|file| file.exists())),
    ];
    let database = database(config).await;
    let reached = database.health == Health::Ok;
    findings.push(database);
    if reached {
        findings.extend(standby(config).await);
    }
    findings.extend(objects(config).await);
    findings.extend(ports(config).await);
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

fn key_file(file: &Path, database: Option<PathBuf>) -> Finding {
    const CHECK: &str = "key file";
    match fs::metadata(file) {
        Ok(about) if about.is_file() => private(CHECK, file, about.mode(), 0o600),
        Ok(_) => Finding::fail(
            CHECK,
            format!("{} is not a file", file.display()),
            "set store.key_file to a file",
        ),
        Err(_) => match database {
            None => {
                Finding::ok(CHECK, format!("{} will be made at the first start", file.display()))
            }
            Some(database) => Finding::fail(
                CHECK,
                format!("{} is not there, but {} is", file.display(), database.display()),
                "put the copy of the file back, without which nobody can open the secrets in the database",
            ),
        },
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
    const CHECK: &str = DATABASE;
    let Some(url) = &config.store.url else {
        return Finding::ok(CHECK, "SQLite in the data folder");
    };
    let servers = match store::database_servers(url) {
        Ok(servers) => servers,
        Err(error) => return Finding::fail(CHECK, error.to_string(), "mend store.url"),
    };
    let mut refusals = Vec::new();
    for server in &servers {
        match reach(server).await {
            Ok(place) => {
                return Finding::ok(CHECK, format!("PostgreSQL at {place} takes connections"));
            }
            Err(refusal) => refusals.push(refusal),
        }
    }
    Finding::fail(
        CHECK,
        refusals.join("; "),
        "start it, open its port to this machine, or mend store.url",
    )
}

/// Connects to a server of the database and returns where it is, or why it cannot be reached.
async fn reach(server: &DatabaseServer) -> Result<String, String> {
    let (place, reached) = match server {
        DatabaseServer::Socket(path) => {
            (path.display().to_string(), UnixStream::connect(path).await.map(drop))
        }
        DatabaseServer::Tcp { host, port } => {
            let connect = TcpStream::connect((host.as_str(), *port));
            let reached = tokio::time::timeout(ANSWER_TIMEOUT, connect).await;
            let reached = reached.map_err(Into::into).and_then(|stream| stream.map(drop));
            (format!("{host}:{port}"), reached)
        }
    };
    match reached {
        Ok(()) => Ok(place),
        Err(error) => Err(format!("PostgreSQL at {place} cannot be reached: {error}")),
    }
}

/// Checks what would be lost if the database server failed.
async fn standby(config: &Config) -> Option<Finding> {
    let looked =
        tokio::time::timeout(ANSWER_TIMEOUT, store::replication(config.store_settings())).await;
    match looked {
        Ok(Ok(found)) => found.map(standby_finding),
        Ok(Err(store::Error::Unusable(why))) => {
            Some(Finding::fail(DATABASE, why, "mend store.url"))
        }
        // Neither error shows the URL, which may contain a password.
        Ok(Err(error)) => Some(Finding::fail(
            STANDBY,
            format!("the database gives no answer: {}", types::chain(&error)),
            "mend store.url",
        )),
        Err(_) => {
            Some(Finding::fail(STANDBY, "the database gives no answer in time", "look at its log"))
        }
    }
}

const DATABASE: &str = "database";
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

/// Checks the port of the server, and the one for content if the server needs one.
async fn ports(config: &Config) -> Vec<Finding> {
    const CHECK: &str = "port";
    const CONTENT: &str = "content port";
    let own = config.server.listen;
    let scheme = config.server.scheme();
    let holm_runs =
        TcpListener::bind(own).is_err() && holm_answers(&format!("{scheme}://{own}/health")).await;
    let content = config.server.content_address();
    let content = content.map(|address| port(CONTENT, "server.content_listen", address, holm_runs));
    let own = port(CHECK, "server.listen or --listen", own, holm_runs);
    std::iter::once(own).chain(content).collect()
}

/// Checks that a port is free. If a Holm server runs here, both ports are taken to be its own.
fn port(check: &'static str, setting: &str, address: SocketAddr, holm_runs: bool) -> Finding {
    match TcpListener::bind(address) {
        Ok(_) => Finding::ok(check, format!("{address} is free")),
        Err(_) if holm_runs => Finding::ok(check, format!("{address}: a Holm server is running")),
        Err(error) => {
            let remedy = format!("end what uses the port, or choose another with {setting}");
            Finding::fail(check, format!("{address}: {error}"), remedy)
        }
    }
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

    fn config(variables: &[(&str, &str)]) -> Config {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).into()));
        crate::config::load(None, variables, &[]).unwrap()
    }

    #[tokio::test]
    async fn one_server_of_the_database_that_takes_connections_is_enough() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = format!("postgres://u@127.0.0.1:1,127.0.0.1:{port}/d?target_session_attrs=any");
        let found = database(&config(&[("HOLM_STORE__URL", &url)])).await;
        assert_eq!(found.health, Health::Ok, "{}", found.says);
        let found = database(&config(&[("HOLM_STORE__URL", "postgres://u@127.0.0.1:1/d")])).await;
        assert_eq!(found.health, Health::Fail, "{}", found.says);
    }

    #[tokio::test]
    async fn a_taken_port_for_content_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = listener.local_addr().unwrap().to_string();
        let listen =
            [("HOLM_SERVER__LISTEN", "127.0.0.1:0"), ("HOLM_SERVER__CONTENT_LISTEN", &taken)];
        let found = ports(&config(&listen)).await;
        let [_, content] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(content.health, Health::Fail);
        assert!(content.remedy.as_ref().unwrap().contains("server.content_listen"));
        // A server with a name needs no port for content, nor one that leads to no workloads.
        for more in
            [("HOLM_SERVER__PUBLIC_URL", "https://x.org"), ("HOLM_SERVER__ROLES", "[\"api\"]")]
        {
            assert_eq!(ports(&config(&[listen[0], more])).await.len(), 1);
        }
        assert_eq!(ports(&config(&listen[..1])).await.len(), 2);
    }

    #[test]
    fn a_standby_that_nobody_waits_for_is_warned_of() {
        let health = |found| standby_finding(found).health;
        assert_eq!(health(Replication::Asynchronous { standbys: 1 }), Health::Warn);
        assert_eq!(health(Replication::Synchronous { standbys: 1 }), Health::Ok);
        assert_eq!(health(Replication::IsStandby), Health::Fail);
    }
}
