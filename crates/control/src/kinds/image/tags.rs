//! Lists of the tags of one repository. They are in its row, so a page is cut out of all of them.

use super::any_type;
use crate::context::Context;
use crate::engine::Held;
use crate::error::Error;
use crate::pager::Pager;
use crate::query::{ListQuery, NameSort, PAGE};
use store::Tx;
use types::KindName;
use types::kinds::Image;
use types::kinds::image::ImageTag;
use types::parts::Page;

/// Which tags of a repository are asked for.
#[derive(Debug, Clone, Default)]
pub struct TagQuery {
    /// Page size and cursor.
    pub list: ListQuery,
    pub sort: NameSort,
    /// How the names begin, ignoring case.
    pub prefix: Option<String>,
    pub name: Option<String>,
    /// The workspace whose repository it is, in case that others share one of the same name.
    pub source_workspace: Option<String>,
}

impl TagQuery {
    fn takes(&self, tag: &str) -> bool {
        let begins = |prefix: &String| {
            tag.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        };
        self.prefix.as_ref().is_none_or(begins) && self.name.as_ref().is_none_or(|name| name == tag)
    }
}

/// Returns a page of the tags of a repository, by name.
pub fn tags(
    context: &Context,
    tx: &mut Tx<'_>,
    parents: &[String],
    name: &str,
    asked: &TagQuery,
) -> Result<Page<ImageTag>, Error> {
    let (limit, parents) = (asked.list.size(PAGE)?, any_type(context, tx, parents, name)?);
    let held = Held::<Image>::get(context, tx, &parents, name)?;
    let owner = held.state.source_workspace.as_ref().unwrap_or(&context.member.workspace_name);
    if asked.source_workspace.as_ref().is_some_and(|source| source != owner) {
        return Err(Error::no_resource(KindName::Image, name));
    }
    let TagQuery { sort, prefix, name, .. } = asked;
    let list = format!("{}/tags?{sort:?}&{prefix:?}&{name:?}", held.row.id);
    let pager = Pager::new(context, list);
    let after: Option<String> = pager.after(asked.list.cursor.as_deref())?;
    let mut found = held.state.tags;
    found.retain(|tag| asked.takes(name_of(tag)));
    found.sort_by(|one, other| asked.sort.compare(name_of(one), name_of(other)));
    let total = i64::try_from(found.len()).unwrap_or(i64::MAX);
    if let Some(after) = &after {
        found.retain(|tag| asked.sort.compare(name_of(tag), after).is_gt());
    }
    Ok(pager.page(found, limit, total, |tag| name_of(tag).to_owned()))
}

fn name_of(tag: &ImageTag) -> &str {
    tag.name.as_deref().unwrap_or_default()
}
