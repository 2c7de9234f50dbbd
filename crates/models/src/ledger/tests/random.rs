//! Runs random steps, and checks that the rules hold after each.

use super::*;
use proptest::prelude::*;

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
