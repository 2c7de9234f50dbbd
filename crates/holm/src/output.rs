//! Output of objects as tables, JSON or YAML.

use crate::client::kinds::{Column, Form, Kind};
use crate::term::{self, Style};
use comfy_table::{Table, presets};
use serde_json::Value;
use std::fmt::Display;
use types::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Format {
    #[default]
    Table,
    Json,
    Yaml,
}

/// Content of an empty cell.
const NOTHING: &str = "-";

/// Formats `items` as one text. JSON is always a list, so that scripts need not tell one item from
/// many. YAML is in the form that `holm apply` reads.
pub(crate) fn render(kind: &Kind, items: &[Value], format: Format, now: Timestamp) -> String {
    match format {
        Format::Table => table(kind, items, now),
        Format::Yaml => documents(items, kind.document),
        Format::Json => json(items),
    }
}

/// Formats `items` for programs to read.
pub(crate) fn plain(items: &[Value], format: Format) -> String {
    match format {
        Format::Yaml => documents(items, None),
        Format::Json | Format::Table => json(items),
    }
}

/// Formats one of this program's own values as JSON.
#[expect(clippy::expect_used, reason = "its maps have text keys only")]
pub(crate) fn json<T: serde::Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string_pretty(value).expect("a value with text keys")
}

/// Formats items as YAML documents, which begin with their kind if they have one.
fn documents(items: &[Value], kind: Option<&str>) -> String {
    #[expect(clippy::expect_used, reason = "all JSON can be written as YAML")]
    let document = |item: &Value| {
        let kind = kind.filter(|_| item.is_object() && item.get("kind").is_none());
        let kind = kind.map(|kind| format!("kind: {kind}\n")).unwrap_or_default();
        kind + &serde_norway::to_string(item).expect("a value of JSON")
    };
    let documents: Vec<_> = items.iter().map(document).collect();
    documents.join("---\n").trim_end().to_owned()
}

fn table(kind: &Kind, items: &[Value], now: Timestamp) -> String {
    let heading: Vec<_> = kind.columns.iter().map(|column| column.heading.to_owned()).collect();
    lines(&heading, items.iter().map(|item| row(kind, item, now)))
}

/// Returns the cells of an object for the columns of its kind.
pub(crate) fn row(kind: &Kind, item: &Value, now: Timestamp) -> Vec<String> {
    kind.columns.iter().map(|column| cell(column, item, now)).collect()
}

/// Formats rows below a heading, with each column as wide as it needs to be.
pub(crate) fn lines(heading: &[String], rows: impl Iterator<Item = Vec<String>>) -> String {
    let plain = aligned(heading, rows);
    // The table would count the codes of colours as letters, so it gets none.
    match plain.split_once('\n') {
        Some((heading, rows)) => format!("{}\n{rows}", term::styled(Style::Bold, heading)),
        None => term::styled(Style::Bold, plain),
    }
}

fn aligned(heading: &[String], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    *table.style_mut() = presets::NOTHING;
    table.set_header(heading);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

fn cell(column: &Column, item: &Value, now: Timestamp) -> String {
    let value = column.at.iter().find_map(|at| item.pointer(at).filter(|value| !value.is_null()));
    let text = value.and_then(|value| shown(column.form, value, now));
    let text = text.filter(|text| !text.is_empty()).unwrap_or_else(|| NOTHING.to_owned());
    term::harmless(&text).replace(['\n', '\t'], " ")
}

fn shown(form: Form, value: &Value, now: Timestamp) -> Option<String> {
    match form {
        Form::Text => Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
        Form::Age => value.as_str()?.parse().ok().map(|then| age(now.since(then))),
        Form::Size => value.as_u64().map(size),
        Form::Count => value.as_array().map(|items| items.len().to_string()),
        Form::Tag => {
            let tags = value.as_array()?;
            let newest = tags.iter().max_by_key(|tag| {
                tag.get("createdAt").and_then(Value::as_str).unwrap_or_default()
            })?;
            newest.get("name").and_then(Value::as_str).map(str::to_owned)
        }
    }
}

/// Formats an age in the largest unit that fits.
pub(crate) fn age(ms: i64) -> String {
    let s = (ms / 1000).max(0);
    match s {
        0..60 => format!("{s}s ago"),
        60..3600 => format!("{}m ago", s / 60),
        3600..86_400 => format!("{}h ago", s / 3600),
        _ => format!("{}d ago", s / 86_400),
    }
}

/// Writes a count with its noun, as in `1 file` and `2 files`.
pub(crate) fn counted(count: impl Display, noun: &str) -> String {
    match count.to_string().as_str() {
        "1" => format!("1 {noun}"),
        many => format!("{many} {noun}s"),
    }
}

pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] =
        [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::kinds;
    use serde_json::json;

    #[test]
    fn a_table_has_a_line_for_each_object() {
        let now: Timestamp = "2026-04-16T12:00:00Z".parse().unwrap();
        let object = json!({"metadata": {"name": "box", "workspace": "main", "createdAt": "2026-04-16T11:58:00.000Z"},
            "spec": {"region": "local"}, "status": "DEPLOYED"});
        let text = render(kinds::find("sbx").unwrap(), &[object], Format::Table, now);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>(),
            ["main", "box", "-", "local", "DEPLOYED", "2m", "ago"]
        );
    }

    #[test]
    fn a_cell_cannot_steer_the_terminal() {
        let text = cell(
            &kinds::find("sbx").unwrap().columns[1],
            &json!({"metadata": {"name": "a\u{1b}[2J\nb"}}),
            Timestamp::default(),
        );
        assert_eq!(text, "a[2J b");
    }

    #[test]
    fn sizes_have_one_decimal() {
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(12), "12 B");
    }

    #[test]
    fn one_has_no_plural() {
        let words = [0_u64, 1, 2].map(|count| counted(count, "row"));
        assert_eq!(words, ["0 rows", "1 row", "2 rows"]);
    }
}
