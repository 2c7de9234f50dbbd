//! DNS look-ups of records of custom domains.

use crate::config;
use control::domains::{Leads, Lookup, NoAnswer};
use futures_util::future::BoxFuture;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use hickory_resolver::{Resolver, TokioResolver};
use std::net::SocketAddr;
use std::time::Duration;

/// A name server that has not answered by then is asked again, or another one is.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 2;
/// Time limit for all questions about one name.
const QUESTION_MAX: Duration = Duration::from_secs(5);
/// Most records of one name and type that are read.
const RECORDS_MAX: usize = 64;

/// The resolver. If it cannot be opened, every look-up fails, but the server still starts.
pub(crate) struct Dns(Option<TokioResolver>);

impl Dns {
    pub(crate) fn open(settings: &config::Domains) -> Self {
        let built = if settings.nameservers.is_empty() {
            Resolver::builder_tokio()
        } else {
            let servers =
                settings.nameservers.iter().map(|server| by_udp_and_tcp(server.0)).collect();
            let wanted = ResolverConfig::from_parts(None, Vec::new(), servers);
            Ok(Resolver::builder_with_config(wanted, TokioRuntimeProvider::default()))
        };
        let resolver = built.and_then(|mut builder| {
            let options = builder.options_mut();
            options.timeout = ATTEMPT_MAX;
            options.attempts = ATTEMPTS;
            // Users verify right after they change the records.
            options.cache_size = 0;
            options.use_hosts_file = ResolveHosts::Never;
            builder.build()
        });
        Self(resolver.inspect_err(|error| tracing::warn!(%error, "no domain can be verified")).ok())
    }

    async fn records(&self, name: &str, kinds: &[RecordType]) -> Result<Vec<Record>, NoAnswer> {
        let no_answer = |why: String| NoAnswer { name: name.to_owned(), why };
        let no_servers =
            || no_answer("this server knows no name servers (domains.nameservers)".into());
        let resolver = self.0.as_ref().ok_or_else(no_servers)?;
        // The trailing dot makes the name absolute: the machine's search domains are not tried.
        let whole =
            Name::from_ascii(format!("{name}.")).map_err(|error| no_answer(error.to_string()))?;
        let questions = async {
            let mut found = Vec::new();
            for kind in kinds {
                match resolver.lookup(whole.clone(), *kind).await {
                    Ok(lookup) => found.extend(lookup.answers().iter().take(RECORDS_MAX).cloned()),
                    Err(error) if error.is_no_records_found() => {}
                    Err(error) => return Err(no_answer(error.to_string())),
                }
            }
            Ok(found)
        };
        tokio::time::timeout(QUESTION_MAX, questions)
            .await
            .unwrap_or_else(|_| Err(no_answer("timed out".into())))
    }
}

fn by_udp_and_tcp(server: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = server.port();
        connection
    });
    NameServerConfig::new(server.ip(), true, connections.to_vec())
}

impl Lookup for Dns {
    fn texts<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<String>, NoAnswer>> {
        Box::pin(async move {
            let records = self.records(name, &[RecordType::TXT]).await?;
            Ok(records.iter().filter_map(text).collect())
        })
    }

    fn leads<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Leads, NoAnswer>> {
        Box::pin(async move {
            let mut leads = Leads::default();
            for record in
                self.records(name, &[RecordType::CNAME, RecordType::A, RecordType::AAAA]).await?
            {
                match record.data {
                    RData::CNAME(alias) => leads.aliases.push(plain(&alias.0)),
                    RData::A(address) => leads.addresses.push(address.0.into()),
                    RData::AAAA(address) => leads.addresses.push(address.0.into()),
                    _ => {}
                }
            }
            leads.aliases.dedup();
            Ok(leads)
        })
    }
}

/// Returns the text of a TXT record. A long text is stored in pieces, which are joined.
fn text(record: &Record) -> Option<String> {
    let RData::TXT(text) = &record.data else { return None };
    Some(String::from_utf8_lossy(&text.txt_data.concat()).into_owned())
}

fn plain(name: &Name) -> String {
    name.to_ascii().trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
#[path = "dns_tests.rs"]
mod tests;
