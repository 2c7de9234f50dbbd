//! The differences between agents, MCP servers and applications: how a wish says what is to run.

use crate::attachments::Holder;
use crate::engine::{self, Managed};
use crate::error::Error;
use crate::volumes;
use crate::workloads::followed::Followed;
use crate::workloads::workload::Workload;
use types::Kind;
use types::ids::ResourceId;
use types::instance::Scratch;
use types::kinds::application::AppUrl;
use types::kinds::{Agent, Application, Function, Network, Snapshot};
use types::parts::{Deployment, Env, Generation, RevisionConfiguration, Sensitive};

/// The port on which programs of agents and MCP servers listen; their wishes do not name one.
pub(super) const PORT: u16 = 8080;
/// Default memory in megabytes.
const MEMORY_MB: i64 = 2048;

/// A kind whose revisions have replicas.
pub(super) trait Deployable:
    Managed + Kind<State = Deployment> + Workload + Followed
{
    /// Returns what a replica of this wish runs. `None` while there is no image.
    fn program<'w>(&'w self, id: &ResourceId) -> Result<Option<Program<'w>>, Error>;

    /// Returns the least and the most replicas that the wish asks for.
    fn scale(&self) -> (Option<i64>, Option<i64>);

    /// Whether it can mount volumes.
    const MOUNTS_VOLUMES: bool = false;

    /// Returns the holder of the volumes that its replica mounts. With volumes there is one replica
    /// at a time, of whichever revision.
    fn holder(&self) -> Option<Holder<'_>> {
        None
    }

    /// Whether it answers requests without credentials.
    fn is_public(&self) -> bool;

    /// The hosts that it asks for, below domains of the user's.
    fn urls(&self) -> &[AppUrl] {
        &[]
    }

    /// Returns the sandbox port that answers in place of replicas, if it stands for one.
    fn bound<'w>(&'w self, _id: &ResourceId) -> Result<Option<Bound<'w>>, Error> {
        Ok(None)
    }

    /// Returns which revisions are to serve.
    fn revisions(&self) -> RevisionConfiguration {
        self.revision().cloned().unwrap_or_default()
    }
}

/// What one replica runs. Its secrets are open if those of the wish are.
pub(super) struct Program<'w> {
    pub(super) image: Image<'w>,
    pub(super) registries: Option<&'w Sensitive<String>>,
    pub(super) memory_mb: u32,
    pub(super) storage_mb: Option<u32>,
    pub(super) envs: &'w [Env],
    pub(super) port: u16,
    pub(super) generation: Option<Generation>,
    /// Empty folders, of which each replica gets its own.
    pub(super) scratch: Vec<Scratch>,
    /// The row of the snapshot that it begins with.
    pub(super) snapshot: Option<ResourceId>,
    pub(super) network: Option<&'w Network>,
}

/// A port of a sandbox, for which a deployment stands.
pub(super) struct Bound<'w> {
    pub(super) sandbox: &'w str,
    pub(super) port: u16,
}

#[derive(Clone, Copy)]
pub(super) enum Image<'w> {
    Named(&'w str),
    /// The hub server for the first of these connections.
    OfHub(&'w [String]),
}

/// Methods for the members that the specs of agents and MCP servers share.
macro_rules! requested {
    () => {
        fn scale(&self) -> (Option<i64>, Option<i64>) {
            let runtime = self.spec.runtime.as_ref();
            runtime.map_or((None, None), |runtime| (runtime.min_scale, runtime.max_scale))
        }

        fn is_public(&self) -> bool {
            self.spec.public == Some(true)
        }
    };
}

/// Like [`requested`], for the program.
macro_rules! program {
    ($spec:expr, $id:ident, $image:expr, $scratch:expr) => {{
        let runtime = $spec.runtime.as_ref();
        let whole = |number: i64| engine::whole($id, number);
        let member = |number: Option<i64>| number.map(whole).transpose();
        Ok(Some(Program {
            image: $image,
            registries: runtime.and_then(|runtime| runtime.docker_config.as_ref()),
            memory_mb: whole(runtime.and_then(|runtime| runtime.memory).unwrap_or(MEMORY_MB))?,
            storage_mb: member(runtime.and_then(|runtime| runtime.storage_mb))?,
            envs: runtime.and_then(|runtime| runtime.envs.as_deref()).unwrap_or_default(),
            port: PORT,
            generation: runtime.and_then(|runtime| runtime.generation),
            scratch: $scratch,
            snapshot: None,
            network: $spec.network.as_ref(),
        }))
    }};
}

fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

impl Deployable for Agent {
    const MOUNTS_VOLUMES: bool = true;

    requested!();

    fn program<'w>(&'w self, id: &ResourceId) -> Result<Option<Program<'w>>, Error> {
        let runtime = self.spec.runtime.as_ref();
        let image = runtime.and_then(|runtime| given(runtime.image.as_deref()));
        let Some(image) = image.map(Image::Named) else { return Ok(None) };
        let volumes = self.spec.volumes.as_deref().unwrap_or_default();
        let scratch = volumes::ephemeral(id, volumes)?;
        program!(self.spec, id, image, scratch)
    }

    fn holder(&self) -> Option<Holder<'_>> {
        self.is_alone().then(|| Holder::agent(self))
    }
}

impl Deployable for Function {
    requested!();

    fn program<'w>(&'w self, id: &ResourceId) -> Result<Option<Program<'w>>, Error> {
        let runtime = self.spec.runtime.as_ref();
        let image = runtime.and_then(|runtime| given(runtime.image.as_deref()));
        let image = image.map(Image::Named).or_else(|| self.hub_connections().map(Image::OfHub));
        let Some(image) = image else { return Ok(None) };
        program!(self.spec, id, image, Vec::new())
    }
}

impl Deployable for Application {
    fn program<'w>(&'w self, id: &ResourceId) -> Result<Option<Program<'w>>, Error> {
        let spec = &self.spec;
        let Some(image) = given(spec.image.as_deref()).map(Image::Named) else { return Ok(None) };
        Ok(Some(Program {
            image,
            registries: None,
            memory_mb: engine::whole(id, spec.memory.unwrap_or(MEMORY_MB))?,
            storage_mb: None,
            envs: spec.envs.as_deref().unwrap_or_default(),
            port: port(id, spec.port)?.unwrap_or(PORT),
            generation: None,
            scratch: Vec::new(),
            snapshot: spec.snapshot.as_deref().map(Snapshot::row_of),
            network: spec.network.as_ref(),
        }))
    }

    fn scale(&self) -> (Option<i64>, Option<i64>) {
        (None, None)
    }

    /// Applications are always public.
    fn is_public(&self) -> bool {
        true
    }

    fn bound<'w>(&'w self, id: &ResourceId) -> Result<Option<Bound<'w>>, Error> {
        let Some(sandbox) = self.bound_sandbox() else { return Ok(None) };
        let port = port(id, self.spec.port)?;
        let port = port.ok_or_else(|| engine::corrupt(id, "it names no port of its sandbox"))?;
        Ok(Some(Bound { sandbox, port }))
    }

    fn urls(&self) -> &[AppUrl] {
        self.spec.urls.as_deref().unwrap_or_default()
    }
}

fn port(id: &ResourceId, wished: Option<i64>) -> Result<Option<u16>, Error> {
    let port = wished.map(u16::try_from).transpose();
    port.map_err(|_| engine::corrupt(id, "its port is no port"))
}
