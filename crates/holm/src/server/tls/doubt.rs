//! What callers find wrong with a certificate that is in use, and telling the operator in the log:
//! nothing else shows that a renewal did not happen, or brought the wrong certificate.

use super::Pair;
use std::fmt;
use std::time::Duration;
use types::Timestamp;

/// Renewals come earlier than that, except for certificates that live shorter than five weeks.
const SOON: Duration = Duration::from_secs(7 * 24 * 3600);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Doubt {
    Expired(Timestamp),
    Soon(Timestamp),
    NotYet(Timestamp),
    /// It is not for the name that it is used for.
    OtherNames(Vec<String>),
}

impl Doubt {
    /// Returns what is wrong with a certificate that is shown to callers of `name`, or of a
    /// wildcard.
    pub(super) fn about(pair: &Pair, name: &str, now: Timestamp) -> Option<Self> {
        let life_ms = pair.until.ms().saturating_sub(pair.from.ms());
        let soon_ms = (life_ms / 5).min(SOON.as_millis() as i64);
        let ends_soon = pair.until.ms().saturating_sub(now.ms()) < soon_ms;
        if pair.until <= now {
            Some(Self::Expired(pair.until))
        } else if now < pair.from {
            Some(Self::NotYet(pair.from))
        } else if !covers(&pair.names, name) {
            Some(Self::OtherNames(pair.names.clone()))
        } else {
            ends_soon.then_some(Self::Soon(pair.until))
        }
    }
}

fn covers(names: &[String], name: &str) -> bool {
    let above = super::above(name);
    names.iter().any(|known| known == name || *known == above)
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired(until) => write!(f, "it expired at {until}"),
            Self::Soon(until) => write!(f, "it expires at {until}, and was not renewed yet"),
            Self::NotYet(from) => write!(f, "it is not valid before {from}"),
            Self::OtherNames(names) if names.is_empty() => write!(f, "it has no name in DNS"),
            Self::OtherNames(names) => write!(f, "it is for other names: {}", names.join(", ")),
        }
    }
}

/// A certificate in use, and what the log says of it.
pub(super) struct Used {
    pub(super) pair: Pair,
    told: Option<Doubt>,
}

impl Used {
    pub(super) fn new(pair: Pair) -> Self {
        Self { pair, told: None }
    }

    /// Writes what is wrong with the certificate, once for each thing.
    pub(super) fn tell(&mut self, name: &str, now: Timestamp) {
        let doubt = Doubt::about(&self.pair, name, now);
        if doubt == self.told {
            return;
        }
        match &doubt {
            Some(doubt @ Doubt::Expired(_)) => {
                tracing::error!(name, %doubt, "callers refuse a certificate");
            }
            Some(doubt @ Doubt::Soon(_)) => tracing::warn!(name, %doubt, "a certificate ends soon"),
            Some(doubt) => tracing::warn!(name, %doubt, "callers refuse a certificate"),
            None => {}
        }
        self.told = doubt;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn pair(names: &[&str]) -> Pair {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().copied().map(str::to_owned).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2026, 4, 1);
        let chain = params.self_signed(&key).unwrap().pem();
        Pair::parse(chain.as_bytes(), key.serialize_pem().as_bytes()).unwrap()
    }

    fn told(pair: &Pair, name: &str, now: &str) -> Option<String> {
        let now = format!("{now}T00:00:00Z").parse().unwrap();
        Doubt::about(pair, name, now).map(|doubt| doubt.to_string())
    }

    #[test]
    fn what_callers_refuse_is_told_and_what_they_soon_will() {
        let both = pair(&["Holm.example.org", "*.holm.example.org"]);
        for name in ["holm.example.org", "a.holm.example.org", "*.holm.example.org"] {
            assert_eq!(told(&both, name, "2026-02-01"), None, "{name}");
        }
        for name in ["example.org", "a.b.holm.example.org", "*.example.org"] {
            let told = told(&both, name, "2026-02-01").unwrap();
            assert_eq!(
                told, "it is for other names: holm.example.org, *.holm.example.org",
                "{name}"
            );
        }
        let told = |now| told(&both, "holm.example.org", now).unwrap();
        assert_eq!(told("2025-12-31"), "it is not valid before 2026-01-01T00:00:00.000Z");
        assert!(told("2026-03-26").starts_with("it expires at 2026-04-01"));
        assert!(told("2026-04-01").starts_with("it expired at 2026-04-01"));
        assert_eq!(Doubt::about(&both, "holm.example.org", both.from), None);
    }

    #[test]
    fn each_thing_is_told_once() {
        let mut used = Used::new(pair(&["a.org"]));
        let at = |day: &str| format!("{day}T00:00:00Z").parse().unwrap();
        used.tell("a.org", at("2026-03-28"));
        let soon = used.told.clone();
        used.tell("a.org", at("2026-03-29"));
        assert!(soon.is_some() && used.told == soon);
        used.tell("a.org", at("2026-05-01"));
        assert!(matches!(used.told, Some(Doubt::Expired(_))));
    }
}
