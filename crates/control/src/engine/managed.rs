//! How a kind takes part in the engine.

use super::held::Held;
use crate::context::Context;
use crate::error::Error;
use crate::query::{ListQuery, PAGE, PageSize};
use store::Tx;
use types::Kind;
use types::ids::ResourceId;
use types::parts::{Lifecycle, Status};

/// How a kind is listed.
#[derive(Debug, Clone, Copy)]
pub enum Paging {
    /// In pages, from the API version on that has them.
    Pages(PageSize),
    /// As a bare array in every version.
    Bare,
}

/// A write in progress: what a kind may check and change before it is stored.
pub struct Draft<'d, K: Kind> {
    pub wish: &'d mut K,
    pub state: &'d mut K::State,
    pub old: Option<&'d K>,
    pub id: &'d ResourceId,
    pub parents: &'d [String],
}

/// Who can read the secrets of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShowsSecrets {
    /// Everybody who may read the object.
    ToAll,
    /// Admins who ask for them.
    ToAdmins,
    Never,
}

/// The hooks through which a kind adds to the engine's operations.
pub trait Managed: Kind {
    const PAGING: Paging = Paging::Pages(PAGE);
    const SHOWS_SECRETS: ShowsSecrets = ShowsSecrets::ToAdmins;

    /// The URL of an object, for kinds that have one.
    fn url(_context: &Context, _held: &Held<Self>) -> Option<String> {
        None
    }

    /// The machine that answers for an object, once one has taken it, for kinds that stay on one.
    /// Other servers do not reach it.
    fn machine(_state: &Self::State) -> Option<&str> {
        None
    }

    /// The lifecycle within the state, for kinds that are built.
    fn lifecycle(_state: &mut Self::State) -> Option<&mut Lifecycle> {
        None
    }

    /// The name of a new object's row. It differs from the object's name for kinds that allow
    /// several objects of one name.
    fn row_name(
        _context: &Context,
        _tx: &mut Tx<'_>,
        _parents: &[String],
        wish: &Self,
    ) -> Result<String, Error> {
        Ok(wish.name().to_owned())
    }

    /// The statuses of objects that a list leaves out.
    fn hidden(_asked: &ListQuery) -> &'static [Status] {
        &[]
    }

    /// Adds to an answer what only other rows know.
    fn adorn(&mut self, _context: &Context, _tx: &mut Tx<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Does the part of a write that needs the store: checks that names are free, attaches volumes
    /// and the like.
    fn prepare(
        _context: &Context,
        _tx: &mut Tx<'_>,
        _draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Keeps other tables in step with the wish of an object, as it is finally stored.
    fn follow(_context: &Context, _tx: &mut Tx<'_>, _wish: &Self) -> Result<(), Error> {
        Ok(())
    }

    /// Refuses to delete an object that something else still needs. A whole workspace is deleted
    /// without asking this.
    fn require_unused(
        _context: &Context,
        _tx: &mut Tx<'_>,
        _held: &Held<Self>,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Gives back what an object holds, before it is deleted, alone or with its workspace.
    fn release(_context: &Context, _tx: &mut Tx<'_>, _held: &Held<Self>) -> Result<(), Error> {
        Ok(())
    }
}
