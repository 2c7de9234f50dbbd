//! The load: callers that each send the next request when the last one is answered.

use anyhow::Context as _;
use futures_util::future::try_join_all;
use std::time::{Duration, Instant};

/// What a caller does next, to one of the objects that were made before.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Act {
    /// Stores an object that is not there yet.
    Make {
        object: usize,
    },
    /// Replaces an object by a value that was never there before.
    Put {
        object: usize,
        value: u64,
    },
    Get {
        object: usize,
    },
    /// A list request, by its place among those that are measured.
    List {
        query: usize,
    },
}

/// What a measurement repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mix {
    Put,
    Get,
    List { query: usize },
}

/// One connection to a server.
pub(crate) trait Caller {
    /// Sends a request and waits for its answer; an answer other than success is an error.
    async fn call(&mut self, act: Act) -> anyhow::Result<()>;
}

/// What was seen in one repetition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) rps: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

const WARM_UP: Duration = Duration::from_secs(1);
const REPETITION: Duration = Duration::from_secs(4);

/// Warms up and measures once.
pub(crate) async fn measure<C: Caller>(callers: &mut [C], mix: Mix, objects: usize) -> anyhow::Result<Seen> {
    repeat(callers, mix, objects, WARM_UP).await?;
    repeat(callers, mix, objects, REPETITION).await
}

/// The medians of several repetitions, each number for itself.
pub(crate) fn medians(seen: &[Seen]) -> Seen {
    let median = |of: fn(&Seen) -> f64| {
        let mut values: Vec<f64> = seen.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    Seen { rps: median(|s| s.rps), p50_us: median(|s| s.p50_us), p99_us: median(|s| s.p99_us) }
}

async fn repeat<C: Caller>(callers: &mut [C], mix: Mix, objects: usize, time: Duration) -> anyhow::Result<Seen> {
    let start = Instant::now();
    let each = callers.iter_mut().map(|caller| closed_loop(caller, mix, objects, start + time));
    let waits = try_join_all(each).await?;
    let seconds = start.elapsed().as_secs_f64();
    let mut waits: Vec<Duration> = waits.into_iter().flatten().collect();
    waits.sort_unstable();
    let share = |percent: usize| waits.get((waits.len() * percent / 100).min(waits.len().saturating_sub(1)));
    let us = |percent| share(percent).map(|wait| wait.as_secs_f64() * 1e6).context("nothing was answered");
    Ok(Seen { rps: waits.len() as f64 / seconds, p50_us: us(50)?, p99_us: us(99)? })
}

async fn closed_loop<C: Caller>(
    caller: &mut C,
    mix: Mix,
    objects: usize,
    end: Instant,
) -> anyhow::Result<Vec<Duration>> {
    let mut waits = Vec::new();
    loop {
        let object = fastrand::usize(..objects);
        let act = match mix {
            Mix::Put => Act::Put { object, value: fastrand::u64(..) },
            Mix::Get => Act::Get { object },
            Mix::List { query } => Act::List { query },
        };
        let sent = Instant::now();
        caller.call(act).await?;
        let answered = Instant::now();
        waits.push(answered - sent);
        if answered >= end {
            return Ok(waits);
        }
    }
}

/// Makes the objects, spread over all callers.
pub(crate) async fn fill<C: Caller>(callers: &mut [C], objects: usize) -> anyhow::Result<f64> {
    let (start, count) = (Instant::now(), callers.len());
    let each = callers.iter_mut().enumerate().map(|(first, caller)| async move {
        for object in (first..objects).step_by(count) {
            caller.call(Act::Make { object }).await?;
        }
        anyhow::Ok(())
    });
    try_join_all(each).await?;
    Ok(objects as f64 / start.elapsed().as_secs_f64())
}
