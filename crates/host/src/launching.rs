//! Turns a launch into an instance: finds the image and says what the guest is told.

use crate::bases::Below;
use crate::below::{Beneath, snapshot_of};
use crate::disks;
use crate::leases::Purpose;
use crate::refusals::{self, no_space, over_limit};
use crate::{Inner, Interrupted, LocalMachine};
use control::machine::{ImageAt, Launch, LaunchFault, UnknownImage, Work};
use images::{Config, Credentials, DEFAULT_HOST, Digest, Image, Reference, names_registry};
use node::{CreateError, Here, Owner, Spec, User, VolumeError, Writable};
use std::sync::Arc;
use std::time::Duration;
use types::chain;
use types::guest::Settings;
use types::instance::{DriveMount, InstanceName, Medium, Scratch, VolumeMount};
use types::own_image::is_own_image;
use types::work::{DATA_BYTES_MAX, Orders};

/// Where programs of a sandbox that do not inherit its environment can find it, as published
/// clients expect. In memory, because it holds secrets, and so small that an instance is not hurt
/// if it fills up.
const ENVIRONMENT_FOLDER: &str = "/var/secrets";
const ENVIRONMENT_FILE: &str = "/var/secrets/bl-env";
const ENVIRONMENT_MB: u32 = 1;
/// The most image names that a message lists, and the most characters of a name in it.
const NAMES_MAX: usize = 100;
/// How much output of work is kept in its instance for whoever follows it: one part in this many of
/// its memory, within the bounds below.
const OUTPUT_OF_MEMORY: usize = 16;
const OUTPUT_BYTES_MIN: usize = 1 << 20;
const OUTPUT_BYTES_MAX: usize = 8 << 20;
/// Without a disk of its own, files may take one part in this many of the instance's memory.
const FILES_OF_MEMORY: u32 = 2;

impl From<Interrupted> for LaunchFault {
    fn from(interrupted: Interrupted) -> Self {
        Self::Broken(interrupted.to_string())
    }
}

impl LocalMachine {
    /// Starts the instance of an image that is here.
    pub(crate) async fn launch(&self, mut launch: Launch) -> Result<(), LaunchFault> {
        let _here = self.bring(&mut launch).await?;
        let (id, rules) = (launch.instance.clone(), launch.egress.clone());
        self.0.require_way_out(&rules).map_err(LaunchFault::Broken)?;
        self.on_node(move |inner| inner.start(&launch)).await?;
        // Until then the proxy holds the instance's requests.
        let begun = self.put_rules(&id, rules).await;
        begun.map_err(|error| LaunchFault::Broken(chain(&error)))
    }

    /// Unpacks the image of a launch and fetches its snapshot, unless they are here already. May
    /// wait for as long as pulls of the workspace take.
    pub(crate) async fn bring(&self, launch: &mut Launch) -> Result<Option<Here>, LaunchFault> {
        if is_own_image(&launch.image) {
            if launch.root.is_some() || launch.snapshot.is_some() {
                let of = launch.clone();
                let below = self.on_node(move |inner| inner.below(&of)).await?;
                if let Some(Beneath { below: Below::Image(digest), .. }) = below {
                    launch.granted = Some(digest.to_string());
                }
            }
            launch.granted = Some(self.make_ready(launch).await?.to_string());
        }
        self.bring_snapshot(launch).await
    }

    /// Pulls the image of a launch with the workspace's credentials, into the workspace's room for
    /// images.
    pub(crate) async fn fetch(&self, launch: &Launch) -> Result<String, LaunchFault> {
        self.fetch_for(&launch.workspace, &launch.image, launch.registries.as_deref()).await
    }

    /// Does the same for a workspace that starts nothing yet.
    pub(crate) async fn fetch_for(
        &self,
        workspace: &str,
        image: &str,
        registries: Option<&str>,
    ) -> Result<String, LaunchFault> {
        let name = self.0.reference(image)?;
        self.0.require_open(&name)?;
        Ok(self.pull(workspace, &name, registries).await?.to_string())
    }

