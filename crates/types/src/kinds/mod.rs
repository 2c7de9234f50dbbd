//! The kinds of resources, one file each.

/// [`Kind::head`](crate::Kind::head) for kinds that have it in `metadata`.
macro_rules! head {
    () => {
        fn head(&self) -> &dyn Head {
            &self.metadata
        }

        fn head_mut(&mut self) -> &mut dyn Head {
            &mut self.metadata
        }
    };
}

/// [`Kind::enabled`](crate::Kind::enabled) for kinds that have the switch in their spec.
macro_rules! enabled {
    () => {
        fn enabled(&self) -> bool {
            self.spec.enabled.unwrap_or(true)
        }
    };
}

/// [`Kind::region`](crate::Kind::region) for kinds that have it in their spec.
macro_rules! placed {
    () => {
        fn region_mut(&mut self) -> Option<&mut Option<String>> {
            Some(&mut self.spec.region)
        }

        fn region(&self) -> Option<&str> {
            self.spec.region.as_deref()
        }
    };
}

/// [`Kind::triggers`](crate::Kind::triggers) for kinds that have them in their spec.
macro_rules! triggered {
    () => {
        fn triggers(&self) -> &[Trigger] {
            self.spec.triggers.as_deref().unwrap_or_default()
        }
    };
}

/// [`Kind::request_timeout_s`](crate::Kind::request_timeout_s) for kinds whose runtime limits the
/// time of each request.
macro_rules! timed {
    () => {
        fn request_timeout_s(&self) -> Option<i64> {
            self.spec.runtime.as_ref()?.timeout
        }
    };
}

/// State and view for kinds about which the server knows nothing but their events.
macro_rules! deployed {
    ($needs:expr) => {
        fn next_state(&self, old: Option<(&Self, &Lifecycle)>, now: Timestamp) -> Lifecycle {
            let changed = old.is_none_or(|(old, _)| old.spec != self.spec);
            Lifecycle::next(old.map(|(_, state)| state), changed, self.enabled(), $needs, now)
        }

        fn status(state: &Lifecycle) -> Option<Status> {
            state.status()
        }

        fn show(&mut self, stamp: &ObjectMetadata, state: &Lifecycle, _now: Timestamp) {
            self.metadata.stamp(stamp);
            self.events = Some(state.shown_events());
            self.status = state.shown_status();
        }

        fn lighten(&mut self) {
            self.events = None;
        }
    };
}

/// State and status for kinds that are ready once they are written, and about which the server knows
/// more than their events.
macro_rules! ready_at_once {
    () => {
        fn next_state(&self, old: Option<(&Self, &State)>, now: Timestamp) -> State {
            let changed = old.is_none_or(|(old, _)| old.spec != self.spec);
            let (before, needs) = (old.map(|(_, state)| &state.lifecycle), Needs::Nothing);
            let lifecycle = Lifecycle::next(before, changed, true, needs, now);
            State { lifecycle, ..old.map(|(_, state)| state.clone()).unwrap_or_default() }
        }

        fn status(state: &State) -> Option<Status> {
            state.lifecycle.status()
        }
    };
}

/// State and view for kinds whose revisions run as replicas.
macro_rules! deployment {
    () => {
        type State = Deployment;

        fn next_state(&self, old: Option<(&Self, &Deployment)>, now: Timestamp) -> Deployment {
            let old = old.map(|(old, state)| (state, old.spec != self.spec));
            Deployment::next(old, self.enabled(), now)
        }

        fn status(state: &Deployment) -> Option<Status> {
            state.lifecycle.status()
        }

        fn serving(state: &Deployment) -> Option<&str> {
            state.serves()
        }

        fn has_failed(state: &Deployment, revision: &str) -> bool {
            state.has_failed(revision)
        }

        fn show(&mut self, stamp: &ObjectMetadata, state: &Deployment, _now: Timestamp) {
            self.metadata.stamp(stamp);
            self.events = Some(state.lifecycle.shown_events());
            self.status = state.lifecycle.shown_status();
        }

        fn lighten(&mut self) {
            self.events = None;
        }
    };
}

/// What is filled in, for kinds with triggers, a network and a runtime.
macro_rules! complete_runtime {
    ($wish:ident, $old:ident, $world:ident) => {
        $wish.metadata.keep_external_id($old.map(|old| &old.metadata));
        let (spec, old) = (&mut $wish.spec, $old.map(|old| &old.spec));
        spec.enabled.get_or_insert(true);
        keep(&mut spec.region, old.map(|old| &old.region));
        Network::keep(&mut spec.network, old.and_then(|old| old.network.as_ref()));
        let old_triggers = old.and_then(|old| old.triggers.as_deref());
        Trigger::complete_all(spec.triggers.as_mut(), old_triggers, $world);
        if let Some(generation) = old.and_then(|old| old.generation()) {
            spec.runtime.get_or_insert_default().generation.get_or_insert(generation);
        }
    };
}

