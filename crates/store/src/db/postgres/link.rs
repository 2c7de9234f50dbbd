//! One connection, with its prepared statements.
//!
//! A round trip to the server costs more than most statements do, so `BEGIN` is sent together with
//! the first statement of a transaction. A transaction without statements is never sent.

use crate::db::Settings;
use crate::db::access::Access;
use crate::{Error, Row, Value};
use futures_util::future::join;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::collections::HashMap;
use std::error::Error as StdError;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::{self, Runtime};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Config, NoTls, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Most statements kept prepared on a connection. Only lists build statements at run time, far
/// fewer than this.
const STATEMENTS_MAX: usize = 1000;

/// How to connect to the database.
#[derive(Clone)]
pub(super) struct Connector {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    setup: String,
}

impl Connector {
    pub(super) fn new(url: &str, settings: &Settings) -> Result<Self, Error> {
        let mut config = super::servers::parse(url)?;
        config.application_name("holm");
        let tls = match config.get_ssl_mode() {
            tokio_postgres::config::SslMode::Require => {
                Some(tls(settings.root_certificates.as_deref())?)
            }
            _ => None,
        };
        let setup = format!(
            "SET statement_timeout = {statement}; SET lock_timeout = {lock};
             SET idle_in_transaction_session_timeout = {statement}; SET synchronous_commit = on;
             SET client_encoding = 'UTF8'; SET standard_conforming_strings = on",
            statement = settings.statement_timeout_ms,
            lock = settings.lock_timeout_ms
        );
        Ok(Self { config, tls, setup })
    }

    pub(super) fn connect(&self) -> Result<Link, Error> {
        // The runtime runs only while a statement is awaited; only then is the connection read and
        // written.
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().map_err(Error::database)?;
        let client = runtime.block_on(async {
            let client = match &self.tls {
                Some(tls) => spawned(self.config.connect(tls.clone()).await?),
                None => spawned(self.config.connect(NoTls).await?),
            };
            client.batch_execute(&self.setup).await?;
            Ok(client)
        });
        Ok(Link {
            client: client.map_err(|error: tokio_postgres::Error| Error::database(error))?,
            runtime,
            statements: HashMap::new(),
            transaction: Transaction::None,
            asks_for_repetition: false,
        })
    }
}

/// Lets the runtime serve a connection until it breaks or its client is dropped.
fn spawned<S, T>((client, connection): (Client, tokio_postgres::Connection<S, T>)) -> Client
where
    tokio_postgres::Connection<S, T>:
        Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static,
{
    // However the connection ends, the client reports afterwards that it is closed.
    tokio::spawn(async move { drop(connection.await) });
    client
}

