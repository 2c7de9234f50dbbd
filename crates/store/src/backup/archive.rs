//! The archive file: written once, and not trusted when read.

use super::tables::Table;
use crate::{Error, Value};
use files::Readers;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use types::hex;

/// Version of the format. Rises with changes that older programs cannot read.
pub(super) const FORMAT: i64 = 1;

/// Longest line in bytes, with its end; no row of ours is longer. Neither written nor read beyond
/// that, since an archive that cannot be read is no backup.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// First line of an archive, which describes it.
#[derive(Clone, Serialize, Deserialize)]
pub struct Header {
    #[serde(rename = "holm_backup")]
    pub format: i64,
    /// Number of the database's newest migration.
    pub schema: i64,
    pub made_at: i64,
    /// Highest revision of the change feed.
    pub revision: i64,
    /// Ids of the keys that its secrets need.
    pub seal_keys: Vec<String>,
    /// Content of the key file, if it was to be included.
    pub keys: Option<String>,
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Header")
            .field("format", &self.format)
            .field("schema", &self.schema)
            .field("made_at", &self.made_at)
            .field("seal_keys", &self.seal_keys)
            .field("has_keys", &self.keys.is_some())
            .finish_non_exhaustive()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mark {
    Table { name: String, columns: Vec<String> },
    End { rows: u64 },
    Sha256(String),
}

pub(super) struct Writer {
    file: BufWriter<File>,
    path: PathBuf,
    beside: PathBuf,
    digest: Sha256,
    /// Name of the table whose rows are being written.
    table: String,
    rows: u64,
}

impl Writer {
    /// Starts an archive, which is written to a file beside `path` until it is complete.
    pub(super) fn create(path: &Path, header: &Header) -> Result<Self, Error> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".part");
        let beside = PathBuf::from(beside);
        let file = files::create(&beside, Readers::Owner);
        let file = BufWriter::new(file.map_err(|error| unusable(path, &error))?);
        let mut writer = Self {
            file,
            path: path.to_owned(),
            beside,
            digest: Sha256::new(),
            table: String::new(),
            rows: 0,
        };
        writer.line(header)?;
        Ok(writer)
    }

    pub(super) fn table(&mut self, table: &Table) -> Result<(), Error> {
        self.table.clone_from(&table.name);
        self.line(&Mark::Table { name: table.name.clone(), columns: table.columns.clone() })
    }

    pub(super) fn row(&mut self, values: &[Value]) -> Result<(), Error> {
        self.rows += 1;
        let values: Vec<_> = values.iter().map(to_json).collect();
        self.line(&values)
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Ends the file, makes it durable and renames it to its final name. Returns the number of rows
    /// in it.
    pub(super) fn finish(mut self) -> Result<u64, Error> {
        self.line(&Mark::End { rows: self.rows })?;
        let digest = hex::encode(&self.digest.clone().finalize());
        self.line(&Mark::Sha256(digest))?;
        let flushed = self.file.flush().and_then(|()| self.file.get_ref().sync_all());
        let named = flushed.and_then(|()| files::rename(&self.beside, &self.path));
        named.map_err(|error| unusable(&self.path, &error))?;
        Ok(self.rows)
    }

    fn line(&mut self, content: &impl Serialize) -> Result<(), Error> {
        let mut line = serde_json::to_vec(content).map_err(Error::database)?;
        line.push(b'\n');
        if line.len() as u64 > LINE_BYTES_MAX {
            return Err(Error::Unusable(format!(
                "the backup {} cannot be made: a row of the table `{}` takes more than {} MiB",
                self.path.display(),
                self.table,
                LINE_BYTES_MAX >> 20
            )));
        }
        self.digest.update(&line);
        self.file.write_all(&line).map_err(|error| unusable(&self.path, &error))
    }
}

impl Drop for Writer {
    /// Removes an unfinished file, which must not be mistaken for a backup. After the renaming
    /// there is nothing to remove.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.beside);
    }
}

pub(super) enum Entry {
    Table { name: String, columns: Vec<String> },
    Row(Vec<Value>),
}

pub(super) struct Reader {
    file: BufReader<File>,
    path: PathBuf,
    digest: Sha256,
    line: Vec<u8>,
    columns: usize,
    rows: u64,
}

impl Reader {
    pub(super) fn open(path: &Path) -> Result<(Self, Header), Error> {
        let file = File::open(path).map_err(|error| unusable(path, &error))?;
        let mut reader = Self {
            file: BufReader::new(file),
            path: path.to_owned(),
            digest: Sha256::new(),
            line: Vec::new(),
            columns: 0,
            rows: 0,
        };
        reader.read_line()?;
        let header: Header = serde_json::from_slice(&reader.line)
            .map_err(|_| reader.wrong("it does not begin like one"))?;
        match header.format {
            FORMAT => Ok((reader, header)),
            other => {
                Err(reader
                    .wrong(&format!("its format is {other}, and this program reads {FORMAT}")))
            }
        }
    }

