//! Rows as a Parquet file, written column by column.

use super::row::Row;
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::io::{self, Write};
use std::sync::Arc;

/// Most rows that are kept in memory before their columns are written.
const GROUP: usize = 50_000;
const TEXTS: usize = 5;
/// Schema of the file, with the texts in the order of [`texts`].
const SCHEMA: &str = "message usage {
    required int64 start (TIMESTAMP(MILLIS, true));
    required binary workspace (STRING);
    required binary resource_type (STRING);
    required binary resource_name (STRING);
    required binary resource_uuid (STRING);
    required binary billing_dimension (STRING);
    required double usage;
    required double cost_usd;
}";

pub(super) struct Parquet<W: Write + Send> {
    file: SerializedFileWriter<W>,
    group: Group,
}

/// Columns of the rows that are not written yet.
#[derive(Default)]
struct Group {
    start: Vec<i64>,
    texts: [Vec<ByteArray>; TEXTS],
    usage: Vec<f64>,
    cost: Vec<f64>,
}

fn texts<'e>(row: &Row<'e>) -> [&'e str; TEXTS] {
    [row.workspace, row.resource_type, row.resource_name, row.resource_uuid, row.billing_dimension]
}

impl<W: Write + Send> Parquet<W> {
    pub(super) fn begin(file: W) -> io::Result<Self> {
        let schema = parse_message_type(SCHEMA).map_err(io::Error::other)?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let file = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties));
        Ok(Self { file: file.map_err(io::Error::other)?, group: Group::default() })
    }

    pub(super) fn row(&mut self, row: &Row<'_>) -> io::Result<()> {
        self.group.push(row);
        if self.group.start.len() < GROUP { Ok(()) } else { self.write_group() }
    }

    pub(super) fn finish(mut self) -> io::Result<W> {
        if !self.group.start.is_empty() {
            self.write_group()?;
        }
        self.file.into_inner().map_err(io::Error::other)
    }

    fn write_group(&mut self) -> io::Result<()> {
        let Group { start, texts, usage, cost } = std::mem::take(&mut self.group);
        let mut group = self.file.next_row_group().map_err(io::Error::other)?;
        column::<_, Int64Type>(&mut group, &start)?;
        for text in &texts {
            column::<_, ByteArrayType>(&mut group, text)?;
        }
        column::<_, DoubleType>(&mut group, &usage)?;
        column::<_, DoubleType>(&mut group, &cost)?;
        group.close().map(drop).map_err(io::Error::other)
    }
}

impl Group {
    fn push(&mut self, row: &Row<'_>) {
        self.start.push(row.start.ms());
        for (column, text) in self.texts.iter_mut().zip(texts(row)) {
            column.push(text.into());
        }
        self.usage.push(row.usage);
        self.cost.push(row.cost);
    }
}

pub(super) fn column<W: Write + Send, T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
) -> io::Result<()> {
    let next = group.next_column().map_err(io::Error::other)?;
    let mut column =
        next.ok_or_else(|| io::Error::other("the schema has fewer columns than a row"))?;
    column.typed::<T>().write_batch(values, None, None).map_err(io::Error::other)?;
    column.close().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    use types::Timestamp;

    #[test]
    fn rows_read_back_as_written() {
        let file = tempfile::tempfile().unwrap();
        let mut parquet = Parquet::begin(file.try_clone().unwrap()).unwrap();
        let names: Vec<_> = (0..GROUP + 2).map(|number| format!("box-{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            let row = Row {
                start: Timestamp::from_ms(1_776_300_000_000 + number as i64),
                workspace: "main",
                resource_type: "sandbox",
                resource_name: name,
                resource_uuid: "",
                billing_dimension: "sandbox_compute_runtime_gbs",
                usage: number as f64 / 3.0,
                cost: 0.000_011_5,
            };
            parquet.row(&row).unwrap();
        }
        parquet.finish().unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        assert_eq!(
            (reader.num_row_groups(), reader.metadata().file_metadata().num_rows()),
            (2, names.len() as i64)
        );
        for (number, row) in reader.get_row_iter(None).unwrap().enumerate() {
            let row = row.unwrap();
            assert_eq!(row.get_timestamp_millis(0).unwrap(), 1_776_300_000_000 + number as i64);
            assert_eq!(
                (row.get_string(3).unwrap(), row.get_string(4).unwrap().as_str()),
                (&names[number], "")
            );
            assert_eq!(row.get_double(6).unwrap().to_bits(), (number as f64 / 3.0).to_bits());
        }
    }
}
