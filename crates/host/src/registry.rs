//! The content of the workspaces' own registry on this machine: uploaded blobs, pushed manifests,
//! and whose disk space they take.
//!
//! Content counts once for each workspace that has it in its repositories. Removed content counts
//! until it was collected, because otherwise a workspace that pushes and deletes in turns
//! could fill the disk. Unfinished uploads count too. They survive a restart of the program, and
//! are removed when nobody has continued them for a while.

mod room;
mod settings;
mod translated;
mod upload;

use crate::pulled::Pulled;
use admission::Limits;
use bytes::Bytes;
use control::registry::{
    BlobContent, Keep, ManifestContent, Place, Referrer, Registry, RegistryFault, RegistryLimits,
    TakenManifest,
};
use futures_util::future::BoxFuture;
use images::{Digest, Error, Repository, Store};
use parking_lot::Mutex;
use room::RegistryRoom;
pub use settings::RegistrySettings;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use translated::{broken, referrer, refused};
use types::World;
use upload::{OpenUpload, Uploads};

/// How many locks repositories share. Whoever holds one of them has the only turn at the
/// repositories that map to it.
const TURNS: usize = 64;
/// What a small file counts as at least, together with its metadata, in KiB.
const FILE_KIB_MIN: u64 = 64;
/// How long to wait between two collections, because each one looks at all images.
const FREE_PAUSE: Duration = Duration::from_secs(10);
/// The most bytes of descriptors in one answer.
const REFERRERS_BYTES_MAX: usize = 1 << 20;

/// This machine's registry. Cheap to clone.
#[derive(Clone)]
pub struct LocalRegistry(Arc<Inner>);

struct Inner {
    images: Store,
    settings: RegistrySettings,
    world: World,
    uploads: Uploads,
    room: RegistryRoom,
    turns: Vec<Arc<tokio::sync::Mutex<()>>>,
    freeing: Mutex<Freeing>,
    /// Counts images of repositories too, once they are unpacked.
    pulled: OnceLock<Arc<Pulled>>,
}

/// Whether removed content was collected lately.
enum Freeing {
    /// Not lately.
    Idle,
    /// Just now.
    Done,
    /// Just now, and it is wanted again.
    Wanted,
}

fn limits_kib(disk_mb: u64, share_percent: u32) -> Limits {
    let Limits { total, share } = node::divided(disk_mb, share_percent);
    Limits { total: total.saturating_mul(1024), share: share.saturating_mul(1024) }
}

impl LocalRegistry {
    /// Counts what earlier runs of the program have stored. Blocks.
    pub fn open(images: Store, settings: RegistrySettings, world: World) -> Result<Self, Error> {
        let room = RegistryRoom::new(limits_kib(settings.disk_mb, settings.share_percent));
        let open = Limits { total: settings.uploads_max, share: settings.uploads_workspace_max };
        let uploads = Uploads::open(&images, open, room.disk(), &world)?;
        let turns = (0..TURNS).map(|_| Arc::default()).collect();
        let registry = Self(Arc::new(Inner {
            images,
            settings,
            world,
            uploads,
            room,
            turns,
            freeing: Mutex::new(Freeing::Idle),
            pulled: OnceLock::new(),
        }));
        for repository in registry.0.images.repositories()? {
            for (digest, size) in repository.contents()? {
                registry.0.room.count(repository.name(), digest, size);
            }
        }
        Ok(registry)
    }

    /// Notes how much room there is by now.
    pub(crate) fn raise(&self, disk_mb: u64) {
        self.0.room.disk().raise(limits_kib(disk_mb, self.0.settings.share_percent));
    }

    /// Has the room that unpacked images hold given back with that of their repositories.
    pub(crate) fn frees(&self, pulled: &Arc<Pulled>) {
        self.0.pulled.get_or_init(|| Arc::clone(pulled));
    }

