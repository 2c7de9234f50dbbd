//! Owners of instances, volumes and snapshots.

use crate::spec::SpecError;
use serde::{Deserialize, Serialize};

/// The owner of an instance: 1 to 63 lower-case letters, digits, hyphens and underscores. The
/// machine's resources are divided between owners; the node knows nothing else about them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Owner(String);

impl Owner {
    pub fn new(text: impl Into<String>) -> Result<Self, SpecError> {
        let text = text.into();
        let fits = (1..=63).contains(&text.len())
            && text.bytes().all(|byte| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte)
            });
        if fits { Ok(Self(text)) } else { Err(SpecError::Owner(text)) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Owner {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        Self::new(text)
    }
}

impl From<Owner> for String {
    fn from(owner: Owner) -> Self {
        owner.0
    }
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
