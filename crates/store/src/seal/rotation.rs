//! Resealing every stored secret under the active key, and removing keys that nothing needs.

use super::{Keyring, PREFIX};
use crate::{Error, Store, Tx, Value, params};
use types::Timestamp;

/// A column that contains sealed texts.
pub(crate) struct SealedColumn {
    table: &'static str,
    /// Columns of the primary key.
    key: &'static [&'static str],
    /// Context of the seals, as an SQL expression.
    context: &'static str,
    column: &'static str,
    /// Id of the key that a row needs, as an SQL expression.
    seal_key: &'static str,
}

/// Describes a table whose sealed texts are parts of a larger text, with the key's id in the column
/// `seal_key`.
const fn parts(
    table: &'static str,
    key: &'static [&'static str],
    context: &'static str,
    column: &'static str,
) -> SealedColumn {
    SealedColumn { table, key, context, column, seal_key: "seal_key" }
}

/// Describes a column whose whole text is either sealed or not sealed at all; the key's id is read
/// from the text.
macro_rules! whole {
    ($table:literal, $key:expr, $context:literal, $column:literal) => {
        SealedColumn {
            table: $table,
            key: $key,
            context: $context,
            column: $column,
            // 11: the position after the prefix. 8: the length of every key id.
            seal_key: concat!(
                "CASE WHEN ",
                $column,
                " LIKE 'sealed:v1:%' THEN substr(",
                $column,
                ", 11, 8) END"
            ),
        }
    };
}

/// All columns with sealed texts. If a new table stores sealed texts, add it here.
const SEALED: &[SealedColumn] = &[
    parts("resources", &["id"], "'resources/' || id", "wish"),
    parts("revisions", &["resource_id", "id"], "'resources/' || resource_id", "wish"),
    whole!(
        "idempotency",
        &["workspace_id", "claim"],
        "'idempotency/' || workspace_id || '/' || claim",
        "body"
    ),
    whole!("execution_orders", &["execution_id"], "'executions/' || execution_id", "plan"),
    whole!("settings", &["name"], "'settings/' || name", "value"),
    whole!("deliveries", &["id"], "'deliveries/' || id", "secret"),
    parts("signing_keys", &["id"], "id", "sealed_seed"),
    whole!("budgets", &["id"], "'budgets/' || id", "webhook_secret"),
    whole!("api_key_secrets", &["key_id"], "'api_key_secrets/' || key_id", "secret"),
    parts("builds", &["id"], "'resources/' || resource_id", "wish"),
];

/// Rows that one transaction reseals.
const BATCH: i64 = 200;
/// How long a key is kept after it stopped being the active one: other servers on the same database
/// may seal with it until they read the key file again.
const RETIRED_KEPT_MS: i64 = 7 * 24 * 3_600_000;

/// The outcome of a rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    pub active: String,
    /// Number of rows that were resealed.
    pub rows: u64,
}

impl Store {
    /// Makes a new key and reseals all secrets under it.
    pub async fn rotate_keys(&self) -> Result<Rotation, Error> {
        let active = self.keyring().rotate()?;
        Ok(Rotation { active, rows: self.reseal_all().await? })
    }

    /// Reseals secrets under the active key that other keys sealed. Returns the number of rows.
    pub(crate) async fn reseal_all(&self) -> Result<u64, Error> {
        let mut total = 0;
        for column in SEALED {
            let mut after = None;
            loop {
                let from = after.take();
                let (rows, last) =
                    self.write(move |tx| reseal(tx, column, from.as_deref())).await?;
                total += rows;
                if last.is_none() {
                    break;
                }
                after = last;
            }
        }
        Ok(total)
    }

    /// Reads the key file again, and removes keys that were retired long ago and seal nothing.
    pub(crate) async fn tidy_keys(&self) -> Result<(), Error> {
        let keyring = self.keyring();
        keyring.reload()?;
        self.reseal_all().await?;
        let used = self.read(used_keys).await?;
        let now = self.world().now();
        let idle = |id: &str, retired_at: Timestamp| {
            now.since(retired_at) > RETIRED_KEPT_MS && !used.iter().any(|key| key == id)
        };
        keyring.forget(idle)
    }
}