    /// Collects now, and again after a pause if that was asked for meanwhile.
    async fn free(self) -> Result<(), RegistryFault> {
        {
            let mut freeing = self.0.freeing.lock();
            if !matches!(*freeing, Freeing::Idle) {
                *freeing = Freeing::Wanted;
                return Ok(());
            }
            *freeing = Freeing::Done;
        }
        let freed = self.on_disk(Inner::collect).await;
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(FREE_PAUSE).await;
                {
                    let mut freeing = self.0.freeing.lock();
                    if matches!(*freeing, Freeing::Done) {
                        *freeing = Freeing::Idle;
                        return;
                    }
                    *freeing = Freeing::Done;
                }
                // Failures are logged where they happen.
                let _ = self.on_disk(Inner::collect).await;
            }
        });
        freed
    }

    /// Runs work on the disk on a thread that may block.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, RegistryFault> + Send + 'static,
    ) -> Result<T, RegistryFault> {
        let inner = Arc::clone(&self.0);
        let done = spawn_blocking(move || work(&inner)).await;
        done.unwrap_or_else(|_| Err(RegistryFault::Broken("it was interrupted".to_owned())))
    }
}

/// Returns what a file of this size counts as.
fn kib(bytes: u64) -> u64 {
    bytes.div_ceil(1024).max(FILE_KIB_MIN)
}

fn digest(text: &str) -> Result<Digest, RegistryFault> {
    text.parse().map_err(|_| RegistryFault::BadDigest)
}

impl Inner {
    fn repository(&self, place: &Place) -> Repository {
        self.images.repository(&place.to_string())
    }

    fn finish(
        &self,
        place: &Place,
        upload: OpenUpload,
        digest: Digest,
    ) -> Result<u64, RegistryFault> {
        let lease = self.images.begin_work();
        let (upload, _room) = upload.into_parts();
        let upload = upload.ok_or(RegistryFault::NoUpload)?;
        let size =
            self.images.finish_upload(upload, &digest, &lease).map_err(|error| match error {
                Error::Digest { .. } => RegistryFault::WrongDigest,
                other => broken(&other),
            })?;
        let at = self.world.now().ms();
        let repository = self.repository(place);
        repository.add_blob(&digest, size, at, &lease).map_err(|error| broken(&error))?;
        // Counted before the room of the upload is given back.
        self.room.count(repository.name(), digest, size);
        Ok(size)
    }

    fn mount(&self, place: &Place, from: &Place, digest: Digest) -> Result<bool, RegistryFault> {
        let source = self.repository(from);
        let Some(size) = source.blob_size(&digest) else { return Ok(false) };
        let _room = self.room.take_for(place, &[(digest, size)])?;
        let repository = self.repository(place);
        let at = self.world.now().ms();
        let mounted = repository.mount(&source, &digest, at).map_err(|error| broken(&error))?;
        if let Some(size) = mounted {
            self.room.count(repository.name(), digest, size);
        }
        Ok(mounted.is_some())
    }

    fn put_manifest(
        &self,
        place: &Place,
        media_type: Option<&str>,
        bytes: &[u8],
    ) -> Result<TakenManifest, RegistryFault> {
        let _room = self.room.take(place, bytes.len() as u64)?;
        let repository = self.repository(place);
        let at = self.world.now().ms();
        let pushed =
            repository.put_manifest(media_type, bytes, at).map_err(|fault| refused(&fault))?;
        self.room.count(repository.name(), pushed.filed.digest, pushed.filed.size);
        Ok(TakenManifest {
            digest: pushed.filed.digest.to_string(),
            size_bytes: pushed.bytes,
            subject: pushed.filed.subject.map(|subject| subject.to_string()),
        })
    }

    fn adopt(&self, place: &Place, digest: Digest) -> Result<u64, RegistryFault> {
        let contents = self.images.contents_of_image(&digest);
        // It is on disk already, but from now on it stays there for this repository too.
        let _room = self.room.take_for(place, &contents.map_err(|fault| refused(&fault))?)?;
        let repository = self.repository(place);
        let at = self.world.now().ms();
        let pushed = repository.adopt(&digest, at).map_err(|fault| refused(&fault))?;
        for (digest, size) in repository.contents().map_err(|error| broken(&error))? {
            self.room.count(repository.name(), digest, size);
        }
        Ok(pushed.bytes)
    }

