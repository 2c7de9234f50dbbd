//! The limits of models hold even if servers are killed: many random calls run at once, some of
//! them broken off, in processes that are killed in the middle and started again.
//!
//! Besides using the ledger, a process notes what it does, as a provider would: `R` before it
//! reserves, `X` when it was refused, `S` when it was served, `D` with what it used before it
//! settles, `E` after.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use models::ledger::{Hold, Ledger, Refused, Settings};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use store::models::Question;
use store::{Store, Target};
use types::ids::{ResourceId, WorkspaceId};
use types::kinds::model::ModelType;
use types::kinds::policy::{Granularity, LimitPer};
use types::models::{LimitMeasure, ModelCall, ModelLimit, ModelOutcome, TokenUsage};
use types::wire::ModelUsageBy;
use types::{Timestamp, World};

/// Calls at the same time.
const AT_ONCE: u64 = 64;
const KEYS: u64 = 8;
const USERS: u64 = 40;
const MOST_MAX: u64 = 1000;
const NOW: i64 = 1_800_000_000_000;

/// Environment variables that tell a child process what to do.
const FOLDER: &str = "HOLM_TEST_LEDGER_FOLDER";
const DATABASE: &str = "HOLM_TEST_LEDGER_DATABASE";
const RANGE: &str = "HOLM_TEST_LEDGER_RANGE";
/// How many calls are made. A million takes some minutes.
const CALLS: &str = "HOLM_TEST_LEDGER_CALLS";

fn calls() -> u64 {
    std::env::var(CALLS).map_or(20_000, |calls| calls.parse().unwrap())
}

fn world() -> World {
    let began = Instant::now();
    World::new(|| Timestamp::from_ms(NOW), |bytes| getrandom::fill(bytes).unwrap())
        .with_uptime(move || i64::try_from(began.elapsed().as_millis()).unwrap())
}

async fn open_store(folder: &Path, database: &str) -> Store {
    let target = match database {
        "" => Target::Sqlite { file: folder.join("holm.db") },
        url => Target::Postgres { url: url.into() },
    };
    let settings =
        store::Settings { connections: 4, ..store::Settings::new(target, folder.join("keys")) };
    Store::open(settings, world()).await.unwrap()
}

/// Returns the limits that every call is under: money of the workspace and of each key, and
/// requests of each user.
fn limits(calls: u64) -> [Arc<ModelLimit>; 3] {
    let limit = |id: &str, measure, per, amount: u64| {
        Arc::new(ModelLimit {
            id: id.into(),
            name: id.into(),
            measure,
            amount: i64::try_from(amount).unwrap(),
            per,
            granularity: Granularity::Month,
            step: 12,
        })
    };
    let money = calls * MOST_MAX / 8;
    [
        limit("workspace", LimitMeasure::Cost, LimitPer::Workspace, money),
        limit("key", LimitMeasure::Cost, LimitPer::Key, money / KEYS + MOST_MAX),
        limit("user", LimitMeasure::Requests, LimitPer::EndUser, calls / USERS * 3 / 4),
    ]
}

/// A source of random numbers that is determined by the number of a call.
struct Random(u64);

impl Random {
    fn of(number: u64) -> Self {
        Self(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5DEE_CE66_D1CE_4E5B)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    /// Returns the key and the user of a call, and what it may cost at most. Some users make more
    /// calls than others.
    fn call(&mut self) -> (u64, u64, u64) {
        let (key, user) = (self.below(KEYS), self.below(USERS).min(self.below(USERS)));
        (key, user, self.below(MOST_MAX) + 1)
    }
}

fn call(number: u64, key: u64, user: u64, cost: u64) -> ModelCall {
    ModelCall {
        at: Timestamp::from_ms(NOW),
        workspace: WorkspaceId::known("wsp_a"),
        model: "m".into(),
        model_id: ResourceId::known("res_m"),
        provider: ModelType::Openai,
        provider_model: "gpt".into(),
        key: format!("key-{key}"),
        end_user: Some(format!("user-{user}")),
        tag: number.is_multiple_of(3).then(|| "third".to_owned()),
        usage: TokenUsage { input: cost, output: 1, ..TokenUsage::default() },
        cost,
        prices: "1".into(),
        outcome: ModelOutcome::Answered,
    }
}

/// One process that serves calls.
struct Server {
    ledger: Ledger,
    limits: [Arc<ModelLimit>; 3],
    notes: File,
    next: AtomicU64,
    end: u64,
    /// How much of the workspace's money may be used by now, at most.
    used: AtomicI64,
    /// Whether no other process uses the workspace's money.
    is_alone: bool,
}

impl Server {
    fn note(&self, line: &str) {
        (&self.notes).write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    async fn serve(&self) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.end {
                return;
            }
            self.call(number).await;
        }
    }

