//! Tests of the ledger's rules, with an in-memory store.

mod faults;
mod files;
mod random;
mod servers;
mod shares;

use super::*;
use admission::Limits;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use types::Timestamp;
use types::ids::{ResourceId, WorkspaceId};
use types::kinds::model::ModelType;
use types::kinds::policy::{Granularity, LimitPer};
use types::model_books::{Batch, Beginning, Standing, UsageKey, UsageSum, Want};
use types::models::{LimitMeasure, ModelLimit, TokenUsage};

/// A stand-in for the store.
#[derive(Default)]
struct Memory {
    of: Mutex<Kept>,
    /// Whether it does what it is asked but reports a failure.
    is_forgetful: AtomicBool,
    is_away: AtomicBool,
    /// Whether it takes what it is given but never answers.
    hangs: AtomicBool,
    /// A batch that arrives before the next one.
    late: Mutex<Option<Batch>>,
    asked: AtomicI64,
}

#[derive(Default)]
struct Kept {
    used: BTreeMap<LimitAccount, i64>,
    held: BTreeMap<(LimitAccount, String), i64>,
    wanted: BTreeMap<(LimitAccount, String), bool>,
    ledgers: BTreeMap<String, (i64, i64)>,
    usage: BTreeMap<UsageKey, UsageSum>,
    /// The accounts that each batch asked about.
    asked_for: Vec<Vec<LimitAccount>>,
}

impl Kept {
    fn take(&mut self, batch: &Batch) -> Vec<Standing> {
        let known = self.ledgers.entry(batch.ledger.clone()).or_default();
        if known.0 < batch.number {
            *known = (batch.number, known.1.max(batch.position));
            for (account, used) in &batch.used {
                *self.used.entry(account.clone()).or_default() += used;
            }
            for (account, amount) in batch.used.iter().chain(&batch.given_back) {
                let held = self.held.entry((account.clone(), batch.ledger.clone())).or_default();
                *held = (*held - amount).max(0);
            }
            for (key, sum) in &batch.usage {
                self.usage.entry(key.clone()).or_default().add(sum);
            }
        }
        self.asked_for.push(batch.wants.iter().map(|want| want.account.clone()).collect());
        batch.wants.iter().map(|want| self.grant(&batch.ledger, want)).collect()
    }

    fn grant(&mut self, ledger: &str, want: &Want) -> Standing {
        let used = *self.used.entry(want.account.clone()).or_default();
        let of = |(key, _): &(&(LimitAccount, String), &i64)| key.0 == want.account;
        let all: i64 = self.held.iter().filter(of).map(|(_, held)| held).sum();
        let held = self.held.entry((want.account.clone(), ledger.to_owned())).or_default();
        let elsewhere = all - *held;
        *held += (want.hold - *held).min(want.amount - used - all).max(0);
        let is_wanted = *held < want.hold && elsewhere > 0;
        self.wanted.insert((want.account.clone(), ledger.to_owned()), is_wanted);
        Standing { account: want.account.clone(), used, held: *held, elsewhere }
    }
}

impl Books for Memory {
    fn begin(&self, ledger: String) -> BoxFuture<'_, Result<Beginning, BooksError>> {
        let kept = self.of.lock();
        let (number, position) = kept.ledgers.get(&ledger).copied().unwrap_or_default();
        let held = kept.held.iter().filter(|((_, of), held)| *of == ledger && **held > 0);
        let held = held.map(|((account, _), held)| (account.clone(), *held)).collect();
        Box::pin(std::future::ready(Ok(Beginning { number, position, held })))
    }

    fn keep(&self, batch: Arc<Batch>) -> BoxFuture<'_, Result<Vec<Standing>, BooksError>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let error = || Err(BooksError("on purpose".into()));
        if self.is_away.load(Ordering::Relaxed) {
            return Box::pin(std::future::ready(error()));
        }
        if let Some(late) = self.late.lock().take() {
            self.of.lock().take(&late);
        }
        if self.hangs.load(Ordering::Relaxed) {
            return Box::pin(std::future::pending());
        }
        let standings = self.of.lock().take(&batch);
        let is_lost = self.is_forgetful.swap(false, Ordering::Relaxed);
        Box::pin(std::future::ready(if is_lost { error() } else { Ok(standings) }))
    }

    fn asked_for(
        &self,
        ledger: String,
    ) -> BoxFuture<'_, Result<Vec<(LimitAccount, String)>, BooksError>> {
        let kept = self.of.lock();
        let asked = kept.wanted.iter().filter(|((_, by), is)| **is && *by != ledger);
        let asked = asked.map(|(of, _)| of.clone()).collect();
        Box::pin(std::future::ready(Ok(asked)))
    }
}

