//! Rows as comma-separated values, as RFC 4180 has them.

use super::export::Row;
use std::io::{self, Write};

const HEADING: &str = "start,workspace,resource_type,resource_name,resource_uuid,billing_dimension,usage,cost_usd\r\n";

pub(super) struct Csv<W> {
    file: W,
}

impl<W: Write> Csv<W> {
    pub(super) fn begin(mut file: W) -> io::Result<Self> {
        file.write_all(HEADING.as_bytes())?;
        Ok(Self { file })
    }

    pub(super) fn row(&mut self, row: &Row<'_>) -> io::Result<()> {
        let texts = [
            row.workspace,
            row.resource_type,
            row.resource_name,
            row.resource_uuid,
            row.billing_dimension,
        ];
        let texts = texts.map(quoted).join(",");
        write!(self.file, "{},{texts},{},{}\r\n", row.start, row.usage, row.cost)
    }

    pub(super) fn finish(self) -> io::Result<W> {
        Ok(self.file)
    }
}

/// In quotes where the text would end its cell, or where a spreadsheet would take it for a formula.
fn quoted(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t']);
    let guard = if formula { "'" } else { "" };
    match text.contains([',', '"', '\r', '\n']) || formula {
        true => format!("\"{guard}{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use types::Timestamp;

    fn row<'e>(name: &'e str, usage: f64, cost: f64) -> Row<'e> {
        Row {
            start: Timestamp::from_ms(1_776_300_000_000),
            workspace: "main",
            resource_type: "sandbox",
            resource_name: name,
            resource_uuid: "",
            billing_dimension: "sandbox_compute_runtime_gbs",
            usage,
            cost,
        }
    }

    fn text(row: &Row<'_>) -> String {
        let mut csv = Csv::begin(Vec::new()).unwrap();
        csv.row(row).unwrap();
        String::from_utf8(csv.finish().unwrap()).unwrap()
    }

    /// Cells of a text, read as the standard says.
    fn cells(text: &str) -> Vec<Vec<String>> {
        let (mut lines, mut line, mut cell, mut inside) =
            (Vec::new(), Vec::new(), String::new(), false);
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '"' if inside && letters.peek() == Some(&'"') => cell.extend(letters.next()),
                '"' => inside = !inside,
                ',' if !inside => line.push(std::mem::take(&mut cell)),
                '\r' if !inside && letters.peek() == Some(&'\n') => {
                    letters.next();
                    line.push(std::mem::take(&mut cell));
                    lines.push(std::mem::take(&mut line));
                }
                other => cell.push(other),
            }
        }
        lines
    }

    #[test]
    fn a_row_is_a_line() {
        let text = text(&row("box", 1.5, 0.000_017_25));
        let line = text.lines().nth(1).unwrap();
        assert_eq!(
            line,
            "2026-04-16T00:40:00.000Z,main,sandbox,box,,sandbox_compute_runtime_gbs,1.5,0.00001725"
        );
        assert_eq!(quoted("=cmd()"), "\"'=cmd()\"");
    }

    proptest! {
        #[test]
        fn any_name_and_number_reads_back(name in "[^=+\\-@\\t]{0,20}", usage in 0.0..1e15_f64, cost in 0.0..1e9_f64) {
            let lines = cells(&text(&row(&name, usage, cost)));
            prop_assert_eq!(lines.len(), 2);
            prop_assert_eq!(lines[1].len(), lines[0].len());
            prop_assert_eq!(&lines[1][3], &name);
            prop_assert_eq!(lines[1][6].parse::<f64>().unwrap().to_bits(), usage.to_bits());
            prop_assert_eq!(lines[1][7].parse::<f64>().unwrap().to_bits(), cost.to_bits());
        }
    }
}
