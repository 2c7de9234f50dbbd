//! Progress bars and spinners, shown only on a terminal.

use crate::term;
use images::{Digest, Progress, Step};
use indicatif::{MultiProgress, ProgressBar, ProgressState, ProgressStyle};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(120);
/// Digits of a digest to show, as other tools do.
const DIGITS: usize = 12;

pub(crate) fn spinner(message: &'static str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(message);
    bar.enable_steady_tick(TICK);
    bar
}

/// Returns a counter for work of unknown size.
pub(crate) fn counter(message: &'static str) -> ProgressBar {
    let bar = ProgressBar::no_length().with_message(message);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}: {human_pos}") {
        bar.set_style(style);
    }
    bar
}

/// Returns a bar for a share of a whole, with a message about the results so far.
pub(crate) fn share(whole: u64) -> ProgressBar {
    let bar = ProgressBar::new(whole);
    if let Ok(style) =
        ProgressStyle::with_template("[{bar:20}] {percent:>3}% {elapsed:>4} {wide_msg}")
    {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// Bar for the steps of making images.
pub(crate) struct Steps {
    bar: ProgressBar,
    shown: Cell<usize>,
}

impl Steps {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template(
            "{prefix} [{bar:20}] {percent:>3}% {elapsed:>4} {wide_msg}",
        ) {
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

    /// Clears the bar and returns the number of steps shown.
    pub(crate) fn finish(self) -> usize {
        self.bar.finish_and_clear();
        self.shown.get()
    }
}

/// Shows the tasks of an execution as a bar, or as lines if there is no terminal.
pub(crate) struct Tasks {
    bar: ProgressBar,
    last: RefCell<Option<(Instant, String)>>,
}

/// Shortest time between two lines; one for each change would be too many.
const LINE_EVERY: Duration = Duration::from_secs(5);

impl Tasks {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new(0);
        let form = "{prefix} [{bar:30}] {human_pos} of {human_len} {elapsed} {per_sec} {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(form) {
            let rate = |state: &ProgressState, w: &mut dyn fmt::Write| {
                // A failed write just shows no rate.
                let _ = write!(w, "{:.1}/s", state.per_sec());
            };
            bar.set_style(style.with_key("per_sec", rate).progress_chars("=> "));
        }
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        Self { bar, last: RefCell::default() }
    }

    pub(crate) fn show(&self, total: u64, ended: u64, status: &str, counts: &str) {
        self.bar.set_length(total);
        self.bar.set_position(ended);
        self.bar.set_prefix(term::harmless(status));
        self.bar.set_message(counts.to_owned());
        if self.bar.is_hidden() {
            self.line(format!(
                "{}: {ended} of {total} ended{}{counts}",
                term::harmless(status),
                comma(counts)
            ));
        }
    }

    /// Prints a line above the bar.
    pub(crate) fn note(&self, line: &str) {
        self.bar.suspend(|| term::note(line));
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn line(&self, line: String) {
        let mut last = self.last.borrow_mut();
        let news =
            last.as_ref().is_none_or(|(at, before)| *before != line && at.elapsed() >= LINE_EVERY);
        if news {
            term::note(&line);
            *last = Some((Instant::now(), line));
        }
    }
}

fn comma(rest: &str) -> &'static str {
    if rest.is_empty() { "" } else { ", " }
}

/// Bars for the layers of an image being downloaded, one for each.
pub(crate) struct Layers {
    all: MultiProgress,
    bars: Mutex<HashMap<Digest, ProgressBar>>,
}

impl Layers {
    pub(crate) fn new() -> Self {
        Self { all: MultiProgress::new(), bars: Mutex::default() }
    }

    pub(crate) fn show(&self, progress: Progress) {
        // Bars are only decoration, so a panic that poisoned the lock does not matter.
        let mut bars = self.bars.lock().unwrap_or_else(PoisonError::into_inner);
        match progress {
            Progress::Layer { layer, bytes, here } => {
                let bar =
                    bars.entry(layer).or_insert_with(|| self.all.add(ProgressBar::new(bytes)));
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
        // It does not matter if the terminal is gone.
        let _ = self.all.clear();
    }
}

/// Bar for a transfer in bytes.
pub(crate) struct Bytes {
    bar: ProgressBar,
}

impl Bytes {
    pub(crate) fn new(whole: u64) -> Self {
        let bar = ProgressBar::new(whole);
        if let Ok(style) = ProgressStyle::with_template(
            "[{bar:30}] {percent:>3}% {bytes:>10} of {total_bytes} {binary_bytes_per_sec}",
        ) {
            bar.set_style(style.progress_chars("=> "));
        }
        Self { bar }
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Takes back bytes that have to be transferred again.
    pub(crate) fn take_back(&self, bytes: u64) {
        self.bar.set_position(self.bar.position().saturating_sub(bytes));
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
