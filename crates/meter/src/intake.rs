//! The intake of facts and owners, which come in any order. What follows from them is written in
//! the same transaction, so the hours always agree with the facts.

use crate::facts::{STORED, UsageFact};
use crate::fold::{self, Use};
use crate::hours::Hours;
use std::collections::{BTreeMap, BTreeSet};
use store::usage::{self, Correction, FactRow, Life, Owner};
use store::{Error, Store, Tx};
use types::Timestamp;
use types::time::HOUR_MS;

/// Limits beyond which a fact is an error of its machine: how far its time may lie in the future,
/// and the longest uptime of a steady clock.
const AHEAD_MAX_MS: i64 = 24 * HOUR_MS;
const MONO_MAX_MS: i64 = 100 * 366 * 24 * HOUR_MS;
/// Most lives that are put in order in one transaction.
const LIVES: i64 = 100;
/// A change to a day that has been over for this long is noted as a correction.
const LATE_MS: i64 = 24 * HOUR_MS;

/// The result of handing in facts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    pub new: usize,
    /// Facts that were known already, with the same content.
    pub duplicates: usize,
    /// Ids that are known with other content. The known fact stands; somebody must look into it.
    pub conflicts: Vec<String>,
    /// Ids of facts with impossible times. They are not kept.
    pub refused: Vec<String>,
}

/// Registers the owner of `subject`'s usage, in the transaction that creates its row. Repeating it
/// changes nothing: the first owner stands, since past usage was theirs. Facts may have come
/// before.
pub fn register(tx: &mut Tx<'_>, subject: &str, owner: &Owner) -> Result<(), Error> {
    if usage::own(tx, subject, owner)? {
        return Ok(());
    }
    let mut lives = usage::lock(tx, &[subject])?;
    let Some(life) = lives.first_mut().filter(|life| life.owner.is_none()) else { return Ok(()) };
    life.owner = Some(owner.clone());
    let all = usage::facts_of(tx, life.id)?;
    let mut hours = Hours::default();
    if !all.is_empty() {
        fold_all(tx, life, &all, &all, &mut hours)?;
    }
    write(tx, &lives, &hours)
}

/// Takes facts in. A fact counts once, however often it comes.
///
/// A fact that contradicts a known one does not undo the others. A machine hands its facts over in
/// order and retries until they are taken, so one bad fact would otherwise hold up all later ones.
pub fn take_in(tx: &mut Tx<'_>, facts: &[UsageFact]) -> Result<Taken, Error> {
    let mut taken = Taken::default();
    let facts = sort_out(facts, tx.world().now(), &mut taken);
    keep(tx, &facts, taken)
}

/// Takes in what happens now to something whose row the caller has locked, after everything that
/// has happened to it. The calendar cannot say so: it may be set back, and those of two servers
/// differ. Then the fact has the time of the one before it, and a greater number.
pub fn take_next(tx: &mut Tx<'_>, mut fact: UsageFact) -> Result<Taken, Error> {
    let lives = usage::lock(tx, &[fact.subject.as_str()])?;
    if let Some(last) = lives.first().and_then(|life| life.last.as_ref()) {
        fact.at = fact.at.max(Timestamp::from_ms(last.at));
        fact.number = fact.number.max(last.number.unsigned_abs().saturating_add(1));
    }
    // However far ahead the clock was at the fact before: one that were refused would be lost.
    keep(tx, &BTreeMap::from([(fact.id.as_str(), &fact)]), Taken::default())
}

/// Puts stored things right whose facts were taken in by the calendar alone, as earlier releases
/// did: what happened last, by its number, happens again after the others. Returns how many there
/// were. There are none the next time.
pub async fn put_in_order(store: &Store) -> Result<u64, Error> {
    let (mut after, mut done) = (String::new(), 0);
    // Usually there are none. To find that out, all stored things are looked at, and no write should
    // wait for it.
    if store.read(|tx| usage::lives_out_of_order(tx, STORED, "", 1)).await?.is_empty() {
        return Ok(done);
    }
    loop {
        let from = std::mem::take(&mut after);
        let subjects = store.write(move |tx| put_some_in_order(tx, &from)).await?;
        let Some(last) = subjects.last() else { return Ok(done) };
        after.clone_from(last);
        done += subjects.len() as u64;
    }
}

fn put_some_in_order(tx: &mut Tx<'_>, after: &str) -> Result<Vec<String>, Error> {
    let subjects = usage::lives_out_of_order(tx, STORED, after, LIVES)?;
    let names: Vec<&str> = subjects.iter().map(String::as_str).collect();
    for life in usage::lock(tx, &names)? {
        let newest = usage::facts_of(tx, life.id)?.into_iter().max_by_key(|fact| fact.number);
        let late =
            |fact: &FactRow| life.last.as_ref().is_some_and(|last| fact.number > last.number);
        if let Some(fact) =
            newest.filter(late).and_then(|fact| UsageFact::again(&life.subject, &fact))
        {
            take_next(tx, fact)?;
        }
    }
    Ok(subjects)
}

