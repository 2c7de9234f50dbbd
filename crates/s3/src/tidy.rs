//! Removes what was abandoned: uploads that nobody completed, and files that a kill left behind.

use crate::error::Error;
use crate::folder::Folder;
use crate::ops::uploads;
use crate::settings::Settings;
use parking_lot::Mutex;
use std::collections::HashMap;
use types::{Timestamp, World};

/// Most buckets that are remembered. The ones that are due again anyway are forgotten first.
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
        if !self.is_due(bucket, settings, now) {
            return;
        }
        let (folder, life) = (folder.clone(), settings.upload_life);
        let tidied = tokio::task::spawn_blocking(move || uploads::tidy(&folder, now, life)).await;
        // This must not keep anyone from reading, for example if the disk is full.
        if let Err(error) = tidied.map_err(Error::from).and_then(|tidied| tidied) {
            tracing::warn!(bucket, %error, "what S3 clients abandoned could not be removed");
        }
    }

    /// Returns whether a bucket is to be searched now, which counts as done.
    fn is_due(&self, bucket: &str, settings: &Settings, now: Timestamp) -> bool {
        let mut looked = self.looked.lock();
        let due = |at: &Timestamp| now >= at.plus(settings.tidy_every);
        if looked.get(bucket).is_some_and(|at| !due(at)) {
            return false;
        }
        if looked.len() >= BUCKETS_MAX {
            looked.retain(|_, at| !due(at));
        }
        if looked.len() >= BUCKETS_MAX {
            forget_oldest(&mut looked);
        }
        looked.insert(bucket.to_owned(), now);
        true
    }
}

fn forget_oldest(looked: &mut HashMap<String, Timestamp>) {
    let oldest = looked.iter().min_by_key(|(_, at)| **at).map(|(bucket, _)| bucket.clone());
    oldest.map(|bucket| looked.remove(&bucket));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_buckets_are_remembered() {
        let (tidy, settings) = (Tidy::default(), Settings::default());
        let at = |ms: usize| Timestamp::from_ms(i64::try_from(ms).unwrap());
        for number in 0..BUCKETS_MAX + 2 {
            assert!(tidy.is_due(&number.to_string(), &settings, at(number)));
        }
        assert_eq!(tidy.looked.lock().len(), BUCKETS_MAX);
        let now = at(BUCKETS_MAX + 2);
        assert!(!tidy.is_due("2", &settings, now), "a recent one is not searched again");
        assert!(tidy.is_due("0", &settings, now), "the one searched first was forgotten");
    }
}
