//! What the feed says about one write.

use types::Timestamp;
use types::ids::WorkspaceId;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Created,
    Updated,
    Deleted,
}

impl Act {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
        }
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        [Self::Created, Self::Updated, Self::Deleted].into_iter().find(|act| act.name() == name)
    }
}

/// A change as followers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub revision: i64,
    pub workspace: WorkspaceId,
    /// Name of a kind of resources, or of what surrounds them: `workspace`, `member`, `api-key`.
    pub kind: String,
    pub resource_id: String,
    pub parent: String,
    pub name: String,
    pub act: Act,
    pub version: i64,
    pub actor: String,
    pub at: Timestamp,
}

/// A change to be recorded; the feed adds the revision and the time.
#[derive(Debug, Clone, Copy)]
pub struct NewChange<'a> {
    pub workspace: &'a WorkspaceId,
    pub kind: &'a str,
    pub resource_id: &'a str,
    pub parent: &'a str,
    pub name: &'a str,
    pub act: Act,
    pub version: i64,
    pub actor: &'a str,
}
