//! What was measured: a table for people and a file for programs.

use crate::machine;
use crate::samples::Samples;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::path::PathBuf;

#[derive(Debug, Clone, Serialize)]
struct Line {
    metric: String,
    value: f64,
    unit: &'static str,
    peer: Option<String>,
    peer_value: Option<f64>,
    #[serde(skip)]
    goal: Option<Goal>,
}

/// What a metric has to reach.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

#[derive(Default)]
pub(crate) struct Report {
    lines: Vec<Line>,
    notes: Vec<String>,
}

impl Report {
    pub(crate) fn add(&mut self, metric: impl Into<String>, value: f64, unit: &'static str) {
        let metric = metric.into();
        // Printed at once, so that a long measurement shows where it is.
        eprintln!("{metric}: {} {unit}", shown(value));
        self.lines.push(Line {
            metric,
            value: rounded(value),
            unit,
            peer: None,
            peer_value: None,
            goal: None,
        });
    }

    pub(crate) fn set_goal(&mut self, metric: &str, goal: Goal) {
        self.lines
            .iter_mut()
            .filter(|line| line.metric == metric)
            .for_each(|line| line.goal = Some(goal));
    }

    /// Adds the typical and the worst of many times, as `NAME_p50_ms` and `NAME_p99_ms`.
    pub(crate) fn add_times(&mut self, name: &str, times: &Samples) -> anyhow::Result<()> {
        for percent in [50, 99] {
            self.add(format!("{name}_p{percent}_ms"), times.percentile_ms(percent)?, "ms");
        }
        Ok(())
    }

    /// Adds the ratio of our value to a peer's, with a goal.
    pub(crate) fn add_ratio(
        &mut self,
        metric: impl Into<String>,
        ours: f64,
        peer: f64,
        goal: Goal,
    ) {
        let metric = metric.into();
        self.add(metric.clone(), ours / peer, "x");
        self.set_goal(&metric, goal);
    }

    pub(crate) fn value(&self, metric: &str) -> Option<f64> {
        self.lines.iter().find(|line| line.metric == metric).map(|line| line.value)
    }

    /// Returns the value of a metric, and that of a peer for it.
    pub(crate) fn values(&self, metric: &str, peer: &str) -> Option<(f64, f64)> {
        let mut lines = self.lines.iter().filter(|line| line.metric == metric);
        lines
            .find(|line| line.peer.as_deref() == Some(peer))
            .and_then(|line| Some((line.value, line.peer_value?)))
    }

    /// Adds the ratio of a metric to what a peer reached at it, if that could run.
    pub(crate) fn add_ratio_to(&mut self, name: &str, metric: &str, peer: &str, goal: Goal) {
        match self.values(metric, peer) {
            Some((ours, theirs)) => self.add_ratio(name, ours, theirs, goal),
            None => self.note(format!("{name} is not known: {peer} was not measured")),
        }
    }

    /// Adds a remark about the numbers, below the table.
    pub(crate) fn note(&mut self, text: String) {
        eprintln!("{text}");
        self.notes.push(text);
    }

    /// Sets what a peer reached beside one of our metrics. A second peer gets a line of its own.
    pub(crate) fn set_peer(&mut self, metric: &str, peer: &str, value: f64) {
        let Some(at) = self.lines.iter().rposition(|line| line.metric == metric) else { return };
        eprintln!("{metric}, {peer}: {} {}", shown(value), self.lines[at].unit);
        let line = Line {
            peer: Some(peer.to_owned()),
            peer_value: Some(rounded(value)),
            ..self.lines[at].clone()
        };
        match self.lines[at].peer {
            None => self.lines[at] = line,
            Some(_) => self.lines.insert(at + 1, line),
        }
    }

    /// Prints the table and writes the file.
    pub(crate) fn finish(&self, name: &str) -> anyhow::Result<()> {
        self.print();
        self.notes.iter().for_each(|note| println!("{note}"));
        println!(
            "load after the measurement: {}\n\n{}",
            machine::load(),
            self.save(name)?.display()
        );
        Ok(())
    }

    /// Repeats a metric under a second name, with everything that is known about it.
    pub(crate) fn alias(&mut self, metric: &str, name: &str) {
        if let Some(line) = self.lines.iter().find(|line| line.metric == metric) {
            let line =
                Line { metric: name.to_owned(), peer: line.peer.clone(), goal: None, ..*line };
            self.lines.insert(0, line);
        }
    }

    fn print(&self) {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header(["metric", "value", "unit", "goal", "peer", "peer's value"]);
        for line in &self.lines {
            let goal = line.goal.map_or_else(String::new, |goal| goal.judge(line.value));
            let peer = line.peer.clone().unwrap_or_default();
            let peer_value = line.peer_value.map_or_else(String::new, shown);
            table.add_row([&line.metric, &shown(line.value), line.unit, &goal, &peer, &peer_value]);
        }
        for column in [1, 5] {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        println!("{table}");
    }

    /// Writes `target/bench/NAME.json`.
    fn save(&self, name: &str) -> anyhow::Result<PathBuf> {
        let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/bench"));
        std::fs::create_dir_all(&folder)?;
        let file = folder.join(format!("{name}.json"));
        std::fs::write(&file, serde_json::to_string_pretty(&self.lines)? + "\n")?;
        Ok(file)
    }
}

impl Goal {
    fn judge(self, value: f64) -> String {
        let (sign, limit, met) = match self {
            Self::AtLeast(limit) => ("≥", limit, value >= limit),
            Self::AtMost(limit) => ("≤", limit, value <= limit),
        };
        format!("{sign} {limit}: {}", if met { "met" } else { "MISSED" })
    }
}

/// Rounds to three decimals below 10, so that fast things and ratios can be told apart.
fn rounded(value: f64) -> f64 {
    let scale = if value < 10.0 { 1000.0 } else { 10.0 };
    (value * scale).round() / scale
}

fn shown(value: f64) -> String {
    match value {
        ..1.0 => format!("{value:.3}"),
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
