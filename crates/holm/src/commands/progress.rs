//! Showing that something takes its time; only on a terminal.

use crate::term;
use images::{Digest, Progress, Step};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const TICK: Duration = Duration::from_millis(120);
/// Of a digest, as others show them.
const DIGITS: usize = 12;

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

/// A share of a whole, with a message of what came of it so far.
pub(crate) fn share(whole: u64) -> ProgressBar {
    let bar = ProgressBar::new(whole);
    if let Ok(style) = ProgressStyle::with_template("[{bar:20}] {percent:>3}% {elapsed:>4} {wide_msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// The steps of making images, one bar for each image.
pub(crate) struct Steps {
    bar: ProgressBar,
    shown: Cell<usize>,
}

impl Steps {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:20}] {percent:>3}% {elapsed:>4} {wide_msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        Self { bar, shown: Cell::new(0) }
    }

    pub(crate) fn show(&self, step: &Step<'_>) {
        if self.shown.replace(self.shown.get() + 1) == 0 {
            self.bar.enable_steady_tick(TICK);
        }
        if step.number == 1 {
            self.bar.reset();
        }
        let name = step.image.path();
        if self.bar.is_hidden() {
            term::note(format!("{name} {}/{} {}", step.number, step.of, step.what));
        }
        self.bar.set_length(step.of as u64);
        self.bar.set_position(step.number.saturating_sub(1) as u64);
        self.bar.set_prefix(name.to_owned());
        self.bar.set_message(step.what.to_owned());
    }

    /// Answers how many steps there were.
    pub(crate) fn finish(self) -> usize {
        self.bar.finish_and_clear();
        self.shown.get()
    }
}

/// The layers of an image on their way here, one bar for each.
pub(crate) struct Layers {
    all: MultiProgress,
    bars: Mutex<HashMap<Digest, ProgressBar>>,
}

impl Layers {
    pub(crate) fn new() -> Self {
        Self { all: MultiProgress::new(), bars: Mutex::default() }
    }

    pub(crate) fn show(&self, progress: Progress) {
        // Bars are only shown: one that was lost in a panic is no reason for another.
        let mut bars = self.bars.lock().unwrap_or_else(PoisonError::into_inner);
        match progress {
            Progress::Layer { layer, bytes, here } => {
                let bar = bars.entry(layer).or_insert_with(|| self.all.add(ProgressBar::new(bytes)));
                if let Ok(style) = ProgressStyle::with_template(
                    "{prefix} [{bar:20}] {percent:>3}% {bytes:>10} of {total_bytes} {binary_bytes_per_sec}",
                ) {
                    bar.set_style(style.progress_chars("=> "));
                }
                bar.set_prefix(layer.hex().chars().take(DIGITS).collect::<String>());
                bar.set_position(here);
            }
            Progress::Received { layer, bytes } => {
                if let Some(bar) = bars.get(&layer) {
                    bar.inc(bytes);
                }
            }
            Progress::Unpacking => {
                bars.values().for_each(ProgressBar::finish_and_clear);
                let bar = self.all.add(spinner("unpacking"));
                bar.tick();
                bars.clear();
            }
        }
    }

    pub(crate) fn finish(self) {
        // A terminal that went away does not matter any more.
        let _ = self.all.clear();
    }
}
