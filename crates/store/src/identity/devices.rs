//! Device codes, with which a program without a browser waits while its user decides in one.

use super::Digest;
use crate::{Error, Row, Tx, params};
use types::Timestamp;
use types::ids::{ClientId, UserId};

#[derive(Debug, Clone)]
pub struct Device {
    pub digest: Digest,
    /// The code that the user types or confirms: upper-case letters only.
    pub user_code: String,
    pub client: ClientId,
    pub scope: String,
    pub decision: Decision,
    /// Seconds that the program must wait between two requests.
    pub interval_s: i64,
    pub polled_at: Option<Timestamp>,
    pub expires_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Waiting,
    Approved { by: UserId },
    Refused,
}

impl Decision {
    fn columns(&self) -> (&'static str, Option<&UserId>) {
        match self {
            Self::Waiting => ("waiting", None),
            Self::Approved { by } => ("approved", Some(by)),
            Self::Refused => ("refused", None),
        }
    }
}

const COLUMNS: &str =
    "digest, user_code, client_id, scope, decision, user_id, interval_s, polled_at, expires_at";

fn read(row: &Row) -> Result<Device, Error> {
    let decision = match (row.text(4)?.as_str(), row.opt_text(5)?) {
        ("waiting", None) => Decision::Waiting,
        ("refused", None) => Decision::Refused,
        ("approved", Some(by)) => Decision::Approved { by: UserId::known(by) },
        (other, _) => {
            return Err(Error::corrupt("device_codes", "?", format!("decision `{other}`")));
        }
    };
    Ok(Device {
        digest: Digest::read(row, 0)?,
        user_code: row.text(1)?,
        client: ClientId::known(row.text(2)?),
        scope: row.text(3)?,
        decision,
        interval_s: row.int(6)?,
        polled_at: row.opt_time(7)?,
        expires_at: row.time(8)?,
    })
}

/// Inserts a device code. Returns [`Error::Duplicate`] if the user code is in use.
pub fn create(tx: &mut Tx<'_>, device: &Device) -> Result<(), Error> {
    let (decision, user) = device.decision.columns();
    let sql =
        format!("INSERT INTO device_codes ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)");
    tx.execute(
        &sql,
        params![
            &device.digest,
            device.user_code.as_str(),
            &device.client,
            device.scope.as_str(),
            decision,
            user,
            device.interval_s,
            device.polled_at,
            device.expires_at
        ],
    )?;
    Ok(())
}

pub fn find(tx: &mut Tx<'_>, digest: &Digest) -> Result<Option<Device>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM device_codes WHERE digest = $1");
    tx.find("device_codes", &sql, params![digest])?.as_ref().map(read).transpose()
}

pub fn find_by_user_code(tx: &mut Tx<'_>, user_code: &str) -> Result<Option<Device>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM device_codes WHERE user_code = $1");
    tx.find("device_codes", &sql, params![user_code])?.as_ref().map(read).transpose()
}

/// Makes room for one more code if there are `max`: removes expired codes first, and then the
/// oldest that nobody has decided on.
pub fn make_room(tx: &mut Tx<'_>, max: i64) -> Result<(), Error> {
    if count(tx)? < max {
        return Ok(());
    }
    let now = tx.world().now();
    tx.execute("DELETE FROM device_codes WHERE expires_at <= $1", params![now])?;
    let over = count(tx)? - max + 1;
    if over > 0 {
        let sql = "DELETE FROM device_codes WHERE digest IN
                   (SELECT digest FROM device_codes WHERE decision = 'waiting' ORDER BY expires_at LIMIT $1)";
        tx.execute(sql, params![over])?;
    }
    Ok(())
}

fn count(tx: &mut Tx<'_>) -> Result<i64, Error> {
    tx.find("device_codes", "SELECT count(*) FROM device_codes", params![])?
        .map_or(Ok(0), |row| row.int(0))
}

/// Records that the program asked, and how long it must wait from now on.
pub fn polled(tx: &mut Tx<'_>, digest: &Digest, interval_s: i64) -> Result<(), Error> {
    let now = tx.world().now();
    let sql = "UPDATE device_codes SET polled_at = $2, interval_s = $3 WHERE digest = $1";
    tx.execute(sql, params![digest, now, interval_s])?;
    Ok(())
}

/// Records the user's decision. Returns `false` if there already was one.
pub fn decide(tx: &mut Tx<'_>, digest: &Digest, decision: &Decision) -> Result<bool, Error> {
    let (name, user) = decision.columns();
    let sql = "UPDATE device_codes SET decision = $2, user_id = $3 WHERE digest = $1 AND decision = 'waiting'";
    Ok(tx.execute(sql, params![digest, name, user])? == 1)
}

/// Spends the code. Returns `false` if it was spent before: at most one caller wins.
pub fn delete(tx: &mut Tx<'_>, digest: &Digest) -> Result<bool, Error> {
    Ok(tx.execute("DELETE FROM device_codes WHERE digest = $1", params![digest])? == 1)
}

pub(super) fn delete_of_user(tx: &mut Tx<'_>, user: &UserId) -> Result<(), Error> {
    tx.execute("DELETE FROM device_codes WHERE user_id = $1", params![user]).map(drop)
}
