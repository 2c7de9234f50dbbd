//! Builds: from an upload address to an image.
//!
//! ```text
//! awaited ─→ arriving ─→ queued ─→ building ─→ made ─→ built
//!                          ↑──────────┘ the server was killed, or trying again may help
//! ```
//!
//! From each of these states a build may also end as failed or cancelled. Only the machine that
//! received the sources can build them, so a build waits for its machine until it is given up.
//! Reports of an attempt count only as long as it is the newest.

use crate::identity::Subject;
use crate::{Error, Row, Tx, params};
use types::ids::{ApiKeyId, BuildId, ResourceId, WorkspaceId};
use types::{KindName, Timestamp};

const TABLE: &str = "builds";

/// Kinds that are built.
pub const KINDS: [KindName; 7] = [
    KindName::Agent,
    KindName::Application,
    KindName::Function,
    KindName::Image,
    KindName::Job,
    KindName::Sandbox,
    KindName::VolumeTemplate,
];

/// The progress of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nothing was uploaded yet.
    Awaited,
    /// The sources are being uploaded. Their address cannot be used again.
    Arriving,
    Queued,
    Building,
    /// The image exists, but the resource it is for does not use it yet.
    Made,
    Built,
    Failed,
    Cancelled,
}

impl State {
    const ALL: [Self; 8] = [
        Self::Awaited,
        Self::Arriving,
        Self::Queued,
        Self::Building,
        Self::Made,
        Self::Built,
        Self::Failed,
        Self::Cancelled,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Awaited => "awaited",
            Self::Arriving => "arriving",
            Self::Queued => "queued",
            Self::Building => "building",
            Self::Made => "made",
            Self::Built => "built",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Who asked for a build, and with which API key, if any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    pub subject: Subject,
    pub key: Option<ApiKeyId>,
}

/// A build to be started.
#[derive(Debug, Clone)]
pub struct NewBuild {
    pub id: BuildId,
    pub workspace: WorkspaceId,
    pub resource: ResourceId,
    pub kind: KindName,
    pub repository: String,
    /// The wish that waits for the image. Its secrets are sealed as in the resource.
    pub wish: Option<String>,
    pub seal_key: Option<String>,
    pub created_by: String,
    pub asker: Asker,
    /// Digest of the secret in the upload address.
    pub secret: String,
    /// Time at which the upload address expires.
    pub until: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    pub id: BuildId,
    pub workspace: WorkspaceId,
    pub resource: ResourceId,
    pub kind: KindName,
    pub repository: String,
    pub state: State,
    pub wish: Option<String>,
    pub seal_key: Option<String>,
    pub created_by: String,
    pub asker: Asker,
    pub machine: Option<String>,
    pub bytes: i64,
    pub attempt: i64,
    pub due_at: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// Digest and size of the image, once it is made.
    pub image: Option<(String, i64)>,
}

/// A machine's offer to build, with its limits.
#[derive(Debug, Clone)]
pub struct Claiming {
    pub machine: String,
    pub now: Timestamp,
    /// End of the lease: a build is given up then unless the lease is renewed.
    pub until: Timestamp,
    pub limit: i64,
    /// Most builds of one workspace at once.
    pub share: i64,
}

/// Numbers of builds that have not ended, in one workspace and in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    pub of_workspace: i64,
    pub all: i64,
    /// Bytes that the sources of the workspace may take.
    pub bytes_of_workspace: i64,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, workspace_id, resource_id, kind, repository, state, wish, created_by, machine, bytes, attempt, \
             due_at, until, digest, size_bytes, seal_key, asker_type, asker_id, asker_key FROM builds ",
            $rest
        )
    };
}

/// Starts to await sources for a resource. Cancels a build of it that has not ended.
pub fn replace(tx: &mut Tx<'_>, new: &NewBuild) -> Result<(), Error> {
    cancel(tx, &new.resource)?;
    let now = tx.world().now();
    tx.execute(
        "INSERT INTO builds (id, workspace_id, resource_id, kind, repository, state, wish, seal_key, created_by, secret,
             bytes, attempt, until, forgotten, created_at, asker_type, asker_id, asker_key)
         VALUES ($1, $2, $3, $4, $5, 'awaited', $6, $7, $8, $9, 0, 0, $10, 0, $11, $12, $13, $14)",
        params![
            new.id.as_str(),
            &new.workspace,
            &new.resource,
            new.kind.name(),
            new.repository.as_str(),
            new.wish.as_deref(),
            new.seal_key.as_deref(),
            new.created_by.as_str(),
            new.secret.as_str(),
            new.until,
            now,
            new.asker.subject.type_name(),
            new.asker.subject.as_str(),
            new.asker.key.as_ref(),
        ],
    )
    .map(drop)
}

