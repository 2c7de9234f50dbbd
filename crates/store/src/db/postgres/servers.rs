//! The servers that the address of a database names.

use crate::Error;
use std::net::IpAddr;
use std::path::PathBuf;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

const PORT: u16 = 5432;

/// Where one server of a database listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseServer {
    Tcp { host: String, port: u16 },
    Socket(PathBuf),
}

/// Returns all servers that an address names, in the order in which they are tried.
pub fn database_servers(url: &str) -> Result<Vec<DatabaseServer>, Error> {
    let config = parse(url)?;
    let (hosts, ports) = (config.get_hosts(), config.get_ports());
    let addresses = config.get_hostaddrs();
    let count = hosts.len().max(addresses.len());
    // One port is for all servers, as in the driver.
    let port = |at: usize| ports.get(at).or_else(|| ports.first()).copied().unwrap_or(PORT);
    let server = |at: usize| match (addresses.get(at).map(IpAddr::to_string), hosts.get(at)) {
        (None, Some(Host::Unix(folder))) => {
            DatabaseServer::Socket(folder.join(format!(".s.PGSQL.{}", port(at))))
        }
        (None, Some(Host::Tcp(host))) => DatabaseServer::Tcp { host: host.clone(), port: port(at) },
        (address, _) => DatabaseServer::Tcp { host: address.unwrap_or_default(), port: port(at) },
    };
    Ok((0..count).map(server).collect())
}

pub(super) fn parse(url: &str) -> Result<Config, Error> {
    // TLS always checks certificates and names here, so the stricter modes mean the same.
    let url = url
        .replace("sslmode=verify-full", "sslmode=require")
        .replace("sslmode=verify-ca", "sslmode=require");
    let config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        // The error's text may repeat parts of the address, including a password.
        drop(error);
        wrong("is not like `postgres://user:password@host/name`, or has a parameter that is not known")
    })?;
    let (hosts, ports) = (config.get_hosts().len(), config.get_ports().len());
    match hosts.max(config.get_hostaddrs().len()) {
        0 => Err(wrong("names no host, as in `postgres://user:password@host/name`")),
        servers if ports > 1 && ports != servers => {
            Err(wrong("has more than one port, but not one for each host"))
        }
        _ => Ok(config),
    }
}

fn wrong(why: &str) -> Error {
    Error::Unusable(format!("the address of the database {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_one_server_or_several() {
        let servers = |url: &str| {
            let names = database_servers(url).unwrap().into_iter().map(|server| match server {
                DatabaseServer::Tcp { host, port } => format!("{host}:{port}"),
                DatabaseServer::Socket(path) => path.display().to_string(),
            });
            names.collect::<Vec<_>>()
        };
        assert_eq!(servers("postgres://u:p@db/holm"), ["db:5432"]);
        assert_eq!(servers("postgres://u@db/holm?sslmode=verify-full"), ["db:5432"]);
        let several = "postgres://u@db1:1,db2:2/holm?target_session_attrs=read-write";
        assert_eq!(servers(several), ["db1:1", "db2:2"]);
        for socket in ["postgres:///holm?host=/run/pg&port=7", "postgres://%2Frun%2Fpg:7/holm"] {
            assert_eq!(servers(socket), ["/run/pg/.s.PGSQL.7"]);
        }
        for wrong in ["postgres://u:hush@db/holm?x=y", "postgres:///holm", "postgres://u@h:x/d"] {
            let said = database_servers(wrong).unwrap_err().to_string();
            assert!(said.contains("the address of the database") && !said.contains("hush"));
        }
    }
}
