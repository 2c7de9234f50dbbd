//! Names of the owners of instances, volumes and snapshots, and of snapshots.

use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error(
        "`{0}` cannot own an instance: 1 to 63 lower-case letters, digits, hyphens and underscores"
    )]
    Owner(String),
    #[error(
        "`{0}` cannot name a snapshot: 1 to 63 lower-case letters, digits, hyphens and underscores"
    )]
    Snapshot(String),
}

/// The owner of an instance: 1 to 63 lower-case letters, digits, hyphens and underscores. The
/// machine's resources are divided between owners; the node knows nothing else about them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Owner(String);

impl Owner {
    pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
        let text = text.into();
        if is_plain(&text) { Ok(Self(text)) } else { Err(NameError::Owner(text)) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Owner {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        Self::new(text)
    }
}

impl From<Owner> for String {
    fn from(owner: Owner) -> Self {
        owner.0
    }
}

/// The name of a snapshot: 1 to 63 lower-case letters, digits, hyphens and underscores. Also names
/// a folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SnapshotName(String);

impl SnapshotName {
    pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
        let text = text.into();
        if is_plain(&text) { Ok(Self(text)) } else { Err(NameError::Snapshot(text)) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for SnapshotName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        Self::new(text)
    }
}

impl From<SnapshotName> for String {
    fn from(name: SnapshotName) -> Self {
        name.0
    }
}

fn is_plain(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use types::instance::InstanceName;

    proptest! {
        #[test]
        fn an_owner_is_part_of_one_plain_file_name(text in ".{0,70}") {
            if let Ok(owner) = Owner::new(text) {
                let path = format!("owner.{}", owner.as_str());
                prop_assert_eq!(std::path::Path::new(&path).components().count(), 1);
                prop_assert!(InstanceName::new(path).is_err(), "no instance has the name of an owner's folder");
            }
        }
    }
}
