//! One connection, with its prepared statements.
//!
//! A round trip to the server costs more than most statements do, so `BEGIN` is sent together with
//! the first statement of a transaction. A transaction without statements is never sent.

use super::failure::Failure;
use super::tls::tls;
use crate::db::Settings;
use crate::db::access::Access;
use crate::value::{Collector, Portion};
use crate::{Error, Row, Value};
use futures_util::future::join;
use futures_util::{FutureExt as _, TryStreamExt as _};
use std::collections::HashMap;
use std::error::Error as StdError;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::{self, Runtime};
use tokio_postgres::config::LoadBalanceHosts;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Most statements kept prepared on a connection. Only lists build statements at run time, far
/// fewer than this.
const STATEMENTS_MAX: usize = 1000;

/// How long connecting to one of the database's servers may take, unless its address says otherwise
/// (`connect_timeout`), and how long what follows until the connection can be used.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
const GREET_WITHIN: Duration = Duration::from_secs(10);
/// How often a start tries to connect where the address has several servers and one says nothing.
const FIRST_TRIES: u32 = 5;
/// When the kernel asks about an idle connection, and how often it does before it gives it up.
/// Without that, nobody notices for hours that the other machine has lost its power.
const IDLE: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_secs(5);
const ASK_TIMES: u32 = 3;

/// How to connect to the database.
#[derive(Clone)]
pub(super) struct Connector {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    setup: String,
    connect_within: Duration,
    answer_within: Duration,
    /// In which order the address wants its servers to be tried.
    order: LoadBalanceHosts,
    links: Arc<AtomicUsize>,
}

/// Counts a connection until it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(links: &Arc<AtomicUsize>) -> Self {
        links.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(links))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Connector {
    pub(super) fn new(url: &str, settings: &Settings) -> Result<Self, Error> {
        let mut config = super::servers::parse(url)?;
        config.application_name("holm");
        let connect_within = notice_silence(&mut config);
        let tls = match config.get_ssl_mode() {
            tokio_postgres::config::SslMode::Require => {
                Some(tls(settings.root_certificates.as_deref())?)
            }
            _ => None,
        };
        let setup = format!(
            "SET statement_timeout = {statement}; SET lock_timeout = {lock};
             SET idle_in_transaction_session_timeout = {statement}; SET synchronous_commit = on;
             SET client_encoding = 'UTF8'; SET standard_conforming_strings = on;
             SET client_min_messages = warning",
            statement = settings.statement_timeout_ms,
            lock = settings.lock_timeout_ms
        );
        // The database ends a statement by itself in time. It may only be silent for longer if it,
        // or the way to it, is gone.
        let statement = Duration::from_millis(settings.statement_timeout_ms);
        let answer_within = statement + statement / 4;
        let order = config.get_load_balance_hosts();
        let links = Arc::default();
        Ok(Self { config, tls, setup, connect_within, answer_within, order, links })
    }

    /// Returns how many connections there are, as far as is known: one that broke counts until
    /// somebody uses it.
    pub(super) fn links(&self) -> usize {
        self.links.load(Ordering::SeqCst)
    }

    /// Connects at a start, after which nobody would try again.
    pub(super) fn connect_first(&mut self) -> Result<Link, Error> {
        let mut tries = 1..FIRST_TRIES;
        loop {
            match self.try_connect() {
                Err(Failure::Silent(_)) if self.has_several() && tries.next().is_some() => {}
                done => return done.map_err(Error::database),
            }
        }
    }

    pub(super) fn connect(&mut self) -> Result<Link, Error> {
        self.try_connect().map_err(Error::database)
    }

    fn has_several(&self) -> bool {
        self.config.get_hosts().len().max(self.config.get_hostaddrs().len()) > 1
    }

    fn try_connect(&mut self) -> Result<Link, Failure> {
        // The runtime runs only while a statement is awaited; only then is the connection read and
        // written.
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let client = answered(&runtime, self.connect_within, async {
            let client = match &self.tls {
                Some(tls) => spawned(self.config.connect(tls.clone()).await?),
                None => spawned(self.config.connect(NoTls).await?),
            };
            client.batch_execute(&self.setup).await?;
            Ok(client)
        });
        self.config.load_balance_hosts(match client {
            // The first server may accept connections and then say nothing, which takes all of the
            // time. The next attempt may begin with another one.
            Err(Failure::Silent(_)) => LoadBalanceHosts::Random,
            _ => self.order,
        });
        Ok(Link {
            client: client?,
            runtime,
            answer_within: self.answer_within,
            silent: false,
            cut: false,
            statements: HashMap::new(),
            transaction: Transaction::None,
            asks_for_repetition: false,
            _counted: Counted::new(&self.links),
        })
    }
}

/// Has connections end that get no answer any more, as far as the database's address does not say
/// how. Returns how long connecting may take in all.
fn notice_silence(config: &mut Config) -> Duration {
    let unset = Config::new();
    let each = *config.get_connect_timeout().unwrap_or(&CONNECT_WITHIN);
    config.connect_timeout(each);
    if config.get_keepalives_idle() == unset.get_keepalives_idle() {
        config.keepalives_idle(IDLE);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(ASK_EVERY);
    }
    if config.get_keepalives_retries().is_none() {
        config.keepalives_retries(ASK_TIMES);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(ASK_EVERY * ASK_TIMES);
    }
    let servers = config.get_hosts().len().max(config.get_hostaddrs().len());
    each.saturating_mul(u32::try_from(servers).unwrap_or(u32::MAX)).saturating_add(GREET_WITHIN)
}