fn tls(root_certificates: Option<&Path>) -> Result<MakeRustlsConnect, Error> {
    let mut roots = rustls::RootCertStore::empty();
    match root_certificates {
        Some(file) => {
            let unusable = |error: rustls::pki_types::pem::Error| {
                Error::Unusable(format!(
                    "the certificates in {} cannot be read: {error}",
                    file.display()
                ))
            };
            for certificate in CertificateDer::pem_file_iter(file).map_err(unusable)? {
                roots.add(certificate.map_err(unusable)?).map_err(Error::database)?;
            }
        }
        None => add_usual(&mut roots, rustls_native_certs::load_native_certs())?,
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(Error::database)?;
    Ok(MakeRustlsConnect::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

/// Adds the certificates of the machine. Those that cannot be read are skipped, unless there would
/// be none then: the next connection may find them.
fn add_usual(
    roots: &mut rustls::RootCertStore,
    found: rustls_native_certs::CertificateResult,
) -> Result<(), Error> {
    let _ = roots.add_parsable_certificates(found.certs);
    for error in &found.errors {
        tracing::warn!(%error, "some certificates of this machine cannot be read");
    }
    match found.errors.first().filter(|_| roots.is_empty()) {
        Some(error) => Err(Error::Unusable(format!(
            "the certificates of this machine's authorities cannot be read: {error}"
        ))),
        None => Ok(()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transaction {
    None,
    /// This `BEGIN` will be sent with the first statement.
    Wanted(&'static str),
    Open,
}

pub(in crate::db) struct Link {
    client: Client,
    runtime: Runtime,
    statements: HashMap<String, Statement>,
    transaction: Transaction,
    /// The last transaction lost against another one, and may succeed if it is repeated.
    asks_for_repetition: bool,
}

impl Link {
    pub(super) fn begin(&mut self, access: Access) {
        self.asks_for_repetition = false;
        self.transaction = Transaction::Wanted(match access {
            // All statements of a reader see the same state.
            Access::Read => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            // Writers check versions and lock rows, so each statement may see the latest state.
            Access::Write => "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
        });
    }

    pub(super) fn commit(&mut self) -> Result<(), Error> {
        self.end("COMMIT")
    }

    pub(super) fn rollback(&mut self) -> Result<(), Error> {
        self.end("ROLLBACK")
    }

    fn end(&mut self, sql: &str) -> Result<(), Error> {
        match std::mem::replace(&mut self.transaction, Transaction::None) {
            Transaction::Open => self.batch(sql),
            Transaction::None | Transaction::Wanted(_) => Ok(()),
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.client.is_closed()
    }

    /// Returns true if the connection broke before the transaction began, so that nothing was done.
    pub(super) fn was_gone(&self) -> bool {
        !self.is_alive() && matches!(self.transaction, Transaction::Wanted(_))
    }

    pub(super) fn asks_for_repetition(&self) -> bool {
        self.asks_for_repetition
    }

    pub(in crate::db) fn batch(&mut self, sql: &str) -> Result<(), Error> {
        let result = self.begun().and_then(|()| self.plain(sql));
        result.map_err(|error| self.failed(error))
    }

    /// Sends a `BEGIN` that is still due, on its own.
    fn begun(&mut self) -> Result<(), tokio_postgres::Error> {
        if let Transaction::Wanted(begin) = self.transaction {
            self.plain(begin)?;
            self.transaction = Transaction::Open;
        }
        Ok(())
    }

    fn plain(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.runtime.block_on(self.client.batch_execute(sql))
    }

    /// Creates tables. Texts are compared byte by byte, as SQLite does, so that both databases sort
    /// alike.
    pub(in crate::db) fn define(&mut self, sql: &str) -> Result<(), Error> {
        self.batch(&sql.replace(" TEXT", " TEXT COLLATE \"C\""))
    }

    pub(in crate::db) fn execute(&mut self, sql: &str, params: &[Value]) -> Result<u64, Error> {
        let result = self.begun().and_then(|()| {
            let statement = self.prepared(sql)?;
            self.runtime.block_on(self.client.execute(&statement, &references(params)))
        });
        result.map_err(|error| self.failed(error))
    }

    pub(in crate::db) fn query(
        &mut self,
        table: &'static str,
        sql: &str,
        params: &[Value],
    ) -> Result<Vec<Row>, Error> {
        let result = match self.transaction {
            Transaction::Wanted(begin) if only_reads(sql) => self.begin_with(begin, sql, params),
            _ => self.begun().and_then(|()| {
                let statement = self.prepared(sql)?;
                self.runtime.block_on(self.client.query(&statement, &references(params)))
            }),
        };
        let rows = result.map_err(|error| self.failed(error))?;
        rows.iter().map(|row| Ok(Row { table, values: values(table, row)? })).collect()
    }

    /// Sends `BEGIN` and the first query in one round trip.
    fn begin_with(
        &mut self,
        begin: &str,
        sql: &str,
        params: &[Value],
    ) -> Result<Vec<tokio_postgres::Row>, tokio_postgres::Error> {
        let statement = self.prepared(sql)?;
        let params = references(params);
        // Requests are sent in the order in which they are first polled.
        let both = join(self.client.batch_execute(begin), self.client.query(&statement, &params));
        let (begun, rows) = self.runtime.block_on(both);
        begun?;
        self.transaction = Transaction::Open;
        rows
    }

    fn prepared(&mut self, sql: &str) -> Result<Statement, tokio_postgres::Error> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.runtime.block_on(self.client.prepare(sql))?;
        if self.statements.len() >= STATEMENTS_MAX {
            self.statements.clear();
        }
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    fn failed(&mut self, error: tokio_postgres::Error) -> Error {
        let repeat = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
        self.asks_for_repetition |= error.code().is_some_and(|code| repeat.contains(code));
        match error.as_db_error() {
            Some(refused) if *refused.code() == SqlState::UNIQUE_VIOLATION => {
                Error::Duplicate { table: refused.table().unwrap_or("a table").to_owned() }
            }
            Some(refused) if *refused.code() == SqlState::DISK_FULL => Error::Full(Box::new(error)),
            _ => Error::database(error),
        }
    }
}

/// Returns true if a statement changes nothing. If `BEGIN` fails, a statement that was sent along
/// with it runs outside of a transaction, so it must not change anything.
fn only_reads(sql: &str) -> bool {
    sql.starts_with("SELECT ")
}

fn references(params: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    params.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

fn values(table: &'static str, row: &tokio_postgres::Row) -> Result<Vec<Value>, Error> {
    let value = |(index, column): (usize, &tokio_postgres::Column)| {
        let value = match *column.type_() {
            Type::INT8 => row.try_get::<_, Option<i64>>(index).map(Value::from),
            Type::INT4 => {
                row.try_get::<_, Option<i32>>(index).map(|value| value.map(i64::from).into())
            }
            Type::TEXT | Type::NAME | Type::VARCHAR => {
                row.try_get::<_, Option<String>>(index).map(Value::from)
            }
            ref other => {
                return Err(Error::corrupt(table, "?", format!("a value of type {other}")));
            }
        };
        value.map_err(Error::database)
    };
    row.columns().iter().enumerate().map(value).collect()
}

impl ToSql for Value {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut tokio_postgres::types::private::BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(value) if *ty == Type::INT4 => i32::try_from(*value)?.to_sql(ty, out),
            Self::Int(value) => value.to_sql_checked(ty, out),
            // PostgreSQL cannot store NUL in texts. Nothing of ours needs it, but callers may send
            // it.
            Self::Text(value) if value.contains('\0') => {
                value.replace('\0', "\u{fffd}").to_sql_checked(ty, out)
            }
            Self::Text(value) => value.to_sql_checked(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls_native_certs::load_certs_from_paths;

    #[test]
    fn a_bundle_that_cannot_be_read_is_not_taken_for_an_empty_one() {
        let add = |file| {
            add_usual(&mut rustls::RootCertStore::empty(), load_certs_from_paths(file, None))
        };
        let unreadable = add(Some(Path::new("/nowhere/bundle.pem")));
        assert!(matches!(unreadable, Err(Error::Unusable(_))));
        assert!(add(None).is_ok(), "there is none");
    }
}
