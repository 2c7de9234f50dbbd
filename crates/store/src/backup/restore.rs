//! Restoring an archive into an empty database.

use super::Progress;
use super::archive::{Entry, Header, Reader, verify};
use super::tables::{Table, tables};
use crate::{Error, Settings, Store, Tx, feed, migrations};
use std::path::Path;
use types::World;

/// Rows between two progress reports.
const REPORT_EVERY: u64 = 1000;

impl Store {
    /// Restores an archive into an empty database of either kind. Writes all of it or nothing;
    /// `accept` sees the restored rows and may refuse them. Returns the number of restored rows.
    pub async fn restore(
        settings: Settings,
        world: World,
        file: &Path,
        mut accept: impl FnMut(&mut Tx<'_>) -> Result<(), Error> + Send + 'static,
        mut progress: impl FnMut(Progress) + Send + 'static,
    ) -> Result<(Self, u64), Error> {
        let header = verify(file)?;
        check_schema(&header)?;
        let store = Self::open(settings, world).await?;
        store.take_keys(&header)?;
        let file = file.to_owned();
        let restore = move |tx: &mut Tx<'_>| {
            let rows = load(tx, &file, &mut progress)?;
            accept(tx).map(|()| rows)
        };
        let rows = store.write(restore).await?;
        Ok((store, rows))
    }

    /// Makes sure that every secret of the archive can be opened.
    fn take_keys(&self, header: &Header) -> Result<(), Error> {
        let keyring = self.keyring();
        if let Some(keys) = &header.keys {
            keyring.absorb(keys)?;
        }
        let keyring = keyring.read();
        match header.seal_keys.iter().find(|needed| keyring.ids().all(|id| id != needed.as_str())) {
            None => Ok(()),
            Some(missing) => Err(Error::Unusable(format!(
                "the backup needs the key {missing}: put the key file of the server that made it in place first"
            ))),
        }
    }
}

fn check_schema(header: &Header) -> Result<(), Error> {
    let ours = migrations::newest();
    match header.schema {
        theirs if theirs == ours => Ok(()),
        theirs => Err(Error::Unusable(format!(
            "the backup has schema {theirs} and this program {ours}: restore it with the release that made it"
        ))),
    }
}

fn load(tx: &mut Tx<'_>, file: &Path, progress: &mut dyn FnMut(Progress)) -> Result<u64, Error> {
    let known = tables(tx)?;
    require_empty(tx, &known)?;
    tx.defer_references()?;
    let (mut reader, header) = Reader::open(file)?;
    let (mut insert, mut table, mut rows) = (String::new(), String::new(), 0);
    while let Some(entry) = reader.next()? {
        match entry {
            Entry::Table { name, columns } => {
                let fits = known.iter().any(|known| known.name == name && known.has(&columns));
                if !fits {
                    return Err(reader.wrong(&format!(
                        "its table `{}` is not one of ours",
                        name.escape_debug()
                    )));
                }
                insert = insert_into(&name, &columns);
                table = name;
            }
            Entry::Row(values) => {
                tx.execute(&insert, &values)?;
                rows += 1;
                if rows % REPORT_EVERY == 0 {
                    progress(Progress { table: table.clone(), rows });
                }
            }
        }
    }
    feed::leap(tx, header.revision)?;
    progress(Progress { table, rows });
    Ok(rows)
}

fn insert_into(table: &str, columns: &[String]) -> String {
    let places: Vec<_> = (1..=columns.len()).map(|number| format!("${number}")).collect();
    format!("INSERT INTO {table} ({}) VALUES ({})", columns.join(", "), places.join(", "))
}

fn require_empty(tx: &mut Tx<'_>, tables: &[Table]) -> Result<(), Error> {
    for table in tables {
        let sql = format!("SELECT 1 FROM {} LIMIT 1", table.name);
        if tx.find("restore", &sql, &[])?.is_some() {
            return Err(Error::Unusable(format!(
                "the database is not empty ({} has rows): restore into a new one",
                table.name
            )));
        }
    }
    Ok(())
}
