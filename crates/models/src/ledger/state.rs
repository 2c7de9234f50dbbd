//! The state of a ledger: all accounts, the journal, and what is not in the store yet.

use super::account::{Account, Fit};
use super::apart::Apart;
use super::hold::{Asked, Taken};
use super::journal::Journal;
use super::refused::{Refused, no_room, over};
use super::settings::{Settings, ms};
use admission::Limits;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use types::Timestamp;
use types::ids::WorkspaceId;
use types::kinds::model::ModelType;
use types::model_books::{Batch, LimitAccount, Standing, UsageKey, UsageSum};
use types::models::{ModelCall, ModelOutcome};

pub(super) struct State {
    /// The name of this ledger, under which the store grants.
    pub(super) ledger: String,
    pub(super) journal: Journal,
    accounts: HashMap<LimitAccount, Account>,
    /// How many accounts each workspace has.
    of_workspaces: HashMap<WorkspaceId, u64>,
    /// Accounts that have something for the next batch.
    dirty: HashSet<LimitAccount>,
    /// Journal records of open reservations.
    open: HashMap<u64, Arc<[u8]>>,
    usage: HashMap<UsageKey, UsageSum>,
    apart: Apart,
    /// Calls that were not added to the metrics yet.
    counts: HashMap<(ModelType, ModelOutcome), UsageSum>,
    next_ticket: u64,
    waiting: usize,
    /// The number of the last batch.
    number: i64,
    pub(super) is_closed: bool,
    /// Whether a batch was given up. Later batches must not reach the store before it, so
    /// everything stays in the journal for the next start.
    pub(super) is_stuck: bool,
    told: Vec<oneshot::Sender<()>>,
    /// The lock on the folder.
    _lock: std::fs::File,
}

/// The result of an attempt to reserve.
pub(super) enum Attempt {
    Taken(Vec<Taken>),
    Refused(Refused),
    Wait(Wait),
}

pub(super) struct Tried {
    pub(super) outcome: Attempt,
    /// True if the background task has work that should not wait.
    pub(super) is_poke: bool,
}

pub(super) struct Wait {
    pub(super) account: LimitAccount,
    pub(super) ticket: u64,
    pub(super) woken: Arc<Notify>,
    pub(super) ends_at: Timestamp,
}

/// One attempt of a call to reserve. Everything possible is prepared before the lock is taken.
pub(super) struct Try<'t> {
    pub(super) id: u64,
    pub(super) asked: Vec<Asked<'t>>,
    pub(super) workspace: &'t WorkspaceId,
    /// The record for the journal.
    pub(super) record: Vec<u8>,
    pub(super) now: Timestamp,
    pub(super) uptime_ms: i64,
    pub(super) ticket: Option<u64>,
    /// Whether the call may not wait any longer.
    pub(super) is_last: bool,
}

impl State {
    pub(super) fn new(ledger: String, number: i64, journal: Journal, lock: std::fs::File) -> Self {
        Self {
            ledger,
            journal,
            accounts: HashMap::new(),
            of_workspaces: HashMap::new(),
            dirty: HashSet::new(),
            open: HashMap::new(),
            usage: HashMap::new(),
            apart: Apart::default(),
            counts: HashMap::new(),
            next_ticket: 0,
            waiting: 0,
            number,
            is_closed: false,
            is_stuck: false,
            told: Vec::new(),
            _lock: lock,
        }
    }

    pub(super) fn attempt(&mut self, settings: &Settings, of: Try<'_>) -> Tried {
        let mut is_poke = false;
        let outcome = self.decide(settings, of, &mut is_poke);
        let outcome = outcome.unwrap_or_else(Attempt::Refused);
        Tried { outcome, is_poke }
    }

    fn decide(
        &mut self,
        settings: &Settings,
        of: Try<'_>,
        is_poke: &mut bool,
    ) -> Result<Attempt, Refused> {
        if self.is_closed {
            return Err(Refused::Unavailable("this server is ending".into()));
        }
        let mut reserved = Vec::with_capacity(of.asked.len());
        let mut lacking = None;
        for asked in &of.asked {
            let account = self.account(settings, asked, (of.workspace, of.uptime_ms), is_poke)?;
            match account.fit(asked.most, of.ticket) {
                Fit::Take(most) => reserved.push(most),
                Fit::Over if account.is_looked_up() || of.is_last => {
                    return Err(over(account, asked, of.now, None));
                }
                // Only the store knows what is left, which the refusal says.
                Fit::Over | Fit::Wait => {
                    if account.ask() {
                        self.dirty.insert(asked.account.clone());
                        *is_poke = true;
                    }
                    lacking = lacking.or(Some(asked));
                }
            }
        }
        match lacking {
            Some(asked) => self.wait(settings, asked, &of),
            None => self.take(settings, of, reserved, is_poke),
        }
    }

