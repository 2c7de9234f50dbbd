//! The course of one life, computed from its facts. Pure: the same set of facts gives the same
//! course, in whatever order they came.
//!
//! ```text
//!        Started, Resumed, Stored, Activated
//!   off ─────────────────────────────────────▶ on
//!    ▲ ◀───────────────────────────────────────┤
//!    │     Paused, Stored(0), Deactivated      │
//!    └───────────── Stopped ──▶ ended ◀────────┘   nothing comes after the end
//! ```
//!
//! Facts are ordered by time, then by number. The time of a fact with a stamp is that of the first
//! fact of the same boot plus what has passed since on the steady clock, so setting the calendar
//! while an instance runs changes neither its end nor its length. Without stamps a life is as long
//! as the calendar says. In either case no time counts twice and none counts backwards, and
//! whatever is ordered after the end counts nothing.
//!
//! What a life used is reported as signed [`Use`]s. A life that is on has reported its use up to
//! `through`; a fact before that takes the excess back. As long as facts come in order, only the
//! new ones are looked at. If a fact comes late it is put in its place, and all facts of the life
//! are gone through again: what was reported before is taken back, and the right use is reported.
//! The order of requests means nothing, so a late one is only counted, however many there were.
//!
//! **A machine that stopped.** Instances of an earlier start of a machine cannot have run after
//! that start's last proof of life (`cut`), whatever the next start says about when it found them
//! gone.

use crate::facts::{Change, LEVEL_MAX};
use std::collections::{BTreeMap, BTreeSet};
use store::usage::{Anchor, FactPosition, FactRow, Life, Phase, Proof};
use types::instance::Stamp;
use types::usage::Measure;

/// Something used. If `from` is after `to`, it takes use back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Span { from: i64, to: i64, level: i64 },
    Point { at: i64, count: i64 },
}

impl Use {
    fn back(self) -> Self {
        match self {
            Self::Span { from, to, level } => Self::Span { from: to, to: from, level },
            Self::Point { at, count } => Self::Point { at, count: -count },
        }
    }
}

type Anchors = BTreeMap<i64, Anchor>;

/// The state of a life after some of its facts.
#[derive(Debug, Clone, Copy)]
struct Course {
    measure: Measure,
    phase: Phase,
    level: i64,
    began_at: Option<i64>,
    through: i64,
    /// The start (boot) of the machine during which it is on.
    boot: i64,
    cut: Option<i64>,
}

/// Continues with facts that come after all known ones, or whose order means nothing. `None` if one
/// of them is late, or has another boot than the others; then all facts have to be gone through.
pub(crate) fn go_on(life: &mut Life, measure: Measure, fresh: &[FactRow]) -> Option<Vec<Use>> {
    if life.cut.is_some() {
        // It has known two starts of its machine, and which of them it is on in is not kept.
        return None;
    }
    let anchor = anchor_of(life, fresh)?;
    let anchors: Anchors = anchor.iter().map(|anchor| (anchor.stamp.boot, *anchor)).collect();
    let facts = ordered(fresh.iter(), &anchors);
    let late = |(place, _): &(FactPosition, _)| life.last.as_ref().is_some_and(|last| place < last);
    if measure != Measure::Events && facts.first().is_some_and(late) {
        return None;
    }
    let boot = anchor.map_or(0, |anchor| anchor.stamp.boot);
    let Life { phase, level, began_at, through, cut, .. } = *life;
    let mut course = Course { measure, phase, level, began_at, through, boot, cut };
    let uses = course.run(&facts);
    life.anchor = anchor;
    life.last = life.last.take().max(facts.into_iter().next_back().map(|(place, _)| place));
    course.leave(life);
    Some(uses)
}

