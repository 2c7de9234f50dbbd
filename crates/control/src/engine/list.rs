//! Lists: pages with cursors in API versions that have them, otherwise bare arrays.

use super::held::Held;
use super::managed::{Managed, Paging};
use super::secrets::Secrets;
use super::verbs::present;
use crate::context::Context;
use crate::error::{Error, Unfit};
use crate::pager::Pager;
use crate::query::{Anchor, ListQuery, PageSize};
use serde::Serialize;
use store::Tx;
use store::resources::{self, Query, Stored};
use types::parts::{PaginationMeta, Status};
use types::{ApiVersion, KindName};

pub use types::parts::Page;

/// A list in the form of the requested API version.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Listing<K> {
    Bare(Vec<K>),
    Page(Page<K>),
}

/// The objects of a kind that a list is about, whatever its caller asks for.
#[derive(Debug, Clone, Default)]
pub struct Among {
    /// Names of the enclosing objects, which need not exist; `None` for any.
    pub parents: Option<Vec<String>>,
    /// Text that occurs in the stored wish. `_` and `%` in it act as wildcards.
    pub wish: Option<&'static str>,
}

impl Among {
    fn below(parents: &[String]) -> Self {
        Self { parents: Some(parents.to_vec()), wish: None }
    }
}

/// Answers a list request.
pub fn list<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    parents: &[String],
    asked: &ListQuery,
    version: ApiVersion,
) -> Result<Listing<K>, Error> {
    require_parent::<K>(context, tx, parents)?;
    list_among(context, tx, &Among::below(parents), asked, version)
}

/// Answers a list request that is not about all objects of one enclosing object.
pub fn list_among<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    among: &Among,
    asked: &ListQuery,
    version: ApiVersion,
) -> Result<Listing<K>, Error> {
    match K::PAGING {
        Paging::Pages(size) if version.has_pages() => {
            page(context, tx, among, asked, size).map(Listing::Page)
        }
        Paging::Pages(size) => {
            // A bad page size is refused here too, although versions without pages do not use it.
            asked.size(size)?;
            bare(context, tx, among, asked).map(Listing::Bare)
        }
        Paging::Bare => bare(context, tx, among, asked).map(Listing::Bare),
    }
}

/// Lists all objects of a kind under these parents, up to the limit of bare lists.
pub fn list_all<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    parents: &[String],
) -> Result<Vec<K>, Error> {
    require_parent::<K>(context, tx, parents)?;
    bare(context, tx, &Among::below(parents), &ListQuery::default())
}

/// Lists all objects of a kind in the workspace under any parent. Refuses if there are more than
/// the limit of bare lists, like the lists of one parent.
pub fn everywhere<K: Managed>(context: &Context, tx: &mut Tx<'_>) -> Result<Vec<K>, Error> {
    let query = Query::new(&context.member.workspace, K::NAME, None);
    all(context, tx, query)?
        .into_iter()
        .map(|row| present(context, tx, &Held::<K>::read(row)?, &Secrets::Masked))
        .collect()
}

/// Rows that [`for_each`] reads at once.
const READ_AT_ONCE: i64 = 500;

/// Calls `act` with each object of a kind in the workspace, under any parent. It may delete them.
pub(crate) fn for_each<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    mut act: impl FnMut(&mut Tx<'_>, Held<K>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut last: Option<Stored> = None;
    loop {
        let workspace = &context.member.workspace;
        let rows = resources::walk(tx, workspace, K::NAME, last.as_ref(), READ_AT_ONCE)?;
        last = rows.last().cloned();
        if last.is_none() {
            return Ok(());
        }
        for row in rows {
            act(tx, Held::read(row)?)?;
        }
    }
}

/// Refuses unless the enclosing object exists.
pub fn require_parent<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    parents: &[String],
) -> Result<(), Error> {
    let (Some(kind), Some((name, above))) = (K::PARENTS.last(), parents.split_last()) else {
        return Ok(());
    };
    match context.find(tx, *kind, above, name)? {
        Some(_) => Ok(()),
        None => Err(Error::no_resource(*kind, name)),
    }
}

/// What a list request selects, with its texts owned.
struct Selection {
    parent: Option<String>,
    statuses: Vec<Status>,
    /// No object can have one of the statuses asked for, so the list is empty.
    impossible: bool,
    hidden: &'static [Status],
    external_id: Option<String>,
    text: Option<String>,
    wish: Option<&'static str>,
}

