//! What a stream costs while it is open.

use super::asker::{Asker, Question};
use crate::cloud::Cloud;
use crate::report::Report;
use anyhow::Context as _;
use futures_util::future::try_join_all;
use std::rc::Rc;
use std::time::Duration;

const STREAMS: usize = 1_000;
/// How many open at the same time.
const AT_ONCE: usize = 50;
/// Long enough for some tokens on each.
const FOLLOWED: Duration = Duration::from_secs(5);

pub(crate) async fn measure(
    report: &mut Report,
    cloud: &Cloud,
    question: Question,
) -> anyhow::Result<()> {
    let question = Rc::new(question);
    let before = cloud.process().resident_bytes()?;
    let mut open = Vec::new();
    while open.len() < STREAMS {
        let each = (0..AT_ONCE).map(|_| async {
            let mut asker = Asker::connect(&question).await?;
            asker.begin().await.context("a stream did not begin")?;
            anyhow::Ok(asker)
        });
        open.extend(try_join_all(each).await?);
    }
    try_join_all(open.iter_mut().map(|asker| asker.follow(FOLLOWED))).await?;
    let after = cloud.process().resident_bytes()?;
    let each = after.saturating_sub(before) as f64 / STREAMS as f64;
    report.add("memory_per_stream_kib", each / 1024.0, "KiB");
    Ok(())
}