    fn account(
        &mut self,
        settings: &Settings,
        asked: &Asked<'_>,
        (workspace, uptime_ms): (&WorkspaceId, i64),
        is_poke: &mut bool,
    ) -> Result<&mut Account, Refused> {
        if !self.accounts.contains_key(&asked.account) {
            let count = self.of_workspaces.entry(workspace.clone()).or_default();
            let Limits { total, share } = settings.accounts;
            if self.accounts.len() as u64 >= total || *count >= share {
                *is_poke = true;
                return Err(no_room());
            }
            *count += 1;
            let new = Account::new(asked.account.measure, workspace.clone(), uptime_ms);
            self.accounts.insert(asked.account.clone(), new);
        }
        let account = self.accounts.get_mut(&asked.account).ok_or_else(no_room)?;
        account.set_amount(&asked.hold.limit.name, asked.hold.limit.amount);
        account.touched_ms = uptime_ms;
        Ok(account)
    }

    fn take(
        &mut self,
        settings: &Settings,
        of: Try<'_>,
        reserved: Vec<i64>,
        is_poke: &mut bool,
    ) -> Result<Attempt, Refused> {
        if self.journal.length() > settings.journal_max {
            *is_poke = true;
            return Err(Refused::Unavailable("the store is away for too long".into()));
        }
        let written = self.journal.catch_up().and_then(|()| self.journal.append(&of.record));
        written.map_err(|error| {
            tracing::error!(%error, "the journal of models cannot be written");
            *is_poke = true;
            Refused::Unavailable("the journal cannot be written".into())
        })?;
        self.open.insert(of.id, of.record.into());
        let taken = of.asked.into_iter().zip(reserved);
        let taken: Vec<Taken> = taken
            .map(|(Asked { account, most, .. }, reserved)| Taken { account, most, reserved })
            .collect();
        for taken in &taken {
            let Some(account) = self.accounts.get_mut(&taken.account) else { continue };
            account.take(taken.reserved);
            if account.ask_ahead(settings.grants) {
                self.dirty.insert(taken.account.clone());
                *is_poke = true;
            }
        }
        Ok(Attempt::Taken(taken))
    }

    fn wait(
        &mut self,
        settings: &Settings,
        asked: &Asked<'_>,
        of: &Try<'_>,
    ) -> Result<Attempt, Refused> {
        let ticket = of.ticket.unwrap_or(self.next_ticket);
        let Some(account) = self.accounts.get_mut(&asked.account) else {
            return Err(Refused::Unavailable("the limit is not known".into()));
        };
        if of.is_last {
            // Refuse only if the store was asked and too little is left: an amount that was not
            // granted yet is no reason to turn a call away until the window ends.
            let is_known = account.is_looked_up() && account.spare() < asked.most;
            // Others may give back what they have reserved long before the window ends.
            let soon = account.fits_alone(asked.most).then_some(settings.wait_max);
            let unknown = || Refused::Unavailable("the store has not answered".into());
            return Err(if is_known { over(account, asked, of.now, soon) } else { unknown() });
        }
        // A call that will be refused needs nothing of what is left.
        let is_over = account.fit(asked.most, of.ticket) == Fit::Over;
        let most = if is_over { 0 } else { asked.most };
        let (woken, is_new) = account.wait(ticket, most);
        self.waiting += usize::from(is_new);
        self.next_ticket = self.next_ticket.max(ticket + 1);
        let ends_at = asked.account.ends_at;
        Ok(Attempt::Wait(Wait { account: asked.account.clone(), ticket, woken, ends_at }))
    }

    /// Removes a call that no longer waits from its queue.
    pub(super) fn leave(&mut self, account: &LimitAccount, ticket: u64) {
        if let Some(account) = self.accounts.get_mut(account)
            && account.leave(ticket)
        {
            self.waiting -= 1;
        }
    }