    /// Pulls an image for a workspace from a registry that is known to be allowed.
    pub(crate) async fn pull(
        &self,
        workspace: &str,
        name: &Reference,
        registries: Option<&str>,
    ) -> Result<Digest, LaunchFault> {
        let inner = &self.0;
        let credentials = credentials(registries, name)?;
        let room = inner.pulled.begin(workspace).await.map_err(over_limit)?;
        let pulled = inner.puller.pull_for(&inner.images, name, &credentials, room.bytes).await;
        let (digest, bytes) = match pulled {
            Ok(pulled) => pulled,
            Err(error) => {
                // What was fetched so far is counted for nobody, so it must not stay.
                let machine = self.clone();
                tokio::task::spawn_blocking(move || machine.tidy());
                return Err(match no_space(&error) {
                    Some(why) => LaunchFault::Full(why),
                    None => LaunchFault::Pull(format!("{name}: {}", chain(&error))),
                });
            }
        };
        let workspace = workspace.to_owned();
        self.on_node(move |inner| {
            let kept = inner.pulled.keep(room, &workspace, digest, bytes);
            kept.map_err(|error| refusals::failed(&error))
        })
        .await?;
        Ok(digest)
    }

    /// Unpacks an image of the workspace's own into its room for images, unless that was done
    /// already: anything may be pushed, and only now it turns out whether it can run. Returns the
    /// image for this machine's architecture.
    async fn make_ready(&self, launch: &Launch) -> Result<Digest, LaunchFault> {
        let named = launch.image.clone();
        let refused = move |error: images::Error| {
            let why = format!("{named} cannot run here: {}", chain(&error));
            match no_space(&error) {
                Some(full) => LaunchFault::Full(full),
                None if error.is_of_image() => LaunchFault::Pull(why),
                None => LaunchFault::Broken(why),
            }
        };
        let granted = launch.granted.as_ref().and_then(|digest| digest.parse::<Digest>().ok());
        let Some(granted) = granted else { return Err(self.0.unknown(&launch.image).into()) };
        let look = move |inner: &Inner| {
            let image = inner.images.runnable(&granted)?;
            Ok((image, inner.images.is_ready(&image)))
        };
        let (image, ready) = self.on_images(look).await.map_err(refused.clone())?;
        if ready {
            return Ok(image);
        }
        let room = self.0.pulled.begin(&launch.workspace).await.map_err(over_limit)?;
        let (bytes_max, is_rest) = (room.bytes, room.is_rest);
        let workspace = launch.workspace.clone();
        let prepared = self.on_images(move |inner| {
            // Another launch may have done it while this one waited for room.
            if inner.images.is_ready(&image) {
                return Ok(());
            }
            let (bytes, lease) = inner.images.prepare(&image, bytes_max)?;
            // Counted first, so that nothing runs that counts for nobody.
            inner.pulled.keep(room, &workspace, image, bytes).map_err(images::Error::Read)?;
            inner.images.set_ready(&image, &lease)
        });
        if let Err(error) = prepared.await {
            // What was unpacked so far is counted for nobody, so it must not stay.
            let machine = self.clone();
            tokio::task::spawn_blocking(move || machine.tidy());
            return Err(match error {
                images::Error::Limit { max, .. } if is_rest && max >= bytes_max => {
                    LaunchFault::OverShare(format!(
                        "{} needs more than the {} MB that the workspace has left for images on this machine; delete \
                         images that are not needed",
                        launch.image,
                        bytes_max / 1_000_000
                    ))
                }
                other => refused(other),
            });
        }
        Ok(image)
    }

    async fn on_images<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, images::Error> + Send + 'static,
    ) -> Result<T, images::Error> {
        let inner = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || work(&inner)).await;
        done.unwrap_or_else(|error| Err(images::Error::Read(std::io::Error::other(error))))
    }
}

