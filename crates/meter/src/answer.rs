//! Answers to questions: the sum of packed days, of hours not packed yet, and of what is still
//! going on.
//!
//! Days that lie entirely in the window and have no change of price are taken as their sums, others
//! by their hours. An hour that the window cuts is computed from the facts. So every answer is
//! exact, whatever the window.
//!
//! Questions that do not ask for single resources are answered from one number for each class and
//! day, or for each of its hours.

use crate::calendar;
use crate::facts::REQUESTED;
use crate::fold;
use crate::groups::Groups;
use crate::hours::{clip, each_hour};
use crate::keep_up::until;
use crate::money::{Money, Tariff};
use crate::packed::{self, Content};
use crate::prices::PriceBook;
use crate::question::{Answer, Filter, Question, Window};
use crate::resources::Resources;
use std::collections::{BTreeMap, BTreeSet};
use store::usage::{self, Added, Class, Live, Packed};
use store::{Error, Tx};
use types::Timestamp;
use types::ids::AccountId;
use types::time::HOUR_MS;
use types::usage::{Measure, ResourceType};
use types::wire::{GroupBy, Resolution};

/// Packed days of a class in memory at once, times its number of series: some 8 MiB.
const DAYS_OF_SERIES: i64 = 1 << 20;
const DAYS_MAX: i64 = 400;

/// Answers a question. `now` is when it is asked: what is still going on counts up to then.
pub fn answer(
    tx: &mut Tx<'_>,
    question: &Question,
    prices: &PriceBook,
    now: Timestamp,
) -> Result<Answer, Error> {
    let (first, end) = question.window.hours();
    let steps = calendar::steps(question.resolution, first, end);
    let mut reading = Reading {
        question,
        prices,
        now,
        first,
        end,
        groups: Groups::new(question, steps.len()),
        steps,
    };
    let live = usage::live(tx, &question.account, question.window.end.ms())?;
    let mut unpacked = unpacked(tx, &question.account, first, end)?;
    for class in usage::classes(tx, Some(&question.account))? {
        if question.filter.admits(&class) {
            let unpacked = unpacked.remove(&class.id).unwrap_or_default();
            reading.class(
                tx,
                &class,
                live.iter().filter(|live| live.class == class.id),
                unpacked,
            )?;
        }
    }
    let starts =
        reading.steps.iter().map(|hour| Timestamp::from_ms(hour.saturating_mul(HOUR_MS))).collect();
    Ok(reading.groups.finish(starts))
}

/// Returns what an account, or one of its workspaces, has to pay for a window.
pub fn spent(
    tx: &mut Tx<'_>,
    account: &AccountId,
    workspace: Option<&str>,
    window: Window,
    prices: &PriceBook,
    now: Timestamp,
) -> Result<Money, Error> {
    let question = Question {
        filter: Filter { workspace: workspace.map(Into::into), ..Filter::default() },
        ..Question::all(account, window)
    };
    Ok(answer(tx, &question, prices, now)?.total.cost)
}

/// Returns the types of resources with usage that a filter lets through.
pub fn resource_types(
    tx: &mut Tx<'_>,
    account: &AccountId,
    window: Window,
    filter: Filter,
    now: Timestamp,
) -> Result<Vec<ResourceType>, Error> {
    let question = Question {
        group_by: vec![GroupBy::ResourceType],
        filter,
        ..Question::all(account, window)
    };
    let answer = answer(tx, &question, &PriceBook::new(), now)?;
    let name = |key: crate::Key| key.resource_type.and_then(|name| ResourceType::parse(&name));
    Ok(answer.entries.into_iter().filter_map(|entry| name(entry.key)).collect())
}

/// Returns late changes to days of a window that had been reported before.
pub fn corrections(
    tx: &mut Tx<'_>,
    account: &AccountId,
    window: Window,
) -> Result<Vec<(Class, usage::Correction)>, Error> {
    let (first, end) = window.hours();
    let (first, end) = (first.div_euclid(24), (end - 1).div_euclid(24) + 1);
    let mut found = Vec::new();
    for class in usage::classes(tx, Some(account))? {
        let corrections = usage::corrections(tx, class.id, first, end)?;
        found.extend(corrections.into_iter().map(|correction| (class.clone(), correction)));
    }
    Ok(found)
}