    fn prune(&self, place: &Place, keep: &Keep) -> Result<Vec<String>, RegistryFault> {
        let repository = self.repository(place);
        let all = |texts: &[String]| texts.iter().filter_map(|text| text.parse().ok()).collect();
        let age = i64::try_from(self.settings.untagged_keep.as_millis()).unwrap_or(i64::MAX);
        let since = match keep.is_over {
            true => i64::MAX,
            false => self.world.now().ms().saturating_sub(age),
        };
        if keep.is_over {
            self.uploads.give_up_at(&self.images, place)?;
        }
        let keep =
            images::Keep { manifests: all(&keep.manifests), since, except: all(&keep.except) };
        let gone = repository.prune(&keep).map_err(|error| broken(&error))?;
        self.room.leave(repository.name(), &gone);
        let there = repository.digests().map_err(|error| broken(&error))?;
        Ok(there.iter().map(Digest::to_string).collect())
    }

    /// Collects, and gives back the room of what had been removed before. While another program has
    /// the images open, this is left for the next time.
    fn collect(&self) -> Result<(), RegistryFault> {
        match self.room.collected(|| self.images.collect()) {
            Ok(freed) => {
                tracing::debug!(?freed, "pushed images were tidied");
                if let Some(pulled) = self.pulled.get() {
                    pulled.keep_only(|image| self.images.has(image));
                }
                Ok(())
            }
            Err(Error::InUse(_)) => Ok(()),
            Err(other) => Err(broken(&other)),
        }
    }
}

impl Registry for LocalRegistry {
    fn limits(&self) -> RegistryLimits {
        let RegistrySettings { blob_bytes_max, manifest_bytes_max, stall, .. } = self.0.settings;
        RegistryLimits { blob_bytes_max, manifest_bytes_max, stall }
    }

    fn turn<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, Box<dyn Send + Sync>> {
        let number = place
            .to_string()
            .bytes()
            .fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
        let lock = Arc::clone(&self.0.turns[number % self.0.turns.len()]);
        Box::pin(async move { Box::new(lock.lock_owned().await) as Box<dyn Send + Sync> })
    }

