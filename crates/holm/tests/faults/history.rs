//! Checks whether what callers saw of one object can have happened in one order, one act at a time.
//!
//! With each answer the server reports the object's version. That gives an order to check, so no
//! search is needed: the history is linearizable if, in the order of versions, each version was
//! written once, each read returns what its version's write wrote, and no act comes before one that
//! had ended when it began.

use std::collections::BTreeMap;
use std::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Write,
    Read,
}

/// An act that was answered.
#[derive(Debug, Clone)]
pub(crate) struct Act {
    pub(crate) what: What,
    pub(crate) value: String,
    pub(crate) version: i64,
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
}

/// Checks the history of an object that was created with the value `first` as version 1. The error
/// says what is wrong.
pub(crate) fn check(first: &str, acts: &[Act]) -> Result<(), String> {
    let mut written = BTreeMap::from([(1, first)]);
    for act in acts.iter().filter(|act| act.what == What::Write) {
        if let Some(other) = written.insert(act.version, &act.value) {
            return Err(format!(
                "version {} was written as {other} and as {}",
                act.version, act.value
            ));
        }
    }
    for act in acts.iter().filter(|act| act.what == What::Read) {
        if written.get(&act.version) != Some(&act.value.as_str()) {
            return Err(format!(
                "a read saw {act:?}, but written was {:?}",
                written.get(&act.version)
            ));
        }
    }
    in_real_time(acts)
}

/// Checks the order in real time: no act may have a version below those of acts that ended before
/// it began.
fn in_real_time(acts: &[Act]) -> Result<(), String> {
    let (mut begun, mut ended): (Vec<_>, Vec<_>) = (acts.iter().collect(), acts.iter().collect());
    begun.sort_by_key(|act| act.begun);
    ended.sort_by_key(|act| act.ended);
    let (mut ended, mut highest) = (ended.into_iter().peekable(), 1);
    for act in begun {
        while let Some(earlier) = ended.next_if(|earlier| earlier.ended < act.begun) {
            highest = highest.max(earlier.version);
        }
        let least = if act.what == What::Write { highest + 1 } else { highest };
        if act.version < least {
            return Err(format!("{act:?} came after version {highest} had been seen"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Judges acts given as (what, value, version, begun, ended).
    #[track_caller]
    fn judge(acts: &[(What, &str, i64, u64, u64)]) -> bool {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let acts: Vec<_> = acts
            .iter()
            .map(|(what, value, version, begun, ended)| Act {
                what: *what,
                value: (*value).to_owned(),
                version: *version,
                begun: at(*begun),
                ended: at(*ended),
            })
            .collect();
        check("first", &acts).is_ok()
    }

    #[test]
    fn the_checker_tells_right_from_wrong() {
        use What::{Read, Write};
        assert!(judge(&[(Write, "a", 2, 0, 10), (Read, "first", 1, 1, 5), (Read, "a", 2, 6, 8)]));
        assert!(!judge(&[(Write, "a", 2, 0, 10), (Read, "first", 1, 11, 12)]), "a stale read");
        assert!(
            !judge(&[(Write, "a", 2, 0, 10), (Read, "a", 2, 1, 3), (Read, "first", 1, 4, 5)]),
            "back in time"
        );
        assert!(!judge(&[(Write, "a", 2, 0, 10), (Write, "b", 2, 1, 3)]), "a lost update");
        assert!(
            !judge(&[(Write, "a", 3, 0, 5), (Write, "b", 2, 6, 9)]),
            "a write before one that had ended"
        );
        assert!(!judge(&[(Read, "never", 2, 0, 1)]), "a value from nowhere");
    }
}
