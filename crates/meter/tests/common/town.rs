//! Lives as they really were, what machines reported of them, and the sums that follow from the
//! truth alone.

use super::{HOUR, MONDAY};
use fastrand::Rng;
use meter::{Change, Key, Money, Owner, Price, PriceBook, Quantity, Question, Sums, UsageFact};
use std::collections::BTreeMap;
use types::Timestamp;
use types::ids::AccountId;
use types::instance::Stamp;
use types::usage::{Dimension, Measure};
use types::wire::{GroupBy, Resolution};

const DAYS: i64 = 12;

/// What one subject really did.
pub struct Truth {
    pub subject: String,
    pub owner: Owner,
    /// From, to, level.
    pub on: Vec<(i64, i64, i64)>,
    /// When, how many.
    pub events: Vec<(i64, i64)>,
    pub facts: Vec<UsageFact>,
}

pub struct Town {
    pub account: AccountId,
    pub machine: String,
    pub boot: i64,
    pub now: i64,
    pub lives: Vec<Truth>,
}

pub fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms)
}

impl Town {
    pub fn random(rng: &mut Rng, seed: u64) -> Self {
        let mut town = Self {
            account: AccountId::known(format!("acc_{seed}")),
            machine: format!("machine-{seed}"),
            boot: types::instance::boot_number(&seed.to_string()),
            now: MONDAY + DAYS * 24 * HOUR + rng.i64(0..24 * HOUR),
            lives: Vec::new(),
        };
        for number in 0..rng.usize(1..14) {
            let life = town.life(rng, seed, number);
            town.lives.push(life);
        }
        town
    }

    fn life(&self, rng: &mut Rng, seed: u64, number: usize) -> Truth {
        let dimension = Dimension::ALL[rng.usize(..Dimension::ALL.len())];
        let runs = dimension.measure() == Measure::Runtime;
        let owner = Owner {
            account: self.account.clone(),
            workspace: ["main", "other"][rng.usize(..2)].into(),
            dimension,
            // Few names, so that several lives share a series and several series a name.
            name: format!("name-{}", rng.u8(..3)),
            uuid: if rng.bool() { String::new() } else { format!("res_{}", rng.u8(..4)) },
            machine: runs.then(|| self.machine.clone()),
        };
        let subject = format!("life-{seed}-{number}");
        let mut teller = Teller::new(rng, self, &subject, runs);
        let mut truth = Truth {
            subject: subject.clone(),
            owner,
            on: Vec::new(),
            events: Vec::new(),
            facts: Vec::new(),
        };
        let mut moment = MONDAY + rng.i64(0..self.now - MONDAY);
        let mut on: Option<(i64, i64)> = None;
        let mut level = 0;
        for turn in 0..rng.usize(1..12) {
            let change = next(rng, dimension.measure(), turn, on.is_some(), &mut level);
            let when = teller.tell(moment, change);
            if let Some((from, level)) = on.take() {
                truth.on.push((from, when, level));
            }
            on = goes_on(change, level).map(|level| (when, level));
            if let Change::Requested { count } = change {
                truth.events.push((when, count.into()));
            }
            if change == Change::Ended {
                break;
            }
            moment +=
                [0, rng.i64(0..1000), rng.i64(0..3 * HOUR), rng.i64(0..60 * HOUR)][rng.usize(..4)];
            if moment >= self.now {
                break;
            }
        }
        if let Some((from, level)) = on {
            truth.on.push((from, teller.time(self.now), level));
        }
        truth.facts = teller.facts;
        truth
    }
}

/// Reports facts by the clocks of a machine. The calendar jumps if there is a steady clock as well.
struct Teller {
    rng: Rng,
    subject: String,
    boot: Option<i64>,
    /// How far the calendar is behind now, and was at the first fact.
    behind: i64,
    first: Option<i64>,
    facts: Vec<UsageFact>,
}

impl Teller {
    fn new(rng: &mut Rng, town: &Town, subject: &str, runs: bool) -> Self {
        let boot = (runs && rng.bool()).then_some(town.boot);
        Self {
            rng: rng.fork(),
            subject: subject.into(),
            boot,
            behind: 0,
            first: None,
            facts: Vec::new(),
        }
    }

    /// Returns the time that a moment counts as.
    fn time(&self, moment: i64) -> i64 {
        moment - self.first.unwrap_or(0)
    }

    fn tell(&mut self, moment: i64, change: Change) -> i64 {
        if self.boot.is_some() {
            self.behind = self.rng.i64(0..3 * HOUR);
            self.first.get_or_insert(self.behind);
        }
        let stamp = self.boot.map(|boot| Stamp { boot, uptime_ms: moment - MONDAY });
        let number = self.facts.len() as u64 + 1;
        self.facts.push(UsageFact {
            id: format!("{}-{number}", self.subject),
            subject: self.subject.clone(),
            number,
            at: at(moment - self.behind),
            stamp,
            change,
        });
        self.time(moment)
    }
}

fn next(rng: &mut Rng, measure: Measure, turn: usize, on: bool, level: &mut i64) -> Change {
    match measure {
        Measure::Events => Change::Requested { count: rng.u32(0..5) },
        Measure::Time if on => Change::Deactivated,
        Measure::Time => Change::Activated,
        Measure::Storage => {
            Change::Stored { bytes: [0, rng.u64(1..1 << 20), rng.u64(1..1 << 40)][rng.usize(..3)] }
        }
        Measure::Runtime if turn == 0 => {
            *level = rng.i64(1..10_000);
            Change::Started { memory_mb: *level as u32 }
        }
        Measure::Runtime => match rng.u8(..8) {
            0 => Change::Ended,
            // Here, an instance that sleeps is neither resized nor seen running.
            1 if on => {
                *level = rng.i64(1..10_000);
                Change::Resized { memory_mb: *level as u32 }
            }
            2 if on => Change::Alive,
            _ if on => Change::Paused,
            _ => Change::Resumed,
        },
    }
}

