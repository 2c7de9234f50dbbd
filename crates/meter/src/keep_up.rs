//! Regular work that keeps questions cheap: usage of running things is moved into the hours that
//! are over ([`roll`]), hours that are over are packed ([`pack`]), and facts that belong to nobody
//! are removed ([`remove_unowned`]). None of it changes any answer. All of it may be skipped for any
//! time, repeated, interrupted at any point, and done by several servers at once.

use crate::fold::{self, Use};
use crate::hours::Hours;
use crate::packed;
use std::collections::BTreeMap;
use store::usage::{self, Life, Proof, Until};
use store::{Error, Store, Tx};
use types::Timestamp;
use types::time::HOUR_MS;

/// Most lives, and packed days, of one transaction.
const LIVES: u16 = 500;
const DAYS: i64 = 64;
/// How many hours ago an hour must have ended to be packed: by then most of its facts have come.
const PACK_AFTER_HOURS: i64 = 2;
/// Usage that was moved into hours further ahead than this was moved by a wrong calendar. Those of
/// two servers may differ by less, and must not move it to and fro.
const AHEAD_MAX_MS: i64 = 2 * HOUR_MS;
/// How long facts wait for an owner. The transaction that registers it is over before their
/// instance starts, or begins with it and takes minutes at the very most.
const UNOWNED_MS: i64 = 24 * HOUR_MS;

/// Moves usage of everything that goes on into the hours that are over by now, as far as it is
/// proven, and takes back what a wrong calendar has moved too early. Returns how many lives that
/// were. Should be called about every minute.
pub async fn roll(store: &Store, now: Timestamp) -> Result<u64, Error> {
    Ok(each_page(store, now, roll_page).await? + each_page(store, now, take_back_page).await?)
}

