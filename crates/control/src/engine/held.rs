//! A stored object with its wish and state parsed.

use super::corrupt::corrupt;
use super::managed::Managed;
use super::verbs::exists;
use crate::context::Context;
use crate::error::Error;
use serde::de::DeserializeOwned;
use store::Tx;
use store::resources::{self, Stored};
use types::{Kind, ObjectMetadata};

/// A stored object. The secrets in `wish` are sealed.
#[derive(Clone)]
pub struct Held<K: Kind> {
    pub row: Stored,
    pub wish: K,
    pub state: K::State,
}

fn typed<T: DeserializeOwned>(row: &Stored, text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| corrupt(&row.id, error.to_string()))
}

impl<K: Managed> Held<K> {
    pub fn read(row: Stored) -> Result<Self, Error> {
        let (wish, state) = (typed(&row, &row.wish)?, typed(&row, &row.state)?);
        Ok(Self { row, wish, state })
    }

    /// Stores a new object. All but copies from other workspaces come in here, so that none gets into
    /// a workspace that is deleted at the same moment.
    pub(super) fn insert(mut self, context: &Context, tx: &mut Tx<'_>) -> Result<Self, Error> {
        auth::workspaces::keep(tx, &context.member)?;
        self.row = resources::insert(tx, self.row).map_err(|error| match error {
            store::Error::Duplicate { .. } => exists(&self.wish),
            other => other.into(),
        })?;
        Ok(self)
    }

    pub fn find(
        context: &Context,
        tx: &mut Tx<'_>,
        parents: &[String],
        name: &str,
    ) -> Result<Option<Self>, Error> {
        context.find(tx, K::NAME, parents, name)?.map(Self::read).transpose()
    }

    pub fn get(
        context: &Context,
        tx: &mut Tx<'_>,
        parents: &[String],
        name: &str,
    ) -> Result<Self, Error> {
        Self::find(context, tx, parents, name)?.ok_or_else(|| absent::<K>(name))
    }

    /// Gets the parent object to which these `parents` lead.
    pub fn get_around(
        context: &Context,
        tx: &mut Tx<'_>,
        parents: &[String],
    ) -> Result<Self, Error> {
        // The API's table gives every kind with parents a path that names them.
        let (name, above) = parents.split_last().ok_or_else(|| absent::<K>(""))?;
        Self::get(context, tx, above, name)
    }

    /// Like [`Held::get_around`], and locks the row until this transaction ends.
    pub fn lock_around(
        context: &Context,
        tx: &mut Tx<'_>,
        parents: &[String],
    ) -> Result<Self, Error> {
        let (name, above) = parents.split_last().ok_or_else(|| absent::<K>(""))?;
        Self::lock(context, tx, above, name)
    }

    /// Like [`Held::get`], and locks the row until this transaction ends.
    pub fn lock(
        context: &Context,
        tx: &mut Tx<'_>,
        parents: &[String],
        name: &str,
    ) -> Result<Self, Error> {
        let row =
            resources::lock(tx, &context.member.workspace, K::NAME, &parents.join("/"), name)?;
        Self::read(row.ok_or_else(|| absent::<K>(name))?)
    }

    /// Returns the values of the read-only metadata.
    pub fn stamp(&self, context: &Context) -> ObjectMetadata {
        ObjectMetadata {
            workspace: context.member.workspace_name.clone(),
            parents: self.parents(),
            created_at: self.row.created_at,
            updated_at: self.row.updated_at,
            created_by: self.row.created_by.clone(),
            updated_by: self.row.updated_by.clone(),
            plan: context.member.plan.clone(),
            url: K::url(context, self),
        }
    }

    pub fn parents(&self) -> Vec<String> {
        self.row.parent.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }
}

fn absent<K: Kind>(name: &str) -> Error {
    Error::no_resource(K::NAME, name)
}
