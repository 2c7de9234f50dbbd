//! Rows as comma-separated values, in the format of RFC 4180.

use super::row::Row;
use csv::{Terminator, Writer, WriterBuilder};
use std::borrow::Cow;
use std::io::{self, Write};

const HEADING: [&str; 8] = [
    "start",
    "workspace",
    "resource_type",
    "resource_name",
    "resource_uuid",
    "billing_dimension",
    "usage",
    "cost_usd",
];

pub(super) struct Csv<W: Write>(Writer<W>);

impl<W: Write> Csv<W> {
    pub(super) fn begin(file: W) -> io::Result<Self> {
        let mut writer = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(file);
        writer.write_record(HEADING)?;
        Ok(Self(writer))
    }

    pub(super) fn row(&mut self, row: &Row<'_>) -> io::Result<()> {
        let texts = [
            row.workspace,
            row.resource_type,
            row.resource_name,
            row.resource_uuid,
            row.billing_dimension,
        ];
        self.0.write_field(row.start.to_string())?;
        for text in texts {
            self.0.write_field(guarded(text).as_bytes())?;
        }
        self.0.write_field(row.usage.to_string())?;
        self.0.write_field(row.cost.to_string())?;
        Ok(self.0.write_record(None::<&[u8]>)?)
    }

    pub(super) fn finish(self) -> io::Result<W> {
        self.0.into_inner().map_err(csv::IntoInnerError::into_error)
    }
}

/// Quotes texts that a spreadsheet would take for a formula.
pub(super) fn guarded(text: &str) -> Cow<'_, str> {
    match text.starts_with(['=', '+', '-', '@', '\t']) {
        true => Cow::Owned(format!("'{text}")),
        false => Cow::Borrowed(text),
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

    /// Parses the cells of all lines.
    fn cells(text: &str) -> Vec<Vec<String>> {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
        let record = |record: csv::StringRecord| record.iter().map(str::to_owned).collect();
        reader.records().map(|found| record(found.unwrap())).collect()
    }

    #[test]
    fn a_row_is_a_line() {
        let text = text(&row("box", 1.5, 0.000_017_25));
        let line = text.lines().nth(1).unwrap();
        assert_eq!(
            line,
            "2026-04-16T00:40:00.000Z,main,sandbox,box,,sandbox_compute_runtime_gbs,1.5,0.00001725"
        );
        assert!(text.ends_with("\r\n"));
    }

    #[test]
    fn a_formula_is_shown_as_a_text() {
        assert_eq!(cells(&text(&row("=cmd()", 1.5, 2.0)))[1][3], "'=cmd()");
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