/// Cancels the build of a resource that has not ended, because nobody wants it any more. Returns
/// whether there was one.
pub fn cancel(tx: &mut Tx<'_>, resource: &ResourceId) -> Result<bool, Error> {
    let now = tx.world().now();
    let sql = "UPDATE builds SET state = 'cancelled', ended_at = $2, wish = NULL, seal_key = NULL
               WHERE resource_id = $1 AND ended_at IS NULL";
    Ok(tx.execute(sql, params![resource, now])? > 0)
}

pub fn find(tx: &mut Tx<'_>, id: &BuildId) -> Result<Option<Build>, Error> {
    tx.find(TABLE, select!("WHERE id = $1"), params![id.as_str()])?.map(read).transpose()
}

/// Finds a build like [`find`], and locks it until the transaction ends. To also change the
/// resource of the build, lock the resource first.
pub fn lock(tx: &mut Tx<'_>, id: &BuildId) -> Result<Option<Build>, Error> {
    let sql = tx.locking(select!("WHERE id = $1"));
    tx.find(TABLE, &sql, params![id.as_str()])?.map(read).transpose()
}

/// Finds the build whose upload address has the secret with this digest.
pub fn find_by_secret(tx: &mut Tx<'_>, digest: &str) -> Result<Option<Build>, Error> {
    tx.find(TABLE, select!("WHERE secret = $1"), params![digest])?.map(read).transpose()
}

/// Finds the build of a resource that has not ended.
pub fn open_of(tx: &mut Tx<'_>, resource: &ResourceId) -> Result<Option<Build>, Error> {
    let sql = select!("WHERE resource_id = $1 AND ended_at IS NULL");
    tx.find(TABLE, sql, params![resource])?.map(read).transpose()
}

/// Counts the builds that have not ended, except that of a resource that is about to be replaced.
pub fn open(tx: &mut Tx<'_>, workspace: &WorkspaceId, without: &ResourceId) -> Result<Open, Error> {
    let sql = "SELECT COUNT(*), CAST(COALESCE(SUM(CASE WHEN workspace_id = $1 THEN 1 ELSE 0 END), 0) AS BIGINT),
                   CAST(COALESCE(SUM(CASE WHEN workspace_id = $1 THEN bytes ELSE 0 END), 0) AS BIGINT)
               FROM builds WHERE ended_at IS NULL AND resource_id <> $2";
    let row = tx.find(TABLE, sql, params![workspace, without])?;
    let row = row.ok_or_else(|| Error::corrupt(TABLE, "all", "they cannot be counted"))?;
    Ok(Open { all: row.int(0)?, of_workspace: row.int(1)?, bytes_of_workspace: row.int(2)? })
}

/// Replaces the wish that waits for the image.
pub fn put_wish(
    tx: &mut Tx<'_>,
    id: &BuildId,
    wish: &str,
    seal_key: Option<&str>,
) -> Result<(), Error> {
    let sql = "UPDATE builds SET wish = $2, seal_key = $3 WHERE id = $1 AND ended_at IS NULL";
    tx.execute(sql, params![id.as_str(), wish, seal_key]).map(drop)
}

/// Takes the upload address of a build, so that nobody else can use it. `bytes` is the space that
/// the sources may take. Returns `false` if somebody was faster or the address has expired.
pub fn arrive(
    tx: &mut Tx<'_>,
    id: &BuildId,
    machine: &str,
    bytes: i64,
    until: Timestamp,
) -> Result<bool, Error> {
    let sql = "UPDATE builds SET state = 'arriving', machine = $2, bytes = $3, until = $4
               WHERE id = $1 AND state = 'awaited' AND until > $5";
    let now = tx.world().now();
    Ok(tx.execute(sql, params![id.as_str(), machine, bytes, until, now])? == 1)
}

/// Queues a build whose sources have arrived. Returns `false` if nobody wants it any more.
pub fn queue(tx: &mut Tx<'_>, id: &BuildId, bytes: i64, until: Timestamp) -> Result<bool, Error> {
    let sql =
        "UPDATE builds SET state = 'queued', bytes = $2, until = $3, due_at = $4, queued_at = $4
               WHERE id = $1 AND state = 'arriving'";
    let now = tx.world().now();
    Ok(tx.execute(sql, params![id.as_str(), bytes, until, now])? == 1)
}

