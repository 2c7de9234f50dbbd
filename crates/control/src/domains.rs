//! Checks, by its DNS records, whether a custom domain belongs to the user and leads to this
//! server.
//!
//! The TXT record proves who owns the domain, so it is always required. A record that leads
//! elsewhere is a mistake that the user is told about. A missing record is no mistake: such a name
//! reaches nobody.

use futures_util::future::BoxFuture;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest part of a record that is shown, in characters.
const SHOWN_CHARACTERS: usize = 80;
/// Most texts that are shown of those found at the name of the proof.
const SHOWN_TEXTS: usize = 3;

/// Asks the DNS, within limits of its own. The control plane itself reaches nothing outside.
pub trait Lookup: Send + Sync + 'static {
    /// Returns the texts at a name; empty if there is no such name.
    fn texts<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<String>, NoAnswer>>;

    /// Returns where a name leads; nowhere if there is no such name.
    fn leads<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Leads, NoAnswer>>;
}

/// The aliases of a name, in lower case without the final dot, and its addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leads {
    pub aliases: Vec<String>,
    pub addresses: Vec<IpAddr>,
}

/// The name servers did not say whether there is such a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the name servers do not answer for `{name}`: {why}")]
pub struct NoAnswer {
    pub name: String,
    pub why: String,
}

/// The DNS records that a domain should have.
#[derive(Debug)]
pub struct Claim {
    pub domain: String,
    /// The name and text of the record that only the owner of the domain can make.
    pub proof: (String, String),
    /// The name or address of this server.
    pub target: String,
}

/// Why a domain is not verified. The user reads this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    #[error("`{name}` has no TXT record `{text}`{found}")]
    Unproven { name: String, text: String, found: String },
    #[error("`{name}` leads to {found}; it should be {wanted}")]
    Elsewhere { name: String, found: String, wanted: String },
}

impl Claim {
    pub async fn check(&self, dns: &dyn Lookup) -> Result<(), Fault> {
        let (name, text) = &self.proof;
        let texts = dns.texts(name).await?;
        if !texts.iter().any(|found| found.trim() == text) {
            return Err(Fault::Unproven {
                name: name.clone(),
                text: text.clone(),
                found: shown_texts(&texts),
            });
        }
        self.check_way(dns).await
    }

    /// Checks that the domain leads here. Previews use hosts below the domain, applications may use
    /// the domain itself. One of the two is enough.
    async fn check_way(&self, dns: &dyn Lookup) -> Result<(), Fault> {
        let own = self.own_addresses(dns).await?;
        let mut elsewhere = None;
        for name in [format!("*.{}", self.domain), self.domain.clone()] {
            let leads = dns.leads(&name).await?;
            let here = leads.aliases.contains(&self.target)
                || leads.addresses.iter().any(|at| own.contains(at));
            if here {
                return Ok(());
            }
            if let Some(found) = leads.shown() {
                elsewhere.get_or_insert(Fault::Elsewhere { name, found, wanted: self.wanted() });
            }
        }
        elsewhere.map_or(Ok(()), Err)
    }

    async fn own_addresses(&self, dns: &dyn Lookup) -> Result<Vec<IpAddr>, Fault> {
        if let Ok(address) = self.target.parse() {
            return Ok(vec![address]);
        }
        // No name server needs to know such a name: it means this machine everywhere.
        if self.target.ends_with(".localhost") {
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        Ok(dns.leads(&self.target).await?.addresses)
    }

    fn wanted(&self) -> String {
        match self.target.parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) => format!("an A record with `{address}`"),
            Ok(IpAddr::V6(address)) => format!("an AAAA record with `{address}`"),
            Err(_) => format!("a CNAME record for `{}`", self.target),
        }
    }
}

impl Leads {
    fn shown(&self) -> Option<String> {
        let first = self
            .aliases
            .first()
            .cloned()
            .or_else(|| self.addresses.first().map(IpAddr::to_string))?;
        Some(format!("`{}`", cut(&first)))
    }
}

fn shown_texts(texts: &[String]) -> String {
    if texts.is_empty() {
        return String::new();
    }
    let shown: Vec<String> =
        texts.iter().take(SHOWN_TEXTS).map(|text| format!("`{}`", cut(text))).collect();
    format!("; found {}", shown.join(", "))
}

/// Records are written by anybody, so what is shown of them must stay on one line.
fn cut(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(SHOWN_CHARACTERS).collect()
}

#[cfg(test)]
#[path = "domains_tests.rs"]
mod tests;