/// Returns the level at which usage continues after a change.
fn goes_on(change: Change, level: i64) -> Option<i64> {
    match change {
        Change::Started { .. } | Change::Resized { .. } | Change::Resumed | Change::Alive => {
            Some(level)
        }
        Change::Stored { bytes: 0 } => None,
        Change::Stored { bytes } => Some(bytes.div_ceil(1024) as i64),
        Change::Activated => Some(1),
        _ => None,
    }
}

/// Prices as written down: dimension, from when on, how much.
pub type Listed = Vec<(Dimension, i64, Price)>;

pub fn prices(rng: &mut Rng) -> (PriceBook, Listed) {
    let mut listed = Listed::new();
    for dimension in Dimension::ALL {
        let mut from = 0;
        for _ in 0..rng.usize(..4) {
            listed.push((
                *dimension,
                from,
                format!("0.{:08}", rng.u32(..100_000_000)).parse().unwrap(),
            ));
            from = MONDAY + rng.i64(0..DAYS * 24) * HOUR + [0, rng.i64(0..HOUR)][rng.usize(..2)];
        }
    }
    listed.sort_by_key(|(_, from, _)| *from);
    let mut book = PriceBook::new();
    listed.iter().for_each(|(dimension, from, price)| book.set(*dimension, at(*from), *price));
    (book, listed)
}

/// Groups, each with its sum and its steps.
pub type Groups = BTreeMap<Key, (Sums, BTreeMap<i64, Sums>)>;

/// Returns the right answer to a question.
pub fn model(town: &Town, question: &Question, prices: &Listed) -> Groups {
    let mut groups = Groups::new();
    if question.group_by.is_empty() {
        groups.insert(Key::default(), Default::default());
    }
    for life in town.lives.iter().filter(|life| asked(question, &life.owner)) {
        let mut add = |hour: i64, raw: i64| {
            if raw > 0 {
                add(&mut groups, question, &life.owner, prices, hour, raw);
            }
        };
        let (start, end) = (question.window.start.ms(), question.window.end.ms());
        for (from, to, level) in &life.on {
            let (mut from, to) = (*from.max(&start), *to.min(&end));
            while from < to {
                let border = (from / HOUR + 1) * HOUR;
                add(from / HOUR, (border.min(to) - from) * level);
                from = border;
            }
        }
        life.events
            .iter()
            .filter(|(at, _)| (start..end).contains(at))
            .for_each(|(at, count)| add(at / HOUR, *count));
    }
    groups
}

fn add(
    groups: &mut Groups,
    question: &Question,
    owner: &Owner,
    prices: &Listed,
    hour: i64,
    raw: i64,
) {
    let counts =
        |listed: &&(Dimension, i64, Price)| listed.0 == owner.dimension && listed.1 <= hour * HOUR;
    let price = prices.iter().rev().find(counts).map(|(_, _, price)| *price);
    let measure = owner.dimension.measure();
    let usage = question.group_by.contains(&GroupBy::BillingDimension);
    let part = Sums {
        cost: price.map_or(Money::ZERO, |price| price.cost(raw.into(), measure)),
        usage: if usage { Quantity::of(raw.into(), measure) } else { Quantity::ZERO },
    };
    let (sums, steps) = groups.entry(key(question, owner)).or_default();
    *sums += part;
    *steps.entry(step(question.resolution, hour * HOUR)).or_default() += part;
}

fn asked(question: &Question, owner: &Owner) -> bool {
    let filter = &question.filter;
    filter.within.as_ref().is_none_or(|within| within.contains(&owner.workspace))
        && filter.workspace.as_ref().is_none_or(|wanted| *wanted == owner.workspace)
        && filter.resource_type.is_none_or(|wanted| wanted == owner.dimension.resource_type())
        && filter.resource_name.as_ref().is_none_or(|wanted| *wanted == owner.name)
        && filter.resource_uuid.as_ref().is_none_or(|wanted| *wanted == owner.uuid)
        && filter.dimension.is_none_or(|wanted| wanted == owner.dimension)
}

/// Returns the key of the group, by the interface's table "Populated when groupBy includes".
fn key(question: &Question, owner: &Owner) -> Key {
    let by = |dimension| question.group_by.contains(&dimension);
    let (name, uuid) = (by(GroupBy::ResourceName), by(GroupBy::ResourceUuid));
    let kind = by(GroupBy::ResourceType) || uuid || name || by(GroupBy::BillingDimension);
    Key {
        workspace: (by(GroupBy::Workspace) || uuid || name).then(|| owner.workspace.clone()),
        resource_type: kind.then(|| owner.dimension.resource_type().to_string()),
        resource_name: (name || uuid).then(|| owner.name.clone()),
        resource_uuid: uuid.then(|| owner.uuid.clone()),
        dimension: by(GroupBy::BillingDimension).then(|| owner.dimension.to_string()),
    }
}

/// Returns when the step begins that contains a moment.
fn step(resolution: Resolution, ms: i64) -> i64 {
    let text = at(ms).to_string();
    let cut = |length: usize, rest: &str| {
        format!("{}{rest}", &text[..length]).parse::<Timestamp>().unwrap().ms()
    };
    match resolution {
        Resolution::Hourly => cut(13, ":00:00Z"),
        Resolution::Daily => cut(10, "T00:00:00Z"),
        Resolution::Weekly => MONDAY + (ms - MONDAY).div_euclid(7 * 24 * HOUR) * 7 * 24 * HOUR,
        Resolution::Monthly => cut(7, "-01T00:00:00Z"),
    }
}