impl Question {
    fn all(account: &AccountId, window: Window) -> Self {
        Self {
            account: account.clone(),
            window,
            // As few steps as possible.
            resolution: Resolution::Monthly,
            group_by: Vec::new(),
            filter: Filter::default(),
            limit: usize::MAX,
            after: None,
        }
    }
}

impl Filter {
    fn admits(&self, class: &Class) -> bool {
        self.within.as_ref().is_none_or(|within| within.contains(&class.workspace))
            && self.workspace.as_ref().is_none_or(|workspace| *workspace == class.workspace)
            && self.resource_type.is_none_or(|kind| kind == class.dimension.resource_type())
            && self.dimension.is_none_or(|dimension| dimension == class.dimension)
    }
}

struct Reading<'q> {
    question: &'q Question,
    prices: &'q PriceBook,
    now: Timestamp,
    /// The first of the hours that the window touches, and the one after the last.
    first: i64,
    end: i64,
    steps: Vec<i64>,
    groups: Groups,
}

/// Days of which the same is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    first: i64,
    end: i64,
    packed: Packed,
}

/// Where an hour of a day is added.
struct Place {
    /// The hour of the day, 0 to 23.
    of_day: usize,
    step: usize,
    tariff: Tariff,
    /// The part of the hour that lies in the window, unless it is all of it.
    cut: Option<(i64, i64)>,
}

/// The hours of a class that are not packed yet, by day.
type Unpacked = BTreeMap<i64, Vec<Added>>;

