//! Export of models' usage to a file, with a row for each group and step that has some.

use super::super::csv::guarded;
use super::super::file::{Form, form_of, part_of};
use super::super::parquet::column;
use super::{Question, ask, member};
use crate::client::Client;
use crate::commands::progress;
use crate::error::Error;
use crate::exit::Exit;
use crate::output;
use crate::term;
use csv::{Terminator, WriterBuilder};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use types::Timestamp;
use types::time::HOUR_MS;
use types::wire::{ModelUsageBy, ModelUsageEntry};

const TEXTS: [&str; 6] = ["model", "key", "end_user", "tag", "provider", "provider_model"];
const NUMBERS: [&str; 9] = [
    "calls",
    "failed_calls",
    "estimated_calls",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cost_nanodollars",
];

pub(super) async fn run(
    file: &Path,
    form: Option<Form>,
    question: &Question,
    client: &mut Client,
) -> Result<Exit, Error> {
    let form = form_of(form, file)?;
    // An incomplete export never has the final name.
    let part = part_of(file)?;
    let written = write(form, &part, question, client).await;
    let rows = written.inspect_err(|_| {
        // If it cannot be removed, its name says that it is only a part.
        let _ = fs::remove_file(&part);
    })?;
    files::rename(&part, file).map_err(Error::io(format!("write {}", file.display())))?;
    term::say(format!("{} in {}", output::counted(rows, "row"), file.display()));
    Ok(Exit::Success)
}

async fn write(
    form: Form,
    part: &Path,
    question: &Question,
    client: &mut Client,
) -> Result<u64, Error> {
    let failed = || Error::io(format!("write {}", part.display()));
    let file = BufWriter::new(File::create(part).map_err(failed())?);
    let mut writer = match form {
        Form::Csv => Writer::Csv(Box::new(csv(file).map_err(failed())?)),
        Form::Parquet => Writer::Parquet(Box::new(parquet(file).map_err(failed())?)),
    };
    let bar = progress::share(question.end.since(question.start).unsigned_abs());
    let (mut start, mut rows) = (question.start, 0);
    while start < question.end {
        let end = next_end(start, question);
        let step = Question { start, end, ..question.clone() };
        let usage = ask(&step, client).await?;
        writer.rows(&usage.data).map_err(failed())?;
        rows += usage.data.len() as u64;
        bar.set_position(end.since(question.start).unsigned_abs());
        start = end;
    }
    writer.finish().map_err(failed())?;
    bar.finish_and_clear();
    Ok(rows)
}

/// Returns the end of the next request. The server answers one step at a time, however much is in
/// it. No hour is requested twice.
fn next_end(start: Timestamp, question: &Question) -> Timestamp {
    let step = match question.resolution.as_str() {
        "hourly" => HOUR_MS,
        "daily" => 24 * HOUR_MS,
        _ => return question.end,
    };
    let next = (start.ms().div_euclid(step) + 1) * step;
    Timestamp::from_ms(next).min(question.end)
}

enum Writer {
    Csv(Box<csv::Writer<BufWriter<File>>>),
    Parquet(Box<SerializedFileWriter<BufWriter<File>>>),
}

impl Writer {
    fn rows(&mut self, rows: &[ModelUsageEntry]) -> io::Result<()> {
        match self {
            Self::Csv(writer) => rows.iter().try_for_each(|row| write_csv(writer, row)),
            Self::Parquet(_) if rows.is_empty() => Ok(()),
            Self::Parquet(writer) => write_parquet(writer, rows),
        }
    }

    fn finish(self) -> io::Result<()> {
        let file = match self {
            Self::Csv(writer) => writer.into_inner().map_err(csv::IntoInnerError::into_error)?,
            Self::Parquet(writer) => writer.into_inner().map_err(io::Error::other)?,
        };
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    }
}

fn csv<W: Write>(file: W) -> io::Result<csv::Writer<W>> {
    let mut writer = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(file);
    writer.write_record(["start"].iter().chain(&TEXTS).chain(&NUMBERS))?;
    Ok(writer)
}

fn write_csv<W: Write>(writer: &mut csv::Writer<W>, row: &ModelUsageEntry) -> io::Result<()> {
    writer.write_field(row.timestamp.to_string())?;
    for text in texts(row) {
        writer.write_field(guarded(text).as_bytes())?;
    }
    for number in numbers(row) {
        writer.write_field(number.to_string())?;
    }
    Ok(writer.write_record(None::<&[u8]>)?)
}