    /// Records that a call has ended. Returns whether the background task should run at once.
    pub(super) fn settle(&mut self, settled: Settled<'_>, settings: &Settings) -> bool {
        if let Some(record) = settled.record {
            self.journal.append_late(settled.id, record);
        }
        self.forget_settled();
        for (taken, used) in settled.accounts.iter().zip(settled.used) {
            if let Some(account) = self.accounts.get_mut(&taken.account) {
                account.settle(taken.reserved, *used);
                account.touched_ms = settled.uptime_ms;
                if *used != 0 && !self.dirty.contains(&taken.account) {
                    self.dirty.insert(taken.account.clone());
                }
            }
        }
        if let Some((key, sum, outcome)) = settled.usage {
            self.counts.entry((key.provider, outcome)).or_default().add(&sum);
            self.count(key, &sum, settings);
        }
        self.usage.len() >= settings.usage_max
    }

    fn count(&mut self, key: UsageKey, sum: &UsageSum, settings: &Settings) {
        let is_full = self.usage.len() >= settings.usage_max && !self.usage.contains_key(&key);
        let key = self.apart.counted(key, is_full, settings.usage_each_max);
        self.usage.entry(key).or_default().add(sum);
    }

    /// Builds the next batch for the store, if there is anything to move or to ask.
    pub(super) fn batch(&mut self, settings: &Settings) -> Option<Batch> {
        if self.journal.is_behind() || self.is_stuck {
            return None;
        }
        let mut batch = Batch {
            ledger: self.ledger.clone(),
            number: self.number + 1,
            position: self.journal.last(),
            used: Vec::new(),
            given_back: Vec::new(),
            wants: Vec::new(),
            usage: self.usage.drain().collect(),
        };
        let mut asking = Vec::new();
        for key in std::mem::take(&mut self.dirty) {
            let Some(account) = self.accounts.get_mut(&key) else { continue };
            match account.send() {
                0 => {}
                used => batch.used.push((key.clone(), used)),
            }
            if account.wants() {
                asking.push(key);
            }
        }
        let later = self.put_off(&mut asking, settings.wants_max);
        self.dirty.extend(later);
        for key in asking {
            let account = self.accounts.get_mut(&key);
            batch.wants.extend(account.and_then(|account| account.want(&key, settings.grants)));
        }
        if batch.used.is_empty() && batch.wants.is_empty() && batch.usage.is_empty() {
            return None;
        }
        self.number += 1;
        Some(batch)
    }

    /// Removes and returns the accounts that do not fit into one batch. Workspaces take turns, and
    /// within a workspace the accounts that calls wait for go first.
    fn put_off(&self, asking: &mut Vec<LimitAccount>, max: usize) -> Vec<LimitAccount> {
        if asking.len() <= max {
            return Vec::new();
        }
        let is_waited_for =
            |key: &LimitAccount| self.accounts.get(key).is_some_and(Account::is_waited_for);
        asking.sort_by_key(|key| !is_waited_for(key));
        let mut turns: HashMap<&WorkspaceId, usize> = HashMap::new();
        let turn = |key: LimitAccount| {
            let turn = turns.entry(&self.accounts.get(&key)?.workspace).or_default();
            *turn += 1;
            Some((*turn, key))
        };
        let mut in_turn: Vec<(usize, LimitAccount)> = asking.drain(..).filter_map(turn).collect();
        in_turn.sort_by_key(|(turn, _)| *turn);
        asking.extend(in_turn.into_iter().map(|(_, key)| key));
        asking.split_off(max.min(asking.len()))
    }

    /// Returns whether a batch should be sent before it is due.
    pub(super) fn is_urgent(&self, settings: &Settings) -> bool {
        !self.told.is_empty()
            || self.usage.len() >= settings.usage_max
            || self.dirty.iter().any(|key| self.accounts.get(key).is_some_and(Account::is_asked))
    }

    /// Builds a batch that gives back what these accounts do not need, or what a server that goes
    /// before this one needs more.
    pub(super) fn batch_back(
        &mut self,
        accounts: &[(LimitAccount, Option<String>)],
    ) -> Option<Batch> {
        let mut given_back = Vec::new();
        if self.is_stuck {
            return None;
        }
        for (key, needed_by) in accounts {
            let is_after = needed_by.as_ref().is_some_and(|first| *first < self.ledger);
            match self.accounts.get_mut(key).map_or(0, |account| account.give_back(is_after)) {
                0 => {}
                free => given_back.push((key.clone(), free)),
            }
        }
        if given_back.is_empty() {
            return None;
        }
        self.number += 1;
        Some(Batch {
            ledger: self.ledger.clone(),
            number: self.number,
            // It covers no records of the journal beyond the batch before.
            position: 0,
            used: Vec::new(),
            given_back,
            wants: Vec::new(),
            usage: Vec::new(),
        })
    }