/// Runs a request on a connection's runtime, and waits for its answer.
fn answered<T>(
    runtime: &Runtime,
    within: Duration,
    request: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Failure> {
    match runtime.block_on(async { tokio::time::timeout(within, request).await }) {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Failure::Silent(within)),
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
    pub(super) answer_within: Duration,
    /// A request was not answered in time. Nothing more is sent, and the database undoes what is
    /// open when it notices.
    silent: bool,
    /// The connection broke, or the database said that it ends it.
    cut: bool,
    /// The last transaction lost against another one, and may succeed if it is repeated.
    asks_for_repetition: bool,
    _counted: Counted,
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
        self.end("COMMIT").map_err(|failure| match failure.is_cut() {
            true => {
                self.note(&failure);
                Error::Uncertain(Box::new(failure))
            }
            false => self.failed(failure),
        })
    }

    pub(super) fn rollback(&mut self) -> Result<(), Error> {
        self.end("ROLLBACK").map_err(|failure| self.failed(failure))
    }

    fn end(&mut self, sql: &str) -> Result<(), Failure> {
        match std::mem::replace(&mut self.transaction, Transaction::None) {
            Transaction::Open => self.plain(sql),
            Transaction::None | Transaction::Wanted(_) => Ok(()),
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.cut && !self.client.is_closed()
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
    fn begun(&mut self) -> Result<(), Failure> {
        if let Transaction::Wanted(begin) = self.transaction {
            self.plain(begin)?;
            self.transaction = Transaction::Open;
        }
        Ok(())
    }

    fn plain(&self, sql: &str) -> Result<(), Failure> {
        self.answered(self.client.batch_execute(sql))
    }

    /// Returns the number of the process that serves the connection at the moment. Prepares nothing:
    /// if that belongs to others too, they may have prepared something under the same name.
    pub(super) fn process(&self) -> Result<Option<String>, Error> {
        let asked = self.client.simple_query("SELECT pg_backend_pid()");
        let messages = self.answered(asked).map_err(Error::database)?;
        Ok(messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        }))
    }

    fn answered<T>(
        &self,
        request: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Failure> {
        match self.silent {
            true => Err(Failure::Silent(self.answer_within)),
            false => answered(&self.runtime, self.answer_within, request),
        }
    }

    /// Creates tables. Texts are compared byte by byte, as SQLite does, so that both databases sort
    /// alike.
    pub(in crate::db) fn define(&mut self, sql: &str) -> Result<(), Error> {
        self.batch(&sql.replace(" TEXT", " TEXT COLLATE \"C\""))
    }

    pub(in crate::db) fn execute(&mut self, sql: &str, params: &[Value]) -> Result<u64, Error> {
        let result = self.begun().and_then(|()| {
            let statement = self.prepared(sql)?;
            self.answered(self.client.execute(&statement, &references(params)))
        });
        result.map_err(|error| self.failed(error))
    }

    pub(in crate::db) fn query(
        &mut self,
        table: &'static str,
        sql: &str,
        params: &[Value],
        bytes_max: usize,
    ) -> Result<Portion<Row>, Error> {
        let result = match self.transaction {
            Transaction::Wanted(begin) if only_reads(sql) => {
                self.begin_with(begin, sql, params, bytes_max)
            }
            _ => self.begun().and_then(|()| {
                let statement = self.prepared(sql)?;
                self.answered(portion(&self.client, &statement, params, bytes_max))
            }),
        };
        let rows = result.map_err(|error| self.failed(error))?;
        rows.try_map(|row| Ok(Row { table, values: values(table, &row)? }))
    }

    /// Sends `BEGIN` and the first query in one round trip.
    fn begin_with(
        &mut self,
        begin: &str,
        sql: &str,
        params: &[Value],
        bytes_max: usize,
    ) -> Result<Portion<tokio_postgres::Row>, Failure> {
        let statement = self.prepared(sql)?;
        let rows = portion(&self.client, &statement, params, bytes_max);
        // Requests are sent in the order in which they are first polled.
        let both = join(self.client.batch_execute(begin), rows);
        let (begun, rows) = self.answered(both.map(Ok))?;
        begun?;
        self.transaction = Transaction::Open;
        Ok(rows?)
    }

    fn prepared(&mut self, sql: &str) -> Result<Statement, Failure> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.answered(self.client.prepare(sql))?;
        if self.statements.len() >= STATEMENTS_MAX {
            self.statements.clear();
        }
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    fn note(&mut self, error: &Failure) {
        self.silent |= matches!(error, Failure::Silent(_));
        self.cut |= error.is_cut();
        let repeat = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
        self.asks_for_repetition |= error.code().is_some_and(|code| repeat.contains(code));
    }

    fn failed(&mut self, error: Failure) -> Error {
        self.note(&error);
        match error.as_db_error() {
            _ if error.is_cut() || error.is_late() => Error::Interrupted(Box::new(error)),
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

/// Reads rows until they have more bytes. What the server sends beyond that is discarded as it
/// arrives.
async fn portion(
    client: &Client,
    statement: &Statement,
    params: &[Value],
    bytes_max: usize,
) -> Result<Portion<tokio_postgres::Row>, tokio_postgres::Error> {
    let mut rows = pin!(client.query_raw(statement, references(params)).await?);
    let mut found = Collector::new(bytes_max);
    while let Some(row) = rows.try_next().await? {
        let bytes = row.raw_size_bytes();
        if !found.take(row, bytes) {
            break;
        }
    }
    Ok(found.done())
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
