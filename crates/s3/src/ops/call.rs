//! What each operation gets, and how it does work that blocks.

use crate::access::{Caller, Refused};
use crate::error::{Code, Error};
use crate::folder::{Folder, Locks, Turn};
use crate::route::Query;
use crate::settings::Settings;
use admission::Turns;
use http::request::Parts;
use std::sync::Arc;
use types::World;

/// A request of an authenticated caller to an open bucket.
pub(crate) struct Call {
    pub(crate) parts: Parts,
    /// The bucket's name in the request, and what identifies its files.
    pub(crate) bucket: String,
    pub(crate) bucket_id: String,
    pub(crate) query: Query,
    pub(crate) folder: Folder,
    pub(crate) may_write: bool,
    pub(crate) key_id: String,
    pub(crate) caller: Arc<dyn Caller>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) turn: Turn,
    /// Whose share of heavy work this is, and all of it.
    pub(crate) owner: String,
    pub(crate) heavy: Arc<Turns>,
    pub(crate) world: World,
}

impl Call {
    /// Checks that the key may still write to the same bucket. To be called when all of a body has
    /// come, which may take long: a drive may have been deleted meanwhile, and what is written to
    /// its files then is lost.
    pub(super) async fn require_bucket(&self) -> Result<(), Error> {
        let bucket = self.caller.open(&self.bucket).await?;
        if bucket.id != self.bucket_id {
            return Err(Refused::NoBucket.into());
        }
        if bucket.may_write { Ok(()) } else { Err(Error::may_not_write()) }
    }

    /// Waits until it may do work that takes long however little the caller sends, such as copying
    /// or looking through folders. The work has to keep what is returned: it goes on when the
    /// caller has gone, and otherwise one owner would keep the processors busy for all others.
    pub(super) async fn heavy(&self) -> Result<admission::Turn, Error> {
        tokio::select! {
            biased;
            () = self.caller.outlived() => {
                let message = "The key was revoked while the request waited.";
                Err(Error::new(Code::AccessDenied, message))
            }
            turn = self.heavy.take(&self.owner) => Ok(turn),
        }
    }
}

/// Runs blocking work on a thread for it.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await?
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::access::{Bucket, BucketEntry, Owner, Refused, Secret};
    use crate::ops::copy;
    use crate::ops::list;
    use futures_util::future::BoxFuture;
    use futures_util::{FutureExt as _, poll};
    use std::fs::File;
    use std::path::{Path, PathBuf};
    use types::Timestamp;

    /// Owns a key that opens one bucket, with the files of this folder.
    struct Somebody(Secret, PathBuf);

    fn bucket(root: &Path) -> Bucket {
        let files = Arc::new(File::open(root).unwrap().into());
        let owner = Owner { user: 0, group: 0 };
        Bucket { id: "bucket".into(), files, owner, may_write: true }
    }

    impl Caller for Somebody {
        fn secret(&self) -> &Secret {
            &self.0
        }

        fn enter(&self) -> Result<String, Refused> {
            Ok("somebody".into())
        }

        fn outlived(&self) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }

        fn open<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Bucket, Refused>> {
            Box::pin(async { Ok(bucket(&self.1)) })
        }

        fn list(&self) -> BoxFuture<'_, Result<Vec<BucketEntry>, Refused>> {
            Box::pin(async { Ok(Vec::new()) })
        }
    }

    pub(in crate::ops) fn call(root: &Path, heavy: &Arc<Turns>) -> Call {
        let (locks, turn) = (Arc::<Locks>::default(), Arc::new(()) as Turn);
        let world = World::new(|| Timestamp::from_ms(0), |bytes| bytes.fill(7));
        let request = http::Request::get("/").header("x-amz-copy-source", "bucket/from");
        Call {
            parts: request.body(()).unwrap().into_parts().0,
            bucket: "bucket".into(),
            bucket_id: "bucket".into(),
            query: Query(Vec::new()),
            folder: Folder::new(bucket(root), &locks, world.clone(), Arc::clone(&turn)),
            may_write: true,
            key_id: "ak".into(),
            caller: Arc::new(Somebody(Secret::new("secret"), root.to_owned())),
            settings: Arc::default(),
            locks,
            turn,
            owner: "somebody".into(),
            heavy: Arc::clone(heavy),
            world,
        }
    }

    #[tokio::test]
    async fn lists_and_copies_of_one_owner_leave_the_processors_to_others() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("from"), "x").unwrap();
        let heavy = Arc::new(Turns::new(2, 1));
        let mine = heavy.take("somebody").await;
        let mut page = Box::pin(list::page(call(root.path(), &heavy), "bucket", true));
        let key = crate::key::Key::new("to").unwrap();
        let mut copied = Box::pin(copy::object(call(root.path(), &heavy), key));
        assert!(poll!(&mut page).is_pending() && poll!(&mut copied).is_pending());
        assert!(heavy.take("another").now_or_never().is_some());
        assert!(!root.path().join("to").exists());
        drop(mine);
        assert!(page.await.is_ok());
        assert!(copied.await.is_ok() && root.path().join("to").exists());
    }
}