    /// Notes that a batch is in the store.
    pub(super) fn kept(&mut self, batch: &Batch, standings: &[Standing]) {
        for (key, _) in &batch.used {
            if let Some(account) = self.accounts.get_mut(key) {
                account.sent();
            }
        }
        for (want, standing) in batch.wants.iter().zip(standings) {
            if let Some(account) = self.accounts.get_mut(&want.account) {
                account.look(standing, want.hold);
            }
        }
    }

    /// Closes the ledger to new reservations and wakes the waiting calls, which then get an error.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.accounts.values().for_each(Account::wake_all);
    }

    /// Asks the store again about accounts that calls wait for.
    pub(super) fn ask_for_waiting(&mut self) {
        if self.waiting == 0 {
            return;
        }
        let waited_for = self.accounts.iter().filter(|(_, account)| account.is_waited_for());
        self.dirty.extend(waited_for.map(|(key, _)| key.clone()));
    }

    /// Forgets accounts that nobody needs, and returns those that must stay because they have a
    /// grant to give back.
    pub(super) fn idle(
        &mut self,
        now: Timestamp,
        uptime_ms: i64,
        after: Duration,
    ) -> Vec<(LimitAccount, Option<String>)> {
        let before = uptime_ms - ms(after);
        let mut idle = Vec::new();
        let of_workspaces = &mut self.of_workspaces;
        self.accounts.retain(|key, account| {
            let is_over = key.ends_at <= now;
            if !account.is_at_rest() || (account.touched_ms > before && !is_over) {
                return true;
            }
            // The grant of a window that is over is worth nothing.
            let is_kept = account.has_grant() && !is_over;
            if is_kept {
                idle.push((key.clone(), None));
            } else if let Some(count) = of_workspaces.get_mut(&account.workspace) {
                *count -= 1;
            }
            is_kept
        });
        self.of_workspaces.retain(|_, count| *count > 0);
        self.apart.forget_before(now);
        idle
    }

    pub(super) fn granted(&self) -> Vec<(LimitAccount, Option<String>)> {
        let granted = self.accounts.iter().filter(|(_, account)| account.has_grant());
        granted.map(|(key, _)| (key.clone(), None)).collect()
    }

    pub(super) fn has_grants(&self) -> bool {
        self.accounts.values().any(Account::has_grant)
    }

    /// Forgets the records of calls whose end is in the journal. Until then a call is open, because
    /// a new file without its beginning would hide it.
    fn forget_settled(&mut self) {
        for id in self.journal.take_caught_up() {
            self.open.remove(&id);
        }
    }

    /// Continues in a new file of the journal.
    pub(super) fn rotate(&mut self) -> std::io::Result<()> {
        self.forget_settled();
        self.journal.rotate(self.open.values())
    }

    pub(super) fn take_counts(&mut self) -> Vec<((ModelType, ModelOutcome), UsageSum)> {
        self.counts.drain().collect()
    }

    /// Returns the number of accounts and of rows of usage.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.accounts.len(), self.usage.len())
    }

    /// Returns a receiver that is notified when everything counted so far is in the store.
    pub(super) fn tell(&mut self) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        if !self.is_closed {
            self.told.push(tell);
        }
        told
    }

    pub(super) fn take_told(&mut self) -> Vec<oneshot::Sender<()>> {
        std::mem::take(&mut self.told)
    }
}

/// The end of a call.
pub(super) struct Settled<'s> {
    pub(super) id: u64,
    pub(super) accounts: &'s [Taken],
    pub(super) used: &'s [i64],
    pub(super) record: Option<Vec<u8>>,
    pub(super) usage: Option<(UsageKey, UsageSum, ModelOutcome)>,
    pub(super) uptime_ms: i64,
}

impl Settled<'_> {
    pub(super) fn usage_of(call: &ModelCall) -> (UsageKey, UsageSum, ModelOutcome) {
        (UsageKey::of(call), UsageSum::of(call), call.outcome)
    }
}
