//! Tests of the ledger's rules, with an in-memory store.

mod faults;
mod shares;

use super::*;
use admission::Limits;
use parking_lot::Mutex;
use proptest::prelude::*;
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
    fn begin(&self, ledger: String) -> Answer<'_, Result<Beginning, BooksError>> {
        let kept = self.of.lock();
        let (number, position) = kept.ledgers.get(&ledger).copied().unwrap_or_default();
        let held = kept.held.iter().filter(|((_, of), held)| *of == ledger && **held > 0);
        let held = held.map(|((account, _), held)| (account.clone(), *held)).collect();
        Box::pin(std::future::ready(Ok(Beginning { number, position, held })))
    }

    fn keep(&self, batch: Arc<Batch>) -> Answer<'_, Result<Vec<Standing>, BooksError>> {
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
    ) -> Answer<'_, Result<Vec<(LimitAccount, String)>, BooksError>> {
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
        if let Some(keeper) = ledger.0.keeper.lock().take() {
            keeper.abort();
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
    assert_eq!(over(reserve(&ledger, &money, 101).await).left, 50);
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
    let held = reserve(&ledger, &money, 80).await.unwrap();
    let (one, two) = tokio::join!(reserve(&ledger, &money, 30), reserve(&ledger, &money, 30));
    for refused in [over(one), over(two)] {
        assert_eq!(refused.left, 20);
        // The window lasts another half minute, but the reserved amount may come back before that.
        assert_eq!(refused.retry_after, Duration::from_millis(60));
    }
    held.settle(&call(80));
    reserve(&ledger, &money, 20).await.unwrap().settle(&call(20));
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

#[tokio::test]
async fn two_servers_use_up_one_limit_together() {
    let place = Place::new();
    let money = limit(LimitMeasure::Cost, 1000);
    let one = place.open_with(place.settings("one")).await;
    let two = place.open_with(place.settings("two")).await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..60 {
        let ledger = if number % 2 == 0 { one.clone() } else { two.clone() };
        let money = money.clone();
        tasks.spawn(async move {
            let mut served = 0;
            for _ in 0..20 {
                match reserve(&ledger, &money, 10).await {
                    Ok(reservation) => {
                        tokio::task::yield_now().await;
                        reservation.settle(&call(1));
                        served += 1;
                    }
                    Err(error) => assert!(matches!(error, Refused::OverLimit(_)), "{error}"),
                }
            }
            served
        });
    }
    let served: i64 = tasks.join_all().await.into_iter().sum();
    // No call was refused while enough was left and nothing was in flight.
    assert!(served > 990, "{served}");
    one.close().await;
    two.close().await;
    assert_eq!((place.books.used(), place.books.held()), (served, 0));
}

#[tokio::test]
async fn one_server_gets_what_another_does_not_need() {
    let place = Place::new();
    let money = limit(LimitMeasure::Cost, 1000);
    let one = place.open_with(place.settings("one")).await;
    let two = place.open_with(place.settings("two")).await;
    reserve(&one, &money, 900).await.unwrap().settle(&call(1));
    reserve(&two, &money, 999).await.unwrap().settle(&call(999));
    over(reserve(&one, &money, 1).await);
    // Also for tokens, where the call that crosses the limit must get all that is left.
    let tokens = limit(LimitMeasure::TotalTokens, 1000);
    reserve(&one, &tokens, 900).await.unwrap().settle(&call(1));
    reserve(&two, &tokens, 5000).await.unwrap().settle(&call(5000));
    over(reserve(&one, &tokens, 1).await);
}

#[tokio::test]
async fn a_long_journal_goes_on_in_new_files() {
    let place = Place::new();
    let settings = Settings { file_max: 2000, ..place.settings("a") };
    let (ledger, money) = (place.open_with(settings).await, limit(LimitMeasure::Cost, 100_000));
    let open = reserve(&ledger, &money, 7).await.unwrap();
    for _ in 0..20 {
        for _ in 0..10 {
            reserve(&ledger, &money, 5).await.unwrap().settle(&call(3));
        }
        ledger.flush().await;
    }
    let files = journal::list(&place.folder.path().join("a")).unwrap();
    assert!(files.len() <= 2, "{files:?}");
    assert!(!files[0].ends_with("journal-00000000000000000001"), "{files:?}");
    // A call that was open all the time is still known after a kill.
    let settings = place.kill(ledger, "b");
    std::mem::forget(open);
    place.open_with(settings).await.close().await;
    assert_eq!((place.books.used(), place.books.usage().calls), (607, 201));
}

#[tokio::test]
async fn a_folder_serves_one_process() {
    let place = Place::new();
    let _ledger = place.open().await;
    let again = Ledger::open(place.settings("a"), place.books.clone(), place.world()).await;
    assert!(matches!(again, Err(OpenError::InUse { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever is torn off the end of a journal, everything before it is read and nothing is made
    /// up.
    #[test]
    fn a_torn_journal_is_read_up_to_the_tear(count in 0u64..12, cut in 0usize..400, flip in any::<Option<u8>>()) {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = journal::Journal::begin(folder.path(), "boot", 5).unwrap();
        let end = Some(journal::End::of(&call(3)));
        for id in 0..count {
            journal.append(&journal::settled(id, &[3], end).unwrap()).unwrap();
        }
        let path = journal::list(folder.path()).unwrap().remove(0);
        let mut bytes = std::fs::read(&path).unwrap();
        let length = bytes.len() - cut.min(bytes.len());
        match flip {
            Some(bits) if length < bytes.len() => bytes[length] ^= bits | 1,
            Some(_) => {}
            None => bytes.truncate(length),
        }
        std::fs::write(&path, &bytes).unwrap();
        let mut read = Vec::new();
        let last = journal::read(&path, |number, record| read.push((number, record)));
        let last = last.map_or(0, |found| found.map_or(0, |(_, last)| last));
        for (place, (number, record)) in read.iter().enumerate() {
            prop_assert_eq!(*number, 5 + i64::try_from(place).unwrap());
            let id = u64::try_from(place).unwrap();
            let wanted = journal::Record::Settled { id, used: vec![3], end };
            prop_assert_eq!(record, &wanted);
        }
        if cut == 0 {
            prop_assert_eq!(last, 4 + i64::try_from(count).unwrap());
        }
    }
}

/// One step of a random run.
#[derive(Debug, Clone)]
enum Step {
    Reserve { measure: bool, most: i64 },
    Settle { which: usize, used: i64 },
    GiveBack { which: usize },
    Drop { which: usize },
    Pass,
    Kill,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<bool>(), 0i64..60).prop_map(|(measure, most)| Step::Reserve { measure, most }),
        4 => (0usize..8, 0i64..60).prop_map(|(which, used)| Step::Settle { which, used }),
        1 => (0usize..8).prop_map(|which| Step::GiveBack { which }),
        1 => (0usize..8).prop_map(|which| Step::Drop { which }),
        1 => Just(Step::Pass),
        1 => Just(Step::Kill),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// A limit on money is never exceeded, one on tokens by one call at most, refusals are right,
    /// and the sum is what was served, with kills at any point.
    #[test]
    fn the_rules_hold(steps in proptest::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(follow(steps));
    }
}

async fn follow(steps: Vec<Step>) {
    let place = Place::new();
    let wait_max = Duration::from_millis(40);
    let mut settings = Settings { wait_max, ..place.settings("a") };
    let mut ledger = place.open_with(settings.clone()).await;
    let (money, tokens) = (limit(LimitMeasure::Cost, 200), limit(LimitMeasure::InputTokens, 200));
    let mut open: Vec<(Reservation, i64, bool)> = Vec::new();
    // For money and for tokens: used in this window, and in total.
    let (mut used, mut sum, mut windows) = ([0i64; 2], 0, 0i64);
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Reserve { measure, most } => {
                let limit = if measure { &money } else { &tokens };
                let used = used[usize::from(!measure)];
                match reserve(&ledger, limit, most).await {
                    Ok(reservation) => open.push((reservation, most, measure)),
                    Err(Refused::OverLimit(_)) => {
                        let in_flight = open.iter().any(|(_, _, of)| *of == measure);
                        let fits = if measure { used + most <= 200 } else { used < 200 };
                        assert!(in_flight || !fits, "{used} and {most} of {measure}");
                    }
                    // On a busy machine the background task can go without a turn for that long.
                    Err(Refused::Unavailable(why)) => assert!(why.contains("store"), "{why}"),
                }
            }
            Step::Settle { which, used: amount } if which < open.len() => {
                let (reservation, most, measure) = open.swap_remove(which);
                reservation.settle(&call(amount.min(most)));
                used[usize::from(!measure)] += amount.min(most);
                sum += amount.min(most);
            }
            Step::GiveBack { which } if which < open.len() => open.swap_remove(which).0.give_back(),
            Step::Drop { which } if which < open.len() => {
                let (reservation, most, measure) = open.swap_remove(which);
                drop(reservation);
                used[usize::from(!measure)] += most;
                sum += most;
            }
            Step::Pass if open.is_empty() => {
                place.now.fetch_add(60_000, Ordering::Relaxed);
                (used, windows) = ([0; 2], windows + 1);
            }
            Step::Kill => {
                settings = Settings { wait_max, ..place.kill(ledger, &format!("{number}")) };
                for (reservation, most, measure) in open.drain(..) {
                    std::mem::forget(reservation);
                    used[usize::from(!measure)] += most;
                    sum += most;
                }
                ledger = place.open_with(settings.clone()).await;
            }
            _ => {}
        }
        assert!(used[0] <= 200 && used[1] < 260, "{used:?}");
    }
    for (reservation, ..) in open {
        reservation.give_back();
    }
    ledger.close().await;
    assert_eq!((place.books.used(), place.books.usage().cost), (sum, sum));
    let passed = place.books.of.lock().used.values().any(|used| *used > 260);
    assert!(!passed, "in {windows} windows");
}