/// Returns the anchor of all facts, if there can be one. There cannot if a fact that should have
/// been the anchor came too late.
fn anchor_of(life: &Life, fresh: &[FactRow]) -> Option<Option<Anchor>> {
    let stamps = || fresh.iter().filter_map(|fact| fact.stamp);
    match life.anchor {
        Some(anchor) => {
            let follows = |stamp: Stamp| {
                stamp.boot == anchor.stamp.boot && stamp.uptime_ms > anchor.stamp.uptime_ms
            };
            stamps().all(follows).then_some(Some(anchor))
        }
        None => {
            let anchors = anchors(fresh.iter());
            (anchors.len() <= 1).then(|| anchors.into_values().next())
        }
    }
}

/// Goes through all facts of a life, some of which are fresh: takes back what was reported without
/// these, and reports anew. `proof_of` returns the last proof of life of an earlier start of its
/// machine.
pub(crate) fn begin_again<E>(
    life: &mut Life,
    measure: Measure,
    all: &[FactRow],
    fresh: &BTreeSet<&str>,
    proof_of: impl FnOnce(i64) -> Result<Option<Proof>, E>,
) -> Result<Vec<Use>, E> {
    let old = all.iter().filter(|fact| !fresh.contains(fact.id.as_str()));
    let mut uses: Vec<Use> = replayed(life, measure, old).1.into_iter().map(Use::back).collect();
    let anchors = anchors(all.iter());
    if anchors.len() > 1 && life.cut.is_none() {
        life.cut = cut(all, &anchors, proof_of)?;
    }
    let (course, anew) = replayed(life, measure, all.iter());
    uses.extend(anew);
    let facts = ordered(all.iter(), &anchors);
    let last_boot = facts.iter().rev().find_map(|(_, fact)| fact.stamp).map(|stamp| stamp.boot);
    life.anchor = last_boot.and_then(|boot| anchors.get(&boot).copied());
    life.last = facts.into_iter().next_back().map(|(place, _)| place);
    course.leave(life);
    Ok(uses)
}

/// Returns what a life has used by all its facts, up to where it was reported.
pub(crate) fn whole(life: &Life, measure: Measure, all: &[FactRow]) -> Vec<Use> {
    replayed(life, measure, all.iter()).1
}

/// Returns the course by some of the facts, and what was reported for it. A life that is on was
/// reported up to `through`.
fn replayed<'f>(
    life: &Life,
    measure: Measure,
    facts: impl Iterator<Item = &'f FactRow> + Clone,
) -> (Course, Vec<Use>) {
    let facts = ordered(facts.clone(), &anchors(facts));
    let begin = Course {
        measure,
        phase: Phase::Off,
        level: 0,
        began_at: None,
        through: 0,
        boot: 0,
        cut: life.cut,
    };
    let mut course = begin;
    let mut uses = course.run(&facts);
    if course.phase == Phase::On && life.phase == Phase::On && course.through < life.through {
        uses.push(Use::Span { from: course.through, to: life.through, level: course.level });
        course.through = life.through;
    }
    (course, uses)
}

/// Returns when the first of the machine's starts that a life knew was last proven to be up, in the
/// times of that life.
fn cut<E>(
    all: &[FactRow],
    anchors: &Anchors,
    proof_of: impl FnOnce(i64) -> Result<Option<Proof>, E>,
) -> Result<Option<i64>, E> {
    let facts = ordered(all.iter(), anchors);
    let Some(boot) = facts.iter().find_map(|(_, fact)| fact.stamp).map(|stamp| stamp.boot) else {
        return Ok(None);
    };
    let proof = proof_of(boot)?;
    let at = proof.zip(anchors.get(&boot)).map(|(proof, anchor)| moment(anchor, proof.uptime_ms));
    // It was never proven to be up, so nothing after its last fact counts.
    Ok(Some(at.unwrap_or(0)))
}

/// Returns the time of a moment on the steady clock.
pub(crate) fn moment(anchor: &Anchor, uptime_ms: i64) -> i64 {
    anchor.at.saturating_add(uptime_ms.saturating_sub(anchor.stamp.uptime_ms))
}

