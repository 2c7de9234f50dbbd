//! A build next to what serves: the old wish stays in effect until the new one's image is there.

use super::{CoreEvent, Lifecycle, Status};
use crate::Timestamp;
use crate::ids::BuildId;
use serde::{Deserialize, Serialize};

/// Type of all events about builds.
const BUILD: &str = "build";

/// The current build of a resource, with its events and those of earlier builds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Building {
    pub build: BuildId,
    pub events: Vec<CoreEvent>,
}

impl Lifecycle {
    /// Returns the status that readers see: that of the build while there is one. A failed build
    /// stays visible until something else is asked for, even though the previous deployment keeps
    /// serving.
    pub fn shown_status(&self) -> Option<Status> {
        let build = self.building.as_ref().and_then(|building| building.events.last());
        build.map(|event| event.status).or_else(|| self.status())
    }

    /// Returns all events, ordered by time.
    pub fn shown_events(&self) -> Vec<CoreEvent> {
        let mut events = self.events.clone();
        events.extend(self.building.iter().flat_map(|building| building.events.iter().cloned()));
        events.sort_by_key(|event| event.time);
        events
    }

    /// Returns the build that has not ended, if there is one.
    pub fn open_build(&self) -> Option<&BuildId> {
        let open = matches!(self.shown_status(), Some(Status::Uploading | Status::Building));
        self.building.as_ref().filter(|_| open).map(|building| &building.build)
    }

    /// Returns true if nothing was deployed yet.
    pub fn is_unbuilt(&self) -> bool {
        self.events.is_empty()
    }

    /// Records the progress of a build. A new build replaces the one before.
    pub fn record_build(
        &mut self,
        build: &BuildId,
        status: Status,
        message: impl Into<String>,
        now: Timestamp,
    ) {
        // A list of its own, kept short and in order by the same rules.
        let events = self.building.take().map(|building| building.events).unwrap_or_default();
        let mut own = Self { events, building: None };
        let after = self.events.last().map_or(now, |last| now.max(last.time.plus_ms(1)));
        own.record(BUILD, status, message, after);
        self.building = Some(Building { build: build.clone(), events: own.events });
    }

    /// Ends the build and moves its events to the resource's. The caller must record what follows,
    /// because the last event determines the status.
    pub fn end_build(&mut self) {
        self.events = self.shown_events();
        self.building = None;
        let excess = self.events.len().saturating_sub(Self::EVENTS_MAX);
        self.events.drain(..excess);
    }

    /// Ends the build like [`Lifecycle::end_build`], while the previous deployment keeps serving.
    pub fn stay(&mut self, message: impl Into<String>, now: Timestamp) {
        let status = if self.is_unbuilt() { None } else { self.status() };
        self.end_build();
        self.record(BUILD, status.unwrap_or(Status::Failed), message, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::Needs;
    use proptest::prelude::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    fn statuses(lifecycle: &Lifecycle) -> Vec<Status> {
        lifecycle.shown_events().iter().map(|event| event.status).collect()
    }

    #[test]
    fn a_build_is_seen_while_what_served_before_goes_on() {
        let build = BuildId::known("bld_1");
        let mut lifecycle = Lifecycle::default();
        lifecycle.record("deployment", Status::Deployed, "", at(1));
        lifecycle.record_build(&build, Status::Uploading, "", at(1));
        assert_eq!(lifecycle.status(), Some(Status::Deployed));
        assert_eq!(lifecycle.shown_status(), Some(Status::Uploading));
        assert_eq!(lifecycle.open_build(), Some(&build));
        lifecycle.record_build(&build, Status::Failed, "no Dockerfile", at(1));
        assert_eq!(lifecycle.status(), Some(Status::Deployed));
        assert_eq!(lifecycle.shown_status(), Some(Status::Failed));
        assert_eq!(lifecycle.open_build(), None);
        let next = lifecycle.deploy(true, Needs::Machine, at(1));
        assert_eq!(next.shown_status(), Some(Status::Deploying));
        let wanted = [Status::Deployed, Status::Uploading, Status::Failed, Status::Deploying];
        assert_eq!(statuses(&next), wanted);
    }

    #[test]
    fn before_anything_is_deployed_the_build_is_the_status() {
        let mut lifecycle = Lifecycle::default();
        lifecycle.record_build(&BuildId::known("bld_1"), Status::Uploading, "", at(5));
        assert_eq!(lifecycle.status(), Some(Status::Uploading));
        let mut left = lifecycle.clone();
        left.stay("given up", at(6));
        assert_eq!(left.shown_status(), Some(Status::Failed));
        lifecycle.record_build(&BuildId::known("bld_2"), Status::Building, "", at(4));
        assert_eq!(lifecycle.open_build(), Some(&BuildId::known("bld_2")));
        assert_eq!(statuses(&lifecycle), [Status::Uploading, Status::Building]);
    }

    proptest! {
        /// Holds for any events in any order, whatever the clock does meanwhile.
        #[test]
        fn what_is_shown_is_in_order_and_ends_with_the_status(
            acts in prop::collection::vec((0..5_u8, 0..100_i64), 0..120),
        ) {
            let mut lifecycle = Lifecycle::default();
            for (act, ms) in acts {
                let (build, served) = (BuildId::known("bld_1"), lifecycle.status());
                match act {
                    0 => lifecycle.record("deployment", Status::Deployed, "", at(ms)),
                    1 => lifecycle = lifecycle.deploy(true, Needs::Machine, at(ms)),
                    2 => lifecycle.stay("", at(ms)),
                    3 => lifecycle.record_build(&build, Status::Building, "", at(ms)),
                    _ => lifecycle.record_build(&build, Status::Failed, "", at(ms)),
                }
                let shown = lifecycle.shown_events();
                prop_assert!(shown.is_sorted_by_key(|event| event.time));
                prop_assert!(shown.len() <= 2 * Lifecycle::EVENTS_MAX);
                prop_assert!(lifecycle.shown_status().is_some());
                if act >= 3 && !lifecycle.is_unbuilt() {
                    prop_assert_eq!(lifecycle.status(), served);
                }
                if lifecycle.building.is_none() {
                    prop_assert_eq!(shown.last().map(|event| event.status), lifecycle.shown_status());
                }
            }
        }
    }

    #[test]
    fn events_are_bounded() {
        let mut lifecycle = Lifecycle::default();
        for number in 0..200 {
            lifecycle.record_build(&BuildId::known("bld_1"), Status::Uploading, "", at(number));
            lifecycle.record("deployment", Status::Deployed, "", at(number));
        }
        lifecycle.stay("", at(200));
        assert_eq!(lifecycle.events.len(), Lifecycle::EVENTS_MAX);
        assert_eq!(lifecycle.shown_status(), Some(Status::Deployed));
    }
}
