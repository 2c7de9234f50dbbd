//! Invariants that hold whatever was killed, judged from observations. Pure, so that they can be
//! tested themselves.

use std::collections::{BTreeMap, BTreeSet};

/// First letter of revisions whose program listens; all others begin differently.
pub(crate) const READY: char = 'r';

/// Judges the answer to a request to a deployment that had served before.
pub(crate) fn a_request_is_served_by_what_was_ready(status: u16, body: &str) -> Result<(), String> {
    match status {
        200 if body.starts_with(READY) => Ok(()),
        200 => Err(format!("`{body}` serves and was never ready")),
        status => Err(format!("a request failed with {status}: {body}")),
    }
}

/// Judges the final state of a deployment whose last wish is a revision with this name.
pub(crate) fn a_wish_comes_to_its_end(
    status: &str,
    wished: &str,
    serves: &str,
) -> Result<(), String> {
    let is_ready = wished.starts_with(READY);
    match status {
        "DEPLOYED" if is_ready && serves == wished => Ok(()),
        "FAILED" if !is_ready && serves.starts_with(READY) => Ok(()),
        _ => Err(format!("it is {status}, wished was `{wished}`, and `{serves}` serves")),
    }
}

/// What is known about a deployment's last build, whose sources were acknowledged.
pub(crate) struct Built<'b> {
    /// Word that its image answers, if it can be built.
    pub(crate) marker: Option<&'b str>,
    /// Words that may have been served before.
    pub(crate) before: &'b BTreeSet<String>,
    pub(crate) has_served: bool,
}

pub(crate) fn an_upload_is_built_or_says_why_not(
    built: &Built<'_>,
    status: &str,
    why: &str,
    serves: Option<&str>,
) -> Result<(), String> {
    let as_before = || match serves {
        None => !built.has_served,
        Some(serves) => built.before.contains(serves),
    };
    match (built.marker, status) {
        (Some(marker), "DEPLOYED") if serves == Some(marker) => Ok(()),
        (None, "FAILED") if why.contains("exit code 7") && as_before() => Ok(()),
        (marker, status) => Err(format!(
            "it is {status} ({why}) and serves {serves:?}; built was {marker:?}, before {:?}",
            built.before
        )),
    }
}

/// Judges whether `new` revisions can come from `acts` acts, each of which makes at most one.
pub(crate) fn nothing_is_deployed_twice(new: usize, acts: usize) -> Result<(), String> {
    match new <= acts {
        true => Ok(()),
        false => Err(format!("{new} revisions came of {acts} acts")),
    }
}

/// Judges what is left on the machine, by category, against how much of each is explained.
pub(crate) fn nothing_is_left(
    found: &BTreeMap<&'static str, Vec<String>>,
    explained: &BTreeMap<&'static str, usize>,
) -> Result<(), String> {
    let unexplained: Vec<String> = found
        .iter()
        .filter(|(what, there)| there.len() > explained.get(*what).copied().unwrap_or(0))
        .map(|(what, there)| format!("{what}: {there:?}, explained: {:?}", explained.get(what)))
        .collect();
    match unexplained.is_empty() {
        true => Ok(()),
        false => Err(unexplained.join("; ")),
    }
}

/// Judges whether the bill stays the same after everything has ended.
pub(crate) fn the_bill_stands_still(before: f64, after: f64) -> Result<(), String> {
    match before.to_bits() == after.to_bits() {
        true => Ok(()),
        false => Err(format!("{before} became {after} after the end of all")),
    }
}

#[test]
fn each_of_them_can_be_broken() {
    assert!(a_request_is_served_by_what_was_ready(200, "r1").is_ok());
    assert!(a_request_is_served_by_what_was_ready(200, "n1").is_err());
    assert!(a_request_is_served_by_what_was_ready(502, "r1").is_err());
    assert!(a_wish_comes_to_its_end("DEPLOYED", "r2", "r2").is_ok());
    assert!(a_wish_comes_to_its_end("FAILED", "n2", "r1").is_ok());
    for (status, wished, serves) in
        [("DEPLOYED", "r2", "r1"), ("FAILED", "r2", "r2"), ("DEPLOYED", "n2", "n2")]
    {
        assert!(a_wish_comes_to_its_end(status, wished, serves).is_err());
    }
    let before = BTreeSet::from(["r1".to_owned()]);
    let good = Built { marker: Some("r2"), before: &before, has_served: true };
    assert!(an_upload_is_built_or_says_why_not(&good, "DEPLOYED", "", Some("r2")).is_ok());
    assert!(an_upload_is_built_or_says_why_not(&good, "DEPLOYED", "", Some("r1")).is_err());
    assert!(an_upload_is_built_or_says_why_not(&good, "UPLOADING", "", Some("r1")).is_err());
    let bad = Built { marker: None, before: &before, has_served: true };
    let why = "exit code 7";
    assert!(an_upload_is_built_or_says_why_not(&bad, "FAILED", why, Some("r1")).is_ok());
    assert!(an_upload_is_built_or_says_why_not(&bad, "FAILED", "", Some("r1")).is_err());
    assert!(an_upload_is_built_or_says_why_not(&bad, "FAILED", why, None).is_err());
    assert!(nothing_is_deployed_twice(2, 1).is_err());
    let found = BTreeMap::from([("instances", vec!["a".to_owned(), "b".to_owned()])]);
    assert!(nothing_is_left(&found, &BTreeMap::from([("instances", 2)])).is_ok());
    assert!(nothing_is_left(&found, &BTreeMap::from([("instances", 1)])).is_err());
    assert!(the_bill_stands_still(1.0, 1.5).is_err());
}
