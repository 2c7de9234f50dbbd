use super::{Claim, Leads, Lookup, NoAnswer};
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;

/// A name server that knows a few names, or does not answer at all.
#[derive(Default)]
struct Zone {
    texts: BTreeMap<&'static str, Vec<&'static str>>,
    leads: BTreeMap<&'static str, Leads>,
    silent: bool,
}

impl Zone {
    fn answer<T>(&self, name: &str, known: Option<T>) -> Result<Option<T>, NoAnswer> {
        let no_answer = NoAnswer { name: name.into(), why: "timed out".into() };
        if self.silent { Err(no_answer) } else { Ok(known) }
    }
}

impl Lookup for Zone {
    fn texts<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<String>, NoAnswer>> {
        let known =
            self.texts.get(name).map(|texts| texts.iter().map(|text| (*text).to_owned()).collect());
        Box::pin(async move { Ok(self.answer(name, known)?.unwrap_or_default()) })
    }

    fn leads<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Leads, NoAnswer>> {
        Box::pin(async move {
            Ok(self.answer(name, self.leads.get(name).cloned())?.unwrap_or_default())
        })
    }
}

fn alias(name: &str) -> Leads {
    Leads { aliases: vec![name.into()], ..Leads::default() }
}

fn at(address: &str) -> Leads {
    Leads { addresses: vec![address.parse().unwrap()], ..Leads::default() }
}

#[track_caller]
fn check(
    proof: Option<&'static str>,
    leads: &[(&'static str, Leads)],
    target: &str,
    expected: &str,
) {
    let zone = Zone {
        texts: proof.map(|text| ("_holm-challenge.a.org", vec![text])).into_iter().collect(),
        leads: leads.iter().cloned().collect(),
        silent: false,
    };
    assert_eq!(judged(&zone, target), expected);
}

fn judged(zone: &Zone, target: &str) -> String {
    let proof = ("_holm-challenge.a.org".to_owned(), "proof".to_owned());
    let claim = Claim { domain: "a.org".into(), proof, target: target.into() };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime
        .block_on(claim.check(zone))
        .map_or_else(|fault| fault.to_string(), |()| "verified".into())
}

const HERE: &str = "domains.holm.org";

#[test]
fn only_the_text_proves_who_owns_a_domain() {
    check(Some("proof"), &[], HERE, "verified");
    check(
        None,
        &[("*.a.org", alias(HERE))],
        HERE,
        "`_holm-challenge.a.org` has no TXT record `proof`",
    );
    let other = "`_holm-challenge.a.org` has no TXT record `proof`; found `proof of another`";
    check(Some("proof\n of another"), &[], HERE, other);
}

#[test]
fn a_record_leads_here_by_name_or_by_address() {
    check(Some("proof"), &[("*.a.org", alias(HERE))], HERE, "verified");
    check(Some("proof"), &[("a.org", alias(HERE)), ("*.a.org", alias("x.org"))], HERE, "verified");
    check(
        Some("proof"),
        &[("*.a.org", at("192.0.2.7")), (HERE, at("192.0.2.7"))],
        HERE,
        "verified",
    );
    check(Some("proof"), &[("*.a.org", at("192.0.2.7"))], "192.0.2.7", "verified");
    check(Some("proof"), &[("*.a.org", at("::1"))], "domains.localhost", "verified");
}

#[test]
fn a_record_that_leads_elsewhere_is_named_with_what_it_should_be() {
    let expected = "`*.a.org` leads to `x.org`; it should be a CNAME record for `domains.holm.org`";
    check(Some("proof"), &[("*.a.org", alias("x.org"))], HERE, expected);
    let expected = "`a.org` leads to `192.0.2.8`; it should be an A record with `192.0.2.7`";
    check(Some("proof"), &[("a.org", at("192.0.2.8"))], "192.0.2.7", expected);
}

#[test]
fn silence_is_neither_yes_nor_no() {
    let zone = Zone { silent: true, ..Zone::default() };
    assert_eq!(
        judged(&zone, HERE),
        "the name servers do not answer for `_holm-challenge.a.org`: timed out"
    );
}
