//! Parses the address of a request to the registry, and says which scopes it needs. Paths are not
//! decoded: no valid name has a character that would have to be encoded.

use super::error::Refusal;
use http::Method;
use http::request::Parts;
use std::fmt;
use types::own_image::{BadImageName, OwnRepository};
use types::{Scope, Verb};

/// What the path of every request begins with.
pub(super) const BASE: &str = "/v2/";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Whether there is a registry, and whether it admits the caller.
    Base,
    /// A token for the next requests.
    Token,
    Catalog,
    In(Name, Act),
}

/// What is done with a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    Tags,
    Manifest(String),
    Blob(String),
    Uploads,
    Upload(String),
    Referrers(String),
}

/// A repository as the caller writes it: `{workspace}/{type}/{name}`, or without the type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) workspace: String,
    pub(super) resource_type: Option<String>,
    pub(super) name: String,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.resource_type {
            Some(kind) => write!(f, "{}/{kind}/{}", self.workspace, self.name),
            None => write!(f, "{}/{}", self.workspace, self.name),
        }
    }
}

impl Name {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let (workspace, resource_type, name) = match parts.as_slice() {
            [workspace, name] => (*workspace, None, *name),
            [workspace, kind, name] => (*workspace, Some((*kind).to_owned()), *name),
            _ => return None,
        };
        (!workspace.is_empty() && !name.is_empty()).then(|| Self {
            workspace: workspace.to_owned(),
            resource_type,
            name: name.to_owned(),
        })
    }

    /// Returns the repository; `None` if the caller does not state the kind of workload.
    pub(super) fn repository(&self) -> Option<Result<OwnRepository, BadImageName>> {
        self.resource_type.as_deref().map(|kind| OwnRepository::new(kind, &self.name))
    }
}

/// Parses what follows `/v2/`.
pub(super) fn parse(path: &str) -> Option<Wanted> {
    match path {
        "" => return Some(Wanted::Base),
        "token" => return Some(Wanted::Token),
        "_catalog" => return Some(Wanted::Catalog),
        _ => {}
    }
    let parts: Vec<&str> = path.split('/').collect();
    let (name, act) = match parts.as_slice() {
        [name @ .., "blobs", "uploads"] | [name @ .., "blobs", "uploads", ""] => {
            (name, Act::Uploads)
        }
        [name @ .., "blobs", "uploads", id] => (name, Act::Upload((*id).to_owned())),
        [name @ .., "blobs", digest] => (name, Act::Blob((*digest).to_owned())),
        [name @ .., "manifests", reference] => (name, Act::Manifest((*reference).to_owned())),
        [name @ .., "referrers", digest] => (name, Act::Referrers((*digest).to_owned())),
        [name @ .., "tags", "list"] => (name, Act::Tags),
        _ => return None,
    };
    Some(Wanted::In(Name::parse(&name.join("/"))?, act))
}

/// Returns the scopes that an act needs, or a refusal if there is no such act.
pub(super) fn scopes(method: &Method, act: &Act) -> Result<&'static [Scope], Refusal> {
    Ok(match (act, method.as_str()) {
        (Act::Tags, "GET" | "HEAD") => &[Scope::Images(Verb::List)],
        (Act::Manifest(_) | Act::Blob(_) | Act::Referrers(_), "GET" | "HEAD") => {
            &[Scope::Images(Verb::Get)]
        }
        (Act::Manifest(_), "PUT")
        | (Act::Uploads, "POST")
        | (Act::Upload(_), "GET" | "HEAD" | "PATCH" | "PUT" | "DELETE") => {
            &[Scope::Images(Verb::Create)]
        }
        (Act::Manifest(_) | Act::Blob(_), "DELETE") => &[Scope::Images(Verb::Delete)],
        _ => return Err(Refusal::no_method()),
    })
}

/// Returns one parameter of the query.
pub(super) fn parameter(parts: &Parts, name: &str) -> Option<String> {
    let query = parts.uri.query().unwrap_or_default().as_bytes();
    let found = form_urlencoded::parse(query).find(|(known, _)| known == name);
    found.map(|(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wanted(path: &str) -> (String, Act) {
        match parse(path) {
            Some(Wanted::In(name, act)) => (name.to_string(), act),
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn every_address_is_understood() {
        assert_eq!(parse(""), Some(Wanted::Base));
        assert_eq!(parse("token"), Some(Wanted::Token));
        assert_eq!(parse("_catalog"), Some(Wanted::Catalog));
        assert_eq!(wanted("main/job/a/tags/list"), ("main/job/a".into(), Act::Tags));
        assert_eq!(wanted("main/a/manifests/v1"), ("main/a".into(), Act::Manifest("v1".into())));
        assert_eq!(wanted("m/job/a/blobs/uploads/"), ("m/job/a".into(), Act::Uploads));
        assert_eq!(wanted("m/job/a/blobs/uploads"), ("m/job/a".into(), Act::Uploads));
        assert_eq!(wanted("m/a/blobs/uploads/i"), ("m/a".into(), Act::Upload("i".into())));
        assert_eq!(wanted("m/a/blobs/sha256:0"), ("m/a".into(), Act::Blob("sha256:0".into())));
        assert_eq!(wanted("m/a/referrers/d"), ("m/a".into(), Act::Referrers("d".into())));
        // Names may be words of the protocol.
        assert_eq!(wanted("m/job/tags/tags/list"), ("m/job/tags".into(), Act::Tags));
    }

    #[test]
    fn what_is_no_address_leads_nowhere() {
        for path in ["/", "a", "a/tags/list", "a/b/c/d/tags/list", "/a/tags/list", "a//tags/list"] {
            assert_eq!(parse(path), None, "{path}");
        }
        for name in ["m/job/..", "m/job/%2e", "m/job/A", "m/zoo/a", "m/job/a:b"] {
            let repository = Name::parse(name).and_then(|name| name.repository());
            assert!(!matches!(repository, Some(Ok(_))), "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_path_panics_and_what_is_taken_is_written_as_it_was_sent(path in "[a-z/._:%~]{0,40}|(m/)?(job/)?[a-z.%]{1,4}/(tags/list|blobs/[a-z]{1,8}/?[a-z]{0,3}|manifests/[a-z]{0,3})") {
            if let Some(Wanted::In(name, _)) = parse(&path) {
                let written = name.to_string() + "/";
                prop_assert!(path.starts_with(&written));
                if let Some(Ok(repository)) = name.repository() {
                    prop_assert!(!repository.to_string().contains(['%', '~', ':']));
                }
            }
        }
    }
}