impl Inner {
    /// Finds an image that is here for everybody. A name without a registry can only mean an image
    /// of this machine, so that a typo never asks an outside registry.
    pub(crate) fn find(&self, image: &str) -> Result<ImageAt, UnknownImage> {
        // A workspace's own image is never anybody else's, even if the operator has an image of
        // that name.
        if is_own_image(image) {
            return Err(self.unknown(image));
        }
        let Ok(name) = image.parse::<Reference>() else { return Err(self.unknown(image)) };
        match self.images.find_public(&name) {
            Ok(Some(_)) => Ok(ImageAt::Hand),
            Ok(None) => on_registry(image, &name).ok_or_else(|| self.unknown(image)),
            Err(error) => {
                tracing::error!(%error, image, "an image cannot be read");
                Err(self.unknown(image))
            }
        }
    }

    pub(crate) fn require_open(&self, name: &Reference) -> Result<(), LaunchFault> {
        let host = name.host().unwrap_or(DEFAULT_HOST);
        let url = format!("https://{host}").parse().ok();
        match url.as_ref().and_then(reqwest::Url::host_str) {
            Some(host) if self.registries.permits(host) => Ok(()),
            _ => Err(LaunchFault::Pull(format!(
                "{name}: its registry is not on the internet; images.inside lists those that may be asked"
            ))),
        }
    }

    fn reference(&self, image: &str) -> Result<Reference, LaunchFault> {
        image.parse().map_err(|_| self.unknown(image).into())
    }

    fn unknown(&self, image: &str) -> UnknownImage {
        let listed = self.images.public_names().unwrap_or_else(|error| {
            tracing::error!(%error, "the images that there are cannot be listed");
            Default::default()
        });
        let there_are = listed.into_iter().take(NAMES_MAX).map(|name| name.to_string()).collect();
        let wanted = image.chars().take(NAMES_MAX).collect();
        UnknownImage { wanted, there_are, elsewhere: false }
    }

    pub(crate) fn has(&self, digest: &str) -> bool {
        digest.parse().is_ok_and(|digest| self.images.has(&digest))
    }

    /// Returns the image of a launch: whatever the name means for everybody, otherwise the one that
    /// was granted.
    pub(crate) fn image_of(
        &self,
        image: &str,
        granted: Option<&str>,
    ) -> Result<Digest, LaunchFault> {
        let granted = || granted.and_then(|digest| digest.parse().ok());
        if is_own_image(image) {
            return granted().ok_or_else(|| self.unknown(image).into());
        }
        let name = self.reference(image)?;
        let public =
            self.images.find_public(&name).map_err(|error| LaunchFault::Broken(chain(&error)))?;
        public.or_else(granted).ok_or_else(|| self.unknown(image).into())
    }

    fn start(&self, launch: &Launch) -> Result<(), LaunchFault> {
        let id = launch.instance.clone();
        let data_bytes = launch.work.as_ref().map_or(0, |work| work.data.len());
        if data_bytes > DATA_BYTES_MAX {
            return Err(LaunchFault::Broken(format!(
                "its data has {data_bytes} bytes, more than {DATA_BYTES_MAX}"
            )));
        }
        let owner = Owner::new(launch.workspace.as_str())
            .map_err(|error| LaunchFault::Broken(chain(&error)))?;
        let (digest, snapshot) = (self.image_below(launch)?, snapshot_of(launch)?);
        // A repeated launch must not give up the image of what runs for what the name means by now.
        let used = self.node.inspect(&id).ok().and_then(|_| self.leases.image_of(&id));
        let digest = used.unwrap_or(digest);
        let purpose = Purpose::of(launch);
        let taken = self.leases.take(&id, digest, purpose, &self.images);
        let image = taken.map_err(|error| refusals::failed(&error))?;
        let Some(image) = image else { return Err(self.unknown(&launch.image).into()) };
        if launch.work.is_none() && !image.config.entrypoint.is_empty() {
            self.starting.lock().insert(launch.instance.clone());
        }
        let spec = Spec { snapshot, ..self.spec(launch, id.clone(), owner, &image) };
        let made = self.create(launch, &spec, image.digest);
        match made {
            // The same launch again: an earlier run was stopped before it could report it.
            Ok(()) | Err(CreateError::Exists(_)) => Ok(()),
            Err(error) => {
                self.leases.give_back(&id);
                self.starting.lock().remove(&launch.instance);
                Err(refusals::of_launch(&error).unwrap_or_else(|| refusals::failed(&error)))
            }
        }
    }