/// Stores facts, and what follows from those that are new.
fn keep(
    tx: &mut Tx<'_>,
    facts: &BTreeMap<&str, &UsageFact>,
    mut taken: Taken,
) -> Result<Taken, Error> {
    let subjects: BTreeSet<&str> = facts.values().map(|fact| fact.subject.as_str()).collect();
    let subjects: Vec<&str> = subjects.into_iter().collect();
    let mut lives = usage::lock(tx, &subjects)?;
    let mut by_life: Vec<Vec<FactRow>> = vec![Vec::new(); lives.len()];
    for fact in facts.values() {
        if let Ok(at) = subjects.binary_search(&fact.subject.as_str()) {
            by_life[at].push(fact.stored(lives[at].id));
        }
    }
    let met = usage::insert_facts(tx, &by_life.concat())?;
    taken.new = met.new.len();
    taken.duplicates += facts.len() - met.new.len() - met.conflicts.len();
    taken.conflicts.extend(met.conflicts);
    let (mut hours, mut changed) = (Hours::default(), Vec::new());
    for (mut life, mut fresh) in lives.drain(..).zip(by_life) {
        fresh.retain(|fact| met.new.contains(&fact.id));
        if life.owner.is_some() && !fresh.is_empty() {
            fold_in(tx, &mut life, &fresh, &mut hours)?;
            changed.push(life);
        }
    }
    write(tx, &changed, &hours)?;
    Ok(taken)
}

/// Returns each fact once, without the impossible ones.
fn sort_out<'f>(
    facts: &'f [UsageFact],
    now: Timestamp,
    taken: &mut Taken,
) -> BTreeMap<&'f str, &'f UsageFact> {
    let mut sorted: BTreeMap<&str, &UsageFact> = BTreeMap::new();
    for fact in facts {
        let steady = fact
            .stamp
            .is_none_or(|stamp| stamp.boot != 0 && (0..MONO_MAX_MS).contains(&stamp.uptime_ms));
        if !steady || !(0..=now.plus_ms(AHEAD_MAX_MS).ms()).contains(&fact.at.ms()) {
            taken.refused.push(fact.id.clone());
            continue;
        }
        match sorted.get(fact.id.as_str()) {
            Some(known) if *known == fact => taken.duplicates += 1,
            Some(_) => taken.conflicts.push(fact.id.clone()),
            None => drop(sorted.insert(&fact.id, fact)),
        }
    }
    sorted
}

fn fold_in(
    tx: &mut Tx<'_>,
    life: &mut Life,
    fresh: &[FactRow],
    hours: &mut Hours,
) -> Result<(), Error> {
    let Some(owner) = &life.owner else { return Ok(()) };
    match fold::go_on(life, owner.dimension.measure(), fresh) {
        Some(uses) => note(tx, life, &uses, hours),
        None => {
            let all = usage::facts_of(tx, life.id)?;
            fold_all(tx, life, &all, fresh, hours)
        }
    }
}

fn fold_all(
    tx: &mut Tx<'_>,
    life: &mut Life,
    all: &[FactRow],
    fresh: &[FactRow],
    hours: &mut Hours,
) -> Result<(), Error> {
    let Some(owner) = life.owner.clone() else { return Ok(()) };
    let fresh: BTreeSet<&str> = fresh.iter().map(|fact| fact.id.as_str()).collect();
    let uses =
        fold::begin_again(life, owner.dimension.measure(), all, &fresh, |boot| {
            match &owner.machine {
                Some(machine) => usage::proof(tx, machine, boot),
                None => Ok(None),
            }
        })?;
    note(tx, life, &uses, hours)
}

/// Adds what a life used to its series, which is created with its first usage.
fn note(tx: &mut Tx<'_>, life: &mut Life, uses: &[Use], hours: &mut Hours) -> Result<(), Error> {
    let Some(owner) = &life.owner else { return Ok(()) };
    let series = match life.series {
        Some(series) => series,
        None if uses.is_empty() && life.began_at.is_none() => return Ok(()),
        None => {
            let class = usage::class(tx, &owner.account, &owner.workspace, owner.dimension)?;
            (class, usage::find_series(tx, class, &owner.name, &owner.uuid)?)
        }
    };
    life.series = Some(series);
    hours.add(series, uses);
    Ok(())
}

fn write(tx: &mut Tx<'_>, lives: &[Life], hours: &Hours) -> Result<(), Error> {
    let added = hours.added();
    let now = tx.world().now();
    let mut late: BTreeMap<(i64, i64, i64), i64> = BTreeMap::new();
    for hour in &added {
        let day = hour.hour.div_euclid(24);
        if (day + 1) * 24 * HOUR_MS + LATE_MS < now.ms() {
            let amount = late.entry((hour.class, day, hour.series)).or_default();
            *amount = amount.saturating_add(hour.amount);
        }
    }
    let correction =
        |((class, day, series), amount)| Correction { class, day, series, noted_at: now, amount };
    let corrections: Vec<_> = late.into_iter().map(correction).collect();
    usage::save(tx, lives)?;
    usage::add_hours(tx, &added)?;
    usage::correct(tx, &corrections)
}
