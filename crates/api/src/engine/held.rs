//! An object as the store has it, with its parts typed.

use super::{Desk, Managed};
use crate::error::Error;
use serde::de::DeserializeOwned;
use store::Tx;
use store::resources::{self, Stored};
use types::{Kind, Stamp};

/// A stored object. Secrets in `wish` are sealed.
#[derive(Clone)]
pub(crate) struct Held<K: Kind> {
    pub row: Stored,
    pub wish: K,
    pub state: K::State,
}

fn typed<T: DeserializeOwned>(row: &Stored, text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| {
        Error::Store(store::Error::Corrupt {
            table: "resources",
            id: row.id.to_string(),
            why: error.to_string(),
        })
    })
}

impl<K: Managed> Held<K> {
    pub(crate) fn read(row: Stored) -> Result<Self, Error> {
        let (wish, state) = (typed(&row, &row.wish)?, typed(&row, &row.state)?);
        Ok(Self { row, wish, state })
    }

    pub(crate) fn find(
        desk: &Desk,
        tx: &mut Tx<'_>,
        parents: &[String],
        name: &str,
    ) -> Result<Option<Self>, Error> {
        desk.find(tx, K::NAME, parents, name)?.map(Self::read).transpose()
    }

    pub(crate) fn get(
        desk: &Desk,
        tx: &mut Tx<'_>,
        parents: &[String],
        name: &str,
    ) -> Result<Self, Error> {
        Self::find(desk, tx, parents, name)?.ok_or_else(|| absent::<K>(name))
    }

    /// As [`Held::get`], and nobody else changes it before this transaction ends.
    pub(crate) fn lock(
        desk: &Desk,
        tx: &mut Tx<'_>,
        parents: &[String],
        name: &str,
    ) -> Result<Self, Error> {
        let row = resources::lock(tx, &desk.member.workspace, K::NAME, &parents.join("/"), name)?;
        Self::read(row.ok_or_else(|| absent::<K>(name))?)
    }

    /// What the read-only metadata shows.
    pub(crate) fn stamp(&self, desk: &Desk) -> Stamp {
        Stamp {
            workspace: desk.member.workspace_name.clone(),
            parents: self.parents(),
            created_at: self.row.created_at,
            updated_at: self.row.updated_at,
            created_by: self.row.created_by.clone(),
            updated_by: self.row.updated_by.clone(),
            plan: desk.member.plan.clone(),
            url: K::url(desk, self),
        }
    }

    pub(crate) fn parents(&self) -> Vec<String> {
        self.row.parent.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }
}

fn absent<K: Kind>(name: &str) -> Error {
    Error::NoResource { kind: K::NAME, name: name.chars().take(80).collect() }
}
