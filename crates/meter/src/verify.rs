//! Verification that the hours agree with the facts.

use crate::fold;
use crate::hours::each_hour;
use crate::packed::Content;
use crate::question::Window;
use std::collections::BTreeMap;
use store::usage::{self, Class, Life};
use store::{Error, Store, Tx};
use types::Timestamp;

const LIVES: i64 = 500;
/// Days whose hours are in memory at once.
const DAYS: i64 = 7;
/// Most differences that are listed one by one.
const DIFFERENCES_MAX: usize = 1000;

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Hours of resources that were compared.
    pub hours: u64,
    /// The first differences.
    pub differences: Vec<Difference>,
    /// How many hours differ in all.
    pub differ: u64,
}

/// An hour of a resource for which the facts and the hours disagree, in the whole numbers that
/// usage is stored in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub class: Class,
    pub series: i64,
    pub hour: Timestamp,
    pub by_facts: i64,
    pub by_hours: i64,
}

/// Recomputes every hour that the window touches from the facts alone, and compares it with what
/// answers are made from. Reads all lives once for each week of the window.
pub async fn verify(store: &Store, window: Window) -> Result<Verified, Error> {
    let (first, end) = window.hours();
    let (mut from, last) = (first.div_euclid(24), (end - 1).div_euclid(24) + 1);
    let mut verified = Verified::default();
    while from < last {
        let to = last.min(from + DAYS);
        let hours = ((from * 24).max(first), (to * 24).min(end));
        let part = store.read(move |tx| verify_hours(tx, hours)).await?;
        verified.hours += part.hours;
        verified.differ += part.differ;
        verified.differences.extend(part.differences);
        from = to;
    }
    verified.differences.truncate(DIFFERENCES_MAX);
    Ok(verified)
}

type Amounts = BTreeMap<(i64, i64, i64), i64>;

fn verify_hours(tx: &mut Tx<'_>, hours: (i64, i64)) -> Result<Verified, Error> {
    let by_facts = by_facts(tx, hours)?;
    let mut verified = Verified::default();
    for class in usage::classes(tx, None)? {
        let mut by_hours = by_hours(tx, class.id, hours)?;
        let mine = by_facts.range((class.id, i64::MIN, i64::MIN)..=(class.id, i64::MAX, i64::MAX));
        let mut note = |series, hour: i64, by_facts, by_hours| {
            verified.hours += 1;
            if by_facts != by_hours {
                verified.differ += 1;
                let hour = Timestamp::from_ms(hour * types::time::HOUR_MS);
                let difference =
                    Difference { class: class.clone(), series, hour, by_facts, by_hours };
                verified
                    .differences
                    .extend((verified.differ <= DIFFERENCES_MAX as u64).then_some(difference));
            }
        };
        for ((_, series, hour), expected) in mine.filter(|(_, expected)| **expected != 0) {
            note(*series, *hour, *expected, by_hours.remove(&(*series, *hour)).unwrap_or(0));
        }
        for ((series, hour), found) in by_hours.into_iter().filter(|(_, found)| *found != 0) {
            note(series, hour, 0, found);
        }
    }
    Ok(verified)
}

fn by_facts(tx: &mut Tx<'_>, hours: (i64, i64)) -> Result<Amounts, Error> {
    let (mut amounts, mut after) = (Amounts::new(), String::new());
    loop {
        let lives = usage::lives_after(tx, &after, LIVES)?;
        let Some(last) = lives.last() else { return Ok(amounts) };
        after.clone_from(&last.subject);
        for life in lives {
            add_life(tx, &life, hours, &mut amounts)?;
        }
    }
}

fn add_life(
    tx: &mut Tx<'_>,
    life: &Life,
    (first, end): (i64, i64),
    amounts: &mut Amounts,
) -> Result<(), Error> {
    let (Some((class, series)), Some(owner)) = (life.series, &life.owner) else { return Ok(()) };
    for one in fold::whole(life, owner.dimension.measure(), &usage::facts_of(tx, life.id)?) {
        each_hour(one, |hour, amount| {
            if (first..end).contains(&hour) {
                let sum = amounts.entry((class, series, hour)).or_default();
                *sum = sum.saturating_add(amount);
            }
        });
    }
    Ok(())
}

fn by_hours(
    tx: &mut Tx<'_>,
    class: i64,
    (first, end): (i64, i64),
) -> Result<BTreeMap<(i64, i64), i64>, Error> {
    let mut amounts = BTreeMap::new();
    let (from, to) = (first.div_euclid(24), (end - 1).div_euclid(24) + 1);
    for day in usage::read_days(tx, class, from, to, usage::Packed::Hours)? {
        for (series, packed) in Content::read(&day.hours, day.day)?.series() {
            let hours = (day.day * 24..).zip(packed);
            let known = hours.filter(|(hour, amount)| (first..end).contains(hour) && **amount != 0);
            amounts.extend(known.map(|(hour, amount)| ((series, hour), *amount)));
        }
    }
    for added in usage::read_hours(tx, class, first, end)? {
        let sum = amounts.entry((added.series, added.hour)).or_default();
        *sum = sum.saturating_add(added.amount);
    }
    Ok(amounts)
}
