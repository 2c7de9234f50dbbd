//! Interpretation of the statuses seen after a deployment was requested.
//!
//! A status may be older than the request: the object serves while its next revision is built, and
//! an old failure is shown until new work begins. So a final status counts only if it can be the
//! result of this deployment.

use std::time::Duration;

/// For this long, a failure that was there before may still be the old one.
const STALE: Duration = Duration::from_secs(15);

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Wait,
    Deployed,
    Failed,
    /// It was deactivated or deleted meanwhile.
    Gone,
}

/// Follows the statuses of one deployment.
#[derive(Debug)]
pub(crate) struct Guard {
    /// True if sources were uploaded, so that a build has to come first.
    uploaded: bool,
    before: Before,
    /// True once a status of work in progress was seen.
    worked: bool,
    /// The status to wait for.
    wanted: &'static str,
}

/// State of the object before the deployment was requested.
#[derive(Debug, Default)]
pub(crate) struct Before {
    status: Option<String>,
    image: Option<String>,
}

impl Before {
    pub(crate) fn new(status: Option<&str>, image: Option<&str>) -> Self {
        Self { status: status.map(str::to_owned), image: image.map(str::to_owned) }
    }

    fn was(&self, status: &str) -> bool {
        self.status.as_deref() == Some(status)
    }
}

impl Guard {
    pub(crate) fn new(uploaded: bool, before: Before) -> Self {
        Self { uploaded, before, worked: false, wanted: "DEPLOYED" }
    }

    /// Returns a guard for what is disabled, and stays so.
    pub(crate) fn of_disabled(uploaded: bool, before: Before) -> Self {
        Self { wanted: "DEACTIVATED", ..Self::new(uploaded, before) }
    }

    /// Returns a guard for an image, which is only built, not deployed.
    pub(crate) fn of_image(before: Before) -> Self {
        Self { wanted: "BUILT", ..Self::new(true, before) }
    }

    pub(crate) fn see(&mut self, status: &str, image: Option<&str>, since: Duration) -> Verdict {
        // A different image means that a build finished between two requests.
        self.worked |= self.uploaded && image.is_some() && image != self.before.image.as_deref();
        match status {
            wanted if wanted == self.wanted => {
                let stale = self.uploaded && !self.worked && self.before.was(wanted);
                if stale { Verdict::Wait } else { Verdict::Deployed }
            }
            "DEACTIVATING" if self.wanted == "DEACTIVATED" => Verdict::Wait,
            "UPLOADING" | "BUILDING" | "BUILT" | "DEPLOYING" => {
                self.worked = true;
                Verdict::Wait
            }
            "FAILED" if self.before.was("FAILED") && !self.worked && since < STALE => Verdict::Wait,
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
        let mut guard = Guard::new(uploaded, Before::new(before, Some("agent/a:1")));
        let mut last = Verdict::Wait;
        for (status, since_s) in seen {
            assert_eq!(last, Verdict::Wait, "{status} comes after the end");
            last = guard.see(status, Some("agent/a:1"), Duration::from_secs(*since_s));
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
    fn a_build_that_was_too_fast_to_be_seen_counts() {
        check(true, Some("FAILED"), &[("FAILED", 1), ("DEPLOYED", 2)], Verdict::Deployed);
        check(true, None, &[("DEPLOYED", 1)], Verdict::Deployed);
        let mut guard = Guard::new(true, Before::new(Some("DEPLOYED"), Some("agent/a:1")));
        let second = Duration::from_secs(1);
        assert_eq!(guard.see("DEPLOYED", None, second), Verdict::Wait);
        assert_eq!(guard.see("DEPLOYED", Some("agent/a:2"), second), Verdict::Deployed);
    }

    #[test]
    fn an_image_is_done_when_it_is_built() {
        let mut guard = Guard::of_image(Before::new(Some("BUILT"), None));
        let second = Duration::from_secs(1);
        assert_eq!(guard.see("BUILT", None, second), Verdict::Wait);
        assert_eq!(guard.see("BUILDING", None, second), Verdict::Wait);
        assert_eq!(guard.see("BUILT", None, second), Verdict::Deployed);
        assert_eq!(Guard::new(false, Before::default()).see("BUILT", None, second), Verdict::Wait);
    }

    #[test]
    fn what_is_disabled_is_done_when_it_is_built_and_off() {
        let off = || Before::new(Some("DEACTIVATED"), None);
        let mut guard = Guard::of_disabled(true, off());
        let second = Duration::from_secs(1);
        for status in ["DEACTIVATED", "BUILDING", "DEACTIVATING"] {
            assert_eq!(guard.see(status, None, second), Verdict::Wait, "{status}");
        }
        assert_eq!(guard.see("DEACTIVATED", None, second), Verdict::Deployed);
        let mut guard = Guard::of_disabled(false, off());
        assert_eq!(guard.see("DEACTIVATED", None, second), Verdict::Deployed);
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