impl Memory {
    fn used(&self) -> i64 {
        self.of.lock().used.values().sum()
    }

    fn held(&self) -> i64 {
        self.of.lock().held.values().sum()
    }

    fn usage(&self) -> UsageSum {
        let mut all = UsageSum::default();
        self.of.lock().usage.values().for_each(|sum| all.add(sum));
        all
    }
}

struct Place {
    folder: tempfile::TempDir,
    books: Arc<Memory>,
    now: Arc<AtomicI64>,
}

/// Longest wait for what has to happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A time in the middle of a minute.
const NOW: i64 = 1_800_000_030_000;

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, books: Arc::default(), now: Arc::new(AtomicI64::new(NOW)) }
    }

    /// A world whose clock the test sets. Its uptime and its waits are real.
    fn world(&self) -> World {
        let now = self.now.clone();
        let uptime = std::time::Instant::now();
        World::new(
            move || Timestamp::from_ms(now.load(Ordering::Relaxed)),
            |bytes| getrandom::fill(bytes).unwrap(),
        )
        .with_uptime(move || i64::try_from(uptime.elapsed().as_millis()).unwrap())
    }

    fn settings(&self, name: &str) -> Settings {
        Settings {
            sync_every: Duration::from_millis(5),
            keep_up_every: Duration::from_millis(10),
            wait_max: Duration::from_secs(5),
            last_wait: Duration::from_millis(50),
            ..Settings::new(self.folder.path().join(name), "boot".into())
        }
    }

    async fn open(&self) -> Ledger {
        self.open_with(self.settings("a")).await
    }

    async fn open_with(&self, settings: Settings) -> Ledger {
        Ledger::open(settings, self.books.clone(), self.world()).await.unwrap()
    }

    /// Kills the ledger: the files stay as they are, and nobody holds them any more.
    fn kill(&self, ledger: Ledger, to: &str) -> Settings {
        let settings = self.settings(to);
        std::fs::create_dir_all(&settings.folder).unwrap();
        for entry in std::fs::read_dir(&ledger.0.settings.folder).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), settings.folder.join(entry.file_name())).unwrap();
        }
        if let Some(background) = ledger.0.background.lock().take() {
            background.abort();
        }
        settings
    }
}

fn limit(measure: LimitMeasure, amount: i64) -> Arc<ModelLimit> {
    Arc::new(ModelLimit {
        id: "policy".into(),
        name: "policy `p`".into(),
        measure,
        amount,
        per: LimitPer::Model,
        granularity: Granularity::Minute,
        step: 1,
    })
}

fn hold(limit: &Arc<ModelLimit>, most: i64) -> Hold {
    Hold { limit: limit.clone(), subject: "m".into(), most }
}

fn call(amount: i64) -> ModelCall {
    let amount = u64::try_from(amount).unwrap();
    ModelCall {
        at: Timestamp::from_ms(NOW),
        workspace: WorkspaceId::known("wsp_a"),
        model: "m".into(),
        model_id: ResourceId::known("res_m"),
        provider: ModelType::Openai,
        provider_model: "gpt".into(),
        key: "key".into(),
        end_user: None,
        tag: None,
        usage: TokenUsage { input: amount, ..TokenUsage::default() },
        cost: amount,
        prices: "1".into(),
        outcome: ModelOutcome::Answered,
    }
}

