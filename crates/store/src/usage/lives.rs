//! Lives, the subjects of facts: who owns them, and what follows from their facts so far.

use super::series::dimension;
use super::{Proof, insert, pieces, places};
use crate::{Error, Row, Tx, Value, params};
use types::ids::AccountId;
use types::instance::Stamp;
use types::usage::Dimension;

const TABLE: &str = "usage_lives";
const COLUMNS: &str = "subject, id, account_id, workspace, dimension, name, uuid, machine, class_id, series_id, phase, \
                       level, began_at, through, last_at, last_number, last_kind, last_id, boot, anchor_at, \
                       anchor_mono, cut";
/// Number of random low bits in the number of a life; the rest is the time.
const CHANCE_BITS: u32 = 20;

/// The owner of a life: the account that its usage is charged to, and the resource and dimension
/// that it is charged for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub account: AccountId,
    pub workspace: String,
    pub dimension: Dimension,
    /// Name of the resource.
    pub name: String,
    /// Id of the resource; empty if it has none.
    pub uuid: String,
    /// The machine whose proofs show that the life goes on. Without one, the life goes on until a
    /// fact says otherwise.
    pub machine: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Off,
    On,
    Ended,
}

/// The position of a fact in the order of facts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FactPosition {
    pub at: i64,
    pub number: i64,
    pub kind: i64,
    pub id: String,
}

/// A link between a machine's steady clock and the calendar: the stamp of one moment, and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    pub stamp: Stamp,
    pub at: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    pub subject: String,
    pub id: i64,
    pub owner: Option<Owner>,
    /// Class and series to which its usage is added.
    pub series: Option<(i64, i64)>,
    pub phase: Phase,
    pub level: i64,
    pub began_at: Option<i64>,
    /// While the life is on: time up to which its usage is in the hours. Otherwise, the time at
    /// which it was last on.
    pub through: i64,
    pub last: Option<FactPosition>,
    pub anchor: Option<Anchor>,
    pub cut: Option<i64>,
}

/// A life that is on, with what queries need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Live {
    pub class: i64,
    pub series: i64,
    pub level: i64,
    pub through: i64,
    pub until: Until,
}

/// How long a life that is on is known to continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Until now: it needs no proof.
    Now,
    /// Until its machine was last proven to be up; without a proof, not at all.
    Proof { proof: Option<Proof>, anchor: Option<Anchor> },
}

impl Phase {
    const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Ended => "ended",
        }
    }
}

impl Life {
    /// Makes a life about which only its name is known.
    fn new(subject: &str, id: i64) -> Self {
        Self {
            subject: subject.to_owned(),
            id,
            owner: None,
            series: None,
            phase: Phase::Off,
            level: 0,
            began_at: None,
            through: 0,
            last: None,
            anchor: None,
            cut: None,
        }
    }
}

/// Locks lives until the end of the transaction, ordered by subject. Creates those that do not
/// exist. `subjects` must be sorted and without duplicates.
pub fn lock(tx: &mut Tx<'_>, subjects: &[&str]) -> Result<Vec<Life>, Error> {
    loop {
        let mut found = Vec::with_capacity(subjects.len());
        for piece in pieces(subjects, 1) {
            let wanted: Vec<Value> = piece.iter().map(|subject| (*subject).into()).collect();
            let list = places(1, piece.len());
            let sql = format!(
                "SELECT {COLUMNS} FROM usage_lives WHERE subject IN {list} ORDER BY subject"
            );
            let sql = tx.locking(&sql).into_owned();
            found.extend(
                tx.query(TABLE, &sql, &wanted)?.iter().map(read).collect::<Result<Vec<_>, _>>()?,
            );
        }
        if found.len() == subjects.len() {
            return Ok(found);
        }
        make(tx, subjects, &found)?;
    }
}

/// Creates lives that were not found. One whose number is taken is skipped, and created at the next
/// attempt.
fn make(tx: &mut Tx<'_>, subjects: &[&str], found: &[Life]) -> Result<(), Error> {
    let mut number = fresh_number(tx);
    let mut rows = Vec::new();
    for subject in subjects {
        if found.binary_search_by(|life| life.subject.as_str().cmp(subject)).is_err() {
            rows.push(values(&Life::new(subject, number)));
            number += 1;
        }
    }
    insert(tx, &format!("usage_lives ({COLUMNS})"), "ON CONFLICT DO NOTHING", &rows)
}

fn fresh_number(tx: &Tx<'_>) -> i64 {
    let chance = u32::from_le_bytes(tx.world().random_bytes()) >> (u32::BITS - CHANCE_BITS);
    (tx.world().now().ms() << CHANCE_BITS) | i64::from(chance)
}

/// Creates a life with its owner. Returns `false` if it already exists, even without an owner.
pub fn own(tx: &mut Tx<'_>, subject: &str, owner: &Owner) -> Result<bool, Error> {
    let life = Life { owner: Some(owner.clone()), ..Life::new(subject, fresh_number(tx)) };
    let places = places(1, COLUMNS.split(',').count());
    let sql = format!("INSERT INTO usage_lives ({COLUMNS}) VALUES {places} ON CONFLICT DO NOTHING");
    Ok(tx.execute(&sql, &values(&life))? == 1)
}

