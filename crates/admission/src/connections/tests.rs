use super::*;
use proptest::prelude::*;

fn connections(strangers: u64, signed_in: u64) -> Connections<u8> {
    Connections::new(Places {
        strangers,
        signed_in: Limits { total: signed_in, share: signed_in },
        client: 100,
    })
}

fn closes(connection: &Connection) -> bool {
    connection.0.closing.is_cancelled()
}

#[test]
fn a_newcomer_always_gets_a_place_and_the_longest_idle_stranger_makes_room() {
    let all = connections(3, 1);
    let held: Vec<_> = (0..3).map(|client| all.admit(Some(&client)).unwrap()).collect();
    let busy = held[0].begin();
    let newcomer = all.admit(Some(&9)).unwrap();
    assert_eq!(held.iter().map(closes).collect::<Vec<_>>(), [false, true, false]);
    // Having been busy meanwhile, it is now the last in the order of idle ones.
    drop(busy);
    let another = all.admit(Some(&9)).unwrap();
    assert_eq!(held.iter().map(closes).collect::<Vec<_>>(), [false, true, true]);
    assert!(!closes(&newcomer) && !closes(&another));
}

#[test]
fn when_all_are_busy_the_longest_busy_stranger_makes_room() {
    let all = connections(2, 1);
    let held = [all.admit(Some(&1)).unwrap(), all.admit(Some(&2)).unwrap()];
    let _busy = [held[1].begin(), held[0].begin()];
    let _newcomer = all.admit(Some(&3)).unwrap();
    assert!(closes(&held[1]) && !closes(&held[0]));
}

#[test]
fn who_is_signed_in_stays_however_many_strangers_come() {
    let all = connections(2, 1);
    let member = all.admit(Some(&1)).unwrap();
    member.signed_in("key");
    let strangers: Vec<_> = (0..10).map(|client| all.admit(Some(&client)).unwrap()).collect();
    assert!(!closes(&member));
    assert_eq!(strangers.iter().filter(|stranger| !closes(stranger)).count(), 2);
}

#[test]
fn room_is_made_by_strangers_alone() {
    let all = connections(4, 1);
    let held: Vec<_> = (0..4).map(|client| all.admit(Some(&client)).unwrap()).collect();
    held[0].signed_in("key");
    all.make_room(2);
    assert_eq!(held.iter().map(closes).collect::<Vec<_>>(), [false, true, true, false]);
    all.make_room(2);
    assert_eq!(held.iter().map(closes).collect::<Vec<_>>(), [false, true, true, true]);
}

#[test]
fn with_more_than_a_share_one_goes_on_as_a_stranger() {
    let all = connections(2, 1);
    let held = [all.admit(None).unwrap(), all.admit(None).unwrap()];
    held.iter().for_each(|connection| connection.signed_in("key"));
    let _strangers = [all.admit(None).unwrap(), all.admit(None).unwrap()];
    assert!(!closes(&held[0]) && closes(&held[1]));
    drop(held);
    let next = all.admit(None).unwrap();
    next.signed_in("key");
    assert!(matches!(next.0.state.lock().standing, Standing::SignedIn { .. }));
}

#[test]
fn a_client_with_too_many_is_refused_and_nobody_else() {
    let all = Connections::new(Places {
        strangers: 10,
        signed_in: Limits { total: 10, share: 10 },
        client: 2,
    });
    let _held = [all.admit(Some(&1)).unwrap(), all.admit(Some(&1)).unwrap()];
    assert!(matches!(all.admit(Some(&1)), Err(Refused::Share { limit: 2, .. })));
    all.admit(Some(&2)).unwrap();
    assert!(
        (0..5).map(|_| all.admit(None)).collect::<Vec<_>>().iter().all(Result::is_ok),
        "a proxy is not one client"
    );
}

#[tokio::test(start_paused = true)]
async fn silence_is_only_noticed_before_the_first_request() {
    let all = connections(2, 1);
    let (silent, heard) = (all.admit(Some(&1)).unwrap(), all.admit(Some(&1)).unwrap());
    drop(heard.begin());
    let limit = Duration::from_secs(10);
    silent.silent(limit).await;
    tokio::time::timeout(10 * limit, heard.silent(limit)).await.unwrap_err();
}

proptest! {
    /// Whatever happens, there are never more strangers than places, and in the end nobody is left.
    #[test]
    fn places_are_given_back(steps in prop::collection::vec((0_usize..6, 0_u8..5), 0..200)) {
        let all = connections(3, 2);
        let (mut held, mut busy) = (Vec::new(), Vec::new());
        for (at, step) in steps {
            match step {
                0 => held.push(all.admit(Some(&0)).unwrap()),
                1 => drop((!held.is_empty()).then(|| held.remove(at % held.len()))),
                2 => busy.extend(held.get(at).map(Connection::begin)),
                3 => drop((!busy.is_empty()).then(|| busy.remove(at % busy.len()))),
                _ => held.iter().take(1).for_each(|connection| connection.signed_in("key")),
            }
            prop_assert!(all.book.strangers.lock().count() <= 3 && all.book.holders.held() <= 2);
        }
        drop((held, busy));
        prop_assert_eq!((all.book.strangers.lock().count(), all.book.holders.held(), all.clients.held()), (0, 0, 0));
    }
}