async fn reserve(
    ledger: &Ledger,
    limit: &Arc<ModelLimit>,
    most: i64,
) -> Result<Reservation, Refused> {
    ledger.reserve(vec![hold(limit, most)], call(most)).await
}

/// Reserves where calls wait for so short a time that the store may not have answered yet.
async fn reserve_at_last(ledger: &Ledger, limit: &Arc<ModelLimit>, most: i64) -> Reservation {
    let reserved = async {
        loop {
            if let Ok(reservation) = reserve(ledger, limit, most).await {
                break reservation;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, reserved).await.expect("it fits")
}

fn over(refused: Result<Reservation, Refused>) -> OverLimit {
    match refused {
        Err(Refused::OverLimit(over)) => over,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was reserved"),
    }
}

async fn is_waiting(future: impl Future<Output = Result<Reservation, Refused>>) -> bool {
    tokio::time::timeout(Duration::from_millis(100), future).await.is_err()
}

#[tokio::test]
async fn money_is_never_passed_and_what_was_not_used_comes_back() {
    let place = Place::new();
    let (ledger, money) = (place.open().await, limit(LimitMeasure::Cost, 100));
    let first = reserve(&ledger, &money, 60).await.unwrap();
    assert!(is_waiting(reserve(&ledger, &money, 60)).await);
    first.settle(&call(10));
    let second = reserve(&ledger, &money, 90).await.unwrap();
    second.settle(&call(90));
    let over = over(reserve(&ledger, &money, 1).await);
    assert_eq!((over.left, over.needs, over.amount), (0, 1, 100));
    assert!(!over.never_fits() && over.to_string().ends_with("needed"), "{over}");
    assert_eq!(over.ends_at.ms(), NOW + 30_000);
    assert_eq!(over.retry_after, Duration::from_secs(30));
    // A call that costs nothing is served.
    reserve(&ledger, &money, 0).await.unwrap().give_back();
    place.now.fetch_add(30_000, Ordering::Relaxed);
    reserve(&ledger, &money, 100).await.unwrap().give_back();
    ledger.close().await;
    assert_eq!((place.books.used(), place.books.held()), (100, 0));
    assert_eq!(place.books.usage().cost, 100);
}

#[tokio::test]
async fn what_can_never_fit_is_refused_at_once() {
    let place = Place::new();
    let (ledger, money) = (place.open().await, limit(LimitMeasure::Cost, 100));
    let _held = reserve(&ledger, &money, 50).await.unwrap();
    let began = std::time::Instant::now();
    let never = over(reserve(&ledger, &money, 101).await);
    assert_eq!((never.left, never.never_fits()), (50, true));
    assert!(never.to_string().ends_with("lower `max_tokens`"), "{never}");
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn a_refusal_after_a_start_knows_what_was_used_before() {
    let place = Place::new();
    let (ledger, money) = (place.open().await, limit(LimitMeasure::Cost, 100));
    reserve(&ledger, &money, 30).await.unwrap().settle(&call(30));
    ledger.close().await;
    drop(ledger);
    let ledger = place.open().await;
    assert_eq!(over(reserve(&ledger, &money, 101).await).left, 70);
    ledger.close().await;
    assert_eq!(place.books.held(), 0);
}

#[tokio::test]
async fn the_call_that_crosses_a_limit_of_tokens_is_served_alone() {
    let place = Place::new();
    let (ledger, tokens) = (place.open().await, limit(LimitMeasure::InputTokens, 100));
    let small = reserve(&ledger, &tokens, 30).await.unwrap();
    let crossing = tokio::spawn({
        let (ledger, tokens) = (ledger.clone(), tokens.clone());
        async move { reserve(&ledger, &tokens, 500).await }
    });
    assert!(is_waiting(reserve(&ledger, &tokens, 200)).await);
    assert!(!crossing.is_finished(), "something is reserved");
    small.settle(&call(30));
    let crossing = crossing.await.unwrap().unwrap();
    assert!(is_waiting(reserve(&ledger, &tokens, 1)).await);
    crossing.settle(&call(20));
    // It used less than was reserved.
    reserve(&ledger, &tokens, 500).await.unwrap().settle(&call(450));
    assert_eq!(over(reserve(&ledger, &tokens, 1).await).left, 0);
    ledger.close().await;
    assert_eq!(place.books.used(), 500);
}

#[tokio::test]
async fn who_waits_for_long_is_refused_and_keeps_no_place() {
    let place = Place::new();
    let settings = Settings {
        wait_max: Duration::from_millis(60),
        waiting: Limits { total: 1, share: 1 },
        ..place.settings("a")
    };
    let (ledger, money) = (place.open_with(settings).await, limit(LimitMeasure::Cost, 100));
    let held = reserve_at_last(&ledger, &money, 80).await;
    let (one, two) = tokio::join!(reserve(&ledger, &money, 30), reserve(&ledger, &money, 30));
    for refused in [over(one), over(two)] {
        assert_eq!(refused.left, 20);
        // The window lasts another half minute, but the reserved amount may come back before that.
        assert_eq!(refused.retry_after, Duration::from_millis(60));
    }
    held.settle(&call(80));
    reserve_at_last(&ledger, &money, 20).await.settle(&call(20));
}

#[tokio::test]
async fn the_first_in_the_queue_is_the_first_served() {
    let place = Place::new();
    let (ledger, money) = (place.open().await, limit(LimitMeasure::Cost, 100));
    let held = reserve(&ledger, &money, 50).await.unwrap();
    let large = reserve(&ledger, &money, 90);
    tokio::pin!(large);
    assert!(is_waiting(&mut large).await);
    assert!(is_waiting(reserve(&ledger, &money, 10)).await, "it would pass the large one");
    held.give_back();
    large.await.unwrap().give_back();
    reserve(&ledger, &money, 10).await.unwrap().give_back();
}

#[tokio::test]
async fn all_limits_of_a_call_hold_or_nothing_is_taken() {
    let place = Place::new();
    let ledger = place.open().await;
    let (money, tokens) = (limit(LimitMeasure::Cost, 100), limit(LimitMeasure::TotalTokens, 50));
    let both = |most| vec![hold(&money, most), hold(&tokens, most)];
    ledger.reserve(both(50), call(50)).await.unwrap().settle(&call(50));
    assert_eq!(over(ledger.reserve(both(1), call(1)).await).measure, LimitMeasure::TotalTokens);
    let twice = vec![hold(&money, 30), hold(&money, 50)];
    ledger.reserve(twice, call(50)).await.unwrap().give_back();
}

#[tokio::test]
async fn a_lowered_amount_refuses_and_a_raised_one_serves() {
    let place = Place::new();
    let ledger = place.open().await;
    let [few, many, more] = [10, 100, 1000].map(|amount| limit(LimitMeasure::Requests, amount));
    for _ in 0..40 {
        reserve(&ledger, &many, 1).await.unwrap().settle(&call(7));
    }
    assert_eq!(over(reserve(&ledger, &few, 1).await).left, 0);
    reserve(&ledger, &many, 1).await.unwrap().settle(&call(7));
    for _ in 0..900 {
        reserve(&ledger, &more, 1).await.unwrap().settle(&call(7));
    }
    ledger.close().await;
    assert_eq!(place.books.used(), 941);
}

#[tokio::test]
async fn what_is_dropped_counts_in_full() {
    let place = Place::new();
    let (ledger, money) = (place.open().await, limit(LimitMeasure::Cost, 100));
    drop(reserve(&ledger, &money, 70).await.unwrap());
    assert_eq!(over(reserve(&ledger, &money, 31).await).left, 30);
    ledger.flush().await;
    assert_eq!((place.books.used(), place.books.usage().cost), (70, 70));
}
