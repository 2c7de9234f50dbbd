//! Whether a custom domain is the user's and leads to this server, by what the DNS says of it.
//!
//! The TXT record proves who owns the domain, so nothing goes without it. A record that leads
//! elsewhere is a mistake that the user is told of. One that is not there yet is no mistake: a name
//! without a record reaches nobody.

use crate::machine::Wait;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What is found of a record is shown up to here.
const SHOWN_CHARACTERS: usize = 80;
/// Texts that are shown of those at the name of the proof.
const SHOWN_TEXTS: usize = 3;

/// Asks the DNS, within limits of its own. The control plane itself reaches nothing outside.
pub trait Lookup: Send + Sync + 'static {
    /// The texts at a name; none when there is no such name.
    fn texts<'a>(&'a self, name: &'a str) -> Wait<'a, Result<Vec<String>, NoAnswer>>;

    /// Where a name leads; nowhere when there is no such name.
    fn leads<'a>(&'a self, name: &'a str) -> Wait<'a, Result<Leads, NoAnswer>>;
}

/// The names that a name stands for, in lower case without the last dot, and its addresses.
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

/// What the DNS should say of a domain.
#[derive(Debug)]
pub struct Claim {
    pub domain: String,
    /// Name and text of the record that only the owner can make.
    pub proof: (String, String),
    /// Name or address of this server.
    pub target: String,
}

/// Why a domain is not verified. The user reads it.
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

    /// Hosts below the domain are what previews have; the domain itself is what an application has.
    /// One is enough.
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
        // No name server needs to know it: this machine is meant everywhere.
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

/// Anybody writes records: what is shown of them stays on one line.
fn cut(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(SHOWN_CHARACTERS).collect()
}

#[cfg(test)]
#[path = "domains_tests.rs"]
mod tests;
