//! Calls to users' addresses, kept until they were answered.
//!
//! A delivery is written in the same transaction as the event it reports, so it is sent if and only
//! if that event happened. A delivery that reports the end of an execution is written when the
//! execution starts, and waits. A sender claims a delivery for a while; if it reports nothing by
//! then, the delivery is claimed again. A receiver may therefore see it more than once.

use crate::{Error, Row, Tx, params};
use std::collections::BTreeMap;
use types::Timestamp;
use types::ids::{DeliveryId, ExecutionId, WorkspaceId};
use types::parts::Sensitive;

const TABLE: &str = "deliveries";
/// Most deliveries of one workspace that wait or are to be sent. Further ones are not accepted.
pub const OPEN_MAX: i64 = 10_000;
const CROWDED: &str = "too many calls of this workspace were waiting already";
const UNREADABLE: &str = "the secret that signs it can no longer be opened";

/// The progress of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Waits for the end of its execution.
    Waiting,
    Pending,
    Delivered,
    Failed,
}

/// A delivery to be sent.
#[derive(Debug, Clone)]
pub struct NewDelivery {
    pub workspace: WorkspaceId,
    /// Kind and name of the object that it is about.
    pub kind: String,
    pub name: String,
    /// Public name of the execution.
    pub execution: Option<String>,
    pub url: String,
    /// Secret that signs the body.
    pub secret: Option<Sensitive<String>>,
    /// Most attempts; the settings decide if absent.
    pub attempts_max: Option<i64>,
}

/// A delivery as the log shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub id: DeliveryId,
    pub execution: Option<String>,
    pub url: String,
    pub state: State,
    pub attempts: i64,
    /// Time of the next attempt, as long as there will be one.
    pub due_at: Option<Timestamp>,
    pub last_status: Option<i64>,
    pub last_error: Option<String>,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

/// A sender's request for deliveries, with its limits.
#[derive(Debug, Clone)]
pub struct Claiming {
    pub now: Timestamp,
    /// The latest time that a delivery can be put off to. One that is due later was put off by a
    /// clock that was ahead, and is due.
    pub latest: Timestamp,
    /// Time at which a claim becomes void unless its outcome was reported.
    pub until: Timestamp,
    pub limit: i64,
    /// Most deliveries of one workspace in progress at once.
    pub share: i64,
    /// Deliveries already in progress, by workspace.
    pub busy: BTreeMap<WorkspaceId, i64>,
}

/// A delivery that the claimant, and for now nobody else, may send.
#[derive(Debug, Clone)]
pub struct Claimed {
    pub id: DeliveryId,
    pub claim: i64,
    pub workspace: WorkspaceId,
    pub url: String,
    pub secret: Option<Sensitive<String>>,
    pub body: String,
    /// Attempts that ended before this one.
    pub attempts: i64,
    pub attempts_max: Option<i64>,
}

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub status: Option<i64>,
    pub error: Option<String>,
    pub next: Next,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Delivered,
    Retry(Timestamp),
    Failed,
}

impl State {
    const ALL: [Self; 4] = [Self::Waiting, Self::Pending, Self::Delivered, Self::Failed];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }
}

/// Queues `body` for delivery. If there are too many already, it is only recorded, as failed.
pub fn enqueue(tx: &mut Tx<'_>, new: &NewDelivery, body: &str) -> Result<DeliveryId, Error> {
    let state = if is_crowded(tx, &new.workspace)? { State::Failed } else { State::Pending };
    insert(tx, new, None, state, body)
}

/// Queues a delivery for the end of an execution. Returns `None` if too many are waiting already.
pub fn enqueue_at_end(
    tx: &mut Tx<'_>,
    new: &NewDelivery,
    execution: &ExecutionId,
) -> Result<Option<DeliveryId>, Error> {
    if is_crowded(tx, &new.workspace)? {
        return Ok(None);
    }
    insert(tx, new, Some(execution), State::Waiting, "").map(Some)
}

/// Returns true if a delivery waits for the end of an execution.
pub fn is_awaited(tx: &mut Tx<'_>, execution: &ExecutionId) -> Result<bool, Error> {
    let sql = "SELECT id FROM deliveries WHERE execution_id = $1 AND state = 'waiting' LIMIT 1";
    Ok(tx.find(TABLE, sql, params![execution.as_str()])?.is_some())
}

/// Releases the deliveries of an execution that has ended, with this body. Returns how many there
/// are.
pub fn release(tx: &mut Tx<'_>, execution: &ExecutionId, body: &str) -> Result<u64, Error> {
    let now = tx.world().now();
    tx.execute(
        "UPDATE deliveries SET state = 'pending', body = $2, due_at = $3 WHERE execution_id = $1 AND state = 'waiting'",
        params![execution.as_str(), body, now],
    )
}

