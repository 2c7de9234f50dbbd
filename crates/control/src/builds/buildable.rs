//! The kinds whose images are built from uploaded sources.

use crate::addresses;
use crate::context::Context;
use crate::engine::Managed;
use crate::error::Error;
use crate::executions::triggered::require_addresses;
use store::Tx;
use store::builds::Build;
use types::KindName;
use types::ids::ResourceId;
use types::kinds::{Agent, Application, Function, Job, Sandbox};
use types::parts::SkipBuild;

/// Kinds by the first part of their repositories. For applications it may also be the kind's full
/// name.
const REPOSITORIES: [(&str, KindName); 6] = [
    (Agent::REPOSITORY, KindName::Agent),
    (Application::REPOSITORY, KindName::Application),
    ("application", KindName::Application),
    (Function::REPOSITORY, KindName::Function),
    (Job::REPOSITORY, KindName::Job),
    (Sandbox::REPOSITORY, KindName::Sandbox),
];

/// Returns the kind of workload that a build is for. For the build of an image alone, the first
/// part of its name says so.
pub(super) fn workload_kind(build: &Build) -> KindName {
    if build.kind != KindName::Image {
        return build.kind;
    }
    let first = build.repository.split('/').next().unwrap_or_default();
    let found = REPOSITORIES.into_iter().find(|(name, _)| *name == first);
    found.map_or(KindName::Image, |(_, kind)| kind)
}

pub trait Buildable: Managed {
    /// The first part of the names of its repositories.
    const REPOSITORY: &'static str;

    fn set_image(&mut self, reference: String);

    /// Whether the wish names an image to be run without a build.
    fn skips_build(&self) -> bool;

    /// Refuses what could not be put into effect once it is built, because another object has it.
    /// That may also change until then, so it is looked at again.
    fn require_free(&self, _context: &Context, _tx: &mut Tx<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Takes what a new object needs before it is built.
    fn begin(&self, _context: &Context, _tx: &mut Tx<'_>, _id: &ResourceId) -> Result<(), Error> {
        Ok(())
    }
}

/// Implements the methods for kinds with the image in `spec.runtime`.
macro_rules! in_runtime {
    () => {
        fn set_image(&mut self, reference: String) {
            self.spec.runtime.get_or_insert_default().image = Some(reference);
        }

        fn skips_build(&self) -> bool {
            let runtime = self.spec.runtime.as_ref();
            runtime.and_then(|it| it.skip_build.as_ref()).is_some_and(SkipBuild::is_set)
        }
    };
}

impl Buildable for Agent {
    const REPOSITORY: &'static str = "agent";
    in_runtime!();

    fn require_free(&self, context: &Context, tx: &mut Tx<'_>) -> Result<(), Error> {
        require_addresses(context, tx, self)
    }
}

impl Buildable for Function {
    const REPOSITORY: &'static str = "function";
    in_runtime!();

    fn require_free(&self, context: &Context, tx: &mut Tx<'_>) -> Result<(), Error> {
        require_addresses(context, tx, self)
    }
}

impl Buildable for Job {
    const REPOSITORY: &'static str = "job";
    in_runtime!();

    fn require_free(&self, context: &Context, tx: &mut Tx<'_>) -> Result<(), Error> {
        require_addresses(context, tx, self)
    }
}

impl Buildable for Sandbox {
    const REPOSITORY: &'static str = "sandbox";
    in_runtime!();

    fn begin(&self, context: &Context, tx: &mut Tx<'_>, id: &ResourceId) -> Result<(), Error> {
        addresses::take_label(context, tx, id, &self.metadata.name).map(drop)
    }
}

impl Buildable for Application {
    const REPOSITORY: &'static str = "app";

    fn set_image(&mut self, reference: String) {
        self.spec.image = Some(reference);
    }

    fn skips_build(&self) -> bool {
        false
    }
}