type Step = fn(&mut Tx<'_>, Timestamp, Option<&(i64, String)>) -> Result<Page, Error>;

async fn each_page(store: &Store, now: Timestamp, step: Step) -> Result<u64, Error> {
    let mut after: Option<(i64, String)> = None;
    let mut rolled = 0;
    loop {
        let from = after.take();
        let page = store.write(move |tx| step(tx, now, from.as_ref())).await?;
        rolled += page.0;
        match page.1 {
            Some(last) => after = Some(last),
            None => return Ok(rolled),
        }
    }
}

/// How many lives a page moved, and where the next page begins, if there may be one.
type Page = (u64, Option<(i64, String)>);

fn roll_page(
    tx: &mut Tx<'_>,
    now: Timestamp,
    after: Option<&(i64, String)>,
) -> Result<Page, Error> {
    let hour_ms = floor(now.ms());
    let after = after.map(|(through, subject)| (*through, subject.as_str()));
    let lives = usage::lock_on(tx, hour_ms, after, LIVES.into())?;
    let next = next_page(&lives);
    let (mut proofs, mut hours, mut moved) = (BTreeMap::new(), Hours::default(), Vec::new());
    for mut life in lives {
        let until = floor(until(&until_of(tx, &life, &mut proofs)?, now)).min(hour_ms);
        if let Some(series) = life.series.filter(|_| until > life.through) {
            hours.add(series, &[Use::Span { from: life.through, to: until, level: life.level }]);
            life.through = until;
            moved.push(life);
        }
    }
    usage::save(tx, &moved)?;
    usage::add_hours(tx, &hours.added())?;
    Ok((moved.len() as u64, next))
}

/// Takes back what was moved into hours that have not come yet, of what needs no proof. Nothing was
/// known then of what happened to it since.
fn take_back_page(
    tx: &mut Tx<'_>,
    now: Timestamp,
    after: Option<&(i64, String)>,
) -> Result<Page, Error> {
    let hour_ms = floor(now.ms());
    let after = after.map(|(through, subject)| (*through, subject.as_str()));
    let lives = usage::lock_ahead(tx, hour_ms + AHEAD_MAX_MS, after, LIVES.into())?;
    let next = next_page(&lives);
    let (mut hours, mut moved) = (Hours::default(), Vec::new());
    for mut life in lives {
        let until = life.last.as_ref().map_or(hour_ms, |last| last.at.max(hour_ms));
        if let Some(series) = life.series.filter(|_| until < life.through) {
            hours.add(series, &[Use::Span { from: life.through, to: until, level: life.level }]);
            life.through = until;
            moved.push(life);
        }
    }
    usage::save(tx, &moved)?;
    usage::add_hours(tx, &hours.added())?;
    Ok((moved.len() as u64, next))
}

fn next_page(lives: &[Life]) -> Option<(i64, String)> {
    let full = lives.len() == usize::from(LIVES);
    lives.last().filter(|_| full).map(|life| (life.through, life.subject.clone()))
}

fn floor(ms: i64) -> i64 {
    ms.div_euclid(HOUR_MS) * HOUR_MS
}

type Proofs = BTreeMap<(String, i64), Option<Proof>>;

fn until_of(tx: &mut Tx<'_>, life: &Life, proofs: &mut Proofs) -> Result<Until, Error> {
    let Some(machine) = life.owner.as_ref().and_then(|owner| owner.machine.clone()) else {
        return Ok(Until::Now);
    };
    let boot = life.anchor.map_or(0, |anchor| anchor.stamp.boot);
    let key = (machine, boot);
    let proof = match proofs.get(&key) {
        Some(proof) => *proof,
        None => {
            let proof = usage::proof(tx, &key.0, boot)?;
            proofs.insert(key, proof);
            proof
        }
    };
    Ok(Until::Proof { proof, anchor: life.anchor })
}

/// Returns up to when something is known to have been going on, in the times of its life.
pub(crate) fn until(until: &Until, now: Timestamp) -> i64 {
    match until {
        Until::Now => now.ms(),
        Until::Proof { proof: None, .. } => i64::MIN,
        Until::Proof { proof: Some(proof), anchor: None } => proof.at,
        Until::Proof { proof: Some(proof), anchor: Some(anchor) } => {
            fold::moment(anchor, proof.uptime_ms)
        }
    }
}

/// Packs the hours that have been over for a while. Returns how many days of classes were packed.
/// Should be called about every hour.
pub async fn pack(store: &Store, now: Timestamp) -> Result<u64, Error> {
    let end = now.ms().div_euclid(HOUR_MS) - PACK_AFTER_HOURS;
    let mut packed = 0;
    loop {
        let days = store.write(move |tx| pack_some(tx, end)).await?;
        if days == 0 {
            return Ok(packed);
        }
        packed += days;
    }
}

fn pack_some(tx: &mut Tx<'_>, end: i64) -> Result<u64, Error> {
    let days = usage::unpacked_days(tx, end, DAYS)?;
    for (class, day) in &days {
        let added = usage::take_hours(tx, *class, day * 24, end.min((day + 1) * 24))?;
        let known = usage::read_days(tx, *class, *day, day + 1, usage::Packed::Hours)?;
        let mut content = match known.first() {
            Some(known) => packed::Content::read(&known.hours, *day)?,
            None => packed::Content::default(),
        };
        content.add(added.iter().map(|one| (one.series, one.hour - day * 24, one.amount)));
        usage::put_day(tx, &content.write(*class, *day))?;
    }
    Ok(days.len() as u64)
}

/// Removes the facts of what got no owner, such as of an instance that ran while the row of its
/// sandbox was refused. Returns of how many lives. Should be called about every hour.
pub async fn remove_unowned(store: &Store, now: Timestamp) -> Result<u64, Error> {
    let before_ms = now.ms() - UNOWNED_MS;
    let mut removed = 0;
    loop {
        let lives =
            store.write(move |tx| usage::remove_unowned(tx, before_ms, LIVES.into())).await?;
        removed += lives;
        if lives < LIVES.into() {
            return Ok(removed);
        }
    }
}