fn is_crowded(tx: &mut Tx<'_>, workspace: &WorkspaceId) -> Result<bool, Error> {
    let sql = "SELECT COUNT(*) FROM (SELECT id FROM deliveries
        WHERE workspace_id = $1 AND state IN ('waiting', 'pending') LIMIT $2) counted";
    let open =
        tx.find(TABLE, sql, params![workspace, OPEN_MAX])?.map_or(Ok(0), |row| row.int(0))?;
    Ok(open >= OPEN_MAX)
}

fn insert(
    tx: &mut Tx<'_>,
    new: &NewDelivery,
    waits_for: Option<&ExecutionId>,
    state: State,
    body: &str,
) -> Result<DeliveryId, Error> {
    let (id, now) = (DeliveryId::new(tx.world()), tx.world().now());
    let seal = |Sensitive(secret): &Sensitive<String>| {
        tx.shared().keyring.read().seal(&context(&id), secret)
    };
    let secret = new.secret.as_ref().map(seal).transpose()?;
    let failed = state == State::Failed;
    tx.execute(
        "INSERT INTO deliveries (id, workspace_id, kind, name, execution, execution_id, url, secret, body, state,
             attempts, attempts_max, claim, due_at, last_error, created_at, ended_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0, $11, 0, $12, $13, $12, $14)",
        params![
            id.as_str(),
            &new.workspace,
            new.kind.as_str(),
            new.name.as_str(),
            new.execution.as_deref(),
            waits_for.map(ExecutionId::as_str),
            new.url.as_str(),
            secret,
            body,
            state.name(),
            new.attempts_max,
            now,
            failed.then_some(CROWDED),
            failed.then_some(now),
        ],
    )?;
    Ok(id)
}

/// Returns the context to which the sealed secret is bound.
fn context(id: &DeliveryId) -> String {
    format!("deliveries/{id}")
}

/// Returns whether a pending delivery is due: by its time, or because that is later than `latest`.
pub fn has_due(tx: &mut Tx<'_>, now: Timestamp, latest: Timestamp) -> Result<bool, Error> {
    // One statement with `OR` would look at all that are pending.
    let early = "SELECT 1 FROM deliveries WHERE state = 'pending' AND due_at <= $1 LIMIT 1";
    let late = "SELECT 1 FROM deliveries WHERE state = 'pending' AND due_at > $1 LIMIT 1";
    Ok(tx.find(TABLE, early, params![now])?.is_some()
        || tx.find(TABLE, late, params![latest])?.is_some())
}

/// Claims due deliveries, taking turns between workspaces, so that none has to wait for the many
/// calls of another.
pub fn claim(tx: &mut Tx<'_>, claiming: &Claiming) -> Result<Vec<Claimed>, Error> {
    let Claiming { now, latest, limit, share, busy, .. } = claiming;
    // Rows that are skipped belong to workspaces that have their share in progress, so there are no
    // more of them than deliveries in progress.
    let looked_at = limit + busy.values().sum::<i64>();
    let rows = tx.query(
        TABLE,
        "SELECT id, claim, workspace_id, url, secret, body, attempts, attempts_max FROM (
             SELECT d.*, ROW_NUMBER() OVER (PARTITION BY workspace_id ORDER BY due_at, id) AS place
             FROM (SELECT * FROM deliveries WHERE state = 'pending' AND due_at <= $1 UNION ALL
                   SELECT * FROM deliveries WHERE state = 'pending' AND due_at > $4) d) ranked
         WHERE place <= $2 ORDER BY place, due_at, id LIMIT $3",
        params![*now, *share, looked_at, *latest],
    )?;
    let (mut busy, mut claimed) = (busy.clone(), Vec::new());
    for row in rows {
        let at_work = busy.entry(WorkspaceId::known(row.text(2)?)).or_default();
        if *at_work >= *share || claimed.len() as i64 >= *limit {
            continue;
        }
        if let Some(delivery) = claim_one(tx, &row, claiming)? {
            *at_work += 1;
            claimed.push(delivery);
        }
    }
    Ok(claimed)
}