/// Returns the ids of all keys that rows need.
pub(crate) fn used_keys(tx: &mut Tx<'_>) -> Result<Vec<String>, Error> {
    let mut used = Vec::new();
    for SealedColumn { table, seal_key, .. } in SEALED {
        let sql = format!("SELECT DISTINCT {seal_key} FROM {table} WHERE {seal_key} IS NOT NULL");
        for row in tx.query(table, &sql, params![])? {
            used.push(row.text(0)?);
        }
    }
    used.sort();
    used.dedup();
    Ok(used)
}

/// Reseals a batch of rows. Returns how many, and the primary key of the last one if there may be
/// more.
fn reseal(
    tx: &mut Tx<'_>,
    column: &SealedColumn,
    after: Option<&[Value]>,
) -> Result<(u64, Option<Vec<Value>>), Error> {
    let keyring = tx.shared().keyring.read();
    let rows =
        tx.query(column.table, &column.select(after), &column.select_params(&keyring, after))?;
    let more = rows.len() as i64 == BATCH;
    let mut last = None;
    let mut count = 0;
    for mut row in rows {
        let (context, text, id) = (row.text(0)?, row.text(1)?, row.values.split_off(2));
        let mut params = vec![resealed(&keyring, &context, &text)?.into(), text.into()];
        params.extend(id.iter().cloned());
        // A row that changed in the meantime was sealed by whoever changed it, or is found next
        // time.
        count += tx.execute(&column.update(keyring.active_id()), &params)?;
        last = Some(id);
    }
    Ok((count, last.filter(|_| more)))
}

impl SealedColumn {
    fn select(&self, after: Option<&[Value]>) -> String {
        let Self { table, context, column, seal_key, .. } = self;
        let key = self.key.join(", ");
        let page = after.map_or(String::new(), |_| {
            let names: Vec<_> =
                (0..self.key.len()).map(|index| format!("${}", index + 3)).collect();
            format!("AND ({key}) > ({})", names.join(", "))
        });
        format!(
            "SELECT {context}, {column}, {key} FROM {table} WHERE {seal_key} <> $1 {page} ORDER BY {key} LIMIT $2"
        )
    }

    fn select_params(&self, keyring: &Keyring, after: Option<&[Value]>) -> Vec<Value> {
        let mut params = vec![keyring.active_id().into(), BATCH.into()];
        params.extend(after.into_iter().flatten().cloned());
        params
    }

    /// Returns the statement. Key ids are letters and digits, so they may be part of its text.
    fn update(&self, active: &str) -> String {
        let Self { table, column, .. } = self;
        let key: Vec<_> = self
            .key
            .iter()
            .enumerate()
            .map(|(index, name)| format!("{name} = ${}", index + 3))
            .collect();
        let name_key = if self.seal_key == "seal_key" {
            format!(", seal_key = '{active}'")
        } else {
            String::new()
        };
        format!(
            "UPDATE {table} SET {column} = $1{name_key} WHERE {column} = $2 AND {}",
            key.join(" AND ")
        )
    }
}

/// Reseals every sealed part of the text with the active key. What cannot be opened stays as it is:
/// it either only looks sealed, or is lost in any case.
fn resealed(keyring: &Keyring, context: &str, text: &str) -> Result<String, Error> {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(PREFIX) {
        let (before, sealed) = rest.split_at(start);
        let part_of_seal = |character: char| {
            character.is_ascii_alphanumeric() || matches!(character, ':' | '_' | '-')
        };
        let (sealed, after) = sealed
            .split_at(sealed.find(|character| !part_of_seal(character)).unwrap_or(sealed.len()));
        result.push_str(before);
        match keyring.open(context, sealed) {
            Ok(plain) => result.push_str(&keyring.seal(context, &plain)?),
            Err(_) => result.push_str(sealed),
        }
        rest = after;
    }
    result.push_str(rest);
    Ok(result)
}
