//! Which group each series of a class belongs to, looked up as series are met.

use crate::groups::Groups;
use crate::question::{Key, Question};
use store::usage::{self, Class, Series};
use store::{Error, Tx};
use types::wire::GroupBy;

/// How many series have their names read at once. Series that were created at the same time, and
/// are used at the same time, have numbers close to each other.
const BLOCK: u16 = 1024;

pub(crate) struct Resources<'q> {
    pub(crate) class: &'q Class,
    group_by: &'q [GroupBy],
    names: Names,
}

enum Names {
    /// The question does not distinguish resources, so all have one group, known once something is
    /// added to it.
    Alike(Option<usize>),
    /// By series, sorted. Holds from the beginning what the filter lets through.
    Filtered(Vec<(Series, Option<usize>)>),
    /// By the number of the series, in blocks.
    All(Vec<Option<Vec<Member>>>),
}

#[derive(Clone)]
enum Member {
    /// There is no series with this number.
    Missing,
    Named(Series),
    Of(usize),
}

impl<'q> Resources<'q> {
    /// Returns `None` if the question asks for a resource that the class does not have.
    pub(crate) fn new(
        tx: &mut Tx<'_>,
        question: &'q Question,
        class: &'q Class,
    ) -> Result<Option<Self>, Error> {
        let filter = &question.filter;
        let (name, uuid) = (filter.resource_name.as_deref(), filter.resource_uuid.as_deref());
        let split = [GroupBy::ResourceName, GroupBy::ResourceUuid]
            .iter()
            .any(|by| question.group_by.contains(by));
        let names = if name.is_some() || uuid.is_some() {
            let mut series = usage::read_series(tx, class.id, (1, class.series), name, uuid)?;
            series.sort_unstable_by_key(|series| series.id);
            if series.is_empty() {
                return Ok(None);
            }
            Names::Filtered(series.into_iter().map(|series| (series, None)).collect())
        } else if split {
            Names::All(Vec::new())
        } else {
            Names::Alike(None)
        };
        Ok(Some(Self { class, group_by: &question.group_by, names }))
    }

    /// Whether it matters which series usage belongs to.
    pub(crate) fn told_apart(&self) -> bool {
        !matches!(self.names, Names::Alike(_))
    }

    /// Whether the question asks for a series.
    pub(crate) fn knows(&mut self, tx: &mut Tx<'_>, series: i64) -> Result<bool, Error> {
        match &mut self.names {
            Names::Alike(_) => Ok(true),
            Names::Filtered(known) => {
                Ok(known.binary_search_by_key(&series, |(known, _)| known.id).is_ok())
            }
            Names::All(blocks) => {
                Ok(!matches!(member(tx, self.class, blocks, series)?, Member::Missing))
            }
        }
    }

    /// Returns the group of a series, if the question asks for it. The caller is about to add to
    /// it.
    pub(crate) fn group(
        &mut self,
        tx: &mut Tx<'_>,
        groups: &mut Groups,
        series: i64,
    ) -> Result<Option<usize>, Error> {
        let (class, group_by) = (self.class, self.group_by);
        match &mut self.names {
            Names::Alike(group) => {
                Ok(Some(*group.get_or_insert_with(|| groups.number(key(group_by, class, None)))))
            }
            Names::Filtered(known) => {
                let Ok(at) = known.binary_search_by_key(&series, |(known, _)| known.id) else {
                    return Ok(None);
                };
                let (series, group) = &mut known[at];
                Ok(Some(
                    *group.get_or_insert_with(|| groups.number(key(group_by, class, Some(series)))),
                ))
            }
            Names::All(blocks) => {
                let member = member(tx, class, blocks, series)?;
                match member {
                    Member::Missing => return Ok(None),
                    Member::Of(_) => {}
                    Member::Named(series) => {
                        *member = Member::Of(groups.number(key(group_by, class, Some(series))))
                    }
                }
                Ok(if let Member::Of(group) = member { Some(*group) } else { None })
            }
        }
    }
}

/// Returns what is known of a series, after reading its block if necessary.
fn member<'b>(
    tx: &mut Tx<'_>,
    class: &Class,
    blocks: &'b mut Vec<Option<Vec<Member>>>,
    series: i64,
) -> Result<&'b mut Member, Error> {
    let wrong = || {
        let id = format!("{}/{series}", class.id);
        Error::corrupt("usage_series", id, "it has usage and a number that no series has")
    };
    if !(1..=class.series).contains(&series) {
        return Err(wrong());
    }
    let size = i64::from(BLOCK);
    let (block, place) = (usize::try_from(series / size), usize::try_from(series % size));
    let (Ok(block), Ok(place)) = (block, place) else { return Err(wrong()) };
    if blocks.len() <= block {
        blocks.resize_with(block + 1, || None);
    }
    let slot = blocks.get_mut(block).ok_or_else(wrong)?;
    if slot.is_none() {
        let first = series / size * size;
        let mut members = vec![Member::Missing; usize::from(BLOCK)];
        for series in usage::read_series(tx, class.id, (first, first + size - 1), None, None)? {
            let place =
                usize::try_from(series.id - first).ok().and_then(|place| members.get_mut(place));
            if let Some(member) = place {
                *member = Member::Named(series);
            }
        }
        *slot = Some(members);
    }
    slot.as_mut().and_then(|members| members.get_mut(place)).ok_or_else(wrong)
}

/// Returns the key of a series' group, including everything that the split members imply.
fn key(group_by: &[GroupBy], class: &Class, series: Option<&Series>) -> Key {
    use GroupBy::{BillingDimension, ResourceName, ResourceType, ResourceUuid, Workspace};
    let by = |wanted: &[GroupBy]| wanted.iter().any(|wanted| group_by.contains(wanted));
    let kind = class.dimension.resource_type().name();
    Key {
        workspace: by(&[Workspace, ResourceName, ResourceUuid]).then(|| class.workspace.clone()),
        resource_type: by(&[ResourceType, ResourceName, ResourceUuid, BillingDimension])
            .then(|| kind.to_owned()),
        resource_name: series
            .filter(|_| by(&[ResourceName, ResourceUuid]))
            .map(|series| series.name.clone()),
        resource_uuid: series.filter(|_| by(&[ResourceUuid])).map(|series| series.uuid.clone()),
        dimension: by(&[BillingDimension]).then(|| class.dimension.name().to_owned()),
    }
}