impl Reading<'_> {
    fn class<'l>(
        &mut self,
        tx: &mut Tx<'_>,
        class: &Class,
        live: impl Iterator<Item = &'l Live>,
        mut unpacked: Unpacked,
    ) -> Result<(), Error> {
        let Some(mut resources) = Resources::new(tx, self.question, class)? else { return Ok(()) };
        let days = (DAYS_OF_SERIES / class.series.max(1)).clamp(1, DAYS_MAX);
        for stretch in self.stretches(class, resources.told_apart()) {
            let mut first = stretch.first;
            while first < stretch.end {
                let end = stretch.end.min(first + days);
                self.days(tx, &mut resources, Stretch { first, end, ..stretch }, &mut unpacked)?;
                first = end;
            }
        }
        for live in live {
            self.goes_on(tx, &mut resources, live)?;
        }
        Ok(())
    }

    /// Splits the days of the window by how much of them has to be read.
    fn stretches(&self, class: &Class, told_apart: bool) -> Vec<Stretch> {
        let (first, last) = (self.first.div_euclid(24), (self.end - 1).div_euclid(24));
        let changes = self.prices.changes(class.dimension, first * 24, (last + 1) * 24);
        let changed: BTreeSet<i64> =
            changes.filter(|hour| hour % 24 != 0).map(|hour| hour.div_euclid(24)).collect();
        let mut stretches: Vec<Stretch> = Vec::new();
        for day in first..=last {
            let packed = self.needed(day, changed.contains(&day), told_apart);
            match stretches.last_mut().filter(|before| before.packed == packed) {
                Some(before) => before.end = day + 1,
                None => stretches.push(Stretch { first: day, end: day + 1, packed }),
            }
        }
        stretches
    }

    /// Returns how much of a day has to be read.
    fn needed(&self, day: i64, is_price_changed: bool, told_apart: bool) -> Packed {
        let Window { start, end } = self.question.window;
        let is_cut = day * 24 * HOUR_MS < start.ms() || (day + 1) * 24 * HOUR_MS > end.ms();
        if self.question.resolution != Resolution::Hourly && !is_cut && !is_price_changed {
            return if told_apart { Packed::Sums } else { Packed::Total };
        }
        // Only the first and the last hour of a window can be cut.
        let cut_hours =
            [self.first, self.end - 1].into_iter().filter(|hour| self.cut(*hour).is_some());
        let has_cut_hour = cut_hours.map(|hour| hour.div_euclid(24)).any(|cut| cut == day);
        if told_apart || has_cut_hour { Packed::Hours } else { Packed::HourTotals }
    }

    fn days(
        &mut self,
        tx: &mut Tx<'_>,
        resources: &mut Resources<'_>,
        stretch: Stretch,
        unpacked: &mut Unpacked,
    ) -> Result<(), Error> {
        let Stretch { first, end, packed } = stretch;
        let rows = usage::read_days(tx, resources.class.id, first, end, packed)?;
        let mut rows: BTreeMap<i64, usage::Day> =
            rows.into_iter().map(|row| (row.day, row)).collect();
        for day in unpacked.range(first..end).map(|(day, _)| *day) {
            rows.entry(day).or_default();
        }
        for (day, row) in rows {
            let added = unpacked.remove(&day).unwrap_or_default();
            match packed {
                Packed::Total => self.total(tx, resources, day, row.total, &added)?,
                Packed::HourTotals => self.hour_totals(tx, resources, (day, &row), &added)?,
                Packed::Sums => self.sums(tx, resources, day, &row.sums, &added)?,
                Packed::Hours => self.hours(tx, resources, day, &row.hours, &added)?,
            }
        }
        Ok(())
    }

    fn total(
        &mut self,
        tx: &mut Tx<'_>,
        resources: &mut Resources<'_>,
        day: i64,
        total: i128,
        added: &[Added],
    ) -> Result<(), Error> {
        let sum = total + added.iter().map(|added| i128::from(added.amount)).sum::<i128>();
        self.add(
            tx,
            resources,
            0,
            (self.step(day * 24), self.tariff(resources.class, day * 24)),
            sum,
        )
    }

    fn sums(
        &mut self,
        tx: &mut Tx<'_>,
        resources: &mut Resources<'_>,
        day: i64,
        sums: &str,
        added: &[Added],
    ) -> Result<(), Error> {
        let mut series = Vec::with_capacity(sums.len() / 8);
        packed::each_sum(sums, day, |one, sum| series.push((one, sum)))?;
        if !added.is_empty() {
            // Packed and added amounts may cancel out, so they are summed before they count.
            let mut merged: BTreeMap<i64, i64> = series.drain(..).collect();
            for added in added {
                let sum = merged.entry(added.series).or_default();
                *sum = sum.saturating_add(added.amount);
            }
            series.extend(merged);
        }
        let place = (self.step(day * 24), self.tariff(resources.class, day * 24));
        for (series, sum) in series {
            self.add(tx, resources, series, place, sum.into())?;
        }
        Ok(())
    }

    fn hours(
        &mut self,
        tx: &mut Tx<'_>,
        resources: &mut Resources<'_>,
        day: i64,
        hours: &str,
        added: &[Added],
    ) -> Result<(), Error> {
        let places = self.places(resources.class, day);
        let mut content = Content::read(hours, day)?;
        content.add(added.iter().map(|one| (one.series, one.hour - day * 24, one.amount)));
        for (series, amounts) in content.series() {
            for place in places.iter().filter(|place| amounts[place.of_day] != 0) {
                let amount = match place.cut {
                    None => amounts[place.of_day].into(),
                    Some((from, to)) if resources.knows(tx, series)? => {
                        exactly(tx, resources.class, series, from, to)?
                    }
                    Some(_) => 0,
                };
                self.add(tx, resources, series, (place.step, place.tariff), amount)?;
            }
        }
        Ok(())
    }

    /// Adds the hours of a day for a question that does not distinguish resources.
    fn hour_totals(
        &mut self,
        tx: &mut Tx<'_>,
        resources: &mut Resources<'_>,
        (day, row): (i64, &usage::Day),
        added: &[Added],
    ) -> Result<(), Error> {
        let mut totals = match row.hour_totals {
            Some(totals) => totals,
            None => packed::hour_totals(&row.hours, day)?,
        };
        for one in added {
            let hour = usize::try_from(one.hour - day * 24).ok();
            if let Some(total) = hour.and_then(|hour| totals.get_mut(hour)) {
                *total += i128::from(one.amount);
            }
        }
        for place in self.places(resources.class, day) {
            let total = totals[place.of_day];
            self.add(tx, resources, 0, (place.step, place.tariff), total)?;
        }
        Ok(())
    }

    /// Returns where the hours of a day are added that are in the window.
    fn places(&self, class: &Class, day: i64) -> Vec<Place> {
        let window = self.first..self.end;
        let hours = (0..24).zip(day * 24..).filter(|(_, hour)| window.contains(hour));
        hours.map(|(of_day, hour)| self.place(class, of_day, hour)).collect()
    }

    fn place(&self, class: &Class, of_day: usize, hour: i64) -> Place {
        let (step, tariff) = (self.step(hour), self.tariff(class, hour));
        Place { of_day, step, tariff, cut: self.cut(hour) }
    }

    /// Returns the part of an hour that lies in the window, unless that is all there can be of it.
    fn cut(&self, hour: i64) -> Option<(i64, i64)> {
        let Window { start, end } = self.question.window;
        let (from, to) = (start.ms().max(hour * HOUR_MS), end.ms().min((hour + 1) * HOUR_MS));
        let all_past = to == (hour + 1) * HOUR_MS || to >= self.now.ms();
        (from > hour * HOUR_MS || !all_past).then_some((from, to))
    }

    /// Adds what a life has used since it was last written into the hours.
    fn goes_on(
        &mut self,
        tx: &mut Tx<'_>,
        resources: &mut Resources<'_>,
        live: &Live,
    ) -> Result<(), Error> {
        let Window { start, end } = self.question.window;
        let (from, to) = (live.through.max(start.ms()), until(&live.until, self.now).min(end.ms()));
        let mut parts = Vec::new();
        if from < to {
            each_hour(fold::Use::Span { from, to, level: live.level }, |hour, amount| {
                parts.push((hour, amount))
            });
        }
        for (hour, amount) in parts {
            let place = (self.step(hour), self.tariff(resources.class, hour));
            self.add(tx, resources, live.series, place, amount.into())?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        tx: &mut Tx<'_>,
        resources: &mut Resources<'_>,
        series: i64,
        (step, tariff): (usize, Tariff),
        raw: i128,
    ) -> Result<(), Error> {
        if raw != 0
            && let Some(group) = resources.group(tx, &mut self.groups, series)?
        {
            self.groups.add(group, step, raw, tariff);
        }
        Ok(())
    }

    fn step(&self, hour: i64) -> usize {
        self.steps.partition_point(|step| *step <= hour).saturating_sub(1)
    }

    fn tariff(&self, class: &Class, hour: i64) -> Tariff {
        self.prices.tariff(class.dimension, hour)
    }
}