impl Selection {
    fn new<K: Managed>(among: &Among, asked: &ListQuery) -> Result<Self, Error> {
        let statuses = asked.statuses()?;
        Ok(Self {
            parent: among.parents.as_ref().map(|parents| parents.join("/")),
            impossible: statuses.as_ref().is_some_and(Vec::is_empty),
            statuses: statuses.unwrap_or_default(),
            hidden: K::hidden(asked),
            external_id: asked.external_id()?,
            text: asked.text()?,
            wish: among.wish,
        })
    }

    fn query<'q>(
        &'q self,
        context: &'q Context,
        kind: KindName,
        asked: &ListQuery,
        limit: i64,
    ) -> Query<'q> {
        Query {
            workspace: &context.member.workspace,
            kind,
            parent: self.parent.as_deref(),
            statuses: &self.statuses,
            hidden_statuses: self.hidden,
            external_id: self.external_id.as_deref(),
            text: self.text.as_deref(),
            wish: self.wish,
            order: asked.sort.into(),
            after: None,
            limit,
            from_end: false,
        }
    }
}

fn bare<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    among: &Among,
    asked: &ListQuery,
) -> Result<Vec<K>, Error> {
    let selection = Selection::new::<K>(among, asked)?;
    if selection.impossible {
        return Ok(Vec::new());
    }
    let query = selection.query(context, K::NAME, asked, i64::MAX);
    all(context, tx, query)?.into_iter().map(|row| item(context, tx, row)).collect()
}

/// Reads a bare list. Refuses one that does not show everything: its reader would take the rest for
/// missing.
pub(crate) fn all(
    context: &Context,
    tx: &mut Tx<'_>,
    query: Query<'_>,
) -> Result<Vec<Stored>, Error> {
    let settings = &context.control.settings;
    let (limit, bytes_max) = (settings.bare_list_max, settings.list_bytes_max);
    let found = resources::list_within(tx, &Query { limit: limit + 1, ..query }, bytes_max)?;
    let version = ApiVersion::V2026_04_28;
    if found.is_cut {
        return Err(Unfit::LargeList { limit: bytes_max, version }.into());
    }
    if found.rows.len() as i64 > limit {
        return Err(Unfit::LongList { limit, version }.into());
    }
    Ok(found.rows)
}

fn item<K: Managed>(context: &Context, tx: &mut Tx<'_>, row: Stored) -> Result<K, Error> {
    let mut shown = present(context, tx, &Held::<K>::read(row)?, &Secrets::Masked)?;
    shown.lighten();
    Ok(shown)
}

fn page<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    among: &Among,
    asked: &ListQuery,
    size: PageSize,
) -> Result<Page<K>, Error> {
    let limit = asked.size(size)?;
    let selection = Selection::new::<K>(among, asked)?;
    if selection.impossible {
        return Ok(Page { data: Vec::new(), meta: PaginationMeta::default() });
    }
    let pager = Pager::new(context, list_name::<K>(context, &selection, asked));
    let mut query = selection.query(context, K::NAME, asked, limit + 1);
    match asked.anchor {
        Some(Anchor::End) => (query.from_end, query.limit) = (true, limit),
        None => query.after = pager.after(asked.cursor.as_deref())?,
    }
    let bytes_max = context.control.settings.list_bytes_max;
    let found = resources::list_within(tx, &query, bytes_max)?;
    if found.is_cut && query.from_end {
        // No cursor leads to what comes before the last page.
        return Err(Unfit::LargeEnd { limit: bytes_max }.into());
    }
    query.after = None;
    let total = resources::total(tx, &query)?;
    let position = |row: &Stored| resources::position(row, query.order);
    let Page { data, meta } = match found.is_cut {
        // What did not fit is the next page.
        true => pager.page_before_more(found.rows, total, position),
        false => pager.page(found.rows, limit, total, position),
    };
    let data = data.into_iter().map(|row| item(context, tx, row)).collect::<Result<_, _>>()?;
    Ok(Page { data, meta })
}

/// The name of a list with its filters, to which cursors are bound.
fn list_name<K: Managed>(context: &Context, selection: &Selection, asked: &ListQuery) -> String {
    // No object is named `*`.
    let parent = selection.parent.as_deref().unwrap_or("*");
    let wish = selection.wish.map(|wish| format!("&{wish:?}")).unwrap_or_default();
    format!(
        "{}/{}/{parent}?{:?}&{:?}&{:?}&{:?}&{:?}{wish}",
        context.member.workspace,
        K::NAME,
        asked.sort,
        selection.text,
        selection.statuses,
        selection.external_id,
        selection.hidden,
    )
}
