//! One account: the window of one limit for one subject. Decides what fits, and queues who waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;
use types::ids::WorkspaceId;
use types::model_books::{LimitAccount, Standing, Want};
use types::models::LimitMeasure;

/// The standing of an account as far as this server knows.
#[derive(Debug)]
pub(super) struct Account {
    /// The limit's name in messages.
    pub(super) name: String,
    /// The workspace whose share of [`Settings::accounts`](super::Settings::accounts) this account
    /// takes.
    pub(super) workspace: WorkspaceId,
    pub(super) amount: i64,
    measure: LimitMeasure,
    /// Granted to this server, less the use that the store has already counted.
    left: i64,
    /// Used here and not in the store yet. `unsent` is not in a batch either; `sending` is in the
    /// batch on its way.
    unsent: i64,
    sending: i64,
    reserved: i64,
    reservations: u32,
    /// Used on all servers, according to the store's last answer.
    known: i64,
    /// Granted to other servers, according to the same answer.
    elsewhere: i64,
    is_looked_up: bool,
    /// Whether the next batch has to ask the store for more.
    is_asked: bool,
    /// Whether the store had less than was wanted. It is asked again when a call waits.
    is_dry: bool,
    queue: BTreeMap<u64, Waiter>,
    pub(super) touched_ms: i64,
}

#[derive(Debug)]
struct Waiter {
    most: i64,
    woken: Arc<Notify>,
}

/// Whether a call can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// Yes, with this amount reserved.
    Take(i64),
    /// Not yet: others may give back enough.
    Wait,
    /// Not in this window.
    Over,
}

impl Account {
    pub(super) fn new(measure: LimitMeasure, workspace: WorkspaceId, now_ms: i64) -> Self {
        Self {
            name: String::new(),
            workspace,
            amount: 0,
            measure,
            left: 0,
            unsent: 0,
            sending: 0,
            reserved: 0,
            reservations: 0,
            known: 0,
            elsewhere: 0,
            is_looked_up: false,
            is_asked: false,
            is_dry: false,
            queue: BTreeMap::new(),
            touched_ms: now_ms,
        }
    }

    /// Sets the name and the amount of the limit, which can change within a window.
    pub(super) fn set_amount(&mut self, name: &str, amount: i64) {
        if self.amount != amount {
            self.amount = amount;
            self.is_dry = false;
        }
        if self.name != name {
            name.clone_into(&mut self.name);
        }
    }

    const fn used(&self) -> i64 {
        self.known.saturating_add(self.unsent).saturating_add(self.sending)
    }

    /// Returns what can be reserved without asking the store.
    const fn free(&self) -> i64 {
        let told = self.unsent.saturating_add(self.sending);
        self.left.saturating_sub(told).saturating_sub(self.reserved)
    }

    /// Returns what is left for another call.
    pub(super) fn spare(&self) -> i64 {
        let promised = self.reserved.saturating_add(self.elsewhere);
        self.amount.saturating_sub(self.used()).saturating_sub(promised).max(0)
    }

    const fn is_strict(&self) -> bool {
        matches!(self.measure, LimitMeasure::Cost | LimitMeasure::Requests)
    }

    pub(super) const fn is_looked_up(&self) -> bool {
        self.is_looked_up
    }

    /// Decides whether a call that takes at most `most` can be made. A waiting call has a ticket,
    /// and never overtakes a smaller one.
    pub(super) fn fit(&self, most: i64, ticket: Option<u64>) -> Fit {
        let (used, fits_alone) = (self.used(), self.fits_alone(most));
        let is_over = if self.is_strict() { !fits_alone } else { used >= self.amount };
        if is_over {
            return Fit::Over;
        }
        let before = self.queue.first_key_value().map(|(first, _)| *first);
        if before.is_some_and(|first| ticket.is_none_or(|ticket| first < ticket)) {
            return Fit::Wait;
        }
        let promised = used.saturating_add(self.reserved);
        if most <= self.free() && most <= self.amount.saturating_sub(promised) {
            return Fit::Take(most);
        }
        if !fits_alone && self.is_all_here() {
            return Fit::Take(self.free().min(self.amount - used).max(0));
        }
        Fit::Wait
    }

    /// Returns whether a call would stay within the limit if nothing else were reserved.
    pub(super) const fn fits_alone(&self, most: i64) -> bool {
        most <= self.amount.saturating_sub(self.used())
    }

    /// Returns whether everything left in the window is granted to this server, with nothing
    /// reserved.
    const fn is_all_here(&self) -> bool {
        self.is_looked_up
            && self.elsewhere == 0
            && self.reservations == 0
            && self.free() > 0
            && self.known.saturating_add(self.left) >= self.amount
    }