    async fn call(&self, number: u64) {
        let mut random = Random::of(number);
        let (key, user, most) = random.call();
        let hold = |limit: usize, subject: String, most: u64| Hold {
            limit: self.limits[limit].clone(),
            subject,
            most: most as i64,
        };
        let holds = vec![
            hold(0, "wsp_a".into(), most),
            hold(1, format!("key-{key}"), most),
            hold(2, format!("user-{user}"), 1),
        ];
        self.note(&format!("R {number} {most}"));
        let reserve = self.ledger.reserve(holds, call(number, key, user, most));
        let reservation = if random.below(50) == 0 {
            // A caller who does not wait.
            tokio::select! {
                biased;
                reservation = reserve => reservation,
                () = tokio::task::yield_now() => {
                    self.note(&format!("X {number} 0 -"));
                    return;
                }
            }
        } else {
            reserve.await
        };
        let reservation = match reservation {
            Ok(reservation) => reservation,
            Err(Refused::OverLimit(over)) => {
                if over.limit == "workspace" && self.is_alone {
                    let used = self.used.load(Ordering::SeqCst);
                    assert!(used + over.needs > over.amount, "{used} of {over:?}");
                }
                self.note(&format!("X {number} {} {}", over.needs, over.limit));
                return;
            }
            Err(error) => panic!("{error}"),
        };
        self.note(&format!("S {number} {most}"));
        for _ in 0..random.below(4) {
            tokio::task::yield_now().await;
        }
        let used = random.below(most + 1);
        let (used, end) = match random.below(20) {
            0 => (0, 'b'),
            1 | 2 => (most, 'd'),
            _ => (used, 's'),
        };
        self.note(&format!("D {number} {used} {end}"));
        self.used.fetch_add(used as i64, Ordering::SeqCst);
        match end {
            'b' => reservation.give_back(),
            'd' => drop(reservation),
            _ => reservation.settle(&call(number, key, user, used)),
        }
        self.note(&format!("E {number} {used} {end}"));
    }
}

/// Serves calls until it is killed or all are made. Started by the tests below.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it is the process that the other tests kill"]
async fn child() {
    let folder = PathBuf::from(std::env::var(FOLDER).unwrap());
    let database = std::env::var(DATABASE).unwrap();
    let range = std::env::var(RANGE).unwrap();
    let (begin, end) = range.split_once('-').unwrap();
    let store = open_store(&folder, &database).await;
    let settings = Settings {
        wait_max: Duration::from_secs(120),
        file_max: 1 << 20,
        keep_up_every: Duration::from_millis(20),
        ..Settings::new(folder.join("journal"), "boot".into())
    };
    let books = control::models::ledger::books(&store);
    let ledger = Ledger::open(settings, books, world()).await.unwrap();
    let notes = OpenOptions::new().create(true).append(true).open(folder.join("notes")).unwrap();
    let server = Arc::new(Server {
        ledger: ledger.clone(),
        limits: limits(calls()),
        notes,
        next: AtomicU64::new(begin.parse().unwrap()),
        end: end.parse().unwrap(),
        used: AtomicI64::new(used(&store).await.0),
        is_alone: database.is_empty(),
    });
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let server = server.clone();
        tasks.spawn(async move { server.serve().await });
    }
    tasks.join_all().await;
    ledger.close().await;
    File::create(folder.join("done")).unwrap();
}

/// Returns what all calls cost together, and how many there were, as the store has it.
async fn used(store: &Store) -> (i64, i64) {
    let question = Question {
        workspace: WorkspaceId::known("wsp_a"),
        model: None,
        first: 0,
        end: i64::MAX,
        group_by: vec![ModelUsageBy::Key],
        step: None,
        rows_max: 1000,
    };
    let rows = store.read(move |tx| store::models::usage(tx, &question)).await.unwrap();
    let sum =
        |of: fn(&types::model_books::UsageSum) -> i64| rows.iter().map(move |row| of(&row.sum));
    (sum(|sum| sum.cost).sum(), sum(|sum| sum.calls).sum())
}

