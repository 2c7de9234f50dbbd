//! The load: callers that each send the next request when the last one is answered.

use crate::samples::{Samples, median};
use anyhow::Context as _;
use futures_util::future::try_join_all;
use std::time::{Duration, Instant};

/// One connection to a server.
pub(crate) trait Caller {
    /// What it can be told to do.
    type Act;

    /// Sends a request and waits for its answer; any answer but success is an error.
    async fn call(&mut self, act: Self::Act) -> anyhow::Result<()>;
}

/// What was measured in one repetition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) rps: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

const WARM_UP: Duration = Duration::from_secs(1);
const REPETITION: Duration = Duration::from_secs(4);
/// How long after the end of a repetition the last answers may still come. A server that stops
/// answering would otherwise be waited for without end.
const LAST_ANSWERS: Duration = Duration::from_secs(30);
/// How long callers are busy in one call of [`measure`].
pub(crate) const SECONDS: f64 = (WARM_UP.as_secs() + REPETITION.as_secs()) as f64;

/// Warms up and measures once; `next` returns what to do next.
pub(crate) async fn measure<C: Caller>(
    callers: &mut [C],
    next: impl Fn() -> C::Act,
) -> anyhow::Result<Seen> {
    repeat(callers, &next, WARM_UP).await?;
    repeat(callers, &next, REPETITION).await
}

/// Returns the medians of several repetitions, for each number separately.
pub(crate) fn medians(seen: &[Seen]) -> Seen {
    let median = |of: fn(&Seen) -> f64| median(seen.iter().map(of));
    Seen { rps: median(|s| s.rps), p50_us: median(|s| s.p50_us), p99_us: median(|s| s.p99_us) }
}

async fn repeat<C: Caller>(
    callers: &mut [C],
    next: &impl Fn() -> C::Act,
    time: Duration,
) -> anyhow::Result<Seen> {
    let start = Instant::now();
    let each = callers.iter_mut().map(|caller| closed_loop(caller, next, start + time));
    let all = tokio::time::timeout(time + LAST_ANSWERS, try_join_all(each)).await;
    let waits = all.context("some requests got no answer")??;
    let seconds = start.elapsed().as_secs_f64();
    let waits: Samples = waits.into_iter().flatten().collect();
    Ok(Seen {
        rps: waits.count() as f64 / seconds,
        p50_us: waits.percentile_ms(50)? * 1e3,
        p99_us: waits.percentile_ms(99)? * 1e3,
    })
}

async fn closed_loop<C: Caller>(
    caller: &mut C,
    next: &impl Fn() -> C::Act,
    end: Instant,
) -> anyhow::Result<Vec<Duration>> {
    let mut waits = Vec::new();
    loop {
        let act = next();
        let sent = Instant::now();
        caller.call(act).await?;
        let answered = Instant::now();
        waits.push(answered - sent);
        if answered >= end {
            return Ok(waits);
        }
    }
}