    /// Makes the instance, after noting the image below its disk. Nothing else keeps that image
    /// when the instance is gone.
    fn create(&self, launch: &Launch, spec: &Spec, image: Digest) -> Result<(), CreateError> {
        let Some(disk) = self.disk_of(launch) else { return self.node.create(spec).map(drop) };
        self.disks.begin(disk, image, &self.images).map_err(VolumeError::from)?;
        let made = self.node.create(spec).map(drop);
        if self.node.volumes().size_mb(disk).is_none() {
            self.disks.forget(disk);
        }
        made
    }

    fn spec(&self, launch: &Launch, id: InstanceName, owner: Owner, image: &Image) -> Spec {
        let memory_mb = launch.memory_mb;
        let settings = self.guest_settings(launch, &id, image);
        let data = launch.work.as_ref().map_or(&[][..], |work| &work.data);
        Spec {
            id,
            owner,
            again: launch.again,
            layers: image.layers.clone(),
            snapshot: None,
            memory_mb,
            cpu_millicores: self.cpu_at_start(launch),
            pids_max: self.pids_max,
            writable: self.writable(launch, image),
            hostname: launch.hostname.clone(),
            workdir: "/".to_owned(),
            user: User::ROOT,
            first: self.first_process(Purpose::of(launch).guest_port(), &settings, data),
            scratch: folders(launch),
            extras: node::Extras { mounts: mounts(launch), ..node::Extras::default() },
            firewall: self.firewall(&launch.egress),
        }
    }

    /// Returns the processor time for the start. Programs that callers wait for have more to do
    /// until they listen than ever after: loading a language's libraries with a quarter of a
    /// processor takes most of a cold start.
    fn cpu_at_start(&self, launch: &Launch) -> u32 {
        let usual = Spec::cpu_for(launch.memory_mb);
        launch.serves.map_or(usual, |_| usual.max(self.start_millicores))
    }

    /// Takes back the extra processor time that an instance had for its start.
    pub(crate) fn end_start(&self, instance: &InstanceName) -> Result<(), node::Error> {
        let memory_mb = self.node.inspect(instance)?.memory_mb;
        self.node.limit_cpu(instance, Spec::cpu_for(memory_mb))
    }

    fn writable(&self, launch: &Launch, image: &Image) -> Writable {
        match (launch.storage_mb, self.disk_of(launch)) {
            (None, _) => {
                let mb = launch.memory_mb / FILES_OF_MEMORY;
                if self.layers_fit_memory { Writable::Memory { mb } } else { Writable::Disk { mb } }
            }
            (Some(mb), Some(disk)) => {
                let snapshot = launch.snapshot.as_ref().map(|id| id.as_str());
                let over = disks::over(&image.digest, snapshot);
                Writable::Kept { volume: disk.clone(), mb, over }
            }
            (Some(mb), None) => Writable::Disk { mb },
        }
    }

    /// Returns what the guest is told: the image's environment, overridden by the launch's, and which
    /// program to start or which work to do.
    fn guest_settings(&self, launch: &Launch, id: &InstanceName, image: &Image) -> Settings {
        let proxy = self.proxy_settings(id, &launch.egress, Some(image));
        let image = &image.config;
        let mut env = image.env.clone();
        env.extend(launch.environment.iter().map(|(name, value)| (name.clone(), value.clone())));
        if launch.work.is_none() {
            env.insert("BL_ENV_VAR_PATH".to_owned(), ENVIRONMENT_FILE.to_owned());
        }
        let workdir = if image.workdir.is_empty() { "/" } else { image.workdir.as_str() };
        let start = match image.entrypoint.is_empty() {
            true => Vec::new(),
            false => image.entrypoint.iter().chain(&image.cmd).cloned().collect(),
        };
        let settings = Settings {
            env,
            workdir: Some(workdir.to_owned()),
            user: Some(image.user.clone()),
            disable_process_logging: !launch.keeps_logs,
            start,
            proxy,
            ..Settings::default()
        };
        let secret = self.key.secret(id);
        match &launch.work {
            Some(work) => {
                Settings { work: Some(work_orders(launch, work, secret, image)), ..settings }
            }
            None => Settings {
                secret: Some(secret),
                environment_file: Some(ENVIRONMENT_FILE.to_owned()),
                ..settings
            },
        }
    }
}

