//! Versions of the interface. A new one is one more variant here, and one more arm wherever an
//! answer differs.

use std::fmt;

/// The version that a request's header asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ApiVersion {
    /// The first stable version: lists are bare arrays. Also used when the header is absent.
    #[default]
    V2026_04_16,
    /// Lists of the paginated kinds are pages with a cursor.
    V2026_04_28,
    /// The version that the newest published Python client sends.
    V2026_09_22,
}

impl ApiVersion {
    pub const ALL: [Self; 3] = [Self::V2026_04_16, Self::V2026_04_28, Self::V2026_09_22];

    pub const fn name(self) -> &'static str {
        match self {
            Self::V2026_04_16 => "2026-04-16",
            Self::V2026_04_28 => "2026-04-28",
            Self::V2026_09_22 => "2026-09-22",
        }
    }

    pub fn parse(text: &str) -> Result<Self, UnknownVersion> {
        let known = Self::ALL.into_iter().find(|version| version.name() == text.trim());
        known.ok_or_else(|| UnknownVersion { asked: text.chars().take(40).collect() })
    }

    /// Returns true if lists of the paginated kinds are wrapped in a page.
    pub fn has_pages(self) -> bool {
        self >= Self::V2026_04_28
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("version `{asked}` is unknown; valid versions: 2026-04-16, 2026-04-28, 2026-09-22")]
pub struct UnknownVersion {
    pub asked: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_lists_every_version() {
        let message = ApiVersion::parse("2020-01-01").unwrap_err().to_string();
        assert!(ApiVersion::ALL.iter().all(|version| message.contains(version.name())));
    }
}