/// Returns true if the owner of a life is known.
pub fn is_owned(tx: &mut Tx<'_>, subject: &str) -> Result<bool, Error> {
    let sql = "SELECT 1 FROM usage_lives WHERE subject = $1 AND account_id IS NOT NULL";
    Ok(tx.find(TABLE, sql, params![subject])?.is_some())
}

/// Removes up to `limit` lives that were created before a time and still have no owner, with their
/// facts. Returns how many there were. An owner that is registered meanwhile waits for that, and
/// then gets a life without facts.
pub fn remove_unowned(tx: &mut Tx<'_>, before_ms: i64, limit: i64) -> Result<u64, Error> {
    let sql =
        "SELECT id FROM usage_lives WHERE account_id IS NULL AND id < $1 ORDER BY id LIMIT $2";
    let sql = tx.locking(sql).into_owned();
    let rows = tx.query(TABLE, &sql, params![before_ms << CHANCE_BITS, limit])?;
    let lives = rows.iter().map(|row| row.int(0)).collect::<Result<Vec<_>, _>>()?;
    for piece in pieces(&lives, 1) {
        let ids: Vec<Value> = piece.iter().map(|id| (*id).into()).collect();
        let list = places(1, piece.len());
        tx.execute(&format!("DELETE FROM usage_facts WHERE life_id IN {list}"), &ids)?;
        tx.execute(&format!("DELETE FROM usage_lives WHERE id IN {list}"), &ids)?;
    }
    Ok(lives.len() as u64)
}

/// Writes lives that were locked in the same transaction.
pub fn save(tx: &mut Tx<'_>, lives: &[Life]) -> Result<(), Error> {
    let rows: Vec<_> = lives.iter().map(values).collect();
    let changes: Vec<_> =
        COLUMNS.split(", ").skip(2).map(|column| format!("{column} = excluded.{column}")).collect();
    let clash = format!("ON CONFLICT (subject) DO UPDATE SET {}", changes.join(", "));
    insert(tx, &format!("usage_lives ({COLUMNS})"), &clash, &rows)
}

/// Returns up to `limit` lives after a position that are on and whose usage is in the hours only up
/// to a time before `hour_ms`. Locks them.
pub fn lock_on(
    tx: &mut Tx<'_>,
    hour_ms: i64,
    after: Option<(i64, &str)>,
    limit: i64,
) -> Result<Vec<Life>, Error> {
    let (through, subject) = after.unwrap_or((i64::MIN, ""));
    let sql = format!(
        "SELECT {COLUMNS} FROM usage_lives WHERE phase = 'on' AND through < $1 AND (through, subject) > ($2, $3)
         ORDER BY through, subject LIMIT $4"
    );
    let sql = tx.locking(&sql).into_owned();
    tx.query(TABLE, &sql, params![hour_ms, through, subject, limit])?.iter().map(read).collect()
}

/// Returns up to `limit` lives after a position that are on, need no proof, and whose usage is in
/// the hours up to a time after `ahead_ms`. Locks them.
pub fn lock_ahead(
    tx: &mut Tx<'_>,
    ahead_ms: i64,
    after: Option<(i64, &str)>,
    limit: i64,
) -> Result<Vec<Life>, Error> {
    let (through, subject) = after.unwrap_or((i64::MIN, ""));
    let sql = format!(
        "SELECT {COLUMNS} FROM usage_lives WHERE phase = 'on' AND machine IS NULL AND through > $1
             AND (through, subject) > ($2, $3) ORDER BY through, subject LIMIT $4"
    );
    let sql = tx.locking(&sql).into_owned();
    tx.query(TABLE, &sql, params![ahead_ms, through, subject, limit])?.iter().map(read).collect()
}

/// Returns the lives of an account that are on and whose usage is in the hours only up to a time
/// before `end`.
pub fn live(tx: &mut Tx<'_>, account: &AccountId, end: i64) -> Result<Vec<Live>, Error> {
    let sql = "SELECT l.class_id, l.series_id, l.level, l.through, l.machine, l.boot, l.anchor_at, l.anchor_mono,
                      p.at, p.mono
               FROM usage_lives l LEFT JOIN usage_proofs p ON p.machine = l.machine AND p.boot = l.boot
               WHERE l.phase = 'on' AND l.account_id = $1 AND l.through < $2";
    let rows = tx.query(TABLE, sql, params![account, end])?;
    rows.iter().map(read_live).collect()
}

fn read_live(row: &Row) -> Result<Live, Error> {
    let until = match row.opt_text(4)? {
        None => Until::Now,
        Some(_) => {
            let proof =
                row.opt_int(8)?.zip(row.opt_int(9)?).map(|(at, uptime_ms)| Proof { at, uptime_ms });
            Until::Proof { proof, anchor: anchor(row, 5)? }
        }
    };
    let (class, series) = (row.int(0)?, row.int(1)?);
    Ok(Live { class, series, level: row.int(2)?, through: row.int(3)?, until })
}