/// Returns where an image is that this machine does not have: nowhere, unless its registry is
/// written. The whole name is returned, because a workspace's own images have none.
fn on_registry(image: &str, name: &Reference) -> Option<ImageAt> {
    let is_there = names_registry(image) && !is_made_here(name);
    is_there.then(|| ImageAt::Registry { name: name.with_registry() })
}

/// Returns whether only this machine makes an image. No registry is ever asked for one, because
/// anybody could have taken its name there.
pub(crate) fn is_made_here(name: &Reference) -> bool {
    const OURS: [&str; 2] = ["holm/", "blaxel/"];
    name.host().is_none() && OURS.iter().any(|start| name.path().starts_with(start))
}

fn mounts(launch: &Launch) -> Vec<node::Mount> {
    let mount = |mount: &VolumeMount| node::Mount {
        path: mount.path.clone(),
        what: node::Mounted::Volume { volume: mount.volume.clone(), read_only: mount.read_only },
    };
    let drive = |mount: &DriveMount| node::Mount {
        path: mount.place.clone(),
        what: node::Mounted::Drive(mount.clone()),
    };
    launch.volumes.iter().map(mount).chain(launch.drives.iter().map(drive)).collect()
}

fn work_orders(launch: &Launch, work: &Work, secret: String, image: &Config) -> Orders {
    #[expect(clippy::expect_used, reason = "times of work are seconds in 32 bits")]
    let ms = |duration: Duration| {
        u64::try_from(duration.as_millis()).expect("times of work are far below u64")
    };
    let memory_bytes = (launch.memory_mb as usize) << 20;
    Orders {
        command: image
            .entrypoint
            .iter()
            .chain(&image.cmd)
            .chain(&work.arguments)
            .cloned()
            .collect(),
        secret,
        timeout_ms: work.timeout.map(ms),
        grace_ms: ms(launch.grace),
        output_bytes_max: (memory_bytes / OUTPUT_OF_MEMORY)
            .clamp(OUTPUT_BYTES_MIN, OUTPUT_BYTES_MAX),
    }
}

/// Returns the folders that were asked for, and the one with the environment for instances that
/// serve.
fn folders(launch: &Launch) -> Vec<Scratch> {
    let environment = launch.work.is_none().then(|| Scratch {
        path: ENVIRONMENT_FOLDER.to_owned(),
        size_mb: ENVIRONMENT_MB,
        read_only: false,
        medium: Medium::Memory,
    });
    launch.scratch.iter().cloned().chain(environment).collect()
}

fn credentials(registries: Option<&str>, name: &Reference) -> Result<Credentials, LaunchFault> {
    let Some(config) = registries else { return Ok(Credentials::None) };
    let read = Credentials::from_docker_config(config.as_bytes(), name);
    read.map_err(|_| {
        LaunchFault::Pull("the credentials in `dockerConfig` cannot be read".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_asked_for_where_its_registry_is_written() {
        let at = |text: &str| match on_registry(text, &text.parse().ok()?) {
            Some(ImageAt::Registry { name }) => Some(name),
            _ => None,
        };
        for (text, name) in [
            ("ghcr.io/org/name:1", "ghcr.io/org/name:1"),
            ("docker.io/library/alpine:3", "docker.io/alpine:3"),
            ("index.docker.io/library/alpine:3", "docker.io/alpine:3"),
            ("registry-1.docker.io/org/name", "docker.io/org/name:latest"),
            // Not to be taken for an image of the workspace's own.
            ("docker.io/agent/name", "docker.io/agent/name:latest"),
            ("ghcr.io/holm/base", "ghcr.io/holm/base:latest"),
        ] {
            assert_eq!(at(text).as_deref(), Some(name), "{text}");
        }
        for text in ["alpine:3", "library/alpine:3", "org/name", "docker.io/holm/base", "holm/base"]
        {
            assert_eq!(at(text), None, "{text}");
        }
    }
}
