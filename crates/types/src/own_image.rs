//! Names of images in a workspace's own registry: `agent/my-agent:v1`, `job/report@sha256:…`.
//! Wherever they occur they mean the caller's workspace, never a public image.

use crate::Problems;
use std::fmt;
use std::str::FromStr;

/// Kinds of workloads that images are for, as they begin a name.
pub const IMAGE_TYPES: [&str; 5] = ["agent", "function", "sandbox", "job", "app"];

const DEFAULT_TAG: &str = "latest";
const NAME_MAX: usize = 128;
const TAG_MAX: usize = 128;
const DIGEST: &str = "sha256:";
const DIGEST_DIGITS: usize = 64;

/// An image of a workspace. No value exists whose parts would lead elsewhere when used as a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnImage {
    repository: OwnRepository,
    at: ImageAt,
}

/// All images with one name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnRepository {
    resource_type: &'static str,
    name: String,
}

/// Selects an image of a repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImageAt {
    Tag(String),
    Digest(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadImageName {
    #[error("must begin with one of agent, function, sandbox, job, app")]
    Type,
    #[error(
        "must have a name of up to 128 lower-case letters and digits, with single `.`, `_`, `__` or `-` between"
    )]
    Name,
    #[error("must have a tag of up to 128 letters, digits, `.`, `_` and `-`")]
    Tag,
    #[error("must have a digest of `sha256:` and 64 lower-case hexadecimal digits")]
    Digest,
}

impl BadImageName {
    /// Returns the problem of a request that has the parts of a name in members of their own.
    pub fn in_request(self) -> Problems {
        match self {
            Self::Type => {
                let message = format!("must be one of {}", IMAGE_TYPES.join(", "));
                Problems::one("resourceType", message)
            }
            Self::Name | Self::Tag | Self::Digest => Problems::one("name", self.to_string()),
        }
    }
}

/// Returns true if a text names one of the caller's own images, correctly or not.
pub fn is_own_image(text: &str) -> bool {
    text.split_once('/').is_some_and(|(first, _)| IMAGE_TYPES.contains(&first))
}

impl OwnRepository {
    /// Checks both parts of a name. Published clients also write `application` for `app`.
    pub fn new(resource_type: &str, name: &str) -> Result<Self, BadImageName> {
        let wanted = if resource_type == "application" { "app" } else { resource_type };
        let known = IMAGE_TYPES.into_iter().find(|known| *known == wanted);
        let resource_type = known.ok_or(BadImageName::Type)?;
        let is_name = name.len() <= NAME_MAX && is_path_part(name);
        is_name.then_some(()).ok_or(BadImageName::Name)?;
        Ok(Self { resource_type, name: name.to_owned() })
    }

    pub fn resource_type(&self) -> &'static str {
        self.resource_type
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn tagged(&self, tag: &str) -> Result<OwnImage, BadImageName> {
        if !is_tag(tag) {
            return Err(BadImageName::Tag);
        }
        Ok(OwnImage { repository: self.clone(), at: ImageAt::Tag(tag.to_owned()) })
    }

    pub fn with_digest(&self, digest: &str) -> Result<OwnImage, BadImageName> {
        if !is_digest(digest) {
            return Err(BadImageName::Digest);
        }
        Ok(OwnImage { repository: self.clone(), at: ImageAt::Digest(digest.to_owned()) })
    }
}

impl OwnImage {
    pub fn repository(&self) -> &OwnRepository {
        &self.repository
    }

    pub fn at(&self) -> &ImageAt {
        &self.at
    }
}

impl FromStr for OwnRepository {
    type Err = BadImageName;

    fn from_str(text: &str) -> Result<Self, BadImageName> {
        let (resource_type, name) = text.split_once('/').ok_or(BadImageName::Type)?;
        if !IMAGE_TYPES.contains(&resource_type) {
            return Err(BadImageName::Type);
        }
        Self::new(resource_type, name)
    }
}

/// Reads a name. Without a tag it means the tag `latest`; with a tag and a digest, the digest
/// applies.
impl FromStr for OwnImage {
    type Err = BadImageName;

    fn from_str(text: &str) -> Result<Self, BadImageName> {
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        let (repository, tag) = match rest.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (rest, None),
        };
        let repository: OwnRepository = repository.parse()?;
        let tagged = repository.tagged(tag.unwrap_or(DEFAULT_TAG))?;
        digest.map_or(Ok(tagged), |digest| repository.with_digest(digest))
    }
}

impl fmt::Display for OwnRepository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.resource_type, self.name)
    }
}

impl fmt::Display for OwnImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            ImageAt::Tag(tag) => write!(f, "{}:{tag}", self.repository),
            ImageAt::Digest(digest) => write!(f, "{}@{digest}", self.repository),
        }
    }
}

/// Checks for letters and digits with separators between them: one dot, one or two underscores, or
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

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= TAG_MAX
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    digest.strip_prefix(DIGEST).is_some_and(|digits| {
        digits.len() == DIGEST_DIGITS
            && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_form_is_understood() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (text, shown) in [
            ("agent/one", "agent/one:latest".to_owned()),
            ("job/one.two__three-four:V1", "job/one.two__three-four:V1".to_owned()),
            (&format!("app/one@{digest}"), format!("app/one@{digest}")),
            (&format!("app/one:v1@{digest}"), format!("app/one@{digest}")),
        ] {
            assert_eq!(text.parse::<OwnImage>().map(|image| image.to_string()), Ok(shown));
        }
    }

    #[test]
    fn what_is_badly_written_is_still_not_of_everybody() {
        for text in ["agent/", "agent/..", "agent/a/b:1", "job/A:1", "app/a:", "app/a@sha256:1"] {
            assert!(is_own_image(text) && text.parse::<OwnImage>().is_err(), "{text}");
        }
        for text in
            ["agent", "agents/a:1", "holm/base", "ghcr.io/agent/a:1", "/agent/a", "application/a"]
        {
            assert!(!is_own_image(text) && text.parse::<OwnImage>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(text in "(agent|function|sandbox|job|app)/[a-z0-9]{1,4}((\\.|_|__|-{1,3})[a-z0-9]{1,4}){0,2}(:[a-zA-Z0-9_][a-zA-Z0-9._-]{0,9})?(@sha256:[0-9a-f]{64})?") {
            let image: OwnImage = text.parse().map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
            prop_assert_eq!(image.to_string().parse::<OwnImage>(), Ok(image));
        }

        #[test]
        fn no_text_panics_and_none_leaves_its_place(text in "(agent|job|app|x)?/?[a-z./:@_%\\\\ -]{0,30}") {
            if let Ok(image) = text.parse::<OwnImage>() {
                let name = image.repository().name();
                prop_assert!(!name.contains(['/', '\\', '%', ':', '@', ' ']) && !name.starts_with('.'));
            }
        }
    }
}