/// Claims one delivery, unless another server was faster. If the key of its secret is lost, it
/// cannot be sent and fails.
fn claim_one(
    tx: &mut Tx<'_>,
    row: &Row,
    Claiming { now, latest, until, .. }: &Claiming,
) -> Result<Option<Claimed>, Error> {
    let (id, claim) = (DeliveryId::known(row.text(0)?), row.int(1)? + 1);
    let done = tx.execute(
        "UPDATE deliveries SET claim = $2, due_at = $3
         WHERE id = $1 AND claim = $2 - 1 AND state = 'pending' AND (due_at <= $4 OR due_at > $5)",
        params![id.as_str(), claim, *until, *now, *latest],
    )?;
    if done == 0 {
        return Ok(None);
    }
    let sealed = row.opt_text(4)?;
    let opened =
        sealed.map(|sealed| tx.shared().keyring.read().open(&context(&id), &sealed)).transpose();
    let Ok(secret) = opened else {
        let lost = Attempt { status: None, error: Some(UNREADABLE.into()), next: Next::Failed };
        record(tx, &id, claim, &lost)?;
        return Ok(None);
    };
    Ok(Some(Claimed {
        id,
        claim,
        workspace: WorkspaceId::known(row.text(2)?),
        url: row.text(3)?,
        secret: secret.map(Sensitive),
        body: row.text(5)?,
        attempts: row.int(6)?,
        attempts_max: row.opt_int(7)?,
    }))
}

/// Records the outcome of an attempt, unless the claim was void by then. Returns whether it was
/// recorded.
pub fn record(
    tx: &mut Tx<'_>,
    id: &DeliveryId,
    claim: i64,
    attempt: &Attempt,
) -> Result<bool, Error> {
    let now = tx.world().now();
    let (state, due_at, ended_at) = match attempt.next {
        Next::Delivered => (State::Delivered, now, Some(now)),
        Next::Retry(at) => (State::Pending, at, None),
        Next::Failed => (State::Failed, now, Some(now)),
    };
    let done = tx.execute(
        "UPDATE deliveries SET state = $3, attempts = attempts + 1, due_at = $4, last_status = $5, last_error = $6,
             ended_at = $7
         WHERE id = $1 AND claim = $2 AND state = 'pending'",
        params![id.as_str(), claim, state.name(), due_at, attempt.status, attempt.error.as_deref(), ended_at],
    )?;
    Ok(done == 1)
}

/// Lists up to `limit` deliveries about an object that follow a position, newest first.
pub fn list(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    about: (&str, &str),
    after: Option<(Timestamp, &str)>,
    limit: i64,
) -> Result<Vec<Delivery>, Error> {
    let (time, id) = after.map_or((i64::MAX, ""), |(time, id)| (time.ms(), id));
    let rows = tx.query(
        TABLE,
        "SELECT id, execution, url, state, attempts, due_at, last_status, last_error, created_at, ended_at
         FROM deliveries WHERE workspace_id = $1 AND kind = $2 AND name = $3
             AND (created_at < $4 OR (created_at = $4 AND id < $5))
         ORDER BY created_at DESC, id DESC LIMIT $6",
        params![workspace, about.0, about.1, time, id, limit],
    )?;
    rows.iter().map(read).collect()
}

pub fn count(tx: &mut Tx<'_>, workspace: &WorkspaceId, about: (&str, &str)) -> Result<i64, Error> {
    let sql = "SELECT COUNT(*) FROM deliveries WHERE workspace_id = $1 AND kind = $2 AND name = $3";
    tx.find(TABLE, sql, params![workspace, about.0, about.1])?.map_or(Ok(0), |row| row.int(0))
}

/// Deletes up to `limit` deliveries that ended before a time. Returns how many were deleted.
pub fn trim(tx: &mut Tx<'_>, older_than: Timestamp, limit: i64) -> Result<u64, Error> {
    tx.execute(
        "DELETE FROM deliveries WHERE id IN (
             SELECT id FROM deliveries WHERE ended_at IS NOT NULL AND ended_at < $1 ORDER BY ended_at LIMIT $2)",
        params![older_than, limit],
    )
}

/// Deletes up to `limit` deliveries of a workspace that is being deleted, so that nothing more is
/// sent.
pub(crate) fn delete_of_workspace(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    limit: i64,
) -> Result<u64, Error> {
    let sql = "DELETE FROM deliveries WHERE id IN
               (SELECT id FROM deliveries WHERE workspace_id = $1 LIMIT $2)";
    tx.execute(sql, params![workspace, limit])
}

fn read(row: &Row) -> Result<Delivery, Error> {
    let (id, state) = (row.text(0)?, row.text(3)?);
    let state = State::ALL.into_iter().find(|known| known.name() == state);
    let state = state.ok_or_else(|| Error::corrupt(TABLE, &id, "it has an unknown state"))?;
    Ok(Delivery {
        id: DeliveryId::known(id),
        execution: row.opt_text(1)?,
        url: row.text(2)?,
        state,
        attempts: row.int(4)?,
        due_at: Some(row.time(5)?).filter(|_| state == State::Pending),
        last_status: row.opt_int(6)?,
        last_error: row.opt_text(7)?,
        created_at: row.time(8)?,
        ended_at: row.opt_time(9)?,
    })
}
