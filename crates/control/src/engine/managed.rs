//! How a kind takes part in the engine.

use super::held::Held;
use crate::context::Context;
use crate::error::Error;
use crate::query::{PAGE, PageSize};
use store::Tx;
use types::Kind;
use types::ids::ResourceId;
use types::parts::Lifecycle;

/// How a kind is listed.
#[derive(Debug, Clone, Copy)]
pub enum Paging {
    /// In pages, from the version on that knows them.
    Pages(PageSize),
    /// As a bare array, always.
    Bare,
}

/// A write in progress: what a kind may look at and change before it is stored.
pub struct Draft<'d, K: Kind> {
    pub wish: &'d mut K,
    pub state: &'d mut K::State,
    pub old: Option<&'d K>,
    pub id: &'d ResourceId,
    pub parents: &'d [String],
}

/// Who gets the secrets of an object to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShowsSecrets {
    /// Whoever may read the object.
    ToAll,
    /// Admins who ask for them.
    ToAdmins,
    Never,
}

/// What a kind adds to the engine's verbs.
pub trait Managed: Kind {
    const PAGING: Paging = Paging::Pages(PAGE);
    const SHOWS_SECRETS: ShowsSecrets = ShowsSecrets::ToAdmins;

    /// Where an object is reached, for the kinds that are.
    fn url(_context: &Context, _held: &Held<Self>) -> Option<String> {
        None
    }

    /// Where a build of it stands, for the kinds that are built.
    fn lifecycle(_state: &mut Self::State) -> Option<&mut Lifecycle> {
        None
    }

    /// The name of a new object's row: another than the object's for kinds of which several may
    /// have one name.
    fn row_name(
        _context: &Context,
        _tx: &mut Tx<'_>,
        _parents: &[String],
        wish: &Self,
    ) -> Result<String, Error> {
        Ok(wish.name().to_owned())
    }

    /// Adds to an answer what only other rows know.
    fn adorn(&mut self, _context: &Context, _tx: &mut Tx<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Checks and takes what the store must say about a write: names that must be free, volumes to
    /// attach.
    fn prepare(
        _context: &Context,
        _tx: &mut Tx<'_>,
        _draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Keeps what other tables hold of an object in step with its wish, as it is stored in the end.
    fn follow(_context: &Context, _tx: &mut Tx<'_>, _wish: &Self) -> Result<(), Error> {
        Ok(())
    }

    /// Refuses a deletion, or gives back what the object holds.
    fn release(_context: &Context, _tx: &mut Tx<'_>, _held: &Held<Self>) -> Result<(), Error> {
        Ok(())
    }
}
