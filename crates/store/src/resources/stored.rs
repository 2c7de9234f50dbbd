//! An object as its row has it.

use super::counts::{BLOCK_BYTES, Counted};
use crate::Error;
use crate::feed::{Act, NewChange};
use crate::value::Row;
use types::ids::{ResourceId, WorkspaceId};
use types::parts::Status;
use types::{KindName, Timestamp};

pub(super) const TABLE: &str = "resources";

/// An object as it is stored. The migration explains the columns.
#[derive(Debug, Clone)]
pub struct Stored {
    pub id: ResourceId,
    pub workspace: WorkspaceId,
    pub kind: KindName,
    /// Names of the enclosing objects, joined with `/`; empty at the top level. Objects of a kind
    /// are either all at the top level or none.
    pub parent: String,
    pub name: String,
    pub external_id: Option<String>,
    pub status: Option<Status>,
    pub search: String,
    pub wish: String,
    pub state: String,
    pub seal_key: Option<String>,
    pub version: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub created_by: String,
    pub updated_by: String,
}

/// The statement that selects objects in the order of columns in which [`Stored`] reads them.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, workspace_id, kind, parent, name, external_id, status, search, wish, state, seal_key, version, \
             created_at, updated_at, created_by, updated_by FROM resources ",
            $rest
        )
    };
}
pub(super) use select;

impl Stored {
    /// Returns the path that objects below it have as their `parent`.
    pub fn path(&self) -> String {
        if self.parent.is_empty() {
            self.name.clone()
        } else {
            format!("{}/{}", self.parent, self.name)
        }
    }

    /// Returns whether only the record of the object is left: its name is free, and what it ran is
    /// gone.
    pub fn is_terminated(&self) -> bool {
        self.status == Some(Status::Terminated)
    }

    pub(super) fn status_name(&self) -> &'static str {
        self.status.map_or("", Status::name)
    }

    /// Returns the bytes of what callers wrote and the server knows of it.
    pub fn bytes(&self) -> usize {
        self.wish.len() + self.state.len()
    }

    /// Returns true if it takes so little that its size is not counted.
    pub fn is_small(&self) -> bool {
        self.bytes() < BLOCK_BYTES
    }

    pub(super) fn counted(&self) -> Counted {
        let blocks = i64::try_from(self.bytes() / BLOCK_BYTES).unwrap_or(i64::MAX);
        Counted { objects: 1, blocks }
    }

    pub(super) fn stale(&self) -> Error {
        Error::Stale { what: format!("{} {}", self.kind, self.name) }
    }

    pub(super) fn change<'a>(&'a self, act: Act, actor: &'a str) -> NewChange<'a> {
        NewChange {
            workspace: &self.workspace,
            kind: self.kind.name(),
            resource_id: self.id.as_str(),
            parent: &self.parent,
            name: &self.name,
            act,
            version: self.version,
            actor,
        }
    }
}

impl TryFrom<Row> for Stored {
    type Error = Error;

    fn try_from(mut row: Row) -> Result<Self, Error> {
        let id = row.take_text(0)?;
        let kind = row.take_text(2)?;
        let status = row.take_text(6)?;
        Ok(Self {
            kind: KindName::parse(&kind)
                .ok_or_else(|| Error::corrupt(TABLE, &id, format!("kind `{kind}`")))?,
            status: parse_status(&status).map_err(|why| Error::corrupt(TABLE, &id, why))?,
            id: ResourceId::known(id),
            workspace: WorkspaceId::known(row.take_text(1)?),
            parent: row.take_text(3)?,
            name: row.take_text(4)?,
            external_id: row.opt_text(5)?,
            search: row.take_text(7)?,
            wish: row.take_text(8)?,
            state: row.take_text(9)?,
            seal_key: row.opt_text(10)?,
            version: row.int(11)?,
            created_at: row.time(12)?,
            updated_at: row.time(13)?,
            created_by: row.take_text(14)?,
            updated_by: row.take_text(15)?,
        })
    }
}

fn parse_status(name: &str) -> Result<Option<Status>, String> {
    match name {
        "" => Ok(None),
        name => Status::parse(name).map(Some).ok_or_else(|| format!("status `{name}`")),
    }
}
