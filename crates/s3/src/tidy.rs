//! Removes what was abandoned: uploads that nobody completed, and files that a kill left behind.

use crate::error::Error;
use crate::folder::Folder;
use crate::ops::uploads;
use crate::settings::Settings;
use parking_lot::Mutex;
use std::collections::HashMap;
use types::{Timestamp, World};

/// Above this number of buckets, forget the ones that are due again anyway.
const BUCKETS_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct Tidy {
    looked: Mutex<HashMap<String, Timestamp>>,
}

impl Tidy {
    /// Searches the hidden folder of a bucket, on the first request to it and then periodically.
    pub(crate) async fn look(
        &self,
        bucket: &str,
        folder: &Folder,
        settings: &Settings,
        world: &World,
    ) {
        let now = world.now();
        {
            let mut looked = self.looked.lock();
            let due = |at: &Timestamp| now >= at.plus(settings.tidy_every);
            if looked.get(bucket).is_some_and(|at| !due(at)) {
                return;
            }
            if looked.len() >= BUCKETS_MAX {
                looked.retain(|_, at| !due(at));
            }
            looked.insert(bucket.to_owned(), now);
        }
        let (folder, life) = (folder.clone(), settings.upload_life);
        let tidied = tokio::task::spawn_blocking(move || uploads::tidy(&folder, now, life)).await;
        // This must not keep anyone from reading, for example if the disk is full.
        if let Err(error) = tidied.map_err(Error::from).and_then(|tidied| tidied) {
            tracing::warn!(bucket, %error, "what S3 clients abandoned could not be removed");
        }
    }
}
