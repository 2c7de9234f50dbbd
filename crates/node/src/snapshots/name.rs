//! Names of snapshots.

use crate::owner::Owner;
use crate::spec::SpecError;
use serde::{Deserialize, Serialize};

/// The name of a snapshot: 1 to 63 lower-case letters, digits, hyphens and underscores. Also names
/// a folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SnapshotName(Owner);

impl SnapshotName {
    pub fn new(text: impl Into<String>) -> Result<Self, SpecError> {
        let text = text.into();
        match Owner::new(text) {
            Ok(name) => Ok(Self(name)),
            Err(SpecError::Owner(text)) => Err(SpecError::Snapshot(text)),
            Err(error) => Err(error),
        }
    }

    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl std::fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl TryFrom<String> for SnapshotName {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        Self::new(text)
    }
}

impl From<SnapshotName> for String {
    fn from(name: SnapshotName) -> Self {
        name.as_str().to_owned()
    }
}