/// Which revisions take traffic, for kinds with revisions.
macro_rules! revised {
    () => {
        fn revision(&self) -> Option<&RevisionConfiguration> {
            self.spec.revision.as_ref()
        }

        fn revision_mut(&mut self) -> Option<&mut RevisionConfiguration> {
            Some(self.spec.revision.get_or_insert_default())
        }
    };
}

/// What is filled in, for kinds of which several replicas run.
macro_rules! replicated {
    () => {
        fn complete(&mut self, old: Option<&Self>, world: &World) {
            complete_runtime!(self, old, world);
        }

        revised!();
    };
}

/// What cannot be changed and what is secret, for kinds with triggers, a network and a runtime.
macro_rules! runtime {
    () => {
        fn check_change(&self, old: &Self, problems: &mut Problems) {
            fixed(&self.spec.region, &old.spec.region, "spec.region", problems);
            Network::check_change(self.spec.network.as_ref(), old.spec.network.as_ref(), problems);
            Generation::check_change(self.spec.generation(), old.spec.generation(), problems);
        }

        fn secrets(&mut self, visit: &mut dyn FnMut(&str, &mut String)) {
            Trigger::visit_all(self.spec.triggers.as_mut(), visit);
            if let Some(network) = &mut self.spec.network {
                network.secrets(visit);
            }
            if let Some(runtime) = &mut self.spec.runtime {
                Env::visit_all(runtime.envs.as_mut(), visit);
                visit_sensitive(runtime.docker_config.as_mut(), "dockerConfig", visit);
            }
        }

        fn envs_mut(&mut self) -> Option<&mut Vec<Env>> {
            self.spec.runtime.as_mut()?.envs.as_mut()
        }

        fn leave_out_write_only(&mut self) {
            if let Some(network) = &mut self.spec.network {
                network.leave_out_secrets();
            }
        }
    };
}

pub mod agent;
pub mod application;
pub mod custom_domain;
pub mod drive;
pub mod egress_gateway;
pub mod egress_ip;
pub mod function;
pub mod image;
pub mod image_share;
pub mod integration_connection;
pub mod job;
pub mod model;
pub mod network;
pub mod policy;
pub mod preview;
pub mod preview_token;
pub mod sandbox;
pub mod schedule;
pub mod secret;
pub mod snapshot;
pub mod volume;
pub mod volume_template;
pub mod vpc;

pub use agent::Agent;
pub use application::Application;
pub use custom_domain::CustomDomain;
pub use drive::Drive;
pub use egress_gateway::EgressGateway;
pub use egress_ip::EgressIp;
pub use function::Function;
pub use image::Image;
pub use image_share::ImageShare;
pub use integration_connection::IntegrationConnection;
pub use job::Job;
pub use model::Model;
pub use network::Network;
pub use policy::Policy;
pub use preview::Preview;
pub use preview_token::PreviewToken;
pub use sandbox::Sandbox;
pub use schedule::Schedule;
pub use secret::Secret;
pub use snapshot::Snapshot;
pub use volume::Volume;
pub use volume_template::VolumeTemplate;
pub use vpc::Vpc;

/// Calls a generic function with the type of a kind that is known only by its name.
#[macro_export]
macro_rules! with_kind {
    ($kind:expr, $function:ident $arguments:tt) => {
        $crate::with_kind!($kind, $function $arguments of
            Agent Application CustomDomain Drive EgressGateway EgressIp Function Image ImageShare
            IntegrationConnection Job Model Policy Preview PreviewToken Sandbox Schedule Secret
            Snapshot Volume VolumeTemplate Vpc)
    };
    ($kind:expr, $function:ident $arguments:tt of $($name:ident)+) => {
        match $kind {
            $($crate::KindName::$name => $function::<$crate::kinds::$name> $arguments,)+
        }
    };
}

use crate::{KindName, Reference};

/// Turns a list of names, such as `spec.policies`, into references to objects of `kind`.
fn references_to(kind: KindName, names: Option<&Vec<String>>, field: &str) -> Vec<Reference> {
    let reference = |(index, name): (usize, &String)| Reference {
        kind,
        name: name.clone(),
        field: format!("{field}[{index}]"),
    };
    names.into_iter().flatten().enumerate().map(reference).collect()
}