    /// Returns the next table or row; `None` at the end of a complete and unchanged archive.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Error> {
        self.read_line()?;
        if self.line.first() == Some(&b'[') {
            return self.row().map(Some);
        }
        match self.mark()? {
            Mark::Table { name, columns } => {
                self.columns = columns.len();
                Ok(Some(Entry::Table { name, columns }))
            }
            Mark::End { rows } => self.end(rows).map(|()| None),
            Mark::Sha256(_) => Err(self.wrong("its end is missing")),
        }
    }

    fn row(&mut self) -> Result<Entry, Error> {
        let values: Vec<serde_json::Value> =
            serde_json::from_slice(&self.line).map_err(|_| self.wrong("a row is not readable"))?;
        let values = values.into_iter().map(from_json).collect::<Option<Vec<_>>>();
        let values = values.filter(|values| values.len() == self.columns);
        self.rows += 1;
        values.map(Entry::Row).ok_or_else(|| self.wrong("a row does not fit its table"))
    }

    fn end(&mut self, rows: u64) -> Result<(), Error> {
        let digest = hex::encode(&self.digest.clone().finalize());
        self.read_line()?;
        let same =
            matches!(self.mark()?, Mark::Sha256(stored) if stored == digest) && rows == self.rows;
        let nothing_after = self.file.fill_buf().is_ok_and(<[u8]>::is_empty);
        if same && nothing_after { Ok(()) } else { Err(self.wrong("its checksum does not fit")) }
    }

    fn mark(&self) -> Result<Mark, Error> {
        serde_json::from_slice(&self.line).map_err(|_| self.wrong("a line is not readable"))
    }

    fn read_line(&mut self) -> Result<(), Error> {
        self.line.clear();
        let read = self.file.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line);
        read.map_err(|error| unusable(&self.path, &error))?;
        self.digest.update(&self.line);
        match self.line.pop() {
            Some(b'\n') => Ok(()),
            _ => Err(self.wrong("it is cut short")),
        }
    }

    pub(super) fn wrong(&self, why: &str) -> Error {
        Error::Unusable(format!("{} is not a usable backup: {why}", self.path.display()))
    }
}

/// Reads a whole archive. An error says why it must not be restored.
pub fn verify(path: &Path) -> Result<Header, Error> {
    let (mut reader, header) = Reader::open(path)?;
    while reader.next()?.is_some() {}
    Ok(header)
}

fn to_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Int(value) => (*value).into(),
        Value::Text(value) => value.as_str().into(),
    }
}

fn from_json(value: serde_json::Value) -> Option<Value> {
    match value {
        serde_json::Value::Null => Some(Value::Null),
        serde_json::Value::Number(number) => number.as_i64().map(Value::Int),
        serde_json::Value::String(text) => Some(Value::Text(text)),
        _ => None,
    }
}

fn unusable(path: &Path, error: &io::Error) -> Error {
    Error::Unusable(format!("the backup {} cannot be used: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn begun(path: &Path) -> Writer {
        let header = Header {
            format: FORMAT,
            schema: 1,
            made_at: 0,
            revision: 0,
            seal_keys: vec![],
            keys: None,
        };
        let mut writer = Writer::create(path, &header).unwrap();
        writer
            .table(&Table { name: "t".into(), columns: vec!["a".into(), "b".into()], key: vec![] })
            .unwrap();
        writer
    }

    fn written(folder: &Path, rows: &[Vec<Value>]) -> PathBuf {
        let path = folder.join("backup");
        let mut writer = begun(&path);
        rows.iter().for_each(|row| writer.row(row).unwrap());
        writer.finish().unwrap();
        path
    }

    #[test]
    fn a_row_that_could_not_be_read_back_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("backup");
        let mut writer = begun(&path);
        let long = "x".repeat(usize::try_from(LINE_BYTES_MAX).unwrap());
        let error = writer.row(&[Value::Int(1), Value::Text(long)]).unwrap_err();
        assert!(error.to_string().contains("a row of the table `t`"), "{error}");
        drop(writer);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_changed_or_shortened_archive_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), &[vec![Value::Int(1), Value::Text("x".into())]]);
        let whole = fs::read(&path).unwrap();
        verify(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(verify(&path).is_err(), "cut to {length}");
        }
        for position in 0..whole.len() {
            let mut changed = whole.clone();
            changed[position] ^= 1;
            fs::write(&path, changed).unwrap();
            assert!(verify(&path).is_err(), "changed at {position}");
        }
        fs::write(&path, [whole, b"{}\n".to_vec()].concat()).unwrap();
        assert!(verify(&path).is_err(), "with more behind it");
    }

    proptest! {
        #[test]
        fn rows_read_back_as_written(rows in proptest::collection::vec((any::<i64>(), any::<Option<String>>()), 0..9)) {
            let folder = tempfile::tempdir().unwrap();
            let rows: Vec<_> = rows.into_iter().map(|(int, text)| vec![Value::Int(int), text.into()]).collect();
            let (mut reader, _) = Reader::open(&written(folder.path(), &rows)).unwrap();
            let mut found = Vec::new();
            while let Some(entry) = reader.next().unwrap() {
                if let Entry::Row(values) = entry {
                    found.push(values);
                }
            }
            prop_assert_eq!(found, rows);
        }

        #[test]
        fn any_file_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("backup"), bytes).unwrap();
            prop_assert!(verify(&folder.path().join("backup")).is_err());
        }
    }
}