/// Returns the subjects of all lives on a machine that are on.
pub fn on_machine(tx: &mut Tx<'_>, machine: &str) -> Result<Vec<String>, Error> {
    let sql = "SELECT subject FROM usage_lives WHERE phase = 'on' AND machine = $1";
    tx.query(TABLE, sql, params![machine])?.iter().map(|row| row.text(0)).collect()
}

/// Returns the lives of a series that may have usage in the hours between two times.
pub fn lives_in(
    tx: &mut Tx<'_>,
    class: i64,
    series: i64,
    from: i64,
    to: i64,
) -> Result<Vec<Life>, Error> {
    let sql = format!(
        "SELECT {COLUMNS} FROM usage_lives WHERE class_id = $1 AND series_id = $2 AND through >= $3 AND began_at < $4"
    );
    tx.query(TABLE, &sql, params![class, series, from, to])?.iter().map(read).collect()
}

/// Returns up to `limit` lives after a subject, ordered by subject.
pub fn lives_after(tx: &mut Tx<'_>, subject: &str, limit: i64) -> Result<Vec<Life>, Error> {
    let sql =
        format!("SELECT {COLUMNS} FROM usage_lives WHERE subject > $1 ORDER BY subject LIMIT $2");
    tx.query(TABLE, &sql, params![subject, limit])?.iter().map(read).collect()
}

/// Returns up to `limit` subjects after a subject whose last fact is of this kind, although another
/// has a greater number.
pub fn lives_out_of_order(
    tx: &mut Tx<'_>,
    kind: i64,
    subject: &str,
    limit: i64,
) -> Result<Vec<String>, Error> {
    let sql = "SELECT subject FROM usage_lives WHERE last_kind = $1 AND subject > $2 AND EXISTS (
                   SELECT 1 FROM usage_facts f WHERE f.life_id = usage_lives.id AND f.number > last_number)
               ORDER BY subject LIMIT $3";
    tx.query(TABLE, sql, params![kind, subject, limit])?.iter().map(|row| row.text(0)).collect()
}

fn values(life: &Life) -> Vec<Value> {
    let owner = life.owner.as_ref();
    let last = life.last.as_ref();
    vec![
        life.subject.as_str().into(),
        life.id.into(),
        owner.map(|owner| owner.account.as_str()).into(),
        owner.map(|owner| owner.workspace.as_str()).into(),
        owner.map(|owner| owner.dimension.name()).into(),
        owner.map(|owner| owner.name.as_str()).into(),
        owner.map(|owner| owner.uuid.as_str()).into(),
        owner.and_then(|owner| owner.machine.as_deref()).into(),
        life.series.map(|(class, _)| class).into(),
        life.series.map(|(_, series)| series).into(),
        life.phase.name().into(),
        life.level.into(),
        life.began_at.into(),
        life.through.into(),
        last.map(|place| place.at).into(),
        last.map(|place| place.number).into(),
        last.map(|place| place.kind).into(),
        last.map(|place| place.id.as_str()).into(),
        life.anchor.map_or(0, |anchor| anchor.stamp.boot).into(),
        life.anchor.map(|anchor| anchor.at).into(),
        life.anchor.map(|anchor| anchor.stamp.uptime_ms).into(),
        life.cut.into(),
    ]
}

fn read(row: &Row) -> Result<Life, Error> {
    let subject = row.text(0)?;
    let phase = match row.text(10)?.as_str() {
        "off" => Phase::Off,
        "on" => Phase::On,
        "ended" => Phase::Ended,
        other => return Err(Error::corrupt(TABLE, subject, format!("an unknown phase `{other}`"))),
    };
    Ok(Life {
        id: row.int(1)?,
        owner: owner(row)?,
        series: row.opt_int(8)?.zip(row.opt_int(9)?),
        phase,
        level: row.int(11)?,
        began_at: row.opt_int(12)?,
        through: row.int(13)?,
        last: place(row)?,
        anchor: anchor(row, 18)?,
        cut: row.opt_int(21)?,
        subject,
    })
}

fn owner(row: &Row) -> Result<Option<Owner>, Error> {
    let Some(account) = row.opt_text(2)? else { return Ok(None) };
    Ok(Some(Owner {
        account: AccountId::known(account),
        workspace: row.text(3)?,
        dimension: dimension(&row.text(4)?)?,
        name: row.text(5)?,
        uuid: row.text(6)?,
        machine: row.opt_text(7)?,
    }))
}

fn place(row: &Row) -> Result<Option<FactPosition>, Error> {
    let Some(at) = row.opt_int(14)? else { return Ok(None) };
    Ok(Some(FactPosition { at, number: row.int(15)?, kind: row.int(16)?, id: row.text(17)? }))
}

/// Reads an anchor from three columns from `first` on: boot, time and steady time.
fn anchor(row: &Row, first: usize) -> Result<Option<Anchor>, Error> {
    let boot = row.int(first)?;
    let moment = row.opt_int(first + 1)?.zip(row.opt_int(first + 2)?);
    Ok(moment.map(|(at, uptime_ms)| Anchor { stamp: Stamp { boot, uptime_ms }, at }))
}