/// Returns the first fact of each boot, by its steady clock and then by its number.
fn anchors<'f>(facts: impl Iterator<Item = &'f FactRow>) -> Anchors {
    let mut first: BTreeMap<i64, (i64, i64, i64, &str)> = BTreeMap::new();
    for fact in facts {
        let Some(stamp) = fact.stamp else { continue };
        let mine = (stamp.uptime_ms, fact.number, fact.at, fact.id.as_str());
        first.entry(stamp.boot).and_modify(|known| *known = mine.min(*known)).or_insert(mine);
    }
    let anchor =
        |(boot, (uptime_ms, _, at, _))| (boot, Anchor { stamp: Stamp { boot, uptime_ms }, at });
    first.into_iter().map(anchor).collect()
}

/// Returns facts with their positions, in order.
fn ordered<'f>(
    facts: impl Iterator<Item = &'f FactRow>,
    anchors: &Anchors,
) -> Vec<(FactPosition, &'f FactRow)> {
    let place = |fact: &'f FactRow| {
        let anchored =
            fact.stamp.and_then(|stamp| Some(moment(anchors.get(&stamp.boot)?, stamp.uptime_ms)));
        let at = anchored.unwrap_or(fact.at).max(0);
        (FactPosition { at, number: fact.number, kind: fact.kind, id: fact.id.clone() }, fact)
    };
    let mut facts: Vec<_> = facts.map(place).collect();
    facts.sort_by(|a, b| a.0.cmp(&b.0));
    facts
}

impl Course {
    fn run(&mut self, facts: &[(FactPosition, &FactRow)]) -> Vec<Use> {
        let mut uses = Vec::new();
        for (place, fact) in facts {
            let change =
                Change::read(fact.kind, fact.amount).filter(|change| change.fits(self.measure));
            if let Some(change) = change.filter(|_| self.phase != Phase::Ended) {
                self.step(place.at, fact.stamp.map_or(0, |stamp| stamp.boot), change, &mut uses);
            }
        }
        uses
    }

    fn step(&mut self, at: i64, boot: i64, change: Change, uses: &mut Vec<Use>) {
        if self.phase == Phase::On {
            let to = self.end(at, boot);
            uses.push(Use::Span { from: self.through, to, level: self.level });
            self.through = to;
        }
        match change {
            Change::Started { memory_mb } => self.turn_on(at, memory_mb.into()),
            Change::Resized { memory_mb } => self.level = memory_mb.into(),
            Change::Resumed => self.turn_on(at, self.level),
            Change::Stored { bytes: 0 } | Change::Paused | Change::Deactivated => {
                self.phase = Phase::Off
            }
            Change::Stored { bytes } => {
                let level = i64::try_from(bytes.div_ceil(1024)).unwrap_or(LEVEL_MAX).min(LEVEL_MAX);
                self.turn_on(at, level);
            }
            Change::Activated => self.turn_on(at, 1),
            Change::Alive => {}
            Change::Ended => self.phase = Phase::Ended,
            Change::Requested { count } => {
                uses.push(Use::Point { at, count: count.into() });
                self.began_at = Some(self.began_at.map_or(at, |began_at| began_at.min(at)));
                self.through = self.through.max(at);
            }
        }
        self.boot = if boot == 0 { self.boot } else { boot };
    }

    /// Returns the time up to which it was on, by a fact that says it was, or that it no longer is.
    fn end(&self, at: i64, boot: i64) -> i64 {
        match self.cut {
            Some(cut)
                if self.measure == Measure::Runtime
                    && boot != 0
                    && self.boot != 0
                    && boot != self.boot =>
            {
                at.min(cut.max(self.through))
            }
            _ => at,
        }
    }

    fn turn_on(&mut self, at: i64, level: i64) {
        (self.phase, self.level, self.through) = (Phase::On, level, at);
        self.began_at = self.began_at.or(Some(at));
    }

    fn leave(self, life: &mut Life) {
        (life.phase, life.level, life.through) = (self.phase, self.level, self.through);
        life.began_at = self.began_at;
    }
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
