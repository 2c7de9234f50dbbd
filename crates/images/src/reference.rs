//! Names of images: `holm/base`, `ghcr.io/org/name:1.2`, `localhost:5000/name@sha256:…`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// The registry from which an image without a host in its name is pulled.
pub const DEFAULT_HOST: &str = "docker.io";
pub const DEFAULT_TAG: &str = "latest";

const REPOSITORY_BYTES_MAX: usize = 255;
const HOST_BYTES_MAX: usize = 255;
const TAG_BYTES_MAX: usize = 128;

/// The name of an image. Two names are equal if they mean the same image:
/// `docker.io/library/x:latest` equals `x`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Reference {
    host: Option<String>,
    path: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the name of an image: {0}")]
pub struct InvalidReference(&'static str);

impl Reference {
    /// Returns the registry, if the name contains one.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// Returns the path, without host, tag and digest.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the tag, which is missing only if there is a digest.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// Returns host and path, which all tags of one image share.
    pub fn repository(&self) -> String {
        match self.shown_host() {
            Some(host) => format!("{host}/{}", self.path),
            None => self.path.clone(),
        }
    }

    /// Returns the host to write before the path. A path on the default registry that begins like a
    /// host would read back as an image of that host, so the default is written out.
    fn shown_host(&self) -> Option<&str> {
        let misread = || match self.path.split_once('/') {
            Some((first, _)) if is_like_host(first) => Some(DEFAULT_HOST),
            _ => None,
        };
        self.host.as_deref().or_else(misread)
    }

    /// Returns the name with its registry, also if that is the default one.
    pub fn with_registry(&self) -> String {
        match self.shown_host() {
            Some(_) => self.to_string(),
            None => format!("{DEFAULT_HOST}/{self}"),
        }
    }

    /// Returns the name for a digest in the same repository, whatever its tags mean.
    pub fn at(&self, digest: Digest) -> Self {
        Self { tag: None, digest: Some(digest), ..self.clone() }
    }

    pub(crate) fn with_tag(&self, tag: &str) -> Result<Self, InvalidReference> {
        check_tag(tag)?;
        Ok(Self { tag: Some(tag.into()), digest: None, ..self.clone() })
    }
}

impl FromStr for Reference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (
                rest,
                Some(digest.parse().map_err(|_| InvalidReference("the digest is not a sha256"))?),
            ),
            None => (text, None),
        };
        let (host, rest) = split_host(rest)?;
        let (path, tag) = match rest.split_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (rest, None),
        };
        check_path(path)?;
        tag.map_or(Ok(()), check_tag)?;
        let tag = tag.or(digest.is_none().then_some(DEFAULT_TAG)).map(Into::into);
        let path = match path.strip_prefix("library/") {
            Some(name) if host.is_none() && !name.contains('/') => name,
            _ => path,
        };
        Ok(Self { host, path: path.into(), tag, digest })
    }
}

/// Splits off the host. The first part is one if it looks like no path; the default host counts as
/// none.
fn split_host(text: &str) -> Result<(Option<String>, &str), InvalidReference> {
    let Some((first, rest)) = text.split_once('/') else { return Ok((None, text)) };
    if !is_like_host(first) {
        return Ok((None, text));
    }
    check_host(first)?;
    let host = first.to_ascii_lowercase();
    let is_default =
        matches!(host.as_str(), DEFAULT_HOST | "index.docker.io" | "registry-1.docker.io");
    Ok(((!is_default).then_some(host), rest))
}

/// Returns whether a registry is written before a name, which a [`Reference`] does not tell of the
/// default one.
pub fn names_registry(text: &str) -> bool {
    text.split_once('/').is_some_and(|(first, _)| is_like_host(first))
}

fn is_like_host(part: &str) -> bool {
    part == "localhost" || part.contains(['.', ':'])
}

fn check_host(host: &str) -> Result<(), InvalidReference> {
    let refused = Err(InvalidReference("the host is not one"));
    let (name, port) = match host.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((address, port))) if address.parse::<std::net::Ipv6Addr>().is_ok() => {
            ("ipv6", port)
        }
        Some(_) => return refused,
        None => host.find(':').map_or((host, ""), |colon| host.split_at(colon)),
    };
    let label = |label: &str| {
        let plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        plain && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
    };
    let port_is_one = match port.strip_prefix(':') {
        Some(port) => {
            port.bytes().all(|byte| byte.is_ascii_digit())
                && port.parse::<u16>().is_ok_and(|port| port > 0)
        }
        None => port.is_empty(),
    };
    if host.len() <= HOST_BYTES_MAX && name.split('.').all(label) && port_is_one {
        Ok(())
    } else {
        refused
    }
}

fn check_path(path: &str) -> Result<(), InvalidReference> {
    if path.len() > REPOSITORY_BYTES_MAX {
        return Err(InvalidReference("the path is longer than 255 characters"));
    }
    if path.split('/').all(is_path_part) {
        return Ok(());
    }
    Err(InvalidReference(
        "the path is lower-case letters and digits, with single `.`, `_`, `__` or `-` between",
    ))
}