/// Claims queued builds of a machine. Workspaces with the fewest builds come first, so that none
/// has to wait for the many builds of another.
pub fn claim(tx: &mut Tx<'_>, claiming: &Claiming) -> Result<Vec<Build>, Error> {
    let Claiming { machine, now, until, limit, share } = claiming;
    let rows = tx.query(
        TABLE,
        "SELECT id FROM (
             SELECT b.id, b.queued_at, ROW_NUMBER() OVER (PARTITION BY b.workspace_id ORDER BY b.queued_at, b.id)
                 + (SELECT COUNT(*) FROM builds r WHERE r.machine = $1 AND r.state = 'building' AND r.ended_at IS NULL
                        AND r.workspace_id = b.workspace_id) AS place
             FROM builds b WHERE b.machine = $1 AND b.state = 'queued' AND b.ended_at IS NULL AND b.due_at <= $2) ranked
         WHERE place <= $3 ORDER BY place, queued_at, id LIMIT $4",
        params![machine.as_str(), *now, *share, *limit],
    )?;
    let mut claimed = Vec::new();
    for row in rows {
        let id = row.text(0)?;
        let sql =
            "UPDATE builds SET state = 'building', attempt = attempt + 1, until = $2, due_at = NULL
                   WHERE id = $1 AND state = 'queued'";
        if tx.execute(sql, params![id.as_str(), *until])? == 1 {
            claimed.extend(find(tx, &BuildId::known(id))?);
        }
    }
    Ok(claimed)
}

/// Returns when the next step of a machine's queued or made builds is due.
pub fn next_due(tx: &mut Tx<'_>, machine: &str) -> Result<Option<Timestamp>, Error> {
    let sql = "SELECT MIN(due_at) FROM builds WHERE machine = $1 AND state IN ('queued', 'made') AND ended_at IS NULL";
    tx.find(TABLE, sql, params![machine])?.map_or(Ok(None), |row| row.opt_time(0))
}

/// Lists the builds of a machine in a state.
pub fn of_machine(tx: &mut Tx<'_>, machine: &str, state: State) -> Result<Vec<Build>, Error> {
    let sql =
        select!("WHERE machine = $1 AND state = $2 AND ended_at IS NULL ORDER BY queued_at, id");
    tx.query(TABLE, sql, params![machine, state.name()])?.into_iter().map(read).collect()
}

/// Renews the leases of a machine's running builds.
pub fn renew(tx: &mut Tx<'_>, machine: &str, until: Timestamp) -> Result<u64, Error> {
    let sql = "UPDATE builds SET until = $2 WHERE machine = $1 AND state = 'building' AND ended_at IS NULL";
    tx.execute(sql, params![machine, until])
}

/// Queues again what a machine was building when its server was killed, and extends the time of all
/// builds that wait for the machine. Returns how many were being built.
pub fn take_up(tx: &mut Tx<'_>, machine: &str, until: Timestamp) -> Result<u64, Error> {
    let now = tx.world().now();
    let sql = "UPDATE builds SET state = 'queued', due_at = $2
               WHERE machine = $1 AND state = 'building' AND ended_at IS NULL";
    let begun = tx.execute(sql, params![machine, now])?;
    let sql = "UPDATE builds SET until = $2
               WHERE machine = $1 AND state IN ('queued', 'made') AND ended_at IS NULL";
    tx.execute(sql, params![machine, until])?;
    Ok(begun)
}

/// Queues a build for another attempt later. Returns `false` if this attempt is not the newest.
pub fn again(
    tx: &mut Tx<'_>,
    id: &BuildId,
    attempt: i64,
    due_at: Timestamp,
    until: Timestamp,
) -> Result<bool, Error> {
    let sql = "UPDATE builds SET state = 'queued', due_at = $3, until = $4
               WHERE id = $1 AND attempt = $2 AND state = 'building'";
    Ok(tx.execute(sql, params![id.as_str(), attempt, due_at, until])? == 1)
}

/// Records the image of an attempt, to be used from `due_at` on. Returns `false` if this attempt is
/// not the newest.
pub fn made(
    tx: &mut Tx<'_>,
    id: &BuildId,
    attempt: i64,
    image: (&str, i64),
    due_at: Timestamp,
    until: Timestamp,
) -> Result<bool, Error> {
    let sql =
        "UPDATE builds SET state = 'made', digest = $3, size_bytes = $4, due_at = $5, until = $6
               WHERE id = $1 AND attempt = $2 AND state = 'building'";
    let params = params![id.as_str(), attempt, image.0, image.1, due_at, until];
    Ok(tx.execute(sql, params)? == 1)
}