    pub(super) fn take(&mut self, reserved: i64) {
        self.reserved += reserved;
        self.reservations += 1;
    }

    /// Undoes [`Account::take`].
    pub(super) fn untake(&mut self, reserved: i64) {
        self.reserved -= reserved;
        self.reservations -= 1;
    }

    pub(super) fn settle(&mut self, reserved: i64, used: i64) {
        self.untake(reserved);
        self.unsent = self.unsent.saturating_add(used);
        self.wake();
    }

    /// Requests that the store be asked. Returns true if that was not requested already.
    pub(super) fn ask(&mut self) -> bool {
        let is_new = !self.is_asked && !self.is_dry;
        self.is_asked |= is_new;
        is_new
    }

    /// Like [`Account::ask`], but before it is needed: when less than half a grant is left.
    pub(super) fn ask_ahead(&mut self, grants: i64) -> bool {
        self.free() < self.piece(grants) / 2 && self.ask()
    }

    fn piece(&self, grants: i64) -> i64 {
        (self.amount / grants.max(1)).max(1)
    }

    /// Returns what wakes a waiting call when it may fit, and whether its place in the queue is
    /// new.
    pub(super) fn wait(&mut self, ticket: u64, most: i64) -> (Arc<Notify>, bool) {
        let mut is_new = false;
        let waiter = self.queue.entry(ticket).or_insert_with(|| {
            is_new = true;
            Waiter { most, woken: Arc::default() }
        });
        (waiter.woken.clone(), is_new)
    }

    /// Gives up a place in the queue. Returns whether it was there.
    pub(super) fn leave(&mut self, ticket: u64) -> bool {
        let was_there = self.queue.remove(&ticket).is_some();
        self.wake();
        was_there
    }

    fn wake(&self) {
        if let Some(first) = self.queue.values().next() {
            first.woken.notify_one();
        }
    }

    pub(super) fn wake_all(&self) {
        self.queue.values().for_each(|waiter| waiter.woken.notify_one());
    }

    /// Takes out the use that goes into a batch. It counts as on its way until [`Account::sent`].
    pub(super) fn send(&mut self) -> i64 {
        self.sending = self.unsent;
        self.unsent = 0;
        self.sending
    }

    /// Returns whether a batch has to ask the store about this account.
    pub(super) fn wants(&self) -> bool {
        self.is_asked || !self.queue.is_empty()
    }

    /// Builds the question to the store that goes into a batch, if there is one.
    pub(super) fn want(&mut self, account: &LimitAccount, grants: i64) -> Option<Want> {
        if !self.wants() {
            return None;
        }
        self.is_asked = false;
        let rest = self.amount.saturating_sub(self.known).saturating_sub(self.sending).max(0);
        let is_crossing = self.queue.values().any(|waiter| !self.fits_alone(waiter.most));
        let need = self.queue.values().map(|waiter| waiter.most).fold(0, i64::saturating_add);
        let ahead = need.max(self.piece(grants)).saturating_add(self.reserved);
        let hold = if is_crossing { rest } else { ahead.min(rest.max(self.reserved)) };
        Some(Want { account: account.clone(), amount: self.amount, hold })
    }

    /// Takes what can be given back from this server at once and returns it. If calls wait here,
    /// that is done only for another server that goes before this one (`is_after`): otherwise both
    /// would keep too little for either.
    pub(super) fn give_back(&mut self, is_after: bool) -> i64 {
        let may = is_after || self.queue.is_empty();
        let free = if may { self.free().max(0) } else { 0 };
        self.left -= free;
        self.is_dry &= free == 0;
        free
    }

    /// Notes that the use on its way has reached the store.
    pub(super) fn sent(&mut self) {
        self.left = (self.left - self.sending).max(0);
        self.known = self.known.saturating_add(self.sending);
        self.sending = 0;
    }

    /// Takes in the store's answer.
    pub(super) fn look(&mut self, standing: &Standing, wanted: i64) {
        self.is_looked_up = true;
        self.known = standing.used;
        self.elsewhere = standing.elsewhere;
        self.left = standing.held;
        self.is_dry = standing.held < wanted;
        self.wake();
    }

    pub(super) const fn is_asked(&self) -> bool {
        self.is_asked
    }

    pub(super) fn is_waited_for(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(super) const fn has_grant(&self) -> bool {
        self.left > 0
    }

    /// Returns whether no reservation, waiting call or message to the store is outstanding.
    pub(super) fn is_at_rest(&self) -> bool {
        self.reservations == 0
            && self.unsent == 0
            && self.sending == 0
            && self.queue.is_empty()
            && !self.is_asked
    }
}
