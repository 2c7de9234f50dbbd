use super::*;
use proptest::prelude::*;

const DELAY: Option<Duration> = Some(Duration::from_secs(15));

fn at(seconds: u64) -> Instant {
    // Any instant will do as the beginning; only distances count.
    static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *BEGAN.get_or_init(Instant::now) + Duration::from_secs(seconds)
}

fn awake(idle_since: u64) -> State {
    State::new(Stage::Awake { visits: 0, idle_since: at(idle_since) })
}

#[test]
fn a_pause_is_due_after_the_delay_and_not_before() {
    let mut state = awake(0);
    assert_eq!(state.due(at(14), DELAY, None), Due::Later(at(15)));
    assert!(state.scheduled);
    assert_eq!(state.due(at(15), DELAY, Some(at(16))), Due::Pause { idle_since: at(0) });
    assert!(!state.scheduled);
    assert_eq!(awake(0).due(at(99), None, None), Due::Nothing);
    assert_eq!(awake(0).due(at(1), DELAY, Some(at(10))), Due::Later(at(10)));
}

#[test]
fn a_visit_wins_over_the_pause_that_was_due() {
    let mut state = awake(0);
    assert_eq!(state.enter(), Entry::Entered);
    assert!(!state.begin_pause(at(0)));
    assert!(state.leave(at(20)));
    // A visit came and went between the question and the pause.
    assert!(!state.begin_pause(at(0)));
    assert!(state.begin_pause(at(20)));
    assert_eq!((state.enter(), state.phase()), (Entry::Wait, Phase::Pausing));
}

#[test]
fn one_of_those_who_enter_wakes_it() {
    let mut state = State::new(Stage::Paused);
    assert_eq!(
        [state.enter(), state.enter(), state.enter()],
        [Entry::Wake, Entry::Wait, Entry::Wait]
    );
    state.end(Stage::Awake { visits: 0, idle_since: at(1) });
    assert_eq!(state.enter(), Entry::Entered);
}

#[test]
fn what_is_gone_stays_gone() {
    let mut state = State::new(Stage::Waking);
    state.stage = Stage::Gone;
    state.end(Stage::Awake { visits: 0, idle_since: at(0) });
    assert_eq!((state.enter(), state.phase()), (Entry::Gone, Phase::Gone));
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Enter,
    Leave,
    Look,
    Paused,
    Woken,
}

proptest! {
    /// Whatever happens, in any order: it is never paused while somebody is inside, and it can
    /// always be entered again.
    #[test]
    fn nobody_is_paused_upon(events in proptest::collection::vec(
        proptest::sample::select(vec![Event::Enter, Event::Leave, Event::Look, Event::Paused, Event::Woken]), 0..60)) {
        let (mut state, mut inside) = (awake(0), 0_usize);
        for (second, event) in events.into_iter().enumerate() {
            let now = at(second as u64 * 20);
            match event {
                Event::Enter => inside += usize::from(state.enter() == Entry::Entered),
                Event::Leave if inside > 0 => {
                    inside -= 1;
                    prop_assert_eq!(state.leave(now), inside == 0);
                }
                Event::Look => if let Due::Pause { idle_since } = state.due(now, DELAY, None) {
                    prop_assert!(state.begin_pause(idle_since));
                },
                Event::Paused if state.phase() == Phase::Pausing => state.end(Stage::Paused),
                Event::Woken if state.phase() == Phase::Waking => state.end(Stage::Awake { visits: 0, idle_since: now }),
                Event::Leave | Event::Paused | Event::Woken => {}
            }
            prop_assert!(inside == 0 || state.phase() == Phase::Awake);
        }
    }
}
