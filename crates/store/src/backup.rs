//! Backups while the server works: archives from which either database can be restored.
//!
//! An archive is a text of JSON lines: a header; for each table, one line with its columns and one
//! for each row; an end with the number of rows; and the SHA-256 of all lines before. It contains
//! digests and sealed secrets, and only on request the keys that open the latter.

mod archive;
mod restore;
mod tables;

pub use archive::{Header, verify};

use crate::seal::rotation;
use crate::{Error, Store, Tx, Value, migrations};
use archive::Writer;
use std::path::Path;
use tables::{Table, tables};

/// Most rows in memory at once.
const PAGE: i64 = 200;

/// The progress of a backup or restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub table: String,
    /// Rows copied so far, over all tables.
    pub rows: u64,
}

impl Store {
    /// Writes one consistent state of the database into a new file. Returns the number of rows.
    pub async fn backup(
        &self,
        file: &Path,
        with_keys: bool,
        mut progress: impl FnMut(Progress) + Send + 'static,
    ) -> Result<u64, Error> {
        let file = file.to_owned();
        self.read(move |tx| write(tx, &file, with_keys, &mut progress)).await
    }
}

fn write(
    tx: &mut Tx<'_>,
    file: &Path,
    with_keys: bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<u64, Error> {
    let header = Header {
        format: archive::FORMAT,
        schema: migrations::applied(tx)?,
        made_at: tx.world().now().ms(),
        revision: tx.highest_revision()?,
        seal_keys: rotation::used_keys(tx)?,
        keys: with_keys.then(|| tx.shared().keyring.export()).transpose()?,
    };
    let mut writer = Writer::create(file, &header)?;
    for table in tables(tx)? {
        writer.table(&table)?;
        let mut after: Option<Vec<Value>> = None;
        loop {
            let rows = page(tx, &table, after.as_deref())?;
            let Some(last) = rows.last() else { break };
            after = Some(table.key_of(last));
            for row in &rows {
                writer.row(row)?;
            }
            progress(Progress { table: table.name.clone(), rows: writer.rows() });
        }
    }
    writer.finish()
}

fn page(tx: &mut Tx<'_>, table: &Table, after: Option<&[Value]>) -> Result<Vec<Vec<Value>>, Error> {
    let key = table.key.join(", ");
    let mut params = vec![PAGE.into()];
    let condition = match after {
        None => String::new(),
        Some(after) => {
            params.extend(after.iter().cloned());
            let names: Vec<_> = (2..=params.len()).map(|number| format!("${number}")).collect();
            format!("WHERE ({key}) > ({})", names.join(", "))
        }
    };
    let sql = format!(
        "SELECT {} FROM {} {condition} ORDER BY {key} LIMIT $1",
        table.columns.join(", "),
        table.name
    );
    Ok(tx.query("backup", &sql, &params)?.into_iter().map(|row| row.values).collect())
}
