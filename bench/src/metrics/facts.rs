//! How fast facts can be stored: each batch is on the disk before the next one is sent.

use super::hours;
use crate::report::Report;
use anyhow::ensure;
use meter::{Change, Owner, UsageFact};
use std::time::Instant;
use store::Store;
use types::Timestamp;
use types::instance::Stamp;
use types::usage::Dimension;

const LIVES: usize = 60_000;
/// Started, paused, resumed, paused, resumed, stopped.
const FACTS_OF_LIFE: usize = 6;
const BATCH: usize = 2000;
/// One of this many facts comes a second time.
const TWICE: usize = 10;
/// Lives that go on at the same time; their facts come mixed.
const TOGETHER: usize = 500;

pub(crate) async fn measure(report: &mut Report, store: &Store, name: &str) -> anyhow::Result<()> {
    let before = store.read(|tx| tx.size()).await?;
    let begun = Instant::now();
    for lives in (0..LIVES).collect::<Vec<_>>().chunks(BATCH) {
        let lives = lives.to_vec();
        let work = move |tx: &mut store::Tx<'_>| {
            lives.iter().try_for_each(|life| meter::register(tx, &subject(*life), &owner(*life)))
        };
        store.write(work).await?;
    }
    report.add(format!("lives_per_s_{name}"), LIVES as f64 / begun.elapsed().as_secs_f64(), "1/s");
    let facts = facts();
    let (mut new, mut handed_in, begun) = (0, 0, Instant::now());
    for batch in facts.chunks(BATCH) {
        let batch = batch.to_vec();
        handed_in += batch.len();
        new += store.write(move |tx| meter::take_in(tx, &batch)).await?.new;
    }
    let took = begun.elapsed().as_secs_f64();
    ensure!(new == LIVES * FACTS_OF_LIFE, "{new} facts were new");
    report.add(format!("facts_per_s_{name}"), handed_in as f64 / took, "1/s");
    let bytes = store.read(|tx| tx.size()).await?.saturating_sub(before);
    let per_million = bytes as f64 / new as f64 * 1e6 / (1 << 20) as f64;
    report.add(format!("million_facts_mib_{name}"), per_million, "MiB");
    Ok(())
}

fn subject(life: usize) -> String {
    format!("sbx-{life:016x}-1")
}

fn owner(life: usize) -> Owner {
    Owner {
        account: types::ids::AccountId::known("acc_facts"),
        workspace: "main".into(),
        dimension: Dimension::SandboxRuntime,
        name: format!("sandbox-{life}"),
        uuid: format!("res_{life:020}"),
        machine: Some("machine".into()),
    }
}

/// Returns the facts of all lives in the order in which they happen, some of them twice.
fn facts() -> Vec<UsageFact> {
    let mut facts = Vec::new();
    for lives in (0..LIVES).collect::<Vec<_>>().chunks(TOGETHER) {
        for turn in 0..FACTS_OF_LIFE {
            for life in lives {
                let fact = fact(*life, turn, facts.len());
                if facts.len() % TWICE == 0 {
                    facts.push(fact.clone());
                }
                facts.push(fact);
            }
        }
    }
    facts
}

fn fact(life: usize, turn: usize, number: usize) -> UsageFact {
    let ms = number as i64;
    let at = Timestamp::from_ms((hours::END - 1) * hours::HOUR_MS + ms);
    let change = match turn {
        0 => Change::Started { memory_mb: 2048 },
        1 | 3 => Change::Paused,
        2 | 4 => Change::Resumed,
        _ => Change::Ended,
    };
    UsageFact {
        id: format!(
            "{:x}-{:08x}",
            1_790_000_000_000_000_u64 + number as u64,
            fastrand::Rng::with_seed(ms as u64).u32(..)
        ),
        subject: subject(life),
        number: number as u64,
        at,
        stamp: Some(Stamp { boot: 1, uptime_ms: ms }),
        change,
    }
}