    fn begin_upload(&self, place: Place) -> BoxFuture<'_, Result<String, RegistryFault>> {
        Box::pin(
            self.on_disk(move |inner| inner.uploads.begin(&inner.images, &place, &inner.world)),
        )
    }

    fn uploaded(&self, place: Place, upload: String) -> BoxFuture<'_, Result<u64, RegistryFault>> {
        Box::pin(
            self.on_disk(move |inner| {
                Ok(inner.uploads.take(&inner.images, &place, &upload)?.size())
            }),
        )
    }

    fn append(
        &self,
        place: Place,
        upload: String,
        from: Option<u64>,
        bytes: mpsc::Receiver<std::io::Result<Bytes>>,
    ) -> BoxFuture<'_, Result<u64, RegistryFault>> {
        Box::pin(async move {
            let open = self
                .on_disk(move |inner| inner.uploads.take(&inner.images, &place, &upload))
                .await?;
            if let Some(from) = from.filter(|from| *from != open.size()) {
                tracing::debug!(from, "a piece of an upload does not follow");
                return Err(RegistryFault::OutOfOrder(open.size()));
            }
            let inner = &self.0;
            let max = inner.settings.blob_bytes_max;
            upload::receive(open, bytes, max, inner.room.disk(), &inner.world).await
        })
    }

    fn finish_upload(
        &self,
        place: Place,
        upload: String,
        wanted: String,
    ) -> BoxFuture<'_, Result<u64, RegistryFault>> {
        Box::pin(self.on_disk(move |inner| {
            let wanted = digest(&wanted)?;
            let open = inner.uploads.take(&inner.images, &place, &upload)?;
            inner.uploads.forget(&upload);
            inner.finish(&place, open, wanted).inspect_err(|_| {
                if let Err(error) = inner.images.forget_upload(&upload) {
                    tracing::warn!(%error, "what is left of an upload stays until the next start");
                }
            })
        }))
    }

    fn cancel_upload(
        &self,
        place: Place,
        upload: String,
    ) -> BoxFuture<'_, Result<(), RegistryFault>> {
        Box::pin(self.on_disk(move |inner| {
            drop(inner.uploads.take(&inner.images, &place, &upload)?);
            inner.images.forget_upload(&upload).map_err(|error| broken(&error))?;
            inner.uploads.forget(&upload);
            Ok(())
        }))
    }

    fn mount(
        &self,
        place: Place,
        from: Place,
        wanted: String,
    ) -> BoxFuture<'_, Result<bool, RegistryFault>> {
        Box::pin(self.on_disk(move |inner| inner.mount(&place, &from, digest(&wanted)?)))
    }

    fn blob(
        &self,
        place: Place,
        wanted: String,
    ) -> BoxFuture<'_, Result<BlobContent, RegistryFault>> {
        Box::pin(self.on_disk(move |inner| {
            let found = inner.repository(&place).blob(&digest(&wanted)?);
            let images::Blob { file, size } =
                found.map_err(|error| broken(&error))?.ok_or(RegistryFault::NoBlob)?;
            Ok(BlobContent { file, size })
        }))
    }

    fn remove_blob(
        &self,
        place: Place,
        wanted: String,
    ) -> BoxFuture<'_, Result<(), RegistryFault>> {
        Box::pin(self.on_disk(move |inner| {
            let (repository, digest) = (inner.repository(&place), digest(&wanted)?);
            if repository.blob_size(&digest).is_none() {
                return Err(RegistryFault::NoBlob);
            }
            match repository.remove_blob(&digest).map_err(|error| broken(&error))? {
                true => inner.room.leave(repository.name(), &[digest]),
                false => return Err(RegistryFault::Needed),
            }
            Ok(())
        }))
    }

    fn put_manifest(
        &self,
        place: Place,
        media_type: Option<String>,
        wanted: Option<String>,
        bytes: Bytes,
    ) -> BoxFuture<'_, Result<TakenManifest, RegistryFault>> {
        Box::pin(self.on_disk(move |inner| {
            let wanted = wanted.as_deref().map(digest).transpose()?;
            if wanted.is_some_and(|wanted| wanted != Digest::of(&bytes)) {
                return Err(RegistryFault::WrongDigest);
            }
            inner.put_manifest(&place, media_type.as_deref(), &bytes)
        }))
    }

    fn manifest(
        &self,
        place: Place,
        wanted: String,
    ) -> BoxFuture<'_, Result<ManifestContent, RegistryFault>> {
        Box::pin(self.on_disk(move |inner| {
            let found = inner.repository(&place).manifest(&digest(&wanted)?);
            let (filed, bytes) =
                found.map_err(|error| broken(&error))?.ok_or(RegistryFault::NoManifest)?;
            Ok(ManifestContent { media_type: filed.media_type, bytes: bytes.into() })
        }))
    }

    fn referrers(
        &self,
        place: Place,
        subject: String,
        after: Option<String>,
    ) -> BoxFuture<'_, Result<(Vec<Referrer>, bool), RegistryFault>> {
        Box::pin(self.on_disk(move |inner| {
            let after = after.as_deref().map(digest).transpose()?;
            let found = inner.repository(&place).referrers(
                &digest(&subject)?,
                after.as_ref(),
                REFERRERS_BYTES_MAX,
            );
            let (found, more) = found.map_err(|error| broken(&error))?;
            Ok((found.into_iter().map(referrer).collect(), more))
        }))
    }

    fn adopt(&self, place: Place, wanted: String) -> BoxFuture<'_, Result<u64, RegistryFault>> {
        Box::pin(self.on_disk(move |inner| inner.adopt(&place, digest(&wanted)?)))
    }

    fn prune(&self, place: Place, keep: Keep) -> BoxFuture<'_, Result<Vec<String>, RegistryFault>> {
        Box::pin(self.on_disk(move |inner| inner.prune(&place, &keep)))
    }

    fn places(&self) -> BoxFuture<'_, Result<Vec<Place>, RegistryFault>> {
        Box::pin(self.on_disk(|inner| {
            let all = inner.images.repositories().map_err(|error| broken(&error))?;
            let mut names = inner.uploads.places();
            names.extend(all.iter().map(|repository| repository.name().to_owned()));
            Ok(names.iter().filter_map(|name| Place::known(name)).collect())
        }))
    }

    fn free_soon(&self) -> BoxFuture<'_, Result<(), RegistryFault>> {
        Box::pin(self.clone().free())
    }

    fn tidy(&self) -> BoxFuture<'_, Result<(), RegistryFault>> {
        Box::pin(self.on_disk(|inner| {
            let age = i64::try_from(inner.settings.upload_keep.as_millis()).unwrap_or(i64::MAX);
            let before = inner.world.now().ms().saturating_sub(age);
            inner.uploads.give_up(&inner.images, before)?;
            inner.collect()
        }))
    }
}