/// Returns the hours that are not packed yet, by class.
fn unpacked(
    tx: &mut Tx<'_>,
    account: &AccountId,
    first: i64,
    end: i64,
) -> Result<BTreeMap<i64, Unpacked>, Error> {
    let mut by_class: BTreeMap<i64, Unpacked> = BTreeMap::new();
    for added in usage::read_hours_of(tx, account, first.div_euclid(24) * 24, end)? {
        let days = by_class.entry(added.class).or_default();
        days.entry(added.hour.div_euclid(24)).or_default().push(added);
    }
    Ok(by_class)
}

/// Returns what a series used between two times, computed from the facts of its lives.
fn exactly(tx: &mut Tx<'_>, class: &Class, series: i64, from: i64, to: i64) -> Result<i128, Error> {
    let (mut amount, measure) = (0, class.dimension.measure());
    for life in usage::lives_in(tx, class.id, series, from, to)? {
        // One life has all requests to a workload. Without steady clocks their times are as stored.
        if measure == Measure::Events && life.anchor.is_none() {
            amount += i128::from(usage::sum(tx, life.id, REQUESTED, from, to)?);
            continue;
        }
        let facts = usage::facts_of(tx, life.id)?;
        let uses = fold::whole(&life, measure, &facts);
        amount += uses.into_iter().map(|one| i128::from(clip(one, from, to))).sum::<i128>();
    }
    Ok(amount)
}
