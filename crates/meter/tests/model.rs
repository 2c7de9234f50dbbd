//! Random lives, reported in any order, twice, late and with crashes in between, against a model
//! that adds up what was really on, millisecond by millisecond. A failure names its seed, which
//! reproduces it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::town::{Groups, Town, at, model, prices};
use common::{HOUR, MONDAY, Place};
use fastrand::Rng;
use meter::{Filter, PriceBook, Question, UsageFact, Window};
use store::usage::{self, Day, Packed};
use store::{Error, Store, Tx};
use types::instance::Stamp;
use types::usage::{Dimension, ResourceType};
use types::wire::{GroupBy, Resolution};

on_both!(every_answer_is_the_sum_of_what_was_on);

/// Rounds on one database; each uses an account of its own.
const ROUNDS: u64 = 25;
const QUESTIONS: usize = 16;

async fn every_answer_is_the_sum_of_what_was_on(place: Place) {
    let first: u64 = std::env::var("SEED").map_or(0, |seed| seed.parse().unwrap());
    for seed in first..first + ROUNDS {
        let mut rng = Rng::with_seed(seed);
        let town = Town::random(&mut rng, seed);
        place.set(town.now);
        tell_all(&place.store, &town, &mut rng).await;
        alive(&place.store, &town, town.now).await;
        for number in 0..QUESTIONS {
            let question = question(&town, &mut rng);
            let (book, listed) = prices(&mut rng);
            let expect = model(&town, &question, &listed);
            check(
                &place.store,
                &town,
                question,
                book,
                expect,
                &format!("seed {seed}, question {number}"),
            )
            .await;
            if number == QUESTIONS / 2 {
                meter::roll(&place.store, at(town.now)).await.unwrap();
                meter::pack(&place.store, at(town.now + 12 * HOUR)).await.unwrap();
                forget_hour_totals(&place.store, &town, seed % 3).await;
            }
        }
        let window = Window { start: at(MONDAY - 24 * HOUR), end: at(town.now + 24 * HOUR) };
        let verified = meter::verify(&place.store, window).await.unwrap();
        assert_eq!(verified.differences, [], "seed {seed}");
    }
}

/// Leaves every third day as a release packed it that knew no totals of hours.
async fn forget_hour_totals(store: &Store, town: &Town, third: u64) {
    let account = town.account.clone();
    let forget = move |tx: &mut Tx<'_>| {
        for class in usage::classes(tx, Some(&account))? {
            let mut read = |packed| usage::read_days(tx, class.id, 0, i64::MAX, packed);
            let (days, sums) = (read(Packed::Hours)?, read(Packed::Sums)?);
            assert!(read(Packed::HourTotals)?.iter().all(|day| day.hours.is_empty()));
            for (day, Day { sums, .. }) in days.into_iter().zip(sums) {
                if day.day.rem_euclid(3).unsigned_abs() == third {
                    usage::put_day(tx, &Day { hour_totals: None, sums, ..day })?;
                }
            }
        }
        Ok::<_, Error>(())
    };
    store.write(forget).await.unwrap();
}

/// Reports owners and facts in any order, some of them twice. Meanwhile time passes irregularly,
/// and the regular work is done.
async fn tell_all(store: &Store, town: &Town, rng: &mut Rng) {
    let mut owners: Vec<usize> = (0..town.lives.len()).collect();
    let mut facts: Vec<UsageFact> = town.lives.iter().flat_map(|life| life.facts.clone()).collect();
    facts.extend(facts.clone().into_iter().filter(|_| rng.u8(..5) == 0));
    if rng.bool() {
        rng.shuffle(&mut facts);
    } else {
        facts.sort_by_key(|fact| (fact.at, fact.number));
    }
    rng.shuffle(&mut owners);
    let mut time = MONDAY;
    while !facts.is_empty() || !owners.is_empty() {
        match rng.u8(..6) {
            0 if time < town.now => {
                time = (time + rng.i64(0..48 * HOUR)).min(town.now);
                alive(store, town, time).await;
            }
            1 => drop(meter::roll(store, at(time)).await.unwrap()),
            2 => drop(meter::pack(store, at(time)).await.unwrap()),
            3 => {
                if let Some(life) = owners.pop().map(|life| &town.lives[life]) {
                    let (subject, owner) = (life.subject.clone(), life.owner.clone());
                    twice(store, rng, move |tx| meter::register(tx, &subject, &owner)).await;
                }
            }
            _ => {
                let batch: Vec<_> = facts.drain(..rng.usize(..40).min(facts.len())).collect();
                let take = move |tx: &mut Tx<'_>| {
                    let taken = meter::take_in(tx, &batch)?;
                    assert_eq!(taken.new + taken.duplicates, batch.len());
                    Ok(())
                };
                twice(store, rng, take).await;
            }
        }
    }
}