/// A server with its folder, and the range of calls that it serves.
struct Run {
    folder: PathBuf,
    database: String,
    range: (u64, u64),
}

impl Run {
    fn start(&self) -> Child {
        let next = self.notes().keys().next_back().map_or(self.range.0, |last| last + 1);
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--ignored", "--nocapture"])
            .env(FOLDER, &self.folder)
            .env(DATABASE, &self.database)
            .env(RANGE, format!("{next}-{}", self.range.1))
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Lets it serve its calls up to a share (in percent), and kills it there.
    fn kill_at(&self, share: u64) {
        let mut child = self.start();
        let until = self.range.0 + (self.range.1 - self.range.0) * share / 100;
        loop {
            let last = self.last();
            let has_ended = child.try_wait().unwrap();
            assert!(has_ended.is_none(), "it ended before it was killed, at {last} of {until}");
            if last >= until {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn finish(&self) {
        assert!(self.start().wait().unwrap().success());
        assert!(self.folder.join("done").exists());
    }

    /// Returns the number of the last call that was begun, or slightly less.
    fn last(&self) -> u64 {
        use std::os::unix::fs::FileExt as _;
        let Ok(file) = File::open(self.folder.join("notes")) else { return 0 };
        let (mut end, length) = ([0; 256], file.metadata().unwrap().len());
        let read = file.read_at(&mut end, length.saturating_sub(256)).unwrap();
        let text = String::from_utf8_lossy(&end[..read]).into_owned();
        // The first and the last line may be incomplete.
        let whole = text.lines().skip(1).filter(|line| line.split(' ').count() > 2);
        let numbers = whole.filter_map(|line| line.split(' ').nth(1)?.parse().ok());
        numbers.max().unwrap_or(0)
    }

    /// Returns the last note of each call.
    fn notes(&self) -> BTreeMap<u64, Vec<String>> {
        let text = std::fs::read_to_string(self.folder.join("notes")).unwrap_or_default();
        let mut notes = BTreeMap::new();
        for line in text.lines() {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            notes.insert(words[1].parse().unwrap(), words);
        }
        notes
    }
}

/// The sum of all notes.
#[derive(Debug, Default)]
struct Sum {
    /// Cost of calls that ended.
    cost: i64,
    calls: i64,
    /// Calls that were in flight at a kill: what they count at least and at most.
    cost_more: (i64, i64),
    calls_more: (i64, i64),
    /// The smallest amount that was refused, by limit.
    refused: BTreeMap<String, i64>,
    refusals: u64,
}

impl Sum {
    fn add(&mut self, words: &[String], most: i64) {
        let amount: i64 = words[2].parse().unwrap();
        match words[0].as_str() {
            "E" => {
                self.cost += amount;
                self.calls += i64::from(words[3] != "b");
            }
            "X" if words[3] != "-" => {
                let least = self.refused.entry(words[3].clone()).or_insert(i64::MAX);
                *least = amount.min(*least);
                self.refusals += 1;
            }
            "X" => {}
            // Killed while the call was being reserved or refused, or before.
            "R" => self.in_flight((0, most), (0, 1)),
            // Certainly reserved and not settled, so it counts in full.
            "S" => self.in_flight((most, most), (1, 1)),
            // Whether it was settled cannot be told.
            "D" if words[3] == "b" => self.in_flight((0, most), (0, 1)),
            "D" => self.in_flight((amount, most), (1, 1)),
            other => panic!("{other}"),
        }
    }

    fn in_flight(&mut self, cost: (i64, i64), calls: (i64, i64)) {
        self.cost_more = (self.cost_more.0 + cost.0, self.cost_more.1 + cost.1);
        self.calls_more = (self.calls_more.0 + calls.0, self.calls_more.1 + calls.1);
    }
}

/// Compares the notes of servers with what the store has.
async fn check(runs: &[&Run], calls_made: u64) {
    let store = open_store(&runs[0].folder, &runs[0].database).await;
    let (cost, calls) = used(&store).await;
    let mut sum = Sum::default();
    for run in runs {
        for (number, words) in run.notes() {
            let (_, _, most) = Random::of(number).call();
            sum.add(&words, most as i64);
        }
    }
    let between =
        |value: i64, base: i64, more: (i64, i64)| (base + more.0..=base + more.1).contains(&value);
    assert!(between(cost, sum.cost, sum.cost_more), "{cost} of {sum:?}");
    assert!(between(calls, sum.calls, sum.calls_more), "{calls} of {sum:?}");
    let in_flight_max = 3 * runs.len() as i64 * AT_ONCE as i64;
    assert!(sum.calls_more.1 <= in_flight_max, "{sum:?}");

    let limits = limits(calls_made);
    assert!(cost <= limits[0].amount, "{cost}");
    // The accounts of all limits agree with the usage, and no limit is exceeded.
    let accounts = accounts(&store, &limits).await;
    for (limit, used) in &accounts {
        let amount = limits.iter().find(|known| known.id == *limit).unwrap().amount;
        assert!(used.iter().all(|used| *used <= amount), "{limit}: {used:?} of {amount}");
    }
    let all = |limit: &str| accounts[limit].iter().sum::<i64>();
    assert_eq!((all("workspace"), all("key"), all("user")), (cost, cost, calls));
    // There were refusals, but none while the money covered the call with nothing in flight.
    assert!(sum.refusals > 100, "{sum:?}");
    if let Some(least) = sum.refused.get("workspace") {
        assert!(cost + least > limits[0].amount, "{least} was refused at {cost}");
    }
    assert!(sum.refused.contains_key("workspace"), "{sum:?}");
}

/// Returns what is used of all accounts of the limits, found by asking for grants of nothing.
async fn accounts(store: &Store, limits: &[Arc<ModelLimit>; 3]) -> BTreeMap<String, Vec<i64>> {
    let mut batch = types::model_books::Batch {
        ledger: "who looks".into(),
        number: 1,
        position: 0,
        used: Vec::new(),
        given_back: Vec::new(),
        wants: Vec::new(),
        usage: Vec::new(),
    };
    let now = Timestamp::from_ms(NOW);
    for (limit, sort, count) in [(0, "workspace", 1), (1, "key", KEYS), (2, "user", USERS)] {
        for number in 0..count {
            let subject = match sort {
                "workspace" => "workspace:wsp_a".to_owned(),
                sort => format!("{sort}:{sort}-{number}"),
            };
            let limit = &limits[limit];
            let (starts_at, ends_at) = models::ledger::window(now, limit.granularity, limit.step);
            let account = types::model_books::LimitAccount {
                limit: limit.id.clone(),
                measure: limit.measure,
                subject,
                starts_at,
                ends_at,
            };
            batch.wants.push(types::model_books::Want { account, amount: limit.amount, hold: 0 });
        }
    }
    let standings = store.write(move |tx| store::models::keep(tx, &batch)).await.unwrap();
    let mut found = BTreeMap::<String, Vec<i64>>::new();
    for standing in standings {
        assert_eq!(standing.elsewhere, 0, "all that was granted came back: {standing:?}");
        found.entry(standing.account.limit).or_default().push(standing.used);
    }
    found
}

#[tokio::test]
async fn limits_hold_through_three_kills() {
    let folder = tempfile::tempdir().unwrap();
    let range = (0, calls());
    let run = Run { folder: folder.path().to_owned(), database: String::new(), range };
    for share in [10, 25, 40] {
        run.kill_at(share);
    }
    run.finish();
    check(&[&run], calls()).await;
}

#[tokio::test]
async fn two_servers_on_one_database_hold_limits_together() {
    let database = testing::postgres();
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    // Opening the store once makes the tables, and the keys that both servers need.
    drop(open_store(folders[0].path(), &database).await);
    std::fs::copy(folders[0].path().join("keys"), folders[1].path().join("keys")).unwrap();
    let run = |folder: &tempfile::TempDir, range| Run {
        folder: folder.path().to_owned(),
        database: database.clone(),
        range,
    };
    let half = calls() / 2;
    let (one, two) = (run(&folders[0], (0, half)), run(&folders[1], (half, calls())));
    let mut other = two.start();
    for share in [10, 25, 40] {
        one.kill_at(share);
    }
    one.finish();
    assert!(other.wait().unwrap().success());
    check(&[&one, &two], calls()).await;
}
