//! What the statuses mean that are seen after a deployment was asked for.
//!
//! A status may be older than what was asked: the object serves while its next revision is built,
//! and a failure of the last time stays until the new work begins. So an end counts only when it can
//! be the end of this.

use std::time::Duration;

/// For so long a failure that was there before may still be the old one.
const STALE: Duration = Duration::from_secs(15);

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Wait,
    Deployed,
    Failed,
    /// It was turned off or deleted meanwhile.
    Gone,
}

/// Follows the statuses of one deployment.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Sources were uploaded, so a build has to come first.
    uploaded: bool,
    failed_before: bool,
    /// A status of work that goes on was seen.
    worked: bool,
    /// The status that is waited for.
    wanted: &'static str,
}

impl Guard {
    pub(crate) fn new(uploaded: bool, before: Option<&str>) -> Self {
        Self {
            uploaded,
            failed_before: before == Some("FAILED"),
            worked: false,
            wanted: "DEPLOYED",
        }
    }

    /// Of an image, which is built and not deployed.
    pub(crate) fn of_image(before: Option<&str>) -> Self {
        Self { wanted: "BUILT", ..Self::new(true, before) }
    }

    pub(crate) fn see(&mut self, status: &str, since: Duration) -> Verdict {
        match status {
            wanted if wanted == self.wanted && (self.worked || !self.uploaded) => Verdict::Deployed,
            wanted if wanted == self.wanted => Verdict::Wait,
            "UPLOADING" | "BUILDING" | "BUILT" | "DEPLOYING" => {
                self.worked = true;
                Verdict::Wait
            }
            "FAILED" if self.failed_before && !self.worked && since < STALE => Verdict::Wait,
            "FAILED" => Verdict::Failed,
            "DEACTIVATED" | "DEACTIVATING" | "DELETING" | "TERMINATED" => Verdict::Gone,
            _ => Verdict::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(uploaded: bool, before: Option<&str>, seen: &[(&str, u64)], expected: Verdict) {
        let mut guard = Guard::new(uploaded, before);
        let mut last = Verdict::Wait;
        for (status, since_s) in seen {
            assert_eq!(last, Verdict::Wait, "{status} comes after the end");
            last = guard.see(status, Duration::from_secs(*since_s));
        }
        assert_eq!(last, expected, "{seen:?}");
    }

    #[test]
    fn what_was_deployed_before_the_upload_does_not_count() {
        check(true, Some("DEPLOYED"), &[("DEPLOYED", 1), ("DEPLOYED", 99)], Verdict::Wait);
        let built = [("DEPLOYED", 1), ("BUILDING", 2), ("DEPLOYING", 5), ("DEPLOYED", 6)];
        check(true, Some("DEPLOYED"), &built, Verdict::Deployed);
        check(false, Some("DEPLOYED"), &[("DEPLOYED", 0)], Verdict::Deployed);
    }

    #[test]
    fn an_image_is_done_when_it_is_built() {
        let mut guard = Guard::of_image(Some("BUILT"));
        let second = Duration::from_secs(1);
        assert_eq!(guard.see("BUILT", second), Verdict::Wait);
        assert_eq!(guard.see("BUILDING", second), Verdict::Wait);
        assert_eq!(guard.see("BUILT", second), Verdict::Deployed);
        assert_eq!(Guard::new(false, None).see("BUILT", second), Verdict::Wait);
    }

    #[test]
    fn an_old_failure_is_waited_over_for_a_while() {
        check(true, Some("FAILED"), &[("FAILED", 1), ("FAILED", 14)], Verdict::Wait);
        check(true, Some("FAILED"), &[("FAILED", 1), ("FAILED", 15)], Verdict::Failed);
        check(true, Some("FAILED"), &[("BUILDING", 1), ("FAILED", 2)], Verdict::Failed);
        check(true, None, &[("FAILED", 0)], Verdict::Failed);
        check(true, Some("DEPLOYED"), &[("FAILED", 1)], Verdict::Failed);
    }

    #[test]
    fn what_was_turned_off_ends_the_wait_and_what_is_unknown_does_not() {
        check(false, None, &[("RESTING", 1), ("DEACTIVATED", 2)], Verdict::Gone);
        check(true, None, &[("", 1)], Verdict::Wait);
    }
}