/// Does the work, sometimes after an attempt that a crash undid, and sometimes twice.
async fn twice<F>(store: &Store, rng: &mut Rng, work: F)
where
    F: Fn(&mut Tx<'_>) -> Result<(), Error> + Clone + Send + 'static,
{
    let crash = |work: F| {
        store.write(move |tx| {
            work(tx)?;
            Err::<(), _>(Error::Unusable("a crash".into()))
        })
    };
    if rng.u8(..4) == 0 {
        crash(work.clone()).await.unwrap_err();
    }
    store.write(work.clone()).await.unwrap();
    if rng.u8(..4) == 0 {
        store.write(work).await.unwrap();
    }
}

async fn alive(store: &Store, town: &Town, time: i64) {
    let stamp = Stamp { boot: town.boot, uptime_ms: time - MONDAY };
    let machine = town.machine.clone();
    store.write(move |tx| meter::alive(tx, &machine, at(time), Some(stamp))).await.unwrap();
}

fn question(town: &Town, rng: &mut Rng) -> Question {
    let whole = [1, HOUR, 24 * HOUR][rng.usize(..3)];
    let moment = |rng: &mut Rng| rng.i64(MONDAY - 30 * HOUR..town.now + 30 * HOUR) / whole * whole;
    let (one, two) = (moment(rng), moment(rng));
    let mut group_by = GroupBy::ALL.to_vec();
    rng.shuffle(&mut group_by);
    group_by.truncate(rng.usize(..4));
    let maybe = |rng: &mut Rng, text: String| (rng.u8(..6) == 0).then_some(text);
    let uuid = ["", "res_1"][rng.usize(..2)];
    let filter = Filter {
        within: maybe(rng, "main".into()).map(|own| [own].into()),
        workspace: maybe(rng, "main".into()),
        resource_name: maybe(rng, "name-1".into()),
        resource_uuid: maybe(rng, uuid.into()),
        resource_type: (rng.u8(..8) == 0).then(|| ResourceType::ALL[rng.usize(..6)]),
        dimension: (rng.u8(..8) == 0).then(|| Dimension::ALL[rng.usize(..12)]),
    };
    Question {
        account: town.account.clone(),
        window: Window { start: at(one.min(two)), end: at(one.max(two) + whole) },
        resolution: [
            Resolution::Hourly,
            Resolution::Daily,
            Resolution::Weekly,
            Resolution::Monthly,
        ][rng.usize(..4)],
        group_by,
        filter,
        limit: [1, 2, 100][rng.usize(..3)],
        after: None,
    }
}

/// Goes through all pages.
async fn check(
    store: &Store,
    town: &Town,
    question: Question,
    prices: PriceBook,
    expect: Groups,
    what: &str,
) {
    let (mut after, now) = (None, at(town.now));
    let mut left = expect.iter();
    let mut total = meter::Sums::default();
    expect.values().for_each(|(sums, _)| total += *sums);
    loop {
        let (asked, prices) =
            (Question { after: after.clone(), ..question.clone() }, prices.clone());
        let answer = store.read(move |tx| meter::answer(tx, &asked, &prices, now)).await.unwrap();
        assert!(answer.entries.len() <= question.limit);
        for entry in &answer.entries {
            let (key, (sums, steps)) =
                left.next().unwrap_or_else(|| panic!("{what}: one too many: {entry:?}"));
            assert_eq!((&entry.key, &entry.sums), (key, sums), "{what}: {question:?}");
            assert_eq!(entry.series.len(), answer.steps.len());
            for (step, sums) in answer.steps.iter().zip(&entry.series) {
                let expect = steps.get(&step.ms()).copied().unwrap_or_default();
                assert_eq!(*sums, expect, "{what}, {step}: {question:?}");
            }
            assert!(
                steps.keys().all(|step| answer.steps.contains(&at(*step))),
                "{what}: {question:?}"
            );
        }
        assert_eq!(answer.total, total, "{what}: {question:?}");
        after = answer.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(left.next(), None, "{what}: one was not told: {question:?}");
}
