//! What was measured: a table for people and a file for programs.

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::path::PathBuf;

#[derive(Debug, Serialize)]
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
}

impl Report {
    pub(crate) fn add(&mut self, metric: impl Into<String>, value: f64, unit: &'static str) {
        let metric = metric.into();
        // While it runs, so that a long measurement shows where it is.
        eprintln!("{metric}: {} {unit}", shown(value));
        self.lines.push(Line { metric, value: rounded(value), unit, peer: None, peer_value: None, goal: None });
    }

    pub(crate) fn set_goal(&mut self, metric: &str, goal: Goal) {
        self.lines.iter_mut().filter(|line| line.metric == metric).for_each(|line| line.goal = Some(goal));
    }

    /// Sets what a peer reached beside one of our metrics.
    pub(crate) fn set_peer(&mut self, metric: &str, peer: &str, value: f64) {
        for line in self.lines.iter_mut().filter(|line| line.metric == metric) {
            eprintln!("{metric}, {peer}: {} {}", shown(value), line.unit);
            (line.peer, line.peer_value) = (Some(peer.to_owned()), Some(rounded(value)));
        }
    }

    /// Repeats a metric under a second name, with all that is known of it.
    pub(crate) fn alias(&mut self, metric: &str, name: &str) {
        if let Some(line) = self.lines.iter().find(|line| line.metric == metric) {
            let line = Line { metric: name.to_owned(), peer: line.peer.clone(), goal: None, ..*line };
            self.lines.insert(0, line);
        }
    }

    pub(crate) fn print(&self) {
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
    pub(crate) fn save(&self, name: &str) -> anyhow::Result<PathBuf> {
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

fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn shown(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}
