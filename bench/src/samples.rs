//! What was measured when one action was repeated.

use anyhow::Context as _;
use std::borrow::Borrow;
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    /// Adds the time since `begun`.
    pub(crate) fn since(&mut self, begun: Instant) {
        self.0.push(begun.elapsed());
    }

    pub(crate) fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn percentile_ms(&self, percent: usize) -> anyhow::Result<f64> {
        let mut times = self.0.clone();
        times.sort_unstable();
        let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        let time = times.get(at).context("nothing was measured")?;
        Ok(time.as_secs_f64() * 1e3)
    }
}

impl FromIterator<Duration> for Samples {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Self {
        Self(times.into_iter().collect())
    }
}

/// Returns 0 if there are no values.
pub(crate) fn median(values: impl IntoIterator<Item = impl Borrow<f64>>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().map(|value| *value.borrow()).collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