fn parquet<W: Write + Send>(file: W) -> io::Result<SerializedFileWriter<W>> {
    let texts = TEXTS.map(|name| format!("required binary {name} (STRING);")).join(" ");
    let numbers = NUMBERS.map(|name| format!("required int64 {name};")).join(" ");
    let schema = format!(
        "message model_usage {{ required int64 start (TIMESTAMP(MILLIS, true)); {texts} {numbers} }}"
    );
    let schema = parse_message_type(&schema).map_err(io::Error::other)?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))
        .map_err(io::Error::other)
}

fn write_parquet<W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    rows: &[ModelUsageEntry],
) -> io::Result<()> {
    let mut group = writer.next_row_group().map_err(io::Error::other)?;
    let starts: Vec<i64> = rows.iter().map(|row| row.timestamp.ms()).collect();
    column::<_, Int64Type>(&mut group, &starts)?;
    for place in 0..TEXTS.len() {
        let values: Vec<ByteArray> = rows.iter().map(|row| texts(row)[place].into()).collect();
        column::<_, ByteArrayType>(&mut group, &values)?;
    }
    for place in 0..NUMBERS.len() {
        let values: Vec<i64> = rows.iter().map(|row| numbers(row)[place]).collect();
        column::<_, Int64Type>(&mut group, &values)?;
    }
    group.close().map(drop).map_err(io::Error::other)
}

fn texts(row: &ModelUsageEntry) -> [&str; TEXTS.len()] {
    ModelUsageBy::ALL.map(|by| member(row, by))
}

const fn numbers(row: &ModelUsageEntry) -> [i64; NUMBERS.len()] {
    let sum = &row.sum;
    [
        sum.calls,
        sum.failed_calls,
        sum.estimated_calls,
        sum.input_tokens,
        sum.output_tokens,
        sum.cached_tokens,
        sum.cache_write_tokens,
        sum.reasoning_tokens,
        sum.cost_nanodollars,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use ::parquet::record::RowAccessor;
    use types::model_books::UsageSum;

    fn row(user: &str) -> ModelUsageEntry {
        let sum = UsageSum {
            calls: 1,
            failed: 2,
            estimated: 3,
            input: 4,
            output: 5,
            cached: 6,
            cache_written: 7,
            reasoning: 8,
            cost: 9,
        };
        ModelUsageEntry {
            timestamp: Timestamp::from_ms(1_776_300_000_000),
            model: Some("gpt".into()),
            end_user: Some(user.into()),
            provider: Some("openai".into()),
            sum: sum.into(),
            ..ModelUsageEntry::default()
        }
    }

    #[test]
    fn a_row_is_a_line() {
        let mut writer = csv(Vec::new()).unwrap();
        write_csv(&mut writer, &row("=cmd()")).unwrap();
        let text = String::from_utf8(writer.into_inner().unwrap()).unwrap();
        let wanted = "2026-04-16T00:40:00.000Z,gpt,,'=cmd(),,openai,,1,2,3,4,5,6,7,8,9";
        assert_eq!(text.lines().nth(1).unwrap(), wanted);
        assert_eq!(text.lines().next().unwrap().split(',').count(), 16);
    }

    #[test]
    fn rows_of_a_parquet_file_read_back() {
        let file = tempfile::tempfile().unwrap();
        let mut writer = parquet(file.try_clone().unwrap()).unwrap();
        write_parquet(&mut writer, &[row("a"), row("b")]).unwrap();
        write_parquet(&mut writer, &[row("c")]).unwrap();
        writer.into_inner().unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        let users: Vec<_> = rows.iter().map(|row| row.get_string(3).unwrap().as_str()).collect();
        assert_eq!(users, ["a", "b", "c"]);
        assert_eq!((rows[2].get_long(7).unwrap(), rows[2].get_long(15).unwrap()), (1, 9));
    }

    #[test]
    fn a_window_is_asked_for_step_by_step() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let question = Question {
            model: None,
            start: at("2026-04-01T12:30:00Z"),
            end: at("2026-04-03T06:00:00Z"),
            by: String::new(),
            resolution: "daily".into(),
        };
        assert_eq!(next_end(question.start, &question), at("2026-04-02T00:00:00Z"));
        assert_eq!(next_end(at("2026-04-03T00:00:00Z"), &question), question.end);
        let hourly = Question { resolution: "hourly".into(), ..question };
        assert_eq!(next_end(hourly.start, &hourly), at("2026-04-01T13:00:00Z"));
    }
}
