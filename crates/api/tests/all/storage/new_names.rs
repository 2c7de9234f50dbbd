//! Simultaneous requests for new volumes and drives.

use super::volumes::{named, until_kept};
use crate::common::machine::Pretended;
use crate::common::volumes::{DRIVE_MB, PretendedVolumes};
use crate::common::{Answer, Cloud};
use control::machine::Machine;
use futures_util::future::join_all;
use http::{Method, StatusCode};
use std::sync::Arc;
use types::instance::Outcome;

#[tokio::test]
async fn identical_requests_do_not_take_the_room_from_each_other() {
    let volumes = PretendedVolumes::new(DRIVE_MB);
    let machine = || {
        Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)).with_volumes(&volumes))
            as Arc<dyn Machine>
    };
    for cloud in Cloud::start_on_machines(machine).await {
        let mut wish = named("one");
        wish["spec"]["size"] = DRIVE_MB.into();
        for (path, wish) in [("/v0/drives", named("one")), ("/v0/volumes", wish)] {
            let ask = |key: Option<&'static str>| {
                let headers: Vec<_> = key.map(|key| ("idempotency-key", key)).into_iter().collect();
                let (cloud, wish) = (&cloud, wish.clone());
                async move { cloud.call_with(Method::POST, path, &headers, Some(wish)).await }
            };
            let key = path.rsplit('/').next();
            let keyed = join_all((0..10).map(|_| ask(key))).await;
            let replayed = |answer: &Answer| answer.headers.contains_key("idempotent-replayed");
            assert_eq!(keyed.iter().filter(|answer| replayed(answer)).count(), 9, "{keyed:?}");
            keyed.into_iter().for_each(|answer| drop(answer.ok()));
            let one = format!("{path}/one");
            cloud.delete(&one).await.ok();
            until_kept(&volumes, &[]).await;
            let answers = join_all((0..10).map(|_| ask(None))).await;
            let counted = |status| answers.iter().filter(|answer| answer.status == status).count();
            let statuses = [StatusCode::OK, StatusCode::CONFLICT].map(counted);
            assert_eq!(statuses, [1, 9], "{answers:?}");
            assert_eq!(volumes.sizes(), [DRIVE_MB]);
            cloud.delete(&one).await.ok();
            until_kept(&volumes, &[]).await;
        }
    }
}
