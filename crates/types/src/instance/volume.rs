//! Names of storage that a machine keeps for longer than an instance lives.

use super::BadName;
use super::name::{RESOURCE_ID, fits, stem};
use crate::ids::ResourceId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The name of a file system that a machine keeps: 1 to 63 lower-case letters, digits and hyphens.
/// A file is named after it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VolumeName(String);

/// The row that a file system is kept for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum KeptFor {
    Volume(ResourceId),
    /// What a sandbox writes over its image.
    Root(ResourceId),
    /// One version of a volume template, by a number that no other version of the template has.
    Template {
        id: ResourceId,
        number: u64,
    },
    Drive(ResourceId),
}

/// A file system that new volumes begin as copies of. It never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeSource {
    pub name: VolumeName,
    /// Its copy at an object service, for machines that do not have the file system itself.
    pub copy: Option<VolumeCopy>,
}

/// A copy of a file system at an object service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeCopy {
    /// Used to find and to check it.
    pub digest: String,
    /// The size of the file system.
    pub size_mb: u32,
}

/// A volume's file system, mounted at a path in an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeMount {
    pub volume: VolumeName,
    pub size_mb: u32,
    /// Absolute path, created if the image does not have it.
    pub path: String,
    pub read_only: bool,
}

/// A folder of a drive, mounted at a path in an instance. Other instances may mount it too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveMount {
    pub drive: VolumeName,
    /// Absolute, normalized path, created if the instance does not have it.
    pub place: String,
    /// Folder within the drive: an absolute, normalized path, or empty for the whole drive.
    /// Symbolic links are not followed on the way to it. Created if it is missing and the mount is
    /// writable.
    pub folder: String,
    pub read_only: bool,
}

const VOLUME: &str = "volume-";
const ROOT: &str = "root-";
const TEMPLATE: &str = "template-";
const DRIVE: &str = "drive-";

impl VolumeName {
    pub fn new(text: impl Into<String>) -> Result<Self, BadName> {
        let text = text.into();
        if fits(&text) {
            Ok(Self(text))
        } else {
            Err(BadName::Volume(text.chars().take(80).collect()))
        }
    }

    #[expect(clippy::expect_used, reason = "ids are made by the server, of letters that fit")]
    pub fn of(what: &KeptFor) -> Self {
        let text = match what {
            KeptFor::Volume(id) => format!("{VOLUME}{}", stem(id)),
            KeptFor::Root(id) => format!("{ROOT}{}", stem(id)),
            KeptFor::Template { id, number } => format!("{TEMPLATE}{}-{number}", stem(id)),
            KeptFor::Drive(id) => format!("{DRIVE}{}", stem(id)),
        };
        Self::new(text).expect("ids fit into names of volumes")
    }

    /// Returns what it is kept for, or `None` for a name that this server does not give.
    pub fn kept_for(&self) -> Option<KeptFor> {
        let id = |stem: &str| ResourceId::known(format!("{RESOURCE_ID}{stem}"));
        if let Some(stem) = self.0.strip_prefix(VOLUME) {
            return Some(KeptFor::Volume(id(stem)));
        }
        if let Some(stem) = self.0.strip_prefix(ROOT) {
            return Some(KeptFor::Root(id(stem)));
        }
        if let Some(stem) = self.0.strip_prefix(DRIVE) {
            return Some(KeptFor::Drive(id(stem)));
        }
        let (stem, number) = self.0.strip_prefix(TEMPLATE)?.rsplit_once('-')?;
        Some(KeptFor::Template { id: id(stem), number: number.parse().ok()? })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for VolumeName {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        Self::new(text)
    }
}

impl From<VolumeName> for String {
    fn from(name: VolumeName) -> Self {
        name.0
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_says_whose_row_asks_for_it() {
        let id = || ResourceId::known("res_ab3k9");
        let template = KeptFor::Template { id: id(), number: 3 };
        let texts = ["volume-ab3k9", "root-ab3k9", "template-ab3k9-3", "drive-ab3k9"];
        let all = [KeptFor::Volume(id()), KeptFor::Root(id()), template, KeptFor::Drive(id())];
        for (what, text) in all.into_iter().zip(texts) {
            let name = VolumeName::of(&what);
            assert_eq!(name.as_str(), text);
            assert_eq!(name.kept_for(), Some(what));
        }
        for strange in ["disk", "template-ab3k9", "template-a-x"] {
            assert_eq!(VolumeName::new(strange).unwrap().kept_for(), None, "{strange}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_one_plain_file_name(text in ".{0,70}") {
            if let Ok(name) = VolumeName::new(text) {
                let path = std::path::Path::new(name.as_str());
                prop_assert_eq!(path.components().count(), 1);
                prop_assert!(!name.as_str().starts_with('.') && !name.as_str().contains('.'));
            }
        }
    }
}
