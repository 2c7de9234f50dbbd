//! The revisions of the change feed: how each database numbers changes. The module `feed` has the
//! argument.

use super::{Conn, Tx};
use crate::Error;

/// Low bits of a revision on PostgreSQL, which number the changes within one transaction.
const CHANGE_BITS: u32 = 20;
const CHANGES_MAX: i64 = 1 << CHANGE_BITS;

impl Tx<'_> {
    /// Returns the revision for the next change, if the transaction already has one.
    pub(crate) fn given_revision(&self) -> Option<i64> {
        self.next_revision
    }

    /// Records that a statement has given the next change this revision.
    pub(crate) fn take_revision(&mut self, revision: i64) -> Result<(), Error> {
        self.next_revision = Some(revision);
        self.next_revision().map(drop)
    }

    /// Returns the revision for the next change of this transaction; see the module `feed`.
    pub(crate) fn next_revision(&mut self) -> Result<i64, Error> {
        let revision = match self.next_revision {
            Some(revision) => revision,
            None => self.first_revision()?,
        };
        if matches!(self.conn, Conn::Postgres(_)) && (revision + 1) & (CHANGES_MAX - 1) == 0 {
            return Err(Error::Unusable(format!(
                "one transaction cannot make {CHANGES_MAX} changes"
            )));
        }
        self.next_revision = Some(revision + 1);
        Ok(revision)
    }

    /// Returns the first revision. Call it late: PostgreSQL numbers a transaction when first asked.
    fn first_revision(&mut self) -> Result<i64, Error> {
        match self.conn {
            Conn::Sqlite(_) => match self.recorded.newest {
                Some(newest) => Ok(newest + 1),
                None => Ok(self.highest_revision()? + 1),
            },
            Conn::Postgres(_) => self
                .number("SELECT (pg_current_xact_id()::text::bigint + xid_offset) << 20 FROM feed_origin WHERE id = 1"),
        }
    }

    /// Returns the highest revision ever given out, as far as the rows show.
    pub(crate) fn highest_revision(&mut self) -> Result<i64, Error> {
        let sql = "SELECT revision FROM changes ORDER BY revision DESC LIMIT 1";
        let newest = self.find("changes", sql, &[])?.map_or(Ok(0), |row| row.int(0))?;
        Ok(newest.max(self.number("SELECT trimmed_to FROM feed_origin WHERE id = 1")?))
    }

    /// Returns the revision up to which changes are no longer kept, and the horizon: no further
    /// change will ever appear below it. See the module `feed`.
    pub(crate) fn feed_bounds(&mut self) -> Result<(i64, i64), Error> {
        let known = self.horizon;
        let row = match self.conn {
            Conn::Sqlite(_) => {
                let sql = "SELECT trimmed_to, 9223372036854775807, 0 FROM feed_origin WHERE id = 1";
                self.find("feed_origin", sql, &[])?
            }
            Conn::Postgres(_) => {
                let sql = "SELECT trimmed_to, horizon, EXISTS (
                               SELECT 1 FROM changes WHERE revision >= GREATEST(horizon, $1))::integer::bigint
                           FROM (SELECT trimmed_to,
                                        (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + xid_offset) << 20
                                            AS horizon
                                 FROM feed_origin WHERE id = 1) AS bounds";
                self.find("feed_origin", sql, &[known.into()])?
            }
        };
        let row = row.ok_or_else(|| Error::corrupt("feed_origin", "1", "the row is missing"))?;
        let (trimmed_to, horizon, holds_back) = (row.int(0)?, row.int(1)?, row.flag(2)?);
        if holds_back && self.shared.horizon.stands_at(horizon) {
            self.look_beyond()?;
        }
        Ok((trimmed_to, horizon.max(known)))
    }

    /// Finds out what holds back changes, for later transactions: see [`Horizon`].
    ///
    /// A transaction that ends between the snapshot and the look at what is running is missing in
    /// both, so what is found here is not true of this snapshot.
    ///
    /// [`Horizon`]: crate::db::horizon::Horizon
    fn look_beyond(&mut self) -> Result<(), Error> {
        let sql = "WITH running AS (
                       SELECT backend_xid, query FROM pg_stat_activity WHERE datname = current_database())
                   SELECT CASE WHEN NOT EXISTS (SELECT 1 FROM running WHERE query = '<insufficient privilege>') THEN
                       (COALESCE((SELECT MIN(number::text::bigint) FROM pg_snapshot_xip(pg_current_snapshot()) AS number
                                  WHERE number::xid IN (SELECT backend_xid FROM running WHERE backend_xid IS NOT NULL)),
                                 pg_snapshot_xmax(pg_current_snapshot())::text::bigint) + xid_offset) << 20 END
                   FROM feed_origin WHERE id = 1";
        let row = self.find("feed_origin", sql, &[])?;
        if let Some(horizon) = row.map(|row| row.opt_int(0)).transpose()?.flatten() {
            self.shared.horizon.reach(horizon);
        }
        Ok(())
    }

    /// Makes sure that future revisions are above `highest`. Only PostgreSQL needs this.
    pub(crate) fn move_revisions_above(&mut self, highest: i64) -> Result<(), Error> {
        if matches!(self.conn, Conn::Sqlite(_)) {
            return Ok(());
        }
        let next = self.first_revision()?;
        if next <= highest {
            let transactions = ((highest - next) >> CHANGE_BITS) + 1;
            let sql = "UPDATE feed_origin SET xid_offset = xid_offset + $1 WHERE id = 1";
            self.execute(sql, &[transactions.into()])?;
        }
        Ok(())
    }

    /// Identifies the history of the database: it changes when rows move to another cluster, and
    /// when a standby replaces its primary. SQLite has only one history, without a name. Fails on a
    /// standby, which must not be used.
    pub(crate) fn history(&mut self) -> Result<Option<String>, Error> {
        if matches!(self.conn, Conn::Sqlite(_)) {
            return Ok(None);
        }
        // The timeline comes from the name of the file that is being written, because
        // `pg_control_checkpoint` lags behind a promotion.
        let sql = "SELECT system_identifier::text || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)
                   FROM pg_control_system()";
        let row = self.find("the database", sql, &[])?;
        row.map(|row| row.text(0)).transpose()
    }

    fn number(&mut self, sql: &str) -> Result<i64, Error> {
        let row = self.find("feed_origin", sql, &[])?;
        row.ok_or_else(|| Error::corrupt("feed_origin", "1", "the row is missing"))?.int(0)
    }
}
