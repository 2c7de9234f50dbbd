//! Showing that something takes its time; only on a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

const TICK: Duration = Duration::from_millis(120);

pub(crate) fn spinner(message: &'static str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(message);
    bar.enable_steady_tick(TICK);
    bar
}

/// A count of work whose end is not known beforehand.
pub(crate) fn counter(message: &'static str) -> ProgressBar {
    let bar = ProgressBar::no_length().with_message(message);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}: {human_pos}") {
        bar.set_style(style);
    }
    bar
}