/// Checks for letters and digits with separators in between: one dot, one or two underscores, or
/// any number of dashes.
fn is_path_part(part: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    word(*first)
        && word(*last)
        && bytes.split(|byte| word(*byte)).all(|separator| {
            matches!(separator, b"" | b"." | b"_" | b"__")
                || separator.iter().all(|byte| *byte == b'-')
        })
}

fn check_tag(tag: &str) -> Result<(), InvalidReference> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let first = tag.bytes().next().is_some_and(word);
    if first
        && tag.len() <= TAG_BYTES_MAX
        && tag.bytes().all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
    {
        return Ok(());
    }
    Err(InvalidReference("the tag is up to 128 letters, digits, `.`, `_` and `-`"))
}

impl TryFrom<String> for Reference {
    type Error = InvalidReference;

    fn try_from(text: String) -> Result<Self, InvalidReference> {
        text.parse()
    }
}

impl From<Reference> for String {
    fn from(reference: Reference) -> Self {
        reference.to_string()
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repository())?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Reference {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn every_form_is_understood() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (text, host, path, tag) in [
            ("holm/base", None, "holm/base", Some("latest")),
            ("blaxel/base-image:latest", None, "blaxel/base-image", Some("latest")),
            ("docker.io/library/debian:12", None, "debian", Some("12")),
            ("library/debian", None, "debian", Some("latest")),
            ("localhost/x", Some("localhost"), "x", Some("latest")),
            ("Host.example:5000/org/name:v1", Some("host.example:5000"), "org/name", Some("v1")),
            ("[::1]:5000/name", Some("[::1]:5000"), "name", Some("latest")),
            (&format!("host:1/org/name:tag@{digest}"), Some("host:1"), "org/name", Some("tag")),
            (&format!("name@{digest}"), None, "name", None),
        ] {
            let found = parse(text);
            assert_eq!((found.host(), found.path(), found.tag()), (host, path, tag), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_name_is_refused() {
        let long_path = "a".repeat(256);
        let long_tag = format!("a:{}", "b".repeat(129));
        for text in [
            "",
            "/",
            "a/",
            "/a",
            "A",
            "a:",
            "a:-",
            "a@sha256:1",
            "a//b",
            "a/../b",
            "a..b",
            "a___b",
            "-a",
            "a-",
            "a b",
            "a\n",
            "host:0/a",
            "host:99999/a",
            "host:+1/a",
            "[::g]/a",
            "[::1/a",
            "-host.x/a",
            "é/a",
            "http://host.x/a",
            &long_path,
            &long_tag,
        ] {
            assert!(text.parse::<Reference>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_path_that_looks_like_a_host_stays_on_its_registry() {
        for text in ["docker.io/ghcr.io/x", "docker.io/localhost/x", "docker.io/docker.io/x"] {
            let found = parse(text);
            assert_eq!((found.host(), found.repository().as_str()), (None, text));
            assert_eq!(parse(&found.to_string()), found);
        }
    }

    #[test]
    fn a_registry_that_is_written_is_told_from_one_that_is_not() {
        for (text, full) in [
            ("docker.io/library/alpine:3", "docker.io/alpine:3"),
            ("index.docker.io/alpine:3", "docker.io/alpine:3"),
            ("registry-1.docker.io/agent/x", "docker.io/agent/x:latest"),
            ("docker.io/ghcr.io/x", "docker.io/ghcr.io/x:latest"),
            ("ghcr.io/org/name", "ghcr.io/org/name:latest"),
            ("localhost/x", "localhost/x:latest"),
        ] {
            assert!(names_registry(text), "{text}");
            let name = parse(text);
            assert_eq!(name.with_registry(), full);
            assert_eq!(parse(full), name);
        }
        for text in ["alpine", "alpine:3", "library/alpine", "holm/base:1.2"] {
            assert!(!names_registry(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(text in "((docker\\.io/)?[a-z]{1,5}\\.[a-z]{1,5}/|[a-z]{1,5}:[1-9]{1,3}/)?[a-z0-9]{1,4}((_|__|-{1,3})[a-z0-9]{1,4}){0,2}(/[a-z0-9]{1,4}(\\.[a-z0-9]{1,4})?){0,2}(:[a-zA-Z0-9_][a-zA-Z0-9._-]{0,9})?(@sha256:[0-9a-f]{64})?") {
            let reference: Reference = text.parse().map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
            prop_assert_eq!(reference.to_string().parse::<Reference>(), Ok(reference));
        }

        #[test]
        fn no_text_panics_and_nothing_leaves_the_path(text in "[a-z./:@\\[\\]_ -]{0,40}") {
            if let Ok(reference) = text.parse::<Reference>() {
                prop_assert!(reference.path().split('/').all(|part| !part.is_empty() && part != ".." && part != "."));
                prop_assert_eq!(reference.to_string().parse::<Reference>(), Ok(reference));
            }
        }
    }
}