/// Postpones the next step of a build that is made.
pub fn put_off(tx: &mut Tx<'_>, id: &BuildId, due_at: Timestamp) -> Result<(), Error> {
    let sql = "UPDATE builds SET due_at = $2 WHERE id = $1 AND state = 'made'";
    tx.execute(sql, params![id.as_str(), due_at]).map(drop)
}

/// Ends a build and drops its wish. Returns `false` if it had already ended.
pub fn end(tx: &mut Tx<'_>, id: &BuildId, state: State) -> Result<bool, Error> {
    let now = tx.world().now();
    let sql = "UPDATE builds SET state = $2, ended_at = $3, wish = NULL, seal_key = NULL
               WHERE id = $1 AND ended_at IS NULL";
    Ok(tx.execute(sql, params![id.as_str(), state.name(), now])? == 1)
}

/// Lists up to `limit` builds whose time to wait is over.
pub fn overdue(tx: &mut Tx<'_>, now: Timestamp, limit: i64) -> Result<Vec<Build>, Error> {
    let sql = select!(
        "WHERE ended_at IS NULL AND until <= $1 AND state <> 'building' ORDER BY until, id LIMIT $2"
    );
    tx.query(TABLE, sql, params![now, limit])?.into_iter().map(read).collect()
}

/// Lists what other machines are building, with the ends of their leases. These are times of other
/// clocks, which tell only whether a lease was renewed.
pub fn leases_elsewhere(
    tx: &mut Tx<'_>,
    machine: &str,
) -> Result<Vec<(BuildId, Option<Timestamp>)>, Error> {
    let sql = "SELECT id, until FROM builds WHERE ended_at IS NULL AND state = 'building' AND machine <> $1";
    let rows = tx.query(TABLE, sql, params![machine])?;
    rows.iter().map(|row| Ok((BuildId::known(row.text(0)?), row.opt_time(1)?))).collect()
}

/// Lists ended builds of which their machine may still keep files.
pub fn left(tx: &mut Tx<'_>, machine: &str, limit: i64) -> Result<Vec<Build>, Error> {
    let sql = select!(
        "WHERE machine = $1 AND ended_at IS NOT NULL AND forgotten = 0 ORDER BY id LIMIT $2"
    );
    tx.query(TABLE, sql, params![machine, limit])?.into_iter().map(read).collect()
}

/// Records that the machine keeps nothing of a build any more.
pub fn forgotten(tx: &mut Tx<'_>, id: &BuildId) -> Result<(), Error> {
    tx.execute("UPDATE builds SET forgotten = 1 WHERE id = $1", params![id.as_str()]).map(drop)
}

/// Deletes up to `limit` builds that ended before a time. Returns how many were deleted.
pub fn trim(tx: &mut Tx<'_>, older_than: Timestamp, limit: i64) -> Result<u64, Error> {
    tx.execute(
        "DELETE FROM builds WHERE id IN (
             SELECT id FROM builds WHERE ended_at IS NOT NULL AND ended_at < $1 ORDER BY ended_at LIMIT $2)",
        params![older_than, limit],
    )
}

fn read(row: Row) -> Result<Build, Error> {
    let (id, kind, state) = (row.text(0)?, row.text(3)?, row.text(5)?);
    let impossible = |what: String| Error::corrupt(TABLE, &id, what);
    let known = State::ALL.into_iter().find(|known| known.name() == state);
    Ok(Build {
        workspace: WorkspaceId::known(row.text(1)?),
        resource: ResourceId::known(row.text(2)?),
        kind: KindName::parse(&kind).ok_or_else(|| impossible(format!("kind `{kind}`")))?,
        repository: row.text(4)?,
        state: known.ok_or_else(|| impossible(format!("state `{state}`")))?,
        wish: row.opt_text(6)?,
        seal_key: row.opt_text(15)?,
        created_by: row.text(7)?,
        asker: Asker {
            subject: Subject::read(&row, 16, 17)?,
            key: row.opt_text(18)?.map(ApiKeyId::known),
        },
        machine: row.opt_text(8)?,
        bytes: row.int(9)?,
        attempt: row.int(10)?,
        due_at: row.opt_time(11)?,
        until: row.opt_time(12)?,
        image: row.opt_text(13)?.zip(row.opt_int(14)?),
        id: BuildId::known(id),
    })
}
