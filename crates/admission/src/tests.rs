use super::*;
use proptest::prelude::*;

fn pool(total: u64, share: u64) -> Pool<&'static str> {
    Pool::new("things", Limits { total, share })
}

#[test]
fn who_takes_too_much_is_refused_and_not_the_neighbour() {
    let pool = pool(10, 6);
    let _greedy = pool.take(&"greedy", 6).unwrap();
    assert_eq!(
        pool.take(&"greedy", 1).unwrap_err(),
        Refused::Share { resource: "things", limit: 6 }
    );
    assert!(pool.take(&"neighbour", 4).is_ok());
}

#[test]
fn all_together_get_no_more_than_there_is() {
    let pool = pool(10, 6);
    let _permits = [pool.take(&"a", 6).unwrap(), pool.take(&"b", 4).unwrap()];
    assert_eq!(pool.take(&"c", 1).unwrap_err(), Refused::Total { resource: "things", limit: 10 });
}

#[test]
fn what_runs_already_counts_beyond_the_limits() {
    let pool = pool(10, 6);
    let adopted = pool.adopt(&"a", 20);
    assert!(matches!(pool.take(&"a", 1), Err(Refused::Share { .. })));
    assert!(matches!(pool.take(&"b", 1), Err(Refused::Total { .. })));
    drop(adopted);
    assert!(pool.take(&"b", 1).is_ok());
}

#[test]
fn limits_are_raised_and_never_lowered() {
    let pool = pool(10, 6);
    let _held = pool.take(&"a", 6).unwrap();
    assert!(pool.take(&"a", 1).is_err());
    pool.raise(Limits { total: 8, share: 7 });
    assert_eq!(pool.limits(), Limits { total: 10, share: 7 });
    let _more = pool.take(&"a", 1).unwrap();
    pool.raise(Limits { total: 20, share: 1 });
    assert_eq!(pool.limits(), Limits { total: 20, share: 7 });
    assert!(pool.take(&"b", 7).is_ok());
}

#[test]
fn an_amount_that_no_counter_holds_is_refused() {
    let pool = pool(u64::MAX, u64::MAX - 1);
    let _one = pool.take(&"a", 1).unwrap();
    assert!(pool.take(&"a", u64::MAX).is_err());
}

proptest! {
    /// Whatever is taken and given back, the sums hold and an empty pool remembers nobody.
    #[test]
    fn sums_hold(steps in prop::collection::vec((0_usize..4, 0_u64..8, any::<bool>()), 0..200)) {
        let owners = ["a", "b", "c", "d"];
        let pool = pool(20, 9);
        let mut permits = Vec::new();
        for (owner, amount, gives_back) in steps {
            if gives_back {
                permits.pop();
            } else if let Ok(permit) = pool.take(&owners[owner], amount) {
                permits.push(permit);
            }
            let by_owner: u64 = owners.iter().map(|owner| pool.held_by(owner)).sum();
            prop_assert_eq!(by_owner, pool.held());
            prop_assert!(pool.held() <= 20 && owners.iter().all(|owner| pool.held_by(owner) <= 9));
        }
        drop(permits);
        prop_assert_eq!(pool.held(), 0);
        prop_assert!(pool.inner.held.lock().by_owner.is_empty());
    }
}
